"""Which numbers halves hold."""

from __future__ import annotations

import weakref

import numpy as np

HALF_MAX = 65504.0
"""The largest number of half."""
HALF_NORMAL = 2.0**-14
"""The number below which halves lose a digit with each factor of two, down to `HALF_TINY`."""
HALF_TINY = 2.0**-24
"""The smallest number of half."""


_SIGN, _INFINITE = 0x8000, 0x7C00
_seen: dict[int, tuple[weakref.ref[np.ndarray], tuple[float, float]]] = {}
"""The ranges of constants that are alive, by their place: each pass asks for them again."""


def range_of(value: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest number of a constant that has some; NaN where one is.

    A constant is read once for it, as long as it lives; nobody writes to one.
    """
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
    """The largest size of a constant's numbers along axes; NaN where one is."""
    if value.dtype == np.float16 and axes:
        sizes = (value.view(np.uint16) & (_SIGN - 1)).max(axis=axes)
        return np.asarray(sizes).view(np.float16)
    return np.maximum(value.max(axis=axes), -value.min(axis=axes))


def explain_not_half(value: np.ndarray, growth: float = 1.0) -> str:
    """Why halves cannot hold a constant, empty where they can.

    Only its largest finite number counts: what is smaller is as exact as the sum that it is for.
    `growth` is how many times larger than it numbers are that are computed of the constant.
    """
    if value.dtype.kind != "f" or value.dtype.itemsize <= 2 or not value.size:
        return ""
    largest = largest_of(value)
    if largest * growth > HALF_MAX:
        return f"its largest value is {largest:.3g}: half ends at {HALF_MAX:.0f}"
    if 0 < largest < HALF_NORMAL:
        return f"its largest value is {largest:.3g}: half loses digits below {HALF_NORMAL:.2g}"
    return ""


def largest_of(value: np.ndarray) -> float:
    """The largest size of a constant's finite numbers, 0 where there are none."""
    low, high = range_of(value)
    largest = max(high, -low)
    if not np.isfinite(largest):  # infinities are those of half too
        finite = value[np.isfinite(value)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
    return largest


def changes_in_half(value: np.ndarray | None) -> bool:
    """Whether halves change a constant; they keep the integers that quantised weights are."""
    if value is None or value.dtype != np.float32:
        return False
    with np.errstate(over="ignore"):
        return not np.array_equal(value.astype(np.float16).astype(np.float32), value)
