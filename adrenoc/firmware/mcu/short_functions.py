"""The logistic function and tanh as LiteRT's LSTM computes them: fixed point of 16 bits alone.

A number with n bits before the point has 15 - n behind it.  A product is the upper half of a
doubled one, rounded; Newton's method divides.

Source: gemmlowp's fixed-point arithmetic; the numbers of LiteRT's reference kernels.
"""

from __future__ import annotations

import math

import numpy as np

from adrenoc.firmware.mcu.fixed_point import INT16, shifted_right

_ONE = INT16[1]
_TWO_BITS_ONE = 1 << 13
_LOGISTIC_BITS = 3
_MOST_EXPONENT = 4


def _constant(real: float, bits: int = 0) -> int:
    """Return a number of 16 bits, from that of 32."""
    return int(shifted_right(np.int64(round(real * 2.0 ** (31 - bits))), 16))


FACTORS = tuple(_constant(math.exp(-(2.0**e))) for e in range(-2, _MOST_EXPONENT + 1))
"""exp of -1/4, -1/2 ... -16."""
MIDDLE, THIRD = _constant(math.exp(-0.125)), _constant(1 / 3)
FIRST_GUESS, SLOPE = _constant(48 / 17, 2), _constant(-32 / 17, 2)


def logistic(numbers: np.ndarray) -> np.ndarray:
    """Return the logistic function of int16 numbers with three bits before the point; in the result
    32768 is one."""
    numbers = numbers.astype(np.int64)
    guess = _reciprocal(_exponential(-np.abs(numbers), _LOGISTIC_BITS))
    found = _shift_saturated(guess, 1)
    return np.where(numbers == 0, 1 << 14, np.where(numbers > 0, found, _ONE - found))


def tanh(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return the hyperbolic tangent of int16 numbers with `bits` bits before the point; in the
    result 32768 is one."""
    numbers = numbers.astype(np.int64)
    guess = _reciprocal(_exponential(-np.abs(numbers), bits + 1))
    found = _shift_saturated(guess - _TWO_BITS_ONE, 2)
    return np.sign(numbers) * found


def _times(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    return np.minimum((a * b + (1 << 14)) >> 15, _ONE)


def _shift_saturated(value: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(value << bits, *INT16)


def _exponential(numbers: np.ndarray, bits: int) -> np.ndarray:
    """exp of numbers that are zero or less: of what is left of quarters, times one for each."""
    quarter = 1 << (13 - bits)
    rest = (numbers & (quarter - 1)) - quarter
    x = _shift_saturated(rest, bits) + (1 << 12)
    square = _times(x, x)
    cube, fourth = _times(square, x), _times(square, square)
    more = shifted_right(_times(shifted_right(fourth, 2) + cube, THIRD) + square, 1)
    found = np.clip(MIDDLE + _times(x + more, MIDDLE), *INT16)
    quarters = rest - numbers
    for exponent, factor in enumerate(FACTORS, start=-2):
        if exponent < bits:
            has = (quarters >> (15 - bits + exponent)) & 1
            found = np.where(has == 1, _times(found, factor), found)
    if bits > _MOST_EXPONENT + 1:
        found = np.where(numbers < -(1 << (20 - bits)), 0, found)
    return np.where(numbers == 0, _ONE, found)


def _reciprocal(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) with two bits before the point, for x from 0 to 1."""
    half = (x + _ONE + 1) >> 1
    guess = FIRST_GUESS + _times(half, SLOPE)
    for _ in range(3):
        left = _TWO_BITS_ONE - _times(half, guess)
        guess = guess + _shift_saturated(_times(guess, left), 2)
    return guess
