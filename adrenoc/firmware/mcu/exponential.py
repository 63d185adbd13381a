"""Exponentials of quantised differences, as the softmax of TFLite's reference kernels has them.

exp(-x) is a polynomial on a quarter, times a constant for each bit above it; everything is a
fraction of 31 bits.

Source: gemmlowp's fixed-point exponential; its constants are exp(-1/8), 1/3 and exp(-2^n).
"""

from __future__ import annotations

import math

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import doubling_high_product, multiplier_of, shifted_right

_INTEGER_BITS = 5
_ONE = (1 << 31) - 1
_QUARTER = 1 << 24
"""In numbers of five bits before the point and 26 behind it."""
_EIGHTH_POWER = 1895147668
_THIRD = 715827883
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-2^n) from n = -2 on."""


def exponentials(scale: float, beta: float) -> np.ndarray:
    """exp(beta * scale * d) for d = 0, -1 ... -255; zero where the reference leaves it out."""
    real = min(beta * scale * float(1 << (31 - _INTEGER_BITS)), float(_ONE))
    if real <= 1.0:
        raise RefusedError(f"a softmax of quanta as small as {beta * scale:.3g}")
    multiplier, shift = multiplier_of(real)
    radius = math.floor(float((1 << _INTEGER_BITS) - 1) * float(1 << 26) / float(1 << shift))
    steps = -np.arange(256, dtype=np.int64)
    inputs = doubling_high_product((steps << shift).clip(-(1 << 31)), multiplier)
    return np.where(-steps <= radius, _exponential(inputs), 0).astype(np.int32)


def _exponential(value: np.ndarray) -> np.ndarray:
    """exp of numbers of 26 bits behind the point, none above zero."""
    below = (value & (_QUARTER - 1)) - _QUARTER
    found = _near_zero(below << _INTEGER_BITS)
    left = below - value
    for bit, power in enumerate(_POWERS):
        found = np.where((left >> (24 + bit)) & 1, doubling_high_product(found, power), found)
    return np.where(value == 0, _ONE, found)


def _near_zero(value: np.ndarray) -> np.ndarray:
    """exp between -1/4 and 0: Taylor's series around -1/8."""
    x = value + (1 << 28)
    square = doubling_high_product(x, x)
    cube = doubling_high_product(square, x)
    fourth = shifted_right(doubling_high_product(square, square), 2)
    rest = shifted_right(doubling_high_product(fourth + cube, _THIRD) + square, 1)
    return _EIGHTH_POWER + doubling_high_product(x + rest, _EIGHTH_POWER)
