"""Operators of TFLite that move elements, and those that become moves and a convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tflite

from adrenoc.importers.tflite.file import Operator
from adrenoc.mcu.network import Convolution, Join, Move, Tensor, Window
from adrenoc.mcu.network import Operator as NetworkOperator
from adrenoc.mcu.tflite.context import (
    Importing,
    Translation,
    check_one_image,
    check_same_quanta,
)
from adrenoc.mcu.tflite.filters import bias_of, filter_rule

_SAME = tflite.Padding.SAME


def _moved(
    made: Importing,
    operator: Operator,
    indices: Sequence[np.ndarray],
    axes: Sequence[int] | None = None,
    fill: int = 0,
) -> NetworkOperator:
    """A move, of the source's index on each axis (-1: outside) and the source's axis of each."""
    source = made.info(operator, 0)
    check_same_quanta(source, made.result(operator))
    return Move(
        source=made.data(operator),
        result=operator.outputs[0],
        offsets=_offsets(source.shape, indices, axes),
        fill=fill,
    )


def _offsets(
    shape: Sequence[int], indices: Sequence[np.ndarray], axes: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    found = []
    for axis, index in zip(axes or range(len(shape)), indices, strict=True):
        offsets = np.where(index < 0, -1, index * steps[axis])
        if len(offsets) > 1 or offsets[0]:
            found.append(offsets)
    if len(found) > 4:
        raise NotImplementedError(f"{len(found)} axes of more than one element")
    found = [np.zeros(1, np.int64)] * (4 - len(found)) + found
    return found[0], found[1], found[2], found[3]


def _pad(made: Importing, operator: Operator) -> NetworkOperator:
    source = made.info(operator, 0)
    pads = made.constant(operator, 1, made.info(operator, 1).dtype).astype(np.int64)
    fill = source.zero
    if operator.kind == "PADV2":
        fill = int(made.constant(operator, 2, "int8").reshape(()))
    indices = []
    for extent, (before, after) in zip(source.shape, pads.reshape(-1, 2), strict=True):
        index = np.arange(-before, extent + after)
        indices.append(np.where((index < 0) | (index >= extent), -1, index))
    return _moved(made, operator, indices, fill=fill)


def _transpose(made: Importing, operator: Operator) -> NetworkOperator:
    source = made.info(operator, 0)
    order = [int(a) % len(source.shape) for a in made.constant(operator, 1, "int32").reshape(-1)]
    return _moved(made, operator, [np.arange(source.shape[a]) for a in order], order)


def _tile(made: Importing, operator: Operator) -> NetworkOperator:
    source = made.info(operator, 0)
    times = made.constant(operator, 1, made.info(operator, 1).dtype).reshape(-1)
    pairs = zip(source.shape, times, strict=True)
    return _moved(made, operator, [np.tile(np.arange(d), int(n)) for d, n in pairs])


def _resize_nearest(made: Importing, operator: Operator) -> NetworkOperator:
    check_one_image(made, operator)
    source, result = made.info(operator, 0), made.result(operator)
    corners = bool(operator.options.get("AlignCorners"))
    half = bool(operator.options.get("HalfPixelCenters"))
    indices = [np.arange(d) for d in source.shape]
    for axis in (1, 2):
        have, want = source.shape[axis], result.shape[axis]
        both = corners and want > 1
        scale = np.float32(have - 1) / np.float32(want - 1) if both else np.float32(have) / want
        at = (np.arange(want).astype(np.float32) + np.float32(0.5 * half)) * np.float32(scale)
        found = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
        indices[axis] = found.astype(np.int64).clip(0, have - 1)
    return _moved(made, operator, indices)


def _slice(made: Importing, operator: Operator) -> NetworkOperator:
    source = made.info(operator, 0)
    begins = made.constant(operator, 1, made.info(operator, 1).dtype).reshape(-1)
    sizes = made.constant(operator, 2, made.info(operator, 2).dtype).reshape(-1)
    indices = [
        np.arange(int(begin), int(begin) + (int(size) if size >= 0 else extent - int(begin)))
        for begin, size, extent in zip(begins, sizes, source.shape, strict=True)
    ]
    return _moved(made, operator, indices)


def _strided_slice(made: Importing, operator: Operator) -> NetworkOperator:
    source, result = made.info(operator, 0), made.result(operator)
    option = operator.options.get
    if option("EllipsisMask") or option("NewAxisMask") or option("ShrinkAxisMask"):
        raise NotImplementedError("axes that are added or taken away")
    parts = [made.constant(operator, i, "int32").reshape(-1) for i in (1, 2, 3)]
    indices = []
    for axis, (extent, begin, end, step) in enumerate(
        zip(source.shape, *(map(int, part) for part in parts), strict=True)
    ):
        first = None if int(option("BeginMask", 0)) >> axis & 1 else begin
        last = None if int(option("EndMask", 0)) >> axis & 1 else end
        indices.append(np.arange(extent)[first:last:step])
    if tuple(map(len, indices)) != result.shape:
        raise ValueError(f"a slice of {list(map(len, indices))} to {list(result.shape)}")
    return _moved(made, operator, indices)


def _concatenation(made: Importing, operator: Operator) -> NetworkOperator:
    result = made.result(operator)
    if int(operator.options.get("FusedActivationFunction", 0)):
        raise NotImplementedError("a fused activation")
    axis = int(operator.options.get("Axis", 0)) % len(result.shape)
    infos = [made.info(operator, i) for i in range(len(operator.inputs))]
    for info in infos:
        check_same_quanta(info, result)
    return Join(
        sources=tuple(made.operand(operator, i) for i in range(len(infos))),
        result=operator.outputs[0],
        chunks=tuple(math.prod(info.shape[axis:]) for info in infos),
        count=math.prod(result.shape[:axis]),
    )


def _transposed_convolution(made: Importing, operator: Operator) -> NetworkOperator:
    """Zeros between the elements, then a convolution by the kernel turned around."""
    weights = made.constant(operator, 1, "int8")
    channels, kh, kw, depth = weights.shape
    info, result = made.info(operator, 2), made.result(operator)
    source = made.data(operator, 2)
    if len(info.shape) != 4 or info.shape[0] != 1 or info.shape[3] != depth:
        raise NotImplementedError(f"an input of {list(info.shape)}, expected one image")
    before, indices = [], [np.zeros(1, np.int64)]
    strides = int(operator.options.get("StrideH", 1)), int(operator.options.get("StrideW", 1))
    for axis, (taps, stride) in enumerate(zip((kh, kw), strides, strict=True), start=1):
        have, want = info.shape[axis], result.shape[axis]
        pad = 0
        if int(operator.options.get("Padding", 0)) == _SAME:
            pad = max(0, (-(-want // stride) - 1) * stride + taps - want) // 2
        before.append(taps - 1 - pad)
        # A window of one element has no border, so zeros stand for what lies beyond the last one.
        spread = np.arange(want if (kh, kw) == (1, 1) else (have - 1) * stride + 1)
        outside = (spread % stride != 0) | (spread // stride >= have)
        indices.append(np.where(outside, -1, spread // stride))
    indices.append(np.arange(depth))
    if min(before) < 0:
        raise NotImplementedError("a padding wider than its kernel")
    shape = tuple(len(index) for index in indices)
    spread_one = made.new_tensor(
        Tensor(name=f"{info.name} spread", shape=shape, scale=info.scale, zero=info.zero)
    )
    offsets = _offsets(info.shape, indices)
    move = Move(source=source, result=spread_one, offsets=offsets, fill=info.zero)
    made.operators.append(move)
    return Convolution(
        source=spread_one,
        result=operator.outputs[0],
        weights=np.ascontiguousarray(weights[:, ::-1, ::-1]),
        bias=bias_of(made, operator, channels, index=3),
        window=Window(kernel=(kh, kw), top=before[0], left=before[1]),
        zero_in=info.zero,
        requantise=filter_rule(made, operator, channels, axis=0, source=2),
    )


MOVES: dict[str, Translation] = {
    "CONCATENATION": _concatenation,
    "PAD": _pad,
    "PADV2": _pad,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": _transposed_convolution,
}
