"""Compute a network in NumPy: for the self-test of a folder, and to fold what cannot vary.

An LSTM is computed bit by bit as LiteRT's integer kernel does. Its logistic function and tanh are
fixed point of 16 bits: a number with n bits before the point has 15 - n behind it, a product is the
upper half of a doubled one, rounded, and Newton's method divides. Source: gemmlowp's fixed-point
arithmetic; the numbers of LiteRT's reference kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import singledispatch

import numpy as np

from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import (
    INT8,
    INT16,
    INT32,
    doubling_high_product,
    exponential_points,
    interpolate,
    logistic,
    reciprocal_points,
    requantise,
    scale,
    shifted_right,
    tanh,
)
from adrenoc.firmware.mcu.network import Network, shape4
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
        forget, fresh, leave = (
            gate_logistic(sums[0]),
            gate_tanh(sums[1], _GATE_BITS),
            gate_logistic(sums[2]),
        )
        enter = INT16[1] - forget if first is None else gate_logistic(_gate(first, row, last))
        taken = shifted_right(enter * fresh, 30 - operator.cell_bits)
        cell = np.clip(shifted_right(forget * cell, 15) + taken, *INT16)
        if operator.clip:
            cell = np.clip(cell, -operator.clip, operator.clip)
        shown = leave * gate_tanh(cell, 15 - operator.cell_bits)
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
    """Divide as C does."""
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


def gate_logistic(numbers: np.ndarray) -> np.ndarray:
    """Return the logistic function, in 1/32768, of numbers with three bits before the point."""
    numbers = numbers.astype(np.int64)
    guess = _reciprocal_of_sum(_exponential(-np.abs(numbers), _LOGISTIC_BITS))
    found = _shift_saturated(guess, 1)
    return np.where(numbers == 0, 1 << 14, np.where(numbers > 0, found, _ONE - found))


def gate_tanh(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return the tangent, in 1/32768, of numbers with `bits` bits before the point."""
    numbers = numbers.astype(np.int64)
    guess = _reciprocal_of_sum(_exponential(-np.abs(numbers), bits + 1))
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


def _reciprocal_of_sum(x: np.ndarray) -> np.ndarray:
    """2 / (1 + x) with two bits before the point, for x from 0 to 1."""
    half = (x + _ONE + 1) >> 1
    guess = FIRST_GUESS + _times(half, SLOPE)
    for _ in range(3):
        left = _TWO_BITS_ONE - _times(half, guess)
        guess = guess + _shift_saturated(_times(guess, left), 2)
    return guess


SUM_BITS = 15
"""The bits by which the operands of a sum are enlarged before they are scaled."""
_WEIGHT_BITS = 10
"""Of the weights of a bilinear enlargement along one axis."""
_ACCUMULATOR_BITS = 12
"""Integer bits of the sum of exponentials."""


def evaluate(
    network: Network, inputs: Mapping[int, np.ndarray], kept: dict[int, np.ndarray] | None = None
) -> dict[int, np.ndarray]:
    """Return every tensor of the network, by index. `kept` is what operators keep between calls, by
    their results, and is brought up to date."""
    memory: dict[int, np.ndarray] = {} if kept is None else kept
    dtypes = [tensor.dtype for tensor in network.tensors]
    values = {i: np.asarray(a, dtypes[i]) for i, a in {**inputs, **network.constants}.items()}
    for operator in network.operators:
        result, shape = operator.result, network.tensors[operator.result].shape
        arrays = [values[index].astype(np.int64) for index in operator.sources]
        if isinstance(operator, op.Svdf):
            before = memory.get(result, np.zeros(operator.time.shape, np.int64))
            arrays = [_remember(operator, before, arrays[0])]
            memory[result] = arrays[0]
        if isinstance(operator, op.Lstm):
            made, memory[result] = compute_lstm(operator, arrays[0], memory.get(result))
        else:
            made = _compute(operator, arrays, shape)
        values[result] = made.reshape(shape).astype(dtypes[result])
    return values


@singledispatch
def _compute(operator: op.Operator, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return the result of an operator, of arrays of int64."""
    raise TypeError(type(operator))


@_compute.register
def _(operator: op.Rescale, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    numbers = arrays[0] - operator.zero_in
    found = np.where(numbers >= 0, scale(numbers, *operator.above), scale(numbers, *operator.below))
    return np.clip(found + operator.zero, operator.low, operator.high)


@_compute.register
def _(operator: op.WordSum, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    parts = zip(arrays, operator.factors, operator.signs, strict=True)
    first, second = (sign * scale(a << SUM_BITS, *factor) for a, factor, sign in parts)
    return requantise(first + second, operator.requantise)


@_compute.register
def _(operator: op.Curve, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    half = 1 << (operator.shift - 1) if operator.shift else 0
    numbers = (arrays[0] * operator.multiplier + half) >> operator.shift
    return tanh(numbers) if operator.kind == "tanh" else logistic(numbers)


@_compute.register
def _(operator: op.WordSoftmax, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
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


def _image(array: np.ndarray) -> np.ndarray:
    return array.reshape(shape4(array.shape)[1:])


def _patches(image: np.ndarray, window: op.Window, fill: int, h: int, w: int) -> np.ndarray:
    """Return what each output position sees: out H, out W, kernel H, kernel W, C."""
    height, width, _ = image.shape
    rows = _positions(h, window.strides[0], window.kernel[0], window.dilations[0], window.top)
    columns = _positions(w, window.strides[1], window.kernel[1], window.dilations[1], window.left)
    rows, columns = rows[:, None, :, None], columns[None, :, None, :]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    found = image[rows.clip(0, height - 1), columns.clip(0, width - 1)]
    return np.where(inside[..., None], found, fill)


def _positions(count: int, stride: int, kernel: int, dilation: int, before: int) -> np.ndarray:
    return np.arange(count)[:, None] * stride + np.arange(kernel) * dilation - before


@_compute.register
def _(operator: op.Convolution, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    n, h, w, channels = shape4(shape)
    weights = operator.weights.reshape(channels, -1).T.astype(np.float64)
    found = []
    for image in arrays[0].reshape(n, *shape4(arrays[0].shape)[1:]):
        seen = _patches(image - operator.zero_in, operator.window, 0, h, w)
        sums = seen.reshape(h * w, -1).astype(np.float64) @ weights  # exact: below 2^53
        found.append(requantise(sums.astype(np.int64) + operator.bias, operator.requantise))
    if operator.joined is None:
        return np.stack(found)
    own = np.stack(found).reshape(shape)
    return _compute(operator.joined, [own, arrays[1].reshape(shape)], shape)


@_compute.register
def _(operator: op.Depthwise, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    _, h, w, channels = shape4(shape)
    image = _image(arrays[0]) - operator.zero_in
    image = np.repeat(image, channels // image.shape[2], axis=2)
    seen = _patches(image, operator.window, 0, h, w)
    sums = np.einsum("hwijc,ijc->hwc", seen, operator.weights.astype(np.int64))
    return requantise(sums + operator.bias, operator.requantise)


@_compute.register
def _(operator: op.Pool, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    _, h, w, _ = shape4(shape)
    image = _image(arrays[0])
    if operator.kind == "max":
        found = _patches(image, operator.window, INT32[0], h, w).max((2, 3))
    else:
        sums = _patches(image, operator.window, 0, h, w).sum((2, 3))
        counts = _patches(np.ones_like(image), operator.window, 0, h, w).sum((2, 3))
        found = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
    return np.clip(found, operator.low, operator.high)


@_compute.register
def _(operator: op.Lookup, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    return operator.table[arrays[0] + 128]


@_compute.register
def _(operator: op.Sum, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    if operator.wanted is not None:
        return operator.wanted[tuple(a + 128 for a in arrays)]
    tables = zip(operator.tables, arrays, strict=True)
    first, second = (table.astype(np.int64)[a + 128] for table, a in tables)
    return requantise(first + second, operator.requantise)


@_compute.register
def _(operator: op.Softmax, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    rows = arrays[0].reshape(-1, shape[-1])
    powers = operator.exponentials.astype(np.int64)[rows.max(1, keepdims=True) - rows]
    sums = shifted_right(powers, _ACCUMULATOR_BITS).sum(1)
    found = [
        shifted_right(doubling_high_product(row, scale), exponent)
        for row, (scale, exponent) in zip(powers, map(_reciprocal, sums), strict=True)
    ]
    return np.clip(np.stack(found) - 128, -128, 127).reshape(shape)


@_compute.register
def _(operator: op.FloatPool, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    _, h, w, _ = shape4(shape)
    image = _image(arrays[0])
    real = operator.scales[0] * (image - operator.zeros[0]).astype(np.float32)
    seen = _patches(real, operator.window, 0, h, w)
    seen = seen.reshape(h, w, -1, seen.shape[-1])
    inside = _patches(np.ones_like(image), operator.window, 0, h, w)
    counts = inside.reshape(h, w, -1, inside.shape[-1]).sum(2)
    if operator.whole:
        counts = np.full_like(counts, seen.shape[2])
    sums = np.zeros(seen[:, :, 0].shape, np.float32)
    for tap in range(seen.shape[2]):  # one by one: in float32 the order matters
        sums = sums + seen[:, :, tap]
    means = sums / counts.astype(np.float32)
    near = np.rint(means / operator.scales[1] + np.float32(operator.zeros[1]))
    return np.clip(near.astype(np.int64) - operator.offset, *INT8)


@_compute.register
def _(operator: op.FloatBilinear, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    image = _image(arrays[0])
    real = (image - operator.zeros[0]).astype(np.float32) * operator.scales[0]
    rows, columns = operator.rows, operator.columns
    total = np.zeros((len(rows.first), len(columns.first), image.shape[2]), np.float32)
    across_ends = ((columns.first, columns.of_first), (columns.second, columns.of_second))
    for row, down in ((rows.first, rows.of_first), (rows.second, rows.of_second)):
        for column, across in across_ends:
            share = across[None, :, None] * down[:, None, None]
            total = total + share * real[row][:, column]
    found = np.rint(total / operator.scales[1]) + operator.zeros[1]
    return np.clip(found.astype(np.int64) - operator.offset, *INT8)


@_compute.register
def _(operator: op.FloatSoftmax, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    rows = arrays[0].reshape(-1, shape[-1])
    powers = operator.exponentials[rows - rows.max(1, keepdims=True) + 255]
    sums = np.zeros((len(rows), 1), np.float32)
    for place in range(shape[-1]):
        sums = sums + powers[:, place : place + 1]
    found = np.rint(powers * operator.scale / sums).astype(np.int64) + operator.zero
    return np.clip(found, *INT8).reshape(shape)


def _remember(operator: op.Svdf, before: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Return what is kept after a call: all moved by one place, the new products last."""
    numbers = source.reshape(-1) - operator.zero_in
    products = scale(operator.feature.astype(np.int64) @ numbers, *operator.kept)
    after = np.concatenate([before.reshape(-1)[1:], [0]]).reshape(before.shape)
    after[:, -1] = np.clip(products, *INT16)
    return after


@_compute.register
def _(operator: op.Svdf, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    sums = (operator.time.astype(np.int64) * arrays[0]).sum(1).reshape(-1, operator.rank).sum(1)
    # Sums of 32 bits go around, as those of the reference do.
    wrapped = (sums + operator.bias).astype(np.int32).astype(np.int64)
    return requantise(wrapped, operator.requantise)


def _reciprocal(value: int) -> tuple[int, int]:
    """1 / value as a fraction of 31 bits and a right shift to eight bits. Three steps of Newton's
    method from 48/17 - 32/17 x, as the reference takes them."""
    zeros = 32 - int(value).bit_length()
    half = (int(value) << zeros) >> 1
    x = 1515870810 + int(doubling_high_product(np.int64(half), -1010580540))
    for _ in range(3):
        left = (1 << 29) - int(doubling_high_product(np.int64(half), x))
        x += int(doubling_high_product(np.int64(x), left)) << 2
    return min(x << 1, (1 << 31) - 1), _ACCUMULATOR_BITS - zeros + 31 - 8


@_compute.register
def _(operator: op.Product, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    first, second = (a - zero for zero, a in zip(operator.zeros, arrays, strict=True))
    return requantise(first * second, operator.requantise)


@_compute.register
def _(operator: op.Mean, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    numbers = arrays[0].reshape(operator.extents) - operator.zero_in
    return requantise(numbers.sum(1), operator.requantise)


@_compute.register
def _(operator: op.Move, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    a, b, c, d = (offsets.astype(np.int64) for offsets in operator.offsets)
    parts = a[:, None, None, None], b[:, None, None], c[:, None], d
    outside = (parts[0] < 0) | (parts[1] < 0) | (parts[2] < 0) | (parts[3] < 0)
    places = np.where(outside, 0, sum(parts))
    return np.where(outside, operator.fill, arrays[0].reshape(-1)[places])


@_compute.register
def _(operator: op.Bilinear, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    image = _image(arrays[0])
    one, rows, columns = 1 << _WEIGHT_BITS, operator.rows, operator.columns
    down, across = rows.weights[:, None, None], columns.weights[:, None]

    def interpolate(row: np.ndarray) -> np.ndarray:
        picked = image[row.astype(np.int64)]
        left, right = (picked[:, c.astype(np.int64)] for c in (columns.first, columns.second))
        return left * (one - across) + right * across

    sums = interpolate(rows.first) * (one - down) + interpolate(rows.second) * down
    half = one * one // 2
    return np.sign(sums) * ((np.abs(sums) + half) // (one * one))


@_compute.register
def _(operator: op.Join, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([a.reshape(operator.count, -1) for a in arrays], 1)


@_compute.register
def _(operator: op.Reshape, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    return arrays[0]
