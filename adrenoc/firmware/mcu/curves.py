"""Functions of numbers of 16 bits, by lines between points of tables, as LiteRT has them.

Exponentials of quantised differences, as the softmax of TFLite's reference kernels has them.

exp(-x) is a polynomial on a quarter, times a constant for each bit above it; everything is a
fraction of 31 bits.

Source: the numbers of LiteRT's reference kernels for int16; gemmlowp's fixed-point exponential; its
constants are exp(-1/8), 1/3 and exp(-2^n).
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu.fixed_point import doubling_high_product, multiplier_of, shifted_right

STEPS = 512
"""Lines of a table of softmax."""
_MOST = (1 << 15) - 1
_SPAN = 1 << 16
_ONE_MORE = (
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40),
    *(41, 43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
)
"""Points of the logistic function that LiteRT has one above the nearest number."""


@cache
def logistic_points() -> np.ndarray:
    """65536 / (1 + exp(-x / 24)) for x from 0 to 255, as LiteRT rounds them."""
    near = np.rint(_SPAN / (1 + np.exp(-np.arange(256) / 24.0))).astype(np.int64)
    near[list(_ONE_MORE)] += 1
    return np.minimum(near, _SPAN - 1)


def logistic(numbers: np.ndarray) -> np.ndarray:
    """Return the logistic function of numbers in 1/12288, as int16 where 32768 is one."""
    size = np.abs(numbers)
    points, place = logistic_points(), np.minimum(size >> 9, 254)
    rise = points[place + 1] - points[place]
    up = np.where(size >> 9 >= 255, _MOST << 10, (points[place] << 9) + (size & 511) * rise)
    return np.where(numbers >= 0, up + 512, (1 << 25) - up + 511) >> 10


def tanh(numbers: np.ndarray) -> np.ndarray:
    """Return the hyperbolic tangent of numbers in 1/12288, as int16 where 32768 is one."""
    size = np.abs(numbers)
    points, place = logistic_points(), np.minimum(size >> 8, 254)
    rise = points[place + 1] - points[place]
    up = np.where(size >> 8 >= 255, 0xFFFF << 8, (points[place] << 8) + (size & 255) * rise)
    away = up - (1 << 23)
    return np.where(numbers >= 0, away + 128, 127 - away) >> 8


def _line_points(
    function: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> np.ndarray:
    """513 points, each moved so that the middle of its line errs as little as its ends."""
    step = (high - low) / STEPS
    factor = _SPAN / (2.0 / (_SPAN - 1) * _MOST + 2.0 / (_SPAN - 1) * (_MOST + 1))
    at = low + np.arange(STEPS) * step
    here = _round_away(function(at) * factor)
    next_ = function(low + (np.arange(STEPS) + 1) * step) * factor
    middle = _round_away(function(at + step / 2) * factor)
    error = _round_away((next_ + here) / 2) - middle
    last = _round_away(function(np.array([high])) * factor)
    found = np.concatenate([here - _round_away(error / 2), last])
    return np.clip(found, -_MOST - 1, _MOST).astype(np.int64)


def _round_away(values: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    return np.sign(values) * np.floor(np.abs(values) + 0.5)


@cache
def exponential_points() -> np.ndarray:
    """exp(x) from -10 to 0."""
    step = 10.0 / (_SPAN - 1)
    return _line_points(np.exp, step * -(_SPAN - 1), step * 0)


@cache
def reciprocal_points() -> np.ndarray:
    """1 / (1 + x) from 0 to 1."""
    step = 1.0 / (_SPAN - 1)
    return _line_points(lambda x: 1.0 / (1.0 + x), step * 0, step * (_SPAN - 1))


def interpolate(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Interpolate between points of a table, at numbers of 16 bits."""
    place = 256 + (numbers >> 7)
    rise = points[place + 1] - points[place]
    return points[place] + ((rise * (numbers & 127) + 64) >> 7)


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
