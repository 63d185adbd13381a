"""Compute an LSTM in NumPy, bit by bit as LiteRT's integer kernel does.

Its logistic function and tanh are fixed point of 16 bits: a number with n bits before the point has
15 - n behind it, a product is the upper half of a doubled one, rounded, and Newton's method
divides.

Source: gemmlowp's fixed-point arithmetic; the numbers of LiteRT's reference kernels.
"""

import math

import numpy as np

from adrenoc.firmware.mcu.fixed_point import (
    INT8,
    INT16,
    doubling_high_product,
    scale,
    shifted_right,
)
from adrenoc.firmware.mcu.operators import Gate, GateNorm, Lstm

_GATE_BITS = 3
"""Before the point, of what a gate makes a curve of."""
_FINE = 1024
"""Parts of a unit in which means and deviations are counted."""


def compute_lstm(
    operator: Lstm, source: np.ndarray, kept: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of all rows, and what is kept after them: cells, then the last result."""
    cells = operator.gates[1].biases[0].size
    if kept is None:
        kept = np.repeat(np.array([0, operator.start]), cells)
    cell, last = kept[:cells], kept[cells:]
    found = []
    for row in source.astype(np.int64).reshape(-1, operator.gates[1].weights[0].shape[1]):
        first, *others = operator.gates
        sums = [_gate(gate, row, last) for gate in others]
        forget, fresh, leave = logistic(sums[0]), tanh(sums[1], _GATE_BITS), logistic(sums[2])
        enter = INT16[1] - forget if first is None else logistic(_gate(first, row, last))
        taken = shifted_right(enter * fresh, 30 - operator.cell_bits)
        cell = np.clip(shifted_right(forget * cell, 15) + taken, *INT16)
        if operator.clip:
            cell = np.clip(cell, -operator.clip, operator.clip)
        shown = leave * tanh(cell, 15 - operator.cell_bits)
        last = np.clip(scale(shown, *operator.hidden) + operator.zero, *INT8)
        found.append(last)
    return np.stack(found), np.concatenate([cell, last])


def _gate(gate: Gate, row: np.ndarray, last: np.ndarray) -> np.ndarray:
    found = np.zeros(len(gate.biases[0]), np.int64)
    parts = zip(gate.weights, gate.biases, gate.factors, (row, last), strict=True)
    for weights, bias, factor, numbers in parts:
        sums = weights.astype(np.int64) @ numbers + bias
        found = np.clip(scale(sums, *factor) + found, *INT16)
    return found if gate.norm is None else _normalise(found, gate.norm)


def _normalise(numbers: np.ndarray, norm: GateNorm) -> np.ndarray:
    count = len(numbers)
    mean = _towards_zero(int(numbers.sum()) * _FINE, count)
    parts = (_FINE * _FINE) // count
    spread = int((numbers * numbers).sum()) * parts - mean * mean
    variance = _towards_zero(spread, _FINE * _FINE)
    factor = inverse_root(norm.guard if variance < 1 else variance)
    found = scale(_FINE * numbers - mean, *factor) * norm.weights + norm.bias
    found = found.astype(np.int32).astype(np.int64)  # it goes around, as in the kernel
    half = np.where(found > 0, _FINE // 2, -_FINE // 2)
    moved = np.sign(found + half) * (np.abs(found + half) // _FINE)
    return np.clip(scale(moved, norm.factor[0], norm.factor[1] + 12), *INT16)


def _towards_zero(value: int, by: int) -> int:
    """As C divides."""
    return value // by if value >= 0 else -(-value // by)


def inverse_root(value: int) -> tuple[int, int]:
    """1 / sqrt(value) as a factor, by five steps of Newton's method on numbers below eight."""
    if value <= 1:
        return (1 << 31) - 1, 0
    shift = 11
    while value >= 1 << 29:
        value, shift = value // 4, shift + 1
    pairs = (31 - value.bit_length()) // 2 - 1
    shift -= pairs
    value <<= 2 * pairs
    half = int(shifted_right(np.int64(value >> 1), 1))
    x = 1 << 28
    for _ in range(5):
        cube = _saturate(_high(_high(x, x), x), 6)
        x = _saturate(_high((1 << 28) + (1 << 27), x) - _high(half, cube), 3)
    x = _high(x, 1518500250)
    if shift < 0:
        x, shift = x << -shift, 0
    return x, -shift


def _high(a: int, b: int) -> int:
    return int(doubling_high_product(np.int64(a), b))


def _saturate(value: int, bits: int) -> int:
    return max(-(1 << 31), min(value << bits, (1 << 31) - 1))


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
    """Return the logistic function, in 1/32768, of numbers with three bits before the point."""
    numbers = numbers.astype(np.int64)
    guess = _reciprocal(_exponential(-np.abs(numbers), _LOGISTIC_BITS))
    found = _shift_saturated(guess, 1)
    return np.where(numbers == 0, 1 << 14, np.where(numbers > 0, found, _ONE - found))


def tanh(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return the tangent, in 1/32768, of numbers with `bits` bits before the point."""
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
