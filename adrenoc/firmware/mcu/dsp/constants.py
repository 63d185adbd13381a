"""The constants by which sums become bytes, for each channel, and the code that goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.dsp.assembly import Store
from adrenoc.firmware.mcu.high_product import high_product, sum_range
from adrenoc.firmware.mcu.operators import Convolution, Depthwise

_MOST_SHIFT = 23


@dataclass(frozen=True, kw_only=True, eq=False)
class Stored:
    """`bias` holds the input's zero point; `constants` has a row for each channel.

    `doubled` wants sums twice as large, and so the bias where weights cannot be doubled.
    """

    store: Store
    bias: np.ndarray
    constants: np.ndarray

    @property
    def doubled(self) -> bool:
        """Whether the code scales twice the sum."""
        return self.store.shift is None


@lru_cache(maxsize=1024)
def pack_constants(operator: Convolution | Depthwise) -> Stored:
    """One product where its constants can be had, else the rule's own two roundings.

    Raises:
        RefusedError: neither covers the rule, with the reason.
    """
    rule = operator.requantise
    weights = operator.weights.astype(np.int64)
    depthwise = isinstance(operator, Depthwise)
    weight_sums = weights.sum((0, 1)) if depthwise else weights.sum((1, 2, 3))
    bias = operator.bias - operator.zero_in * weight_sums
    for one_shift in (True, False):
        try:
            product = high_product(operator, one_shift=one_shift)
        except RefusedError:
            if not one_shift and rule.reals.dtype == np.float32:
                return _single(operator, bias)
            if not one_shift and rule.reals.size:
                raise
            continue
        columns = [product.multipliers, product.offsets, product.shifts]
        shift = int(product.shifts[0]) if one_shift else 0
        return Stored(
            store=Store(shift=shift, low=rule.low, high=rule.high),
            bias=bias + product.nudges,
            constants=np.stack(columns[:2] if one_shift else columns, 1),
        )
    return _twice(operator, bias)


def _single(operator: Convolution | Depthwise, bias: np.ndarray) -> Stored:
    """Return the rule's own product in float32, where no whole numbers round as it does."""
    rule = operator.requantise
    sum_range(operator)
    factors = rule.reals.view(np.int32).astype(np.int64)
    return Stored(
        store=Store(shift=1, low=rule.low, high=rule.high, single=True),
        bias=bias,
        constants=np.stack([factors, np.full(len(factors), rule.zero, np.int64)], 1),
    )


def _twice(operator: Convolution | Depthwise, bias: np.ndarray) -> Stored:
    rule = operator.requantise
    least, most = sum_range(operator)
    if max(-int(least.min()), int(most.max())) >= 1 << 30:
        raise RefusedError("sums beyond 31 bits")
    # A multiplier of zero gives the zero point with any shift.
    shifts = np.where(rule.multipliers == 0, 1, -rule.shifts)
    if (shifts < 1).any() or (shifts > _MOST_SHIFT).any():
        raise RefusedError(f"shifts of {shifts.min()} to {shifts.max()} bits")
    rounding = (np.int64(1) << (shifts - 1)) + (np.int64(rule.zero) << shifts)
    return Stored(
        store=Store(shift=None, low=rule.low, high=rule.high),
        bias=bias,
        constants=np.stack([rule.multipliers, rounding, shifts], 1),
    )
