"""Convolutions, dense layers and pools of TFLite.

*Before -> after*: SPACE_TO_BATCH_ND -> CONV_2D of one row each -> BATCH_TO_SPACE_ND, which
converters make of dilated filters over time, becomes a move, a convolution of one image whose rows
are those of the batch, and a move.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tflite

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import activation_range, multiplier_of
from adrenoc.firmware.mcu.network import index_padded, shape4, split_groups
from adrenoc.firmware.mcu.tflite.context import (
    TfliteContext,
    Translation,
    activation_of,
    check_one_image,
    check_one_type,
    check_same_quanta,
)
from adrenoc.importers.tflite.file import OperatorInfo


def _lay_as_one_image(
    made: TfliteContext,
    operator: OperatorInfo,
    kernel_height: int,
    make: Callable[[int, int], op.Operator],
) -> op.Operator:
    """Return what `make` makes of a source and a result of one image; a batch lies in its rows.
    Raises RefusedError where there are several images, and windows that see more than a row."""
    shape = made.info(operator, 0).shape
    source, result = made.data(operator), operator.outputs[0]
    if len(shape) == 4 and shape[0] == 1:
        return make(source, result)
    rows = kernel_height == 1 and int(operator.options.get("StrideH", 1)) == 1
    if len(shape) != 4 or not rows:
        raise RefusedError(f"an input of {list(shape)}, expected a batch of one image")
    ends = []
    for index in (source, result):
        n, h, w, c = made.tensors[index].shape
        ends.append(made.new_tensor(replace(made.tensors[index], shape=(1, n * h, w, c))))
    made.operators += [op.Reshape(source=source, result=ends[0]), make(ends[0], ends[1])]
    return op.Reshape(source=ends[1], result=result)


def _blocks(made: TfliteContext, operator: OperatorInfo) -> tuple[list[int], np.ndarray]:
    """Return blocks of the axes after the first, and what is padded or cut off on both sides."""
    check_same_quanta(made.info(operator, 0), made.result(operator))
    blocks = made.constant(operator, 1, "int32", "int64").reshape(-1)
    ends = made.constant(operator, 2, "int32", "int64").reshape(-1, 2)
    if len(ends) != len(blocks) or blocks.min() < 1 or ends.min() < 0:
        raise RefusedError(f"blocks of {blocks.tolist()} with {ends.tolist()} at their ends")
    return [int(b) for b in blocks], ends.astype(np.int64)


def _space_to_batch(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Return a pad if any; then each axis gives its place within a block to the batch."""
    blocks, ends = _blocks(made, operator)
    source = made.data(operator)
    tensor = made.tensors[source]
    if tensor.shape[0] != 1:
        raise RefusedError(f"an input of {list(tensor.shape)}, expected a batch of one")
    if ends.any():
        padded = [np.arange(d) for d in tensor.shape]
        for axis, (before, after) in enumerate(ends, start=1):
            padded[axis] = index_padded(tensor.shape[axis], before, after)
        source = made.move(source, f"{tensor.name} padded", padded)
        tensor = made.tensors[source]
    steps = [math.prod(tensor.shape[a + 1 :]) for a in range(len(tensor.shape))]
    indices = [np.arange(d) * step for d, step in zip(tensor.shape, steps, strict=True)]
    places = np.zeros(1, np.int64)
    for axis, block in enumerate(blocks, start=1):
        places = (places[:, None] + np.arange(block) * steps[axis]).reshape(-1)
        indices[axis] = indices[axis][::block]
    return _add_move(made, operator, source, [places, *indices[1:]])


def _batch_to_space(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Return each index of an axis reads from the batch that has its place within a block."""
    blocks, ends = _blocks(made, operator)
    source = made.data(operator)
    shape = made.tensors[source].shape
    if math.prod(blocks) != shape[0]:
        raise RefusedError(f"a batch of {shape[0]} for blocks of {blocks}")
    steps = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    indices = [np.arange(d) * step for d, step in zip(shape, steps, strict=True)]
    indices[0], of_batch = np.zeros(1, np.int64), shape[0]
    for axis, (block, (before, after)) in enumerate(zip(blocks, ends, strict=True), start=1):
        of_batch //= block
        index = np.arange(before, shape[axis] * block - after)
        indices[axis] = index % block * of_batch * steps[0] + index // block * steps[axis]
    return _add_move(made, operator, source, indices)


def _add_move(
    made: TfliteContext, operator: OperatorInfo, source: int, offsets: list[np.ndarray]
) -> op.Operator:
    result = made.result(operator)
    if result.shape != tuple(map(len, offsets)):
        raise RefusedError(f"{list(map(len, offsets))} to {list(result.shape)}")
    if len(offsets) > 4:
        raise RefusedError(f"{len(offsets)} axes")
    a, b, c, d = [np.zeros(1, np.int64)] * (4 - len(offsets)) + offsets
    return op.Move(source=source, result=operator.outputs[0], offsets=(a, b, c, d), fill=0)


BATCHES: dict[str, Translation] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
}


_MOST_WIDE_SHIFT = 7
"""To the left, of what LiteRT scales by fifteen bits."""
_PADDINGS = {v: k for k, v in vars(tflite.Padding).items() if isinstance(v, int)}


def filter_parts(
    made: TfliteContext,
    operator: OperatorInfo,
    channels: int,
    *,
    axis: int,
    in_floats: bool = False,
    data: int = 0,
) -> dict[str, Any]:
    """Return what a filter of input `data` has beside its ends, weights and window."""
    return {
        "bias": bias_of(made, operator, channels, index=data + 1 if data else 2),
        "zero_in": made.info(operator, data).zero,
        "requantise": _rule(made, operator, channels, axis, in_floats, data),
    }


def _rule(
    made: TfliteContext,
    operator: OperatorInfo,
    channels: int,
    axis: int,
    in_floats: bool,
    source: int,
) -> op.Requantise:
    data, weights = made.info(operator, source), made.info(operator, 1)
    result = made.result(operator)
    check_one_type(data, result)
    if weights.zeros.size and weights.zeros.any():
        raise RefusedError("weights with a zero point")
    scales = weights.scales
    if scales.size == 0 or (scales.size > 1 and (scales.size != channels or weights.axis != axis)):
        raise RefusedError(f"weights with {scales.size} scales for {channels} channels")
    reals = float(data.scale) * scales.astype(np.float64) / float(result.scale)
    reals = np.broadcast_to(reals, channels)
    low, high = activation_bounds(made, operator)
    wide = data.dtype == "int16" and not _has_short_bias(made, operator, source)
    rule = op.Requantise(zero=result.zero, low=low, high=high, wide=wide)
    if in_floats:
        return replace(rule, reals=reals)
    pairs = np.array([multiplier_of(float(real)) for real in reals], np.int64).reshape(-1, 2)
    if wide and pairs[:, 1].max() > _MOST_WIDE_SHIFT:
        raise RefusedError("an output much finer than its sums")
    return replace(rule, multipliers=pairs[:, 0].copy(), shifts=pairs[:, 1].copy())


def activation_bounds(made: TfliteContext, operator: OperatorInfo) -> tuple[int, int]:
    """Return what the fused activation leaves of the output's numbers."""
    result = made.result(operator)
    ends = made.tensors[operator.outputs[0]].ends
    return activation_range(activation_of(operator), result.scale, result.zero, ends)


def _has_short_bias(made: TfliteContext, operator: OperatorInfo, data: int) -> bool:
    """Return whether sums of int16 have 32 bits, as the file says, or 64."""
    index = data + 1 if operator.kind == "TRANSPOSE_CONV" else 2
    short = int(operator.options.get("QuantizedBiasType", 0)) == tflite.TensorType.INT32
    if len(operator.inputs) > index and operator.inputs[index] >= 0:
        seen, expected = made.info(operator, index).dtype, "int32" if short else "int64"
        if seen != expected:
            raise RefusedError(f"a bias of {seen}, expected {expected} beside int16")
    return short


def bias_of(
    made: TfliteContext, operator: OperatorInfo, channels: int, *, index: int = 2
) -> np.ndarray:
    """Return the bias of a filter, zeros where it has none."""
    if len(operator.inputs) <= index or operator.inputs[index] < 0:
        return np.zeros(channels, np.int64)
    bias = made.constant(operator, index, "int32", "int64")
    if bias.size != channels:
        raise RefusedError(f"a bias of {bias.size} numbers for {channels} channels")
    return bias.reshape(-1).astype(np.int64)


def _window(
    made: TfliteContext,
    operator: OperatorInfo,
    kernel: tuple[int, int],
    options: Sequence[str] = (),
) -> op.Window:
    """Return kernel, steps and padding, by TFLite's rule of SAME."""

    def steps(name: str) -> tuple[int, int]:
        found = tuple(int(operator.options.get(name.format(a), 1)) for a in "HW")
        if min(found) < 1:
            raise RefusedError(f"{name.format('')} of {list(found)}")
        return found[0], found[1]

    strides = steps("Stride{}")
    dilations = steps("Dilation{}Factor") if "dilation" in options else (1, 1)
    _, ih, iw, _ = shape4(made.info(operator, 0).shape)
    _, oh, ow, _ = shape4(made.result(operator).shape)
    before = [0, 0]
    padding = _PADDINGS[int(operator.options.get("Padding", 0))]
    extents = zip((ih, iw), (oh, ow), kernel, strides, dilations, strict=True)
    for axis, (have, want, taps, stride, dilation) in enumerate(extents):
        reach = (taps - 1) * dilation + 1
        fits = -(-have // stride) if padding == "SAME" else (have - reach + stride) // stride
        if fits != want:
            raise RefusedError(f"an output of {want} positions where {padding} gives {fits}")
        if padding == "SAME":
            before[axis] = max(0, (want - 1) * stride + reach - have) // 2
    return op.Window(
        kernel=kernel, strides=strides, dilations=dilations, top=before[0], left=before[1]
    )


def _convolution(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    weights = made.constant(operator, 1, "int8")
    channels, kh, kw, depth = weights.shape

    def make(source: int, result: int) -> op.Operator:
        window = _window(made, operator, (kh, kw), ("dilation",))
        parts = filter_parts(made, operator, channels, axis=0)
        whole = op.Convolution(
            source=source, result=result, weights=weights, window=window, **parts
        )
        if depth == made.info(operator, 0).shape[3]:
            return whole
        tensors = made.tensors[source], made.tensors[result]
        *groups, last = split_groups(whole, *tensors, made.new_tensor)
        made.operators += groups
        return last

    return _lay_as_one_image(made, operator, kh, make)


def _depthwise(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    weights = made.constant(operator, 1, "int8")
    _, kh, kw, channels = weights.shape

    def make(source: int, result: int) -> op.Operator:
        if channels % made.info(operator, 0).shape[3]:
            raise RefusedError("its channels are no multiple of the input's")
        window = _window(made, operator, (kh, kw), ("dilation",))
        parts = filter_parts(made, operator, channels, axis=3)
        return op.Depthwise(
            source=source, result=result, weights=weights[0], window=window, **parts
        )

    return _lay_as_one_image(made, operator, kh, make)


def _dense(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    if int(operator.options.get("WeightsFormat", 0)):
        raise RefusedError("shuffled weights")
    weights = made.constant(operator, 1, "int8")
    channels, depth = weights.shape
    source, result = made.data(operator), operator.outputs[0]
    elements = made.tensors[source].elements
    rows = elements // depth
    if rows * depth != elements or made.tensors[result].elements != rows * channels:
        raise RefusedError(f"{elements} numbers for products of {depth}")
    return op.Convolution(
        source=source,
        result=result,
        weights=weights.reshape(channels, 1, 1, depth),
        window=op.Window(kernel=(1, 1)),
        **filter_parts(made, operator, channels, axis=0, in_floats=True),
    )


def _make_pool(
    made: TfliteContext, operator: OperatorInfo, kind: str, window: op.Window
) -> op.Operator:
    low, high = activation_bounds(made, operator)
    ends = {"source": made.data(operator), "result": operator.outputs[0]}
    return op.Pool(kind=kind, window=window, low=low, high=high, **ends)


def _pool(kind: str) -> Translation:
    def translate(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
        check_one_image(made, operator)
        kernel = int(operator.options["FilterHeight"]), int(operator.options["FilterWidth"])
        check_same_quanta(made.info(operator, 0), made.result(operator))
        return _make_pool(made, operator, kind, _window(made, operator, kernel))

    return translate


def _maximum(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Take the largest over all pixels of an image: a pool of one window."""
    source, result = made.info(operator, 0), made.result(operator)
    check_same_quanta(source, result)
    rank = len(source.shape)
    axes = sorted({int(a) % rank for a in made.constant(operator, 1, "int32").reshape(-1)})
    n, h, w, c = shape4(source.shape)
    if n != 1 or rank not in (3, 4) or axes != list(range(1, rank - 1)):
        raise RefusedError(f"axes {axes} of {list(source.shape)}, expected all pixels")
    if math.prod(result.shape) != c:
        raise RefusedError(f"{list(result.shape)} for {c} channels")
    return _make_pool(made, operator, "max", op.Window(kernel=(h, w)))


FILTERS: dict[str, Translation] = {
    "AVERAGE_POOL_2D": _pool("average"),
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _dense,
    "MAX_POOL_2D": _pool("max"),
    "REDUCE_MAX": _maximum,
}
