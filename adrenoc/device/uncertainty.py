"""Tell how exactly the reference knows an output, number by number.

Kernels of models that round to whole numbers do so each in their own way, and what a sum's last
digit decides may be a whole quantum, which later layers multiply.  What the reference gives for
numbers one float step away is as right as what it gave: between those results a number of ours may
lie.  That excuses the numbers that move, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray

_FLOAT_STEPS = 8
"""Sums in another order differ by some steps of their largest number."""
_BEYOND_ITS_WIDTH = 0.5
"""How far one more result may lie outside of the others, which are so far apart."""
_BEYOND_ONE_MORE = 1.5
"""By how much one more draw of the same noise may be beyond what the others were."""
_DEVIATIONS = 2.0
"""Standard deviations by which a small count of chance events may be beyond the mean."""
ONE = 1 + 1e-5
"""Floats that are multiples of a quantum are not quite that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """What the reference leaves open of one output.

    `step` is one quantum of it where the model states one (`step_is` says so), else a step of half
    at its largest number, or eight of float.  `others` are what other kernels of the reference give
    on the same numbers, `moved` what it gives on numbers one float step away; of its shape all.  A
    model that `rounds` by itself has roundings that fall otherwise anywhere.
    """

    step: float = 0.0
    step_is: str = ""
    rounds: bool = False
    others: tuple[Array, ...] = ()
    moved: tuple[Array, ...] = ()

    def spread(self, expected: Array) -> float:
        """Return the largest difference between any two of the reference's results for one
        number."""
        return float(_interval(self._all(expected))[1].max(initial=0.0))

    def widths(self, expected: Array) -> Array:
        """Return how far the reference's results for each number are apart."""
        return _interval(self._all(expected))[1]

    def excuse(self, seen: Array, expected: Array, *, least: float, labels: bool) -> str:
        """Return why numbers more than `least` from what is expected are no error; empty where one
        is.

        Of `labels` each is right or wrong by itself: wrong is what no result of the reference has,
        and `least` the share that may be.
        """
        import numpy as np

        error = np.abs(seen.astype(np.float64) - expected)
        if not labels and float(error.max(initial=0.0)) <= self.step * ONE:
            return f"within {self.step_is}, {self.step:.3g}"
        draws = self._all(expected)
        if len(draws) == 1 or self.tells_nothing(expected, labels=labels):
            return ""
        ours = _Strange.from_result(seen, draws, least, labels=labels)
        usual = [
            _Strange.from_result(draw, [*draws[:at], *draws[at + 1 :]], least, labels=labels)
            for at, draw in enumerate(draws)
            if at > len(self.others)
        ]
        few = labels and ours.fresh.size + ours.further.size <= least * error.size
        if not few and not ours.is_like(usual, anywhere=self.rounds):
            return ""
        wrong = int(np.count_nonzero(error > (0 if labels else least)))
        return (
            f"{wrong} of {error.size} numbers lie where the reference's own do that are computed "
            "by its other kernels, or of numbers moved by one float step"
        )

    def tells_nothing(self, expected: Array, *, labels: bool) -> bool:
        """Return whether the reference is off itself by all that there is: anything would be near
        it."""
        import numpy as np

        if labels:
            return False
        width = self.widths(expected)
        finite = expected[np.isfinite(expected)].astype(np.float64)
        noise, signal = np.sqrt(np.mean(width**2)), np.std(finite) if finite.size else 0.0
        return bool(0 < signal <= noise)

    def _all(self, expected: Array) -> list[Array]:
        """All results, the expected one first; where one is no number, the expected stands in."""
        import numpy as np

        wide = expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            draws = [d.astype(np.float64) for d in (*self.others, *self.moved)]
        return [wide, *(np.where(np.isfinite(draw), draw, wide) for draw in draws)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Strange:
    """How far a result lies outside of all others, where it is more than one more may lie.

    `fresh` where the others agree, `further` where they do not.
    """

    fresh: Array
    further: Array

    @classmethod
    def from_result(
        cls, seen: Array, others: Sequence[Array], least: float, *, labels: bool
    ) -> _Strange:
        import numpy as np

        if labels:
            missed = np.logical_and.reduce([seen != other for other in others])
            agreed = np.logical_and.reduce([others[0] == other for other in others])
            counts = int(np.sum(missed & agreed)), int(np.sum(missed & ~agreed))
            return cls(fresh=np.ones(counts[0]), further=np.ones(counts[1]))
        low, width = _interval(others)
        with np.errstate(invalid="ignore"):
            over = np.nan_to_num(np.maximum(low - seen, seen - (low + width)))
        over[~np.isfinite(low)] = 0.0  # what is infinite on both sides
        strange = over > least + width * _BEYOND_ITS_WIDTH
        return cls(fresh=over[strange & (width <= least)], further=over[strange & (width > least)])

    def is_like(self, usual: Sequence[_Strange], *, anywhere: bool) -> bool:
        """Return whether as many numbers lie outside, and as far, as of the reference's own
        results; those that the others agree about where they may be `anywhere` alone."""
        fresh = [one.fresh for one in usual] if anywhere else []
        return _is_usual(self.fresh, fresh) and _is_usual(
            self.further, [one.further for one in usual]
        )


def _is_usual(found: Array, usual: Sequence[Array]) -> bool:
    """Return whether one more draw may have found so many; what is of one draw alone is left out.

    One row that flips is found by the draw that flips it, and excuses no other row.
    """
    if not found.size:
        return True
    rest = sorted(usual, key=lambda one: one.size)[:-1]
    mean = sum(one.size for one in rest) / max(1, len(rest))
    largest = max((float(one.max(initial=0.0)) for one in rest), default=0.0)
    most = _BEYOND_ONE_MORE * mean + _DEVIATIONS * mean**0.5
    return found.size <= most and float(found.max()) <= _BEYOND_ONE_MORE * largest


def _interval(draws: Sequence[Array]) -> tuple[Array, Array]:
    """Return the least of some results for each number, and how far they are apart."""
    import numpy as np

    low, high = np.minimum.reduce(draws), np.maximum.reduce(draws)
    with np.errstate(invalid="ignore"):
        return low, np.where(low == high, 0.0, np.nan_to_num(high - low))


def step_of(expected: Array, quantum: float) -> tuple[float, str]:
    """Return the step of an output of this `quantum` (0: none), and in words what it is."""
    import numpy as np

    if quantum:
        return quantum, "one quantum"
    if expected.dtype == np.float16:
        return _steps(expected, 1), "one step of half at its largest number"
    if expected.dtype == np.float32:
        return _steps(expected, _FLOAT_STEPS), "eight float steps of its largest number"
    return 0.0, ""


def _steps(array: Array, count: int) -> float:
    """So many steps from its largest number to the next ones."""
    import numpy as np

    zero = array.dtype.type(0)
    largest = np.abs(array[np.isfinite(array)]).max(initial=zero)
    return count * float(largest - np.nextafter(largest, zero))
