"""Sums, products, tables and moves of quantised ONNX models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8
from adrenoc.firmware.mcu.onnx.context import Importing, Translation, float_rule, options
from adrenoc.firmware.mcu.onnx.float_islands import BETWEEN, FUNCTIONS
from adrenoc.firmware.mcu.operators import Join, Lookup, Product, Requantise, Reshape, Sum

_BYTES = np.arange(-128, 128, dtype=np.int64)


def _operands(made: Importing, node: onnx.NodeProto) -> tuple[int, int]:
    """Two tensors, the second of which may repeat along the first."""
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


def _sum(made: Importing, node: onnx.NodeProto) -> None:
    first, second = _operands(made, node)
    a, b, c = (np.float32(made.number(node, index)) for index in (1, 4, 6))
    zeros = [np.float32(made.number(node, index)) for index in (2, 5, 7)]
    out = made.offset(node.output[0])
    # In float32, as onnxruntime's kernel, where each product is rounded with what it is added to.
    fixed = zeros[2] - _fuse_multiply_add(a / c, zeros[0], b / c * zeros[1])
    first_bytes = (_BYTES + made.offset(node.input[0])).astype(np.float32)
    x = first_bytes * (a / c)
    y = _fuse_multiply_add((_BYTES + made.offset(node.input[3])).astype(np.float32), b / c, fixed)
    table = (
        np.rint(_fuse_multiply_add(first_bytes[:, None], a / c, y[None, :])).astype(np.int64) - out
    )
    made.operators.append(
        Sum(
            sources=(first, second),
            result=made.make(node.output[0], float(c), int(zeros[2])),
            tables=(x - x[0], y - y[0]),
            requantise=Requantise(zero=0, low=INT8[0], high=INT8[1], reals=np.ones(1)),
            wanted=np.clip(table, *INT8),
        )
    )


def _product(made: Importing, node: onnx.NodeProto) -> None:
    first, second = _operands(made, node)
    a, b, c = (np.float32(made.number(node, index)) for index in (1, 4, 6))
    zero = int(made.number(node, 7))
    made.operators.append(
        Product(
            sources=(first, second),
            result=made.make(node.output[0], float(c), zero),
            zeros=(made.tensors[first].zero, made.tensors[second].zero),
            requantise=float_rule(a * b / c, zero, made.offset(node.output[0])),
        )
    )


def _table(
    made: Importing,
    node: onnx.NodeProto,
    function: Callable[[np.ndarray], np.ndarray],
    places: tuple[int, int] = (1, 3),
) -> None:
    """A function of float32 between two conversions; `places` are those of the scales."""
    source = made.data(node, 0)
    scale, zero = (np.float32(made.number(node, places[0])), int(made.number(node, places[0] + 1)))
    to, shift = (np.float32(made.number(node, places[1])), int(made.number(node, places[1] + 1)))
    real = (_BYTES + made.offset(node.input[0]) - zero).astype(np.float32) * scale
    offset = made.offset(node.output[0])
    found = np.rint(function(real).astype(np.float32) / to) + shift - offset
    made.operators.append(
        Lookup(
            source=source,
            result=made.make(node.output[0], float(to), shift),
            table=np.clip(found, *INT8).astype(np.int8),
        )
    )


def _sigmoid(made: Importing, node: onnx.NodeProto) -> None:
    _table(made, node, lambda real: 1 / (1 + np.exp(-real.astype(np.float64))))


def _leaky(made: Importing, node: onnx.NodeProto) -> None:
    alpha = np.float32(options(node).get("alpha", 0.01))
    _table(made, node, lambda real: np.where(real >= 0, real, real * alpha))


def _translate_between(made: Importing, node: onnx.NodeProto) -> None:
    kind = options(node)["function"]
    _table(made, node, FUNCTIONS[kind.decode()](node))


def _reshape(made: Importing, node: onnx.NodeProto) -> None:
    """The file's order of elements stays; where channels lie last they go back before."""
    source = made.channels_first(made.data(node, 0))
    shape = made.shape(node.output[0])
    tensor = made.tensors[source]
    if len(shape) != 4:
        result = made.like(node.output[0], source)
        made.operators.append(Reshape(source=source, result=result))
        return
    between = made.add(shape, node.output[0], tensor.scale, tensor.zero)
    made.operators.append(Reshape(source=source, result=between))
    made.labels.append(node.op_type)
    made.places[node.output[0]] = made.channels_last(between)


def _transpose(made: Importing, node: onnx.NodeProto) -> None:
    source = made.channels_first(made.data(node, 0))
    rank = len(made.tensors[source].shape)
    order: Sequence[int] = options(node).get("perm") or range(rank)[::-1]
    if sum(d > 1 for d in made.tensors[source].shape) > 4:
        raise RefusedError(f"{rank} axes")
    moved = made.transpose(source, tuple(int(a) % rank for a in order), node.op_type)
    made.places[node.output[0]] = made.channels_last(moved)


def _join(made: Importing, node: onnx.NodeProto) -> None:
    scale, zero = np.float32(made.number(node, 0)), int(made.number(node, 1))
    sources = []
    for index in range(2, len(node.input), 3):
        one = onnx.helper.make_node(
            "Requantise", [*node.input[index : index + 3], *node.input[:2]], [node.input[index]]
        )
        place = made.data(one, 0)
        same = np.float32(made.number(one, 1)) == scale and int(made.number(one, 2)) == zero
        if not same:
            _table(made, one, lambda real: real)
            made.labels.append("Requantise")
            made.places[node.input[index]], place = place, made.places[node.input[index]]
        sources.append(place)
    result = made.make(node.output[0], float(scale), zero)
    shape = made.tensors[result].shape
    axis = int(options(node)["axis"]) % len(shape)
    axis = {1: 3, 2: 1, 3: 2}.get(axis, axis) if len(shape) == 4 else axis
    made.operators.append(
        Join(
            sources=tuple(sources),
            result=result,
            chunks=tuple(math.prod(made.tensors[s].shape[axis:]) for s in sources),
            count=math.prod(shape[:axis]),
        )
    )


ELEMENTWISE: dict[str, Translation] = {
    BETWEEN: _translate_between,
    "Flatten": _reshape,
    "QLinearAdd": _sum,
    "QLinearConcat": _join,
    "QLinearLeakyRelu": _leaky,
    "QLinearMul": _product,
    "QLinearSigmoid": _sigmoid,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
