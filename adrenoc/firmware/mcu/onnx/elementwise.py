"""Sums, products, tables, moves, pads and enlargements of quantised ONNX models."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.network import index_padded, offsets_of
from adrenoc.firmware.mcu.onnx.context import (
    BETWEEN,
    FUNCTIONS,
    LINEAR_RESIZE,
    OnnxContext,
    Translation,
    float_rule,
    is_linear_resize,
    options,
)
from adrenoc.importers.onnx.resize import MODES, float_places, mix_places, nearest_places

_BYTES = np.arange(-128, 128, dtype=np.int64)


def _operands(made: OnnxContext, node: onnx.NodeProto) -> tuple[int, int]:
    """Return two tensors, the second of which may repeat along the first."""
    first, second = made.data(node, 0), made.data(node, 3)
    shapes = [made.tensors[first].shape, made.tensors[second].shape]
    whole = made.shape(node.output[0])
    count = math.prod(whole)
    if math.prod(shapes[0]) != count:
        raise RefusedError(f"{list(shapes[0])}, repeated along {list(shapes[1])}")
    row = (1,) * (len(shapes[0]) - 1) + shapes[0][-1:]
    if shapes[1] != shapes[0] and math.prod(shapes[1]) != 1 and shapes[1] != row:
        raise RefusedError(f"{list(shapes[1])}, repeated along {list(shapes[0])}")
    return first, second


def _fuse_multiply_add(
    one: np.ndarray | np.float32, other: np.float32, added: np.ndarray | np.float32
) -> np.ndarray:
    """Return a product and a sum of float32, rounded once: products of bytes fit into float64."""
    return np.float32(np.float64(one) * np.float64(other) + np.float64(added))


def _sum(made: OnnxContext, node: onnx.NodeProto) -> None:
    first, second = _operands(made, node)
    (a, a0), (b, b0), (c, c0) = (made.quanta(node, index) for index in (1, 4, 6))
    # In float32, as onnxruntime's kernel, where each product is rounded with what it is added to.
    fixed = np.float32(c0) - _fuse_multiply_add(a / c, np.float32(a0), b / c * np.float32(b0))
    first_bytes, second_bytes = (
        (_BYTES + made.offset(node.input[index])).astype(np.float32) for index in (0, 3)
    )
    x, y = first_bytes * (a / c), _fuse_multiply_add(second_bytes, b / c, fixed)
    wanted = np.rint(_fuse_multiply_add(first_bytes[:, None], a / c, y[None, :])).astype(np.int64)
    made.operators.append(
        op.Sum(
            sources=(first, second),
            result=made.result(node, 6),
            tables=(x - x[0], y - y[0]),
            requantise=op.Requantise(zero=0, low=INT8[0], high=INT8[1], reals=np.ones(1)),
            wanted=np.clip(wanted - made.offset(node.output[0]), *INT8),
        )
    )


def _product(made: OnnxContext, node: onnx.NodeProto) -> None:
    first, second = _operands(made, node)
    a, b, c = (made.quanta(node, index)[0] for index in (1, 4, 6))
    result = made.result(node, 6)
    made.operators.append(
        op.Product(
            sources=(first, second),
            result=result,
            zeros=(made.tensors[first].zero, made.tensors[second].zero),
            requantise=float_rule(a * b / c, made.tensors[result].zero),
        )
    )


def _table(
    made: OnnxContext, node: onnx.NodeProto, function: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Look up a function of float32 between two conversions."""
    source, (scale, zero), (to, _) = made.data(node, 0), made.quanta(node, 1), made.quanta(node, 3)
    real = (_BYTES + made.offset(node.input[0]) - zero).astype(np.float32) * scale
    result = made.result(node, 3)
    found = np.rint(function(real).astype(np.float32) / to) + made.tensors[result].zero
    table = np.clip(found, *INT8).astype(np.int8)
    made.operators.append(op.Lookup(source=source, result=result, table=table))


def _function(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Translate a function of one number: that which stood between conversions, or a node's own."""
    given = options(node)
    kind = given["function"].decode() if node.op_type == BETWEEN else node.op_type
    _table(made, node, FUNCTIONS[kind.removeprefix("QLinear")](node))


def _reshape(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Keep the file's order of elements; where channels lie last they go back before."""
    source = made.channels_first(made.data(node, 0))
    shape = made.shape(node.output[0])
    tensor = made.tensors[source]
    if len(shape) != 4:
        result = made.like(node.output[0], source)
        made.operators.append(op.Reshape(source=source, result=result))
        return
    between = made.add(shape, node.output[0], tensor.scale, tensor.zero)
    made.operators.append(op.Reshape(source=source, result=between))
    made.labels.append(node.op_type)
    made.places[node.output[0]] = made.channels_last(between)


def _transpose(made: OnnxContext, node: onnx.NodeProto) -> None:
    source = made.channels_first(made.data(node, 0))
    rank = len(made.tensors[source].shape)
    order: Sequence[int] = options(node).get("perm") or range(rank)[::-1]
    moved = made.transpose(source, tuple(int(a) % rank for a in order), node.op_type)
    made.places[node.output[0]] = made.channels_last(moved)


def _join(made: OnnxContext, node: onnx.NodeProto) -> None:
    sources = []
    for index in range(2, len(node.input), 3):
        one = onnx.helper.make_node(
            "Requantise", [*node.input[index : index + 3], *node.input[:2]], [node.input[index]]
        )
        place = made.data(one, 0)
        if made.quanta(one, 1) != made.quanta(one, 3):
            _table(made, one, lambda real: real)
            made.labels.append("Requantise")
            made.places[node.input[index]], place = place, made.places[node.input[index]]
        sources.append(place)
    result = made.result(node, 0)
    shape = made.tensors[result].shape
    axis = int(options(node)["axis"]) % len(shape)
    axis = {1: 3, 2: 1, 3: 2}.get(axis, axis) if len(shape) == 4 else axis
    chunks = tuple(math.prod(made.tensors[s].shape[axis:]) for s in sources)
    count = math.prod(shape[:axis])
    made.operators.append(
        op.Join(sources=tuple(sources), result=result, chunks=chunks, count=count)
    )


ELEMENTWISE: dict[str, Translation] = {
    BETWEEN: _function,
    "Flatten": _reshape,
    "QLinearAdd": _sum,
    "QLinearConcat": _join,
    "QLinearLeakyRelu": _function,
    "QLinearMul": _product,
    "QLinearSigmoid": _function,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}


_TO_LAST = (0, 2, 3, 1)
_MOST_EXTENT = 1 << 14
"""Of an axis whose places are numbers of 16 bits."""


def _add_move(
    made: OnnxContext, node: onnx.NodeProto, indices: Sequence[np.ndarray], fill: int
) -> None:
    """Add a move, of the index on each axis of the file (-1: outside)."""
    source = made.data(node, 0)
    shape = made.tensors[source].shape
    ordered = [indices[a] for a in _TO_LAST] if len(indices) == 4 else list(indices)
    offsets = offsets_of(shape, ordered)
    result = made.like(node.output[0], source)
    made.operators.append(op.Move(source=source, result=result, offsets=offsets, fill=fill))


def _pad(made: OnnxContext, node: onnx.NodeProto) -> None:
    mode = options(node).get("mode", b"constant").decode()
    shape = made.shape(node.input[0])
    pads = made.constant(node, 1).reshape(2, -1).astype(np.int64)
    axes = list(range(len(shape)))
    if made.given(node, 3):
        axes = [int(a) % len(shape) for a in made.constant(node, 3).reshape(-1)]
    if int(pads.min()) < 0:
        raise RefusedError("a pad that cuts off")
    indices = [np.arange(d) for d in shape]
    for axis, (before, after) in zip(axes, pads.T, strict=True):
        indices[axis] = index_padded(shape[axis], int(before), int(after), mode)
    # A constant is a byte of the file, or a real number in the tensor's quanta.
    tensor = made.tensors[made.data(node, 0)]
    given = made.number(node, 2) if made.given(node, 2) else np.int8(0)
    fill = int(given) - made.offset(node.output[0])
    if np.issubdtype(given.dtype, np.floating):
        quanta = np.rint(np.float32(given) / np.float32(tensor.scale)) + tensor.zero
        fill = int(np.clip(quanta, *INT8))
    _add_move(made, node, indices, fill)


def _resized_axes(
    made: OnnxContext, node: onnx.NodeProto, scales_index: int
) -> tuple[str, list[tuple[int, int, float | None]]]:
    """Return the coordinates of a resize; what each axis has, shall have, and its scale."""
    given = options(node)
    if "axes" in given or int(given.get("antialias", 0)):
        raise RefusedError("a resize of some axes, or with antialias")
    if given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise RefusedError("a resize that keeps the ratio of the sides")
    coordinates = given.get("coordinate_transformation_mode", b"half_pixel").decode()
    shape, wanted = made.shape(node.input[0]), made.shape(node.output[0])
    scales: list[float | None] = [None] * len(shape)
    if made.given(node, scales_index):
        found = made.constant(node, scales_index).reshape(-1)
        scales = [float(s) for s in found] if found.size else scales
    return coordinates, list(zip(shape, wanted, scales, strict=True))


def _resize(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Resize to the nearest element, as onnxruntime finds it."""
    given = options(node)
    if is_linear_resize(node):
        raise RefusedError(
            "a linear resize of bytes, which onnxruntime computes in one of two ways, by what "
            "stands beside it; between conversions (QDQ) it can go"
        )
    if given.get("mode", b"nearest") != b"nearest":
        raise RefusedError("a resize by cubes, expected nearest or linear")
    coordinates, axes = _resized_axes(made, node, 2)
    rounding = given.get("nearest_mode", b"round_prefer_floor").decode()
    indices = []
    for have, want, scale in axes:
        places = nearest_places(have, want, scale, coordinates, rounding)
        if places is None:
            raise RefusedError(f"places by '{coordinates}', rounded by '{rounding}'")
        indices.append(places.astype(np.int64))
    _add_move(made, node, indices, 0)


def _linear_resize(made: OnnxContext, node: onnx.NodeProto) -> None:
    """Resize the last two of four axes, between conversions."""
    coordinates, axes = _resized_axes(made, node, 6)
    if len(axes) != 4 or any(have != want for have, want, _ in axes[:2]):
        raise RefusedError("a linear resize of other axes than two of an image")
    if coordinates not in MODES:
        raise RefusedError(f"places by '{coordinates}'")
    rows, columns = (_shares(*axis, coordinates) for axis in axes[2:])
    made.operators.append(op.FloatBilinear(rows=rows, columns=columns, **made.float_image(node)))


def _shares(have: int, want: int, scale: float | None, coordinates: str) -> op.FloatBetween:
    if max(have, want) > _MOST_EXTENT:
        raise RefusedError(f"{have} resized to {want}")
    return op.FloatBetween(**mix_places(float_places(have, want, scale, coordinates), have))


def _slice(made: OnnxContext, node: onnx.NodeProto) -> None:
    shape = made.shape(node.input[0])
    begins, ends = (made.constant(node, index).reshape(-1) for index in (1, 2))
    axes, steps = np.arange(len(begins)), np.ones(len(begins), np.int64)
    if made.given(node, 3):
        axes = made.constant(node, 3).reshape(-1)
    if made.given(node, 4):
        steps = made.constant(node, 4).reshape(-1)
    indices = [np.arange(d) for d in shape]
    for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
        along = slice(int(begin), int(end), int(step))
        # What lies before the first element is the end of a backward walk, as None is in Python.
        if step < 0 and end < -shape[int(axis)]:
            along = slice(int(begin), None, int(step))
        indices[int(axis)] = np.arange(shape[int(axis)])[along]
    _add_move(made, node, indices, 0)


def _split(made: OnnxContext, node: onnx.NodeProto) -> None:
    shape = made.shape(node.input[0])
    axis = int(options(node).get("axis", 0)) % len(shape)
    begin = 0
    for name in node.output:
        extent = made.shape(name)[axis]
        indices = [np.arange(d) for d in shape]
        indices[axis] = np.arange(begin, begin + extent)
        one = onnx.helper.make_node("Slice", [node.input[0]], [name])
        _add_move(made, one, indices, 0)
        begin += extent


MOVES: dict[str, Translation] = {
    LINEAR_RESIZE: _linear_resize,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
}
