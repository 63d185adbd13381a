"""A sum of two quantised tensors as a x + b y + c, shifted: proven on all pairs of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.high_product import factors_of
from adrenoc.firmware.mcu.operators import Sum
from adrenoc.firmware.mcu.requantise import requantise

_SHIFTS = tuple(range(23, 11, -1))
_OPEN = 1 << 40
_FAR = 1 << 12


@dataclass(frozen=True, kw_only=True)
class SumProduct:
    """(first x + second y + offset) >> shift, clamped, is the sum's own rule."""

    first: int
    second: int
    offset: int
    shift: int


def sum_product(operator: Sum) -> SumProduct:
    """Return the factors of a sum.

    Raises:
        RefusedError: there are none, as where halves occur on both sides of zero.
    """
    out = results_of(operator)
    scale = float(factors_of(operator.requantise)[0])
    # A table is a line but for rounding.
    slopes = [float(table[-1] - table[0]) / 255.0 * scale for table in operator.tables]
    for shift in _SHIFTS:
        found = _fit_factors(out, slopes, shift, operator.requantise.low, operator.requantise.high)
        if found is not None:
            return found
    raise RefusedError("no line gives the sum's two roundings")


def results_of(operator: Sum) -> np.ndarray:
    """Return what a sum is for each pair of numbers, from -128 on."""
    if operator.wanted is not None:
        return operator.wanted
    first, second = (table.astype(np.int64) for table in operator.tables)
    return requantise(first[:, None] + second[None, :], operator.requantise)


def _fit_factors(
    out: np.ndarray, slopes: list[float], shift: int, low: int, high: int
) -> SumProduct | None:
    """Return the factors for one shift, and an offset in the middle of those that fit."""
    x = np.arange(-128, 128)
    first, second = (round(slope * 2.0**shift) for slope in slopes)
    sums = first * x[:, None] + second * x[None, :]
    from_ = int(np.max((out << shift) - sums, where=out > low, initial=-_OPEN))
    below = int(np.min((out + 1 << shift) - sums, where=out < high, initial=_OPEN))
    if from_ >= below:
        return None
    from_ = max(from_, below - _FAR)
    offset = (from_ + min(below, from_ + _FAR) - 1) // 2
    if abs(offset) + int(np.abs(sums).max()) >= 1 << 31:
        return None
    return SumProduct(first=first, second=second, offset=offset, shift=shift)
