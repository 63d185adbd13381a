"""From sums to numbers of a tensor: the rule itself, its steps, and products of equal steps.

The rule is a staircase that never falls, so it is known by its thresholds: the least sum that
gives each output.  Any arithmetic with the same thresholds, over all sums that can occur, is the
same rule.  That is how one multiplication replaces two roundings without changing a bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.firmware.mcu.fixed_point import scale, scale_by_fifteen_bits
from adrenoc.firmware.mcu.operators import Requantise

_MOST = 1 << 31
_NOWHERE = 1 << 61
_TILT = 4
_MOST_TILT = 100


def requantise(sums: np.ndarray, rule: Requantise) -> np.ndarray:
    """Sums with channels last as numbers of a tensor."""
    if not rule.wide:
        sums = sums.astype(np.int32).astype(np.int64)  # they go around, as in the kernels
    if rule.reals.dtype == np.float32:
        out = np.rint(sums.astype(np.float32) * rule.reals)
        out = np.clip(out, -_MOST, _MOST - 1).astype(np.int64)
    elif rule.reals.size:
        real = sums.astype(np.float64) * rule.reals
        whole = np.trunc(real)
        out = whole + np.sign(real) * (np.abs(real - whole) >= 0.5)
        out = np.clip(out, -_MOST, _MOST - 1).astype(np.int64)
    elif rule.wide:
        out = scale_by_fifteen_bits(sums, rule.multipliers, rule.shifts)
    else:
        out = scale(sums, rule.multipliers, rule.shifts)
    return np.clip(out + rule.zero, rule.low, rule.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Staircase:
    """The rule of each channel, over the sums that can occur there.

    `thresholds[c, k]` is the least sum from `least[c]` on that gives `low + 1 + k` or more in
    channel c, and `most[c] + 1` where none does.
    """

    thresholds: np.ndarray
    least: np.ndarray
    most: np.ndarray
    low: int


def staircase(rule: Requantise, least: np.ndarray, most: np.ndarray) -> Staircase:
    """Return the thresholds of a rule, by bisection, for sums from `least` to `most` of each
    channel."""
    steps = np.arange(rule.low + 1, rule.high + 1)
    bottom = np.tile(least.astype(np.int64), (len(steps), 1))
    top = np.tile(most.astype(np.int64) + 1, (len(steps), 1))
    while (bottom < top).any():
        middle = (bottom + top) >> 1
        reached = requantise(middle, rule) >= steps[:, None]
        going = bottom < top
        top = np.where(going & reached, middle, top)
        bottom = np.where(going & ~reached, middle + 1, bottom)
    return Staircase(thresholds=bottom.T, least=least, most=most, low=rule.low)


def fitted_slopes(
    stairs: Staircase, multipliers: np.ndarray, shift: np.ndarray | int
) -> np.ndarray:
    """Return the multipliers, moved a little where no offset fits: float32 rounds halves
    unevenly."""
    found = multipliers.astype(np.int64).copy()
    for reach in range(1, _MOST_TILT + 1):
        first, below = offsets_for(stairs, found, shift)
        misfit = first >= below
        if not misfit.any():
            break
        # 1, -1, 2, -2 ... units from the nearest multiplier.
        step = (reach + 1) // 2 * (1 if reach % 2 else -1)
        found = np.where(misfit, np.maximum(multipliers + step * _TILT, 0), found)
    return found


def offsets_for(
    stairs: Staircase, multipliers: np.ndarray, shift: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets r, from the first to below the second, with which products take equal
    steps.

    The product is (sum * multiplier + r) >> shift of each channel, then clamped.  Nothing fits a
    channel where the first is not below the second.  `shift` is at most 54.
    """
    count = stairs.thresholds.shape[1]
    steps = np.arange(stairs.low + 1, stairs.low + 1 + count, dtype=np.int64)[None, :]
    edges = steps << np.asarray(shift, np.int64).reshape(-1, 1)
    factors = multipliers.astype(np.int64)[:, None]
    met = stairs.thresholds <= stairs.most[:, None]
    missed = stairs.thresholds > stairs.least[:, None]
    from_ = np.where(met, edges - factors * stairs.thresholds, -_NOWHERE)
    below = np.where(missed, edges - factors * (stairs.thresholds - 1), _NOWHERE)
    return from_.max(1, initial=-_NOWHERE), below.min(1, initial=_NOWHERE)
