"""One value assigned wherever a mask of a tensor's first axes holds.

Exporters write x[where(m)] = value with the places that NonZero finds, a column for each axis of
the mask, and the value expanded to as many as there are, while that number has not to be known.

Before -> after, of x [3, 8, 6] and m [3, 8]:
    a, b = NonZero(m); y = ScatterND(x, Concat(Unsqueeze(a), Unsqueeze(b)), Expand(value, ...))
    y = Where(Reshape(m, [3, 8, 1]), value, x)
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes

_KEEPS_ENTRIES = ("Cast", "Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze")
_REPEATS = ("Expand", "Identity", "Reshape", "Squeeze", "Tile", "Unsqueeze")


def assign_value(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return what takes the place of a ScatterND of one constant by the places of a mask, or
    None."""
    if node.op_type != "ScatterND" or attributes(node).get("reduction", b"none") != b"none":
        return None
    data, places, updates = node.input[:3]
    known, value = graph.types.get(data), _find_value(graph, updates)
    if known is None or known.shape is None or graph.counted.get(data) is not None or not value:
        return None
    mask = _find_mask(graph, places)
    shape = graph.types[mask].shape if mask else None
    if shape is None or shape != known.shape[: len(shape)]:
        return None
    prefix = f"{node.output[0]}/value/"
    wide = (*shape, *[1] * (len(known.shape) - len(shape)))
    graph.set_constant(f"{prefix}wide", np.array(wide, np.int64))
    graph.set_constant(f"{prefix}one", graph.constants[value].reshape(()).astype(known.dtype))
    names = [f"{prefix}{name}" for name in ("mask", "there")]
    for name, has in zip(names, (shape, wide), strict=True):
        graph.types[name] = TensorType(element=TensorProto.BOOL, shape=tuple(has))
        graph.counted[name] = None
    return [
        helper.make_node("Cast", [mask], names[:1], to=TensorProto.BOOL),
        helper.make_node("Reshape", [names[0], f"{prefix}wide"], names[1:]),
        helper.make_node("Where", [names[1], f"{prefix}one", data], [node.output[0]]),
    ]


def _find_value(graph: OnnxGraph, updates: str) -> str:
    """Return the constant of one element that the updates repeat, or an empty string."""
    name = updates
    while (node := graph.find_maker(name)) is not None and node.op_type in _REPEATS:
        name = node.input[0]
    value = graph.constants.get(name)
    return name if value is not None and value.size == 1 else ""


def _find_mask(graph: OnnxGraph, places: str) -> str:
    """Return what `places` [found, rank] are the places of, axis by axis, or an empty string."""
    node = graph.find_maker(places)
    if node is None:
        return ""
    if node.op_type == "Transpose" and _is_turned(node):
        found = graph.find_maker(node.input[0])
        return found.input[0] if found is not None and found.op_type == "NonZero" else ""
    if node.op_type != "Concat" or attributes(node).get("axis", 0) not in (-1, 1):
        return ""
    columns = [_find_column(graph, name) for name in node.input]
    source = columns[0][0]
    rank = len(graph.types[source].shape or ()) if source in graph.types else 0
    return source if columns == [(source, index) for index in range(rank)] else ""


def _is_turned(node: onnx.NodeProto) -> bool:
    return bool(attributes(node).get("perm", [1, 0]) == [1, 0])


def _find_column(graph: OnnxGraph, name: str) -> tuple[str, int]:
    """Of which mask, and of which of its axes, a column says the places; ("", 0) of others."""
    extents = set()
    while (node := graph.find_maker(name)) is not None:
        shape = graph.shape_of(name)
        if shape is None:
            break
        extents.add(math.prod(shape))
        if node.op_type in ("Split", "Gather"):
            return _read_column(graph, node, name) if len(extents) == 1 else ("", 0)
        if node.op_type not in _KEEPS_ENTRIES:
            break
        name = node.input[0]
    return "", 0


def _read_column(graph: OnnxGraph, node: onnx.NodeProto, name: str) -> tuple[str, int]:
    turned, axis = graph.find_maker(node.input[0]), 0
    if turned is not None and turned.op_type == "Transpose" and _is_turned(turned):
        turned, axis = graph.find_maker(turned.input[0]), 1
    if turned is None or turned.op_type != "NonZero":
        return "", 0
    rank = len(graph.types[turned.input[0]].shape or ())
    if attributes(node).get("axis", 0) % 2 != axis:
        return "", 0
    if node.op_type == "Split":
        index = list(node.output).index(name)
        return (turned.input[0], index) if len(node.output) == rank else ("", 0)
    at = graph.constants.get(node.input[1])
    return (turned.input[0], int(at.item()) % rank) if at is not None and at.size == 1 else ("", 0)
