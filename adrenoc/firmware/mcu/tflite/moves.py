"""Operators of TFLite that move elements, and those that become moves and a convolution."""

import math
from collections.abc import Sequence

import numpy as np
import tflite

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.network import index_padded, offsets_of, spread_axis
from adrenoc.firmware.mcu.tflite.context import (
    TfliteContext,
    Translation,
    check_one_image,
    check_same_quanta,
)
from adrenoc.firmware.mcu.tflite.filters import filter_parts
from adrenoc.importers.tflite.file import OperatorInfo
from adrenoc.importers.tflite.reduce import WORD_BITS, ResizedAxis

_SAME = tflite.Padding.SAME
_MOST_EXTENT = 1 << 14
"""Of an axis whose places are numbers of 16 bits."""


def _add_move(
    made: TfliteContext,
    operator: OperatorInfo,
    indices: Sequence[np.ndarray],
    axes: Sequence[int] | None = None,
    fill: int = 0,
) -> op.Operator:
    """Return a move, of the source's index on each axis (-1: outside), and its axes."""
    source = made.info(operator, 0)
    check_same_quanta(source, made.result(operator))
    return op.Move(
        source=made.data(operator),
        result=operator.outputs[0],
        offsets=offsets_of(source.shape, indices, axes),
        fill=fill,
    )


def _pad(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source = made.info(operator, 0)
    pads = made.constant(operator, 1, made.info(operator, 1).dtype).astype(np.int64)
    fill = source.zero
    if operator.kind == "PADV2":
        fill = int(made.constant(operator, 2, source.dtype).reshape(()))
    ends = zip(source.shape, pads.reshape(-1, 2), strict=True)
    indices = [index_padded(extent, before, after) for extent, (before, after) in ends]
    return _add_move(made, operator, indices, fill=fill)


def _transpose(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source = made.info(operator, 0)
    order = [int(a) % len(source.shape) for a in made.constant(operator, 1, "int32").reshape(-1)]
    return _add_move(made, operator, [np.arange(source.shape[a]) for a in order], order)


def _tile(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source = made.info(operator, 0)
    times = made.constant(operator, 1, made.info(operator, 1).dtype).reshape(-1)
    pairs = zip(source.shape, times, strict=True)
    return _add_move(made, operator, [np.tile(np.arange(d), int(n)) for d, n in pairs])


def _resize_nearest(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    indices = [np.arange(d) for d in made.info(operator, 0).shape]
    indices[1:3] = (axis.nearest().astype(np.int64) for axis in _resized_axes(made, operator))
    return _add_move(made, operator, indices)


def _resized_axes(made: TfliteContext, operator: OperatorInfo) -> list[ResizedAxis]:
    check_one_image(made, operator)
    source, result = made.info(operator, 0), made.result(operator)
    check_same_quanta(source, result)
    return [ResizedAxis(source.shape[a], result.shape[a], operator.options) for a in (1, 2)]


def _resize_bilinear(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    rows, columns = map(_find_places, _resized_axes(made, operator))
    ends = {"source": made.data(operator), "result": operator.outputs[0]}
    return op.Bilinear(rows=rows, columns=columns, **ends)


def _find_places(one: ResizedAxis) -> op.Between:
    first, second, weights = one.words()
    if weights.max() >= 1 << WORD_BITS or max(one.extent, one.outputs) > _MOST_EXTENT:
        raise RefusedError(f"{one.extent} enlarged to {one.outputs}")
    return op.Between(first=first, second=second, weights=weights)


def _slice(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source = made.info(operator, 0)
    begins = made.constant(operator, 1, made.info(operator, 1).dtype).reshape(-1)
    sizes = made.constant(operator, 2, made.info(operator, 2).dtype).reshape(-1)
    indices = [
        np.arange(int(begin), int(begin) + (int(size) if size >= 0 else extent - int(begin)))
        for begin, size, extent in zip(begins, sizes, source.shape, strict=True)
    ]
    return _add_move(made, operator, indices)


def _parts(
    made: TfliteContext, operator: OperatorInfo, axis: int, ends: Sequence[int]
) -> op.Operator:
    """Return a move for each output: what lies along an axis up to each of the ends."""
    data = made.data(operator, 1 if operator.kind == "SPLIT" else 0)
    source = made.graph.tensors[data]
    shape, begin = source.shape, 0
    moves: list[op.Operator] = []
    for result, end in zip(operator.outputs, ends, strict=True):
        info = made.graph.tensors[result]
        check_same_quanta(source, info)
        indices = [np.arange(d) for d in shape]
        indices[axis] = np.arange(begin, end)
        if math.prod(info.shape) != math.prod(map(len, indices)):
            raise RefusedError(f"a part of {[len(i) for i in indices]} to {list(info.shape)}")
        offsets = offsets_of(shape, indices)
        moves.append(op.Move(source=data, result=result, offsets=offsets, fill=0))
        begin = end
    made.operators += moves[:-1]
    return moves[-1]


def _split(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    shape = made.info(operator, 1).shape
    axis = int(made.constant(operator, 0, "int32").reshape(())) % len(shape)
    count = len(operator.outputs)
    if shape[axis] % count:
        raise RefusedError(f"an axis of {shape[axis]} in {count} parts")
    step = shape[axis] // count
    return _parts(made, operator, axis, [step * (n + 1) for n in range(count)])


def _split_sizes(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    shape = made.info(operator, 0).shape
    sizes = made.constant(operator, 1, made.info(operator, 1).dtype).reshape(-1).tolist()
    axis = int(made.constant(operator, 2, "int32").reshape(())) % len(shape)
    rest = shape[axis] - sum(size for size in sizes if size >= 0)
    sizes = [size if size >= 0 else rest for size in sizes]
    if sum(sizes) != shape[axis] or min(sizes) < 1:
        raise RefusedError(f"an axis of {shape[axis]} in parts of {sizes}")
    return _parts(made, operator, axis, np.cumsum(sizes).tolist())


def _unpack(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    shape = made.info(operator, 0).shape
    axis = int(operator.options.get("Axis", 0)) % len(shape)
    if len(operator.outputs) != shape[axis]:
        raise RefusedError(f"an axis of {shape[axis]} in {len(operator.outputs)} parts")
    return _parts(made, operator, axis, range(1, shape[axis] + 1))


def _join(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    result = made.result(operator)
    axis = int(operator.options.get("Axis", 0)) % len(result.shape)
    infos = [made.info(operator, i) for i in range(len(operator.inputs))]
    for info in infos:
        check_same_quanta(info, result)
    return op.Join(
        sources=tuple(made.operand(operator, i) for i in range(len(infos))),
        result=operator.outputs[0],
        chunks=tuple(math.prod(info.shape[axis:]) for info in infos),
        count=math.prod(result.shape[:axis]),
    )


def _strided_slice(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source, result = made.info(operator, 0), made.result(operator)
    option = operator.options.get
    if option("EllipsisMask") or option("NewAxisMask"):
        raise RefusedError("axes that are added")
    parts = [made.constant(operator, i, "int32").reshape(-1).tolist() for i in (1, 2, 3)]
    indices, left = [], []
    for axis, (extent, begin, end, step) in enumerate(zip(source.shape, *parts, strict=True)):
        if int(option("ShrinkAxisMask", 0)) >> axis & 1:  # one element, and the axis goes
            indices.append(np.arange(extent)[begin : begin + 1 or None])
            continue
        first = None if int(option("BeginMask", 0)) >> axis & 1 else begin
        last = None if int(option("EndMask", 0)) >> axis & 1 else end
        indices.append(np.arange(extent)[first:last:step])
        left.append(len(indices[-1]))
    shape = tuple(left)
    if shape != result.shape:
        raise RefusedError(f"a slice of {list(shape)} to {list(result.shape)}")
    return _add_move(made, operator, indices)


def _concatenation(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    if int(operator.options.get("FusedActivationFunction", 0)):
        raise RefusedError("a fused activation")
    return _join(made, operator)


def _transposed_convolution(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Put zeros between the elements, then convolve by the kernel turned around."""
    weights = made.constant(operator, 1, "int8")
    channels, kh, kw, depth = weights.shape
    info, result = made.info(operator, 2), made.result(operator)
    source = made.data(operator, 2)
    if len(info.shape) != 4 or info.shape[0] != 1 or info.shape[3] != depth:
        raise RefusedError(f"an input of {list(info.shape)}, expected one image")
    before, indices = [], [np.zeros(1, np.int64)]
    strides = int(operator.options.get("StrideH", 1)), int(operator.options.get("StrideW", 1))
    for axis, (taps, stride) in enumerate(zip((kh, kw), strides, strict=True), start=1):
        have, want = info.shape[axis], result.shape[axis]
        pad = 0
        if int(operator.options.get("Padding", 0)) == _SAME:
            pad = max(0, (-(-want // stride) - 1) * stride + taps - want) // 2
        padded, index = spread_axis(have, want, taps, stride, pad)
        before.append(padded)
        indices.append(index)
    indices.append(np.arange(depth))
    return op.Convolution(
        source=made.move(source, f"{info.name} spread", indices),
        result=operator.outputs[0],
        weights=np.ascontiguousarray(weights[:, ::-1, ::-1]),
        window=op.Window(kernel=(kh, kw), top=before[0], left=before[1]),
        **filter_parts(made, operator, channels, axis=0, data=2),
    )


MOVES: dict[str, Translation] = {
    "CONCATENATION": _concatenation,
    "PACK": _join,
    "PAD": _pad,
    "PADV2": _pad,
    "RESIZE_BILINEAR": _resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "SLICE": _slice,
    "SPLIT": _split,
    "SPLIT_V": _split_sizes,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": _transposed_convolution,
    "UNPACK": _unpack,
}
