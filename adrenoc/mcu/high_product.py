"""One multiplication in place of two roundings: constants that give the same bits, proven.

What is computed is (((sum + nudge) * multiplier + offset * 2^32 + 2^31) >> 32) >> shift, which the
DSP extension has in two instructions.  The rule's staircase bounds the constant part of that; a
nudge of the bias moves it between the steps of `offset`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.mcu.network import Convolution, Depthwise, Requantise
from adrenoc.mcu.requantise import offsets_for, staircase
from adrenoc.mcu.sums import sum_range

_HIGH = 32
_MOST_SHIFT = 20
_WINDOW = 1 << 40
"""Beyond this, an interval of offsets is as good as open."""
_NUDGES = (1 << 9, 1 << 13, 1 << 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class HighProduct:
    """Constants for each channel, and one shift for all; `nudges` are to be added to the bias."""

    multipliers: np.ndarray
    offsets: np.ndarray
    nudges: np.ndarray
    shift: int


def high_product(operator: Convolution | Depthwise) -> HighProduct:
    """The constants for a filter's rule.

    Raises:
        NotImplementedError: there are none, with the reason.
    """
    rule = operator.requantise
    least, most = sum_range(operator)
    factors = factors_of(rule)
    biggest = float(factors.max(initial=2.0**-60))
    shift = min(_MOST_SHIFT, -1 - int(np.frexp(biggest)[1]))
    if round(biggest * 2.0 ** (_HIGH + shift)) >= 1 << 31:
        shift -= 1
    if shift < 1:
        raise NotImplementedError(f"a factor of {biggest:.3g} leaves no bits to shift")
    multipliers = np.round(factors * 2.0 ** (_HIGH + shift)).astype(np.int64)
    stairs = staircase(rule, least, most)
    from_, below = offsets_for(stairs, multipliers, _HIGH + shift)
    from_, below = np.maximum(from_, below - _WINDOW), np.minimum(below, from_ + _WINDOW)
    if (from_ >= below).any():
        raise NotImplementedError("no single product takes the same steps in each channel")
    nudges, offsets = _nudged(multipliers, from_, below)
    largest = np.maximum(np.abs(least + nudges), np.abs(most + nudges))
    high = (largest * multipliers >> _HIGH) + np.abs(offsets) + 1
    if (high >= 1 << 31).any() or (largest >= 1 << 31).any():
        raise NotImplementedError("sums that leave 32 bits")
    return HighProduct(multipliers=multipliers, offsets=offsets, nudges=nudges, shift=shift)


def factors_of(rule: Requantise) -> np.ndarray:
    """The real factors that a rule rounds in its way."""
    if rule.reals.size:
        return rule.reals
    return np.ldexp(rule.multipliers.astype(np.float64), (rule.shifts - 31).astype(np.int32))


def _nudged(
    multipliers: np.ndarray, from_: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest nudge of each channel with which a whole offset meets its interval."""
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
        raise NotImplementedError("no nudge of the bias meets the steps of each channel")
    return nudges, offsets
