"""What is certain of numbers without running the model: the ends that none passes, and whether all
are whole."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The least and the greatest that numbers can be."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def most(self) -> float:
        """The largest size that one can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def of_sign(self) -> Interval:
        """What is left where numbers are scaled or added up: on which side of zero they lie."""
        return Interval(0.0 if self.low >= 0 else -math.inf, 0.0 if self.high <= 0 else math.inf)

    def plus(self, other: Interval) -> Interval:
        """Return the interval that sums of the two lie in."""
        return _interval(self.low + other.low, self.high + other.high)

    def negate(self) -> Interval:
        """Return the interval that the negated numbers lie in."""
        return Interval(-self.high, -self.low)

    def times(self, other: Interval) -> Interval:
        """Return the interval that products lie in."""
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        if any(map(math.isnan, ends)):  # nothing times no end
            return self.of_sign.times_of_sign(other.of_sign)
        return Interval(min(ends), max(ends))

    def times_of_sign(self, other: Interval) -> Interval:
        """Return the interval of products and quotients, of which only the sign is known."""
        signs = [(one.low >= 0, one.high <= 0) for one in (self, other)]
        (above, below), (others_above, others_below) = signs
        alike = (above and others_above) or (below and others_below)
        unlike = (above and others_below) or (below and others_above)
        return Interval(0.0 if alike else -math.inf, 0.0 if unlike else math.inf)

    def either(self, other: Interval) -> Interval:
        """Return what holds for a choice of the two: it covers both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


ANY = Interval()
FROM_ZERO = Interval(low=0.0)


def _interval(low: float, high: float) -> Interval:
    return Interval(-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of the numbers of a tensor, or of a part of an expression."""

    interval: Interval = ANY
    whole: bool = False
    """Whether all are whole numbers."""


NOTHING = Known()
