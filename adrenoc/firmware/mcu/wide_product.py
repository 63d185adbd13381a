"""One multiplication in 64 bits in place of a rule in floats, with the same steps."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.operators import Requantise
from adrenoc.firmware.mcu.requantise import fitted_slopes, offsets_for, staircase

_BITS = 31
_MOST_SHIFT = 54


def one_product(
    rule: Requantise, least: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers, shifts and offsets of 64 bits that give a rule, for sums from least to most.

    Raises:
        RefusedError: no product in 64 bits takes the same steps.
    """
    reals = rule.reals.astype(np.float64)
    _, exponents = np.frexp(reals)
    shifts = np.clip(_BITS - exponents, 1, _MOST_SHIFT).astype(np.int64)
    multipliers = np.round(np.ldexp(reals, shifts)).astype(np.int64)
    stairs = staircase(rule, least, most)
    multipliers = fitted_slopes(stairs, multipliers, shifts)
    fits = (multipliers < 1 << _BITS).all()
    first, below = offsets_for(stairs, multipliers, shifts)
    if not fits or not (first < below).all():
        raise RefusedError("factors whose rounding no product of 64 bits gives")
    return multipliers, shifts, _middle(first, below)


def _middle(from_: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return a number of each interval, near its middle, and small where it is open."""
    return np.where(
        from_ < -(1 << 60), below - 1, np.where(below > 1 << 60, from_, (from_ + below - 1) >> 1)
    )
