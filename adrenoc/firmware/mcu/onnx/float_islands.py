"""Functions of floats between two conversions become operators on bytes.

*Before -> after*: QuantizeLinear(f(DequantizeLinear(x))) -> Between(x, its scale and zero point,
those of the result), which is a table; the same for concatenations, as QLinearConcat, and for
linear resizes.  QuantizeLinear(Reshape(f)) -> Reshape(QuantizeLinear(f)), so that f is closed too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, attributes

BETWEEN = "Between"
LINEAR_RESIZE = "QLinearResize"
_ONE = np.float32(1)
Function: TypeAlias = Callable[[np.ndarray], np.ndarray]


def _hard_sigmoid(node: onnx.NodeProto, alpha: float = 0.2) -> Function:
    given = dict(attributes(node))
    a = np.float32(given.get("alpha", alpha))
    b = np.float32(given.get("beta", 0.5))
    return lambda x: np.clip(x * a + b, np.float32(0), _ONE)


def _hard_swish(node: onnx.NodeProto) -> Function:
    gate = _hard_sigmoid(node, 1 / 6)
    return lambda x: x * gate(x)


def _elu(node: onnx.NodeProto) -> Function:
    alpha = float(dict(attributes(node)).get("alpha", 1.0))
    return lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x.astype(np.float64), 0)))


FUNCTIONS: dict[str, Callable[[onnx.NodeProto], Function]] = {
    "Abs": lambda node: np.abs,
    "Elu": _elu,
    "Exp": lambda node: lambda x: np.exp(x.astype(np.float64)),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Neg": lambda node: np.negative,
    "Relu": lambda node: lambda x: np.maximum(x, np.float32(0)),
    "Tanh": lambda node: lambda x: np.tanh(x.astype(np.float64)),
}


MEAN, TRANSPOSED = "QLinearReduceMean", "QLinearConvTranspose"
WEIGHTS_AXIS = "weights_axis"
"""Attribute: the axis that scales of the weights go along."""
_MOVES = ("Pad", "Resize", "Slice")
_SHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_CLOSED = frozenset((*FUNCTIONS, *_MOVES, "Concat", "ConvTranspose", "ReduceMean", "Softmax"))


def _same_quanta(graph: OnnxGraph, first: list[str], second: list[str]) -> bool:
    """Return whether scale and zero point are the same on both sides."""
    pairs = [(graph.constants.get(a), graph.constants.get(b)) for a, b in zip(first, second)]  # noqa: B905
    return len(first) == len(second) and all(
        a is not None and b is not None and np.array_equal(a, b) for a, b in pairs
    )


def _quantise_before_shapes(graph: OnnxGraph) -> None:
    """Let what a closed operator makes be quantised before it gets another shape."""
    places = {name: place for place, node in enumerate(graph.nodes) for name in node.output}
    readers = Counter(name for node in graph.nodes for name in node.input)
    readers.update(graph.outputs)
    for node in list(graph.nodes):
        place = places[node.output[0]]
        while (before := _shape_before(graph, place, places, readers)) is not None:
            end, shaped = graph.nodes[place], graph.nodes[before]
            source, between = shaped.input[0], f"{shaped.input[0]} quantised by {end.output[0]}"
            element = graph.types[end.output[0]].element
            graph.types[between] = replace(graph.types[source], element=element)
            last = helper.make_node(
                shaped.op_type, [between, *shaped.input[1:]], list(end.output), name=shaped.name
            )
            last.attribute.extend(shaped.attribute)
            first = helper.make_node(end.op_type, [source, *end.input[1:]], [between])
            graph.nodes[before], graph.nodes[place] = first, last
            places[between] = place = before


def _shape_before(
    graph: OnnxGraph, place: int, places: dict[str, int], readers: Counter[str]
) -> int | None:
    """Where a conversion to bytes reads what only shapes the result of a closed operator."""
    end = graph.nodes[place]
    if end.op_type != "QuantizeLinear" or len(end.input) != 3 or readers[end.input[0]] != 1:
        return None
    before = places.get(end.input[0])
    if before is None or graph.nodes[before].op_type not in _SHAPES:
        return None
    maker = places.get(graph.nodes[before].input[0])
    known = maker is not None and graph.nodes[maker].op_type in (*_SHAPES, *_CLOSED)
    return before if known else None


def close_islands(graph: OnnxGraph) -> None:
    """Put operators on bytes in place of what stands between two conversions, in `graph`."""
    _quantise_before_shapes(graph)
    makers = {name: node for node in graph.nodes for name in node.output}
    readers = Counter(name for node in graph.nodes for name in node.input)
    readers.update(graph.outputs)
    ends = {
        node.input[0]: node
        for node in graph.nodes
        if node.op_type == "QuantizeLinear" and len(node.input) == 3 and readers[node.input[0]] == 1
    }
    made, gone = [], set()
    for node in graph.nodes:
        begins = [makers.get(name) for name in node.input]
        end = ends.get(node.output[0]) if len(node.output) == 1 else None
        if end is None or node.op_type not in _CLOSED:
            made.append(node)
            continue
        if node.op_type in (*_MOVES, "ReduceMean"):
            begins = begins[:1]
        operands = [_operand(begin) for begin in begins]
        if not operands or any(operand is None for operand in operands):
            made.append(node)
            continue
        found = [name for operand in operands for name in operand or ()]
        moves = node.op_type in _MOVES and not is_linear_resize(node)
        if moves and not _same_quanta(graph, found[1:], list(end.input[1:])):
            made.append(node)
            continue
        made.append(_join_island(node, end, found, axis=_weights_axis(begins)))
        gone.add(end.output[0])
    graph.nodes = [n for n in made if n.op_type != "QuantizeLinear" or n.output[0] not in gone]
    graph.nodes = _used(graph)


def is_linear_resize(node: onnx.NodeProto) -> bool:
    """Return whether a node resizes to numbers between its elements."""
    return node.op_type == "Resize" and dict(attributes(node)).get("mode") == b"linear"


def _operand(begin: onnx.NodeProto | None) -> list[str] | None:
    """Return the bytes that a conversion reads, with their scale and zero point."""
    if begin is None or begin.op_type != "DequantizeLinear" or len(begin.input) != 3:
        return None
    return list(begin.input)


def _weights_axis(begins: list[onnx.NodeProto | None]) -> int:
    """Return the axis of the second operand's scales."""
    given = dict(attributes(begins[1])) if len(begins) > 1 and begins[1] is not None else {}
    return int(given.get("axis", 1))


def _join_island(
    node: onnx.NodeProto, end: onnx.NodeProto, operands: list[str], *, axis: int
) -> onnx.NodeProto:
    quanta = list(end.input[1:])
    inputs = [*operands, *quanta]
    kind = BETWEEN
    if is_linear_resize(node):
        kind, inputs = LINEAR_RESIZE, [*inputs, *node.input[1:]]
    elif node.op_type in _MOVES:
        kind, inputs = node.op_type, [operands[0], *node.input[1:]]
        if kind == "Pad" and (len(inputs) < 3 or not inputs[2]):
            # What it fills up with is zero, of which the byte is the zero point.
            inputs[2:3] = [operands[2]]
    elif node.op_type == "Softmax":
        kind = "QLinearSoftmax"
    elif node.op_type == "ReduceMean":
        kind, inputs = MEAN, [*inputs, *node.input[1:]]
    elif node.op_type == "ConvTranspose":
        # As QLinearConv has them: its bias is int32, in quanta of the sums.
        kind, inputs = TRANSPOSED, [*operands[:6], *quanta, *operands[6:7]]
    elif node.op_type == "Concat":
        kind, inputs = "QLinearConcat", [*quanta, *operands]
    made = helper.make_node(kind, inputs, list(end.output), name=node.name)
    made.attribute.extend(node.attribute)
    if kind == TRANSPOSED:
        made.attribute.append(helper.make_attribute(WEIGHTS_AXIS, axis))
    if kind == BETWEEN:
        made.attribute.append(helper.make_attribute("function", node.op_type))
    return made


def _used(graph: OnnxGraph) -> list[onnx.NodeProto]:
    """Return the nodes without conversions that nothing reads any more."""
    read = {name for node in graph.nodes for name in node.input} | set(graph.outputs)
    return [n for n in graph.nodes if n.op_type != "DequantizeLinear" or n.output[0] in read]
