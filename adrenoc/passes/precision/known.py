"""What is known of numbers without running the model: one value, of a tensor or part of a body.

All of it holds together and is found in one walk (`analysis.py`): the ends that no number passes,
whether all are whole, about how large they are by the factors that formulas state, whether a
formula may bring them far beyond that, the sizes of single channels, and what they are ratios of.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.ir.half import HALF_MAX, HALF_NORMAL

_VAST = 1e30
"""Sizes stay between one over this and this: products of them are numbers."""


@dataclass(frozen=True)
class Interval:
    """The least and the greatest that numbers can be."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def never_negative(self) -> bool:
        """Whether none is below zero."""
        return self.low >= 0

    @property
    def never_positive(self) -> bool:
        """Whether none is above zero."""
        return self.high <= 0

    @property
    def most(self) -> float:
        """The largest size that one can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def of_sign(self) -> Interval:
        """What is left where numbers are scaled or added up: on which side of zero they lie."""
        return Interval(0.0 if self.low >= 0 else -math.inf, 0.0 if self.high <= 0 else math.inf)

    def plus(self, other: Interval) -> Interval:
        """The interval that sums of the two lie in."""
        return _interval(self.low + other.low, self.high + other.high)

    def negate(self) -> Interval:
        """The interval that the negated numbers lie in."""
        return Interval(-self.high, -self.low)

    def times(self, other: Interval) -> Interval:
        """The interval of products and quotients, of which only the sign is known."""
        below, above = self.never_positive, self.never_negative
        alike = (above and other.never_negative) or (below and other.never_positive)
        unlike = (above and other.never_positive) or (below and other.never_negative)
        return Interval(0.0 if alike else -math.inf, 0.0 if unlike else math.inf)

    def either(self, other: Interval) -> Interval:
        """What holds for a choice of the two: it covers both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


ANY = Interval()
FROM_ZERO = Interval(low=0.0)


def _interval(low: float, high: float) -> Interval:
    return Interval(-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)


@dataclass(frozen=True)
class Size:
    """The sizes of numbers, from that of the smallest ones to that of the largest.

    Data is taken to be about one.  Factors multiply, of a sum the largest term counts, and what is
    picked out of several has the sizes of all of them.
    """

    least: float = 1.0
    most: float = 1.0

    @property
    def beyond_half(self) -> str:
        """Why halves cannot hold such numbers, empty where they can."""
        if self.most > HALF_MAX:
            return f"factors make it about {self.most:.1g}: half ends at {HALF_MAX:.0f}"
        if self.least < HALF_NORMAL:
            digits = f"half loses digits below {HALF_NORMAL:.2g}"
            return f"factors make it about {self.least:.1g}: {digits}"
        return ""

    def times(self, other: Size) -> Size:
        """The size of products."""
        return Size(_clip_vast(self.least * other.least), _clip_vast(self.most * other.most))

    def divide(self, other: Size) -> Size:
        """The size of quotients."""
        return Size(_clip_vast(self.least / other.most), _clip_vast(self.most / other.least))

    def power(self, exponent: float) -> Size:
        """The size of powers with a small exponent."""
        ends = (math.log(self.least) * exponent, math.log(self.most) * exponent)
        limit = math.log(_VAST)
        return Size(math.exp(max(-limit, min(ends))), math.exp(min(limit, max(ends))))

    def plus(self, other: Size) -> Size:
        """The size of sums, and of the larger of two."""
        return Size(max(self.least, other.least), max(self.most, other.most))

    def clip(self, bound: float) -> Size:
        """The size of numbers that are cut off at a bound on both sides."""
        bound = _clip_vast(bound)
        return Size(min(self.least, bound), min(self.most, bound))

    def cover(self, other: Size) -> Size:
        """What holds for a choice of the two: it covers both."""
        return Size(min(self.least, other.least), max(self.most, other.most))


ONE = Size()


def size_of_number(value: float) -> Size:
    """The size of one number, which is not zero."""
    return Size(_clip_vast(abs(value)), _clip_vast(abs(value)))


def _clip_vast(value: float) -> float:
    return min(max(value, 1 / _VAST), _VAST)


@dataclass(frozen=True)
class Ends:
    """Whether a formula may bring numbers far above zero, and far below, and by what."""

    up: bool = False
    down: bool = False
    why: str = ""

    def __bool__(self) -> bool:
        return self.up or self.down

    @property
    def both(self) -> Ends:
        """The ends of a number of unknown sign: what may be at the one may be at the other."""
        return Ends(bool(self), bool(self), self.why)

    def join(self, other: Ends, *, up: bool, down: bool) -> Ends:
        """Join both ends, for a reason that one of the two has."""
        return Ends(up, down, (self.why or other.why) if up or down else "")


NEITHER = Ends()


def any_of(ends: Iterable[Ends]) -> Ends:
    """The ends that any branch of a choice may reach."""
    return functools.reduce(
        lambda a, b: a.join(b, up=a.up or b.up, down=a.down or b.down), ends, NEITHER
    )


@dataclass(frozen=True, eq=False)
class Channels:
    """The sizes of single channels: one for each index of `axis`, or one number of all."""

    sizes: np.ndarray | float = 1.0
    axis: int | None = None
    way: tuple[str, ...] = ()
    """The tensors that they came by."""

    @property
    def uneven(self) -> bool:
        """Whether some channels alone of what is computed are too small for half."""
        if not self.way:
            return False
        tiny = np.asarray(self.sizes) < HALF_NORMAL
        return bool(tiny.any() and not tiny.all())

    def times(self, other: Channels) -> Channels:
        """The channels of products."""
        return self._combine(other, np.multiply)

    def divide(self, other: Channels) -> Channels:
        """The channels of quotients."""
        return self._combine(other, lambda a, b: a / np.maximum(b, 1 / _VAST))

    def plus(self, other: Channels) -> Channels:
        """The channels of sums, and of the larger or smaller of two."""
        return self._combine(other, np.maximum)

    def _combine(self, other: Channels, combine: Callable[[Any, Any], Any]) -> Channels:
        """Along one axis; a second one is not looked along."""
        if None not in (self.axis, other.axis) and self.axis != other.axis:
            other = SAME
        return Channels(
            combine(self.sizes, other.sizes), other.axis if self.axis is None else self.axis
        )


SAME = Channels()


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What is known of the numbers of a tensor, or of a part of an expression."""

    interval: Interval = ANY
    above_zero: bool = False
    """Whether a formula keeps all of them above zero, as an exponential does: they may be alike."""
    whole: bool = False
    """Whether all are whole numbers."""
    size: Size | None = ONE
    """About how large they are; None: zero."""
    hides: bool = False
    """Whether they are far below zero where they are not zero, and hide what they are added to."""
    ends: Ends = NEITHER
    floor: float | None = None
    """The small number that keeps a denominator from zero, where the formula shows one."""
    channels: Channels = SAME
    reads: frozenset[str] = frozenset()
    """The tensors that a part reads; of a tensor none."""
    factors: frozenset[str] = frozenset()
    """The tensors among those read that the expression multiplies, or keeps apart from a number."""
    is_product: bool = False
    """Whether they are products of two tensors, or sums of such."""
    is_inverse: bool = False
    """Whether they are one over what is computed."""
    inverts_product: bool = False


NOTHING = Known()
