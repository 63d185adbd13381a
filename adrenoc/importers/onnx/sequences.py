"""Sequences whose length and positions are known while importing, as the tensors in them.

Exporters collect the results of a loop in a list.  Once the loop is unrolled, what is taken from
the list, or joined, is known.

Before -> after:
    s = SequenceInsert(SequenceInsert(SequenceEmpty(), a), b)
    y = ConcatFromSequence(s)                                   y = Concat(a, b)
"""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.onnx.unroll import MOST_ITERATIONS, stack

Nodes = list[onnx.NodeProto]


def resolve_sequence(graph: OnnxGraph, node: onnx.NodeProto) -> Nodes | None:
    """Return the nodes in place of one that reads a sequence; None for those that stay.

    Nodes that make sequences are noted and stay: nobody needs them once all readers are resolved,
    and what still needs them is refused by their names."""
    if any(name in graph.sequences for name in node.output):
        return None
    rule = _RULES.get(node.op_type)
    return None if rule is None else rule(graph, node)


def _construct(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    graph.sequences[node.output[0]] = tuple(node.input)


def _insert(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    held = graph.sequences.get(node.input[0])
    at = None if held is None else _position(graph, node, 2, len(held), len(held))
    if held is not None and at is not None:
        graph.sequences[node.output[0]] = (*held[:at], node.input[1], *held[at:])


def _erase(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    held = graph.sequences.get(node.input[0])
    at = None if not held else _position(graph, node, 1, len(held) - 1, len(held))
    if held is not None and at is not None and at < len(held):
        graph.sequences[node.output[0]] = (*held[:at], *held[at + 1 :])


def _sequence_at(graph: OnnxGraph, node: onnx.NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    at = None if not held else _position(graph, node, 1, len(held), len(held))
    if held is None or at is None or at == len(held):
        return None
    return [helper.make_node("Identity", [held[at]], [node.output[0]])]


def _length(graph: OnnxGraph, node: onnx.NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    if held is None:
        return None
    graph.set_constant(node.output[0], np.array(len(held), np.int64))
    return []


def _concat(graph: OnnxGraph, node: onnx.NodeProto) -> Nodes | None:
    held = graph.sequences.get(node.input[0])
    if not held:
        return None
    attrs = attributes(node)
    axis = attrs["axis"]
    if attrs.get("new_axis", 0):
        return stack(graph, held, axis, node.output[0])
    return [helper.make_node("Concat", held, [node.output[0]], axis=axis)]


def _split(graph: OnnxGraph, node: onnx.NodeProto) -> Nodes | None:
    """Take one part for each element of the axis, or for each size that is given."""
    shape, attrs = graph.shape_of(node.input[0]), attributes(node)
    axis = attrs.get("axis", 0)
    if not shape or not -len(shape) <= axis < len(shape):
        return None
    total = shape[axis]
    given = node.input[1] if len(node.input) > 1 else ""
    if given and given not in graph.constants:
        return None
    if given:
        sizes = graph.constants[given]
        chunk = max(1, int(sizes.reshape(-1)[0])) if not sizes.shape else 0
        cuts = range(chunk, total, chunk) if chunk else np.cumsum(sizes)[:-1].tolist()
    else:
        cuts = range(1, total)
    if len(cuts) >= MOST_ITERATIONS:
        return None
    parts, nodes = [], []
    for index, (begin, end) in enumerate(zip((0, *cuts), (*cuts, total), strict=True)):
        parts.append(f"{node.output[0]}/part{index}")
        single = not given and not attrs.get("keepdims", 1)
        place = np.array(index) if single else np.arange(begin, end)
        graph.set_constant(f"{parts[-1]}/at", place)
        operands = [node.input[0], f"{parts[-1]}/at"]
        nodes.append(helper.make_node("Gather", operands, [parts[-1]], axis=axis))
    graph.sequences[node.output[0]] = tuple(parts)
    return [*nodes, node]


def _position(
    graph: OnnxGraph, node: onnx.NodeProto, index: int, default: int, length: int
) -> int | None:
    """Return the position that an input says, from 0 to `length`; None where that is not known."""
    name = node.input[index] if index < len(node.input) else ""
    if not name:
        return default
    if name not in graph.constants:
        return None
    at = int(graph.scalar(name))
    at = at + length if at < 0 else at
    return at if 0 <= at <= length else None


_RULES: dict[str, Callable[[OnnxGraph, onnx.NodeProto], Nodes | None]] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
