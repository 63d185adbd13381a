"""Which numbers halves hold."""

from __future__ import annotations

import numpy as np

HALF_MAX = 65504.0
"""The largest number of half."""
HALF_NORMAL = 2.0**-14
"""The number below which halves lose a digit with each factor of two, down to `HALF_TINY`."""
HALF_TINY = 2.0**-24
"""The smallest number of half."""


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
    largest = max(float(value.max()), -float(value.min()))
    if not np.isfinite(largest):  # infinities are those of half too
        finite = value[np.isfinite(value)]
        largest = float(np.abs(finite).max()) if finite.size else 0.0
    return largest
