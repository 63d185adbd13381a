"""One multiplication in place of two roundings: constants that give the same bits, proven.

What is computed is (((sum + nudge) * multiplier + offset * 2^32 + 2^31) >> 32) >> shift, which the
DSP extension has in two instructions.  The rule's staircase bounds the constant part of that; a
nudge of the bias moves it between the steps of `offset`.  The proof ranges over the sums that the
filter can come to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.errors import CompileError
from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.operators import Convolution, Depthwise, Requantise
from adrenoc.firmware.mcu.requantise import fitted_slopes, offsets_for, staircase

_HIGH = 32
_MOST_SHIFT = 20
_WINDOW = 1 << 40
"""Of an interval of offsets that is open on one side, or on both, so much is looked at."""
_LEAST_FACTOR = 2.0**-60
_NUDGES = (1 << 9, 1 << 13, 1 << 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class HighProduct:
    """Constants for each channel; `nudges` are to be added to the bias."""

    multipliers: np.ndarray
    offsets: np.ndarray
    nudges: np.ndarray
    shifts: np.ndarray


def high_product(operator: Convolution | Depthwise, *, one_shift: bool) -> HighProduct:
    """Return the constants for a filter's rule, with one shift for all channels or its own for
    each.

    Raises:
        RefusedError: there are none, with the reason.
    """
    rule = operator.requantise
    least, most = sum_range(operator)
    factors = np.maximum(factors_of(rule), _LEAST_FACTOR)
    shifts = np.minimum(_MOST_SHIFT, -1 - np.frexp(factors)[1]).astype(np.int64)
    shifts = shifts - (np.round(np.ldexp(factors, _HIGH + shifts)) >= 1 << 31)
    if one_shift:
        shifts = np.full_like(shifts, shifts.min(initial=_MOST_SHIFT))
    if (shifts < 1).any():
        raise RefusedError(f"a factor of {factors.max():.3g} leaves no bits to shift")
    multipliers = np.round(np.ldexp(factors_of(rule), _HIGH + shifts)).astype(np.int64)
    stairs = staircase(rule, least, most)
    multipliers = fitted_slopes(stairs, multipliers, _HIGH + shifts)
    from_, below = offsets_for(stairs, multipliers, _HIGH + shifts)
    from_ = np.where(below - from_ > 1 << 61, 0, np.maximum(from_, below - _WINDOW))
    below = np.minimum(below, from_ + _WINDOW)
    if (from_ >= below).any():
        raise RefusedError("no single product takes the same steps in each channel")
    nudges, offsets = _nudge(multipliers, from_, below)
    largest = np.maximum(np.abs(least + nudges), np.abs(most + nudges))
    high = (largest * multipliers >> _HIGH) + np.abs(offsets) + 1
    if (high >= 1 << 31).any() or (largest >= 1 << 31).any():
        raise RefusedError("sums that leave 32 bits")
    return HighProduct(multipliers=multipliers, offsets=offsets, nudges=nudges, shifts=shifts)


def factors_of(rule: Requantise) -> np.ndarray:
    """Return the real factors that a rule rounds in its way."""
    if rule.reals.size:
        return rule.reals.astype(np.float64)
    return np.ldexp(rule.multipliers.astype(np.float64), (rule.shifts - 31).astype(np.int32))


def _nudge(
    multipliers: np.ndarray, from_: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest nudge of each channel with which a whole offset meets its interval."""
    nudges = np.zeros_like(multipliers)
    offsets = np.zeros_like(multipliers)
    open_ = np.ones(len(multipliers), bool)
    for reach in _NUDGES:
        tried = np.arange(1, 2 * reach + 2) // 2 * np.where(np.arange(2 * reach + 1) % 2, -1, 1)
        for channel in np.nonzero(open_)[0]:
            moved = multipliers[channel] * tried + (1 << 31)
            offset = -((moved - from_[channel]) >> _HIGH)
            fits = (offset << _HIGH) + moved < below[channel]
            fits &= (offset << _HIGH) + moved >= from_[channel]
            if fits.any():
                first = int(fits.argmax())
                nudges[channel], offsets[channel] = tried[first], offset[first]
                open_[channel] = False
    if open_.any():
        raise RefusedError("no nudge of the bias meets the steps of each channel")
    return nudges, offsets


_MOST = (1 << 31) - 1


def sum_range(operator: Convolution | Depthwise) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest sum of each channel, with its bias, borders included.

    Raises:
        CompileError: a sum may overflow 32 bits.
    """
    if isinstance(operator, Depthwise):
        weights = operator.weights.reshape(-1, operator.weights.shape[-1]).T.astype(np.int64)
    else:
        weights = operator.weights.reshape(operator.weights.shape[0], -1).astype(np.int64)
    # A tap outside of the image adds nothing: as if it read the zero point, which is in range.
    low, high = -128 - operator.zero_in, 127 - operator.zero_in
    up, down = np.maximum(weights, 0).sum(1), np.minimum(weights, 0).sum(1)
    least = up * low + down * high + operator.bias
    most = up * high + down * low + operator.bias
    if max(-int(least.min()), int(most.max())) > _MOST:
        raise CompileError(
            "a layer's sums may grow beyond 32 bits, as no converter writes them",
            hint="convert the model again",
        )
    return least, most
