"""Which numbers halves hold, and constants in the dtype that they are stored in."""

import weakref
from dataclasses import dataclass

import numpy as np

from adrenoc.bundle.params import FilterTransform
from adrenoc.ir.program import Matrix

HALF_MAX = 65504.0
HALF_NORMAL = 2.0**-14
"""The number below which halves lose a digit with each factor of two, down to `HALF_TINY`."""
HALF_TINY = 2.0**-24


_SIGN, _INFINITE = 0x8000, 0x7C00
_BITS = {"float16": np.uint16, "float32": np.uint32}
"""Sizes are ordered as their bits are, which NumPy compares many at a time."""
_seen: dict[int, tuple[weakref.ref[np.ndarray], tuple[float, float]]] = {}
"""The ranges of constants that are alive, by their place: each pass asks for them again."""


def range_of(value: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest number of a constant that has some; NaN where one is.  A
    constant is read once for it, as long as it lives; nobody writes to one."""
    key = id(value)
    known = _seen.get(key)
    if known is not None and known[0]() is value:
        return known[1]
    found = _find_range(value)
    _seen[key] = weakref.ref(value, lambda _: _seen.pop(key, None)), found
    return found


def _find_range(value: np.ndarray) -> tuple[float, float]:
    if value.dtype == np.float16:
        # As bits, which NumPy compares eight at a time and halves one by one: those with a sign are
        # the larger the further they are below zero.
        bits = value.view(np.uint16)
        largest, least = int(bits.max()), int(bits.min())
        most = int(value.view(np.int16).max())
        if largest <= _SIGN | _INFINITE and most <= _INFINITE:
            low = largest if largest >= _SIGN else least
            high = most if most >= 0 else least
            return _half_of(low), _half_of(high)
    return float(value.min()), float(value.max())


def _half_of(bits: int) -> float:
    return float(np.uint16(bits).view(np.float16))


def largest_by_axes(value: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the largest size of a constant's numbers along axes; NaN where one is."""
    bits = _BITS.get(str(value.dtype))
    if bits is None:
        return np.maximum(value.max(axis=axes), -value.min(axis=axes).astype(np.float64))
    sizes = value.view(bits) & np.iinfo(bits).max >> 1
    if axes:  # the longest first: NumPy goes along the others, and not over a few taps at a time
        sizes = sizes.max(axis=max(axes, key=lambda axis: value.shape[axis]), keepdims=True)
    return np.asarray(sizes.max(axis=axes)).view(value.dtype)


def explain_not_half(value: np.ndarray, growth: float = 1.0) -> str:
    """Why halves cannot hold a constant, empty where they can.  Only its largest finite number
    counts: what is smaller is as exact as the sum that it is for.  `growth` is how many times
    larger than it numbers are that are computed of the constant."""
    if value.dtype.kind != "f" or value.dtype.itemsize <= 2 or not value.size:
        return ""
    largest = largest_of(value)
    if largest * growth > HALF_MAX:
        return f"its largest value is {largest:.3g}: half ends at {HALF_MAX:.0f}"
    if 0 < largest < HALF_NORMAL:
        return f"its largest value is {largest:.3g}: half loses digits below {HALF_NORMAL:.2g}"
    return ""


def largest_of(value: np.ndarray) -> float:
    """Return the largest size of a constant's finite numbers, 0 where there are none."""
    low, high = range_of(value)
    largest = max(high, -low)
    if not np.isfinite(largest):  # infinities are those of half too
        finite = value[np.isfinite(value)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
    return largest


def changes_in_half(value: np.ndarray | None) -> bool:
    """Return whether halves change a constant; they keep the integers of quantised weights."""
    if value is None or value.dtype != np.float32:
        return False
    with np.errstate(over="ignore"):
        return not np.array_equal(value.astype(np.float16).astype(np.float32), value)


PART_ELEMENTS = 1 << 16
"""Elements of a constant that are computed with at a time: in double precision they stay in a
cache, and what they become is not held whole beside what is stored."""

_HALF_INFINITE = np.float16(np.inf).view(np.uint16) << 1
"""The bits of an infinite half without its sign."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounded:
    """A constant as it is stored, and how many finite numbers became infinite.  `largest` is the
    largest of all finite numbers, 0 where none became infinite."""

    value: np.ndarray
    lost: int
    largest: float


def round_constant(constant: np.ndarray, dtype: str, transform: Matrix | None = None) -> Rounded:
    """Return a constant as `dtype`, or what `transform` makes of its filters of that dtype.  What
    is rounded first is what a direct convolution multiplies by: a bundle for several GPUs holds it
    once for both."""
    if transform is None:
        return _round(constant, dtype)
    filters = FilterTransform.from_matrix(transform)
    rows = max(1, PART_ELEMENTS * len(constant) // max(constant.size, 1))
    value: np.ndarray | None = None
    lost, largest = 0, 0.0
    for begin in range(0, len(constant), rows):
        plain = _round(constant[begin : begin + rows], dtype)
        made = _round(filters.apply(plain.value), dtype)
        if value is None:
            value = np.empty((len(constant), *made.value.shape[1:]), made.value.dtype)
        value[begin : begin + rows] = made.value
        lost += plain.lost + made.lost
        largest = max(largest, plain.largest, made.largest)
    if value is None:  # no rows
        return _round(filters.apply(constant), dtype)
    return Rounded(value=value, lost=lost, largest=largest)


def round_sizes(constant: np.ndarray, dtype: str, transform: Matrix | None = None) -> Rounded:
    """Return the same with zeros in no memory for its numbers, where none becomes infinite."""
    side, growth = constant.shape[-2:], 1.0
    if transform is not None:
        side = (len(transform), len(transform))
        growth = float(max(sum(map(abs, row)) for row in transform)) ** 2
    if dtype == "float16" and constant.size and largest_of(constant) * growth > HALF_MAX:
        return round_constant(constant, dtype, transform)
    zeros = np.broadcast_to(np.zeros((), dtype), (*constant.shape[:-2], *side))
    return Rounded(value=zeros, lost=0, largest=0.0)


def _round(value: np.ndarray, dtype: str) -> Rounded:
    with np.errstate(over="ignore"):
        stored = value.astype(dtype, copy=False)
    lost = 0
    if dtype == "float16":
        # As bits: of halves NumPy makes floats one by one to ask whether they are infinite.
        infinite = stored.view(np.uint16) << 1 == _HALF_INFINITE
        lost = int(np.count_nonzero(infinite & np.isfinite(value))) if infinite.any() else 0
    largest = float(np.abs(value[np.isfinite(value)]).max()) if lost else 0.0
    return Rounded(value=stored, lost=lost, largest=largest)
