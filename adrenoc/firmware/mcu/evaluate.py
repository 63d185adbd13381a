"""Compute a network in NumPy: for the self-test of a folder, and to fold what cannot vary."""

from collections.abc import Mapping
from functools import singledispatch

import numpy as np

from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.curves import (
    exponential_points,
    interpolate,
    logistic,
    reciprocal_points,
    tanh,
)
from adrenoc.firmware.mcu.evaluate_lstm import compute_lstm
from adrenoc.firmware.mcu.fixed_point import (
    INT8,
    INT16,
    INT32,
    doubling_high_product,
    requantise,
    scale,
    shifted_right,
)
from adrenoc.firmware.mcu.network import Network, shape4

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
