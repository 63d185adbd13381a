"""Computes in NumPy what only tensors of int16 have."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from adrenoc.firmware.mcu.curves import (
    exponential_points,
    interpolate,
    logistic,
    reciprocal_points,
    tanh,
)
from adrenoc.firmware.mcu.fixed_point import INT16, scale
from adrenoc.firmware.mcu.operators import Curve, Operator, Rescale, WordSoftmax, WordSum
from adrenoc.firmware.mcu.requantise import requantise

SUM_BITS = 15
"""The bits by which the operands of a sum are enlarged before they are scaled."""


@singledispatch
def compute_words(
    operator: Operator, arrays: list[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """Return the result of an operator, of arrays of int64."""
    raise TypeError(type(operator))


@compute_words.register
def _(operator: Rescale, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    numbers = arrays[0] - operator.zero_in
    found = np.where(numbers >= 0, scale(numbers, *operator.above), scale(numbers, *operator.below))
    return np.clip(found + operator.zero, operator.low, operator.high)


@compute_words.register
def _(operator: WordSum, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    parts = zip(arrays, operator.factors, operator.signs, strict=True)
    first, second = (sign * scale(a << SUM_BITS, *factor) for a, factor, sign in parts)
    return requantise(first + second, operator.requantise)


@compute_words.register
def _(operator: Curve, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    half = 1 << (operator.shift - 1) if operator.shift else 0
    numbers = (arrays[0] * operator.multiplier + half) >> operator.shift
    return tanh(numbers) if operator.kind == "tanh" else logistic(numbers)


@compute_words.register
def _(operator: WordSoftmax, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    rows = arrays[0].reshape(-1, shape[-1])
    apart = scale(rows - rows.max(1, keepdims=True), *operator.factor)
    powers = interpolate(exponential_points(), np.clip(apart + INT16[1], *INT16))
    sums = powers.sum(1, keepdims=True)
    bits = np.vectorize(int.bit_length, otypes=[np.int64])(sums)
    near = ((sums << (31 - bits)) + (1 << 13)) >> 14
    factors = interpolate(reciprocal_points(), np.clip(near - (1 << 15) - (1 << 16), *INT16))
    shift = bits - 1
    found = (powers * factors + (np.int64(1) << (shift - 1))) >> shift
    return np.clip(found, 0, INT16[1]).reshape(shape)
