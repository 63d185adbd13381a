"""Functions of numbers of 16 bits, by lines between points of tables, as LiteRT has them.

Source: the numbers of LiteRT's reference kernels for int16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

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
