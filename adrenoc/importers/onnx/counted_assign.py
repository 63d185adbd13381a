"""Values assigned where a mask holds: the k-th place that it names gets the k-th value.

Exporters write x[m] = f(x[m]) and masked_scatter with the places and as many values as there are,
while neither number has to be known.

Before -> after, of x and m [3, 8]:
    i = Transpose(NonZero(m)); y = ScatterND(x, i, Slice(Reshape(v, [-1]), 0, Shape(i)[0]))
    k = CumSum(Reshape(m, [-1])) - 1; y = Where(m, Reshape(Gather(Reshape(v, [-1]), k), [3, 8]), x)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes

_KEEPS_PLACES = ("Cast", "Expand", "Identity", "Reshape", "Unsqueeze")
"""What a mask passes through on its way from rows to elements."""


def assign_masked(graph: OnnxGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return what takes the place of a ScatterND by the places of a mask of the same shape, or
    None."""
    if node.op_type != "ScatterND" or attributes(node).get("reduction", b"none") != b"none":
        return None
    data, places, updates = node.input[:3]
    mask, known = _find_mask(graph, places), graph.types.get(data)
    if not mask or known is None or known.shape is None or graph.counted.get(data) is not None:
        return None
    values = _find_values(graph, updates, mask)
    if graph.types[mask].shape != known.shape or not values:
        return None
    count = math.prod(graph.types[values].shape or ())
    prefix = f"{node.output[0]}/assigned/"

    def add(op: str, inputs: Sequence[str], result: str, element: int, shape: Any) -> str:
        name = prefix + result
        graph.nodes.append(helper.make_node(op, list(inputs), [name]))
        graph.types[name] = TensorType(element=element, shape=tuple(shape))
        graph.counted[name] = None
        return name

    for name, number in (("one", 1), ("first", 0), ("last", count - 1)):
        graph.set_constant(prefix + name, np.array(number, np.int32))
    for name, shape in (("flat", [-1]), ("whole", known.shape)):
        graph.set_constant(prefix + name, np.array(shape, np.int64))
    row, own = (math.prod(known.shape),), known.element
    if graph.types[mask].element != TensorProto.BOOL:
        graph.set_constant(prefix + "none", np.zeros((), graph.types[mask].dtype))
        same = add("Equal", [mask, prefix + "none"], "same", TensorProto.BOOL, known.shape)
        mask = add("Not", [same], "mask", TensorProto.BOOL, known.shape)
    ones = add("Where", [mask, prefix + "one", prefix + "first"], "ones", _INT, known.shape)
    steps = add("Reshape", [ones, prefix + "flat"], "steps", _INT, row)
    rank = add("CumSum", [steps, prefix + "first"], "rank", _INT, row)
    place = add("Sub", [rank, prefix + "one"], "number", _INT, row)
    above = add("Max", [place, prefix + "first"], "above", _INT, row)
    at = add("Min", [above, prefix + "last"], "at", _INT, row)
    flat = add("Reshape", [values, prefix + "flat"], "values", own, (count,))
    picked = add("Gather", [flat, at], "picked", own, row)
    spread = add("Reshape", [picked, prefix + "whole"], "spread", own, known.shape)
    return [helper.make_node("Where", [mask, spread, data], [node.output[0]])]


_INT = TensorProto.INT32


def _find_mask(graph: OnnxGraph, places: str) -> str:
    """Return what `places` [found, rank] are the places of, or an empty string."""
    turned = graph.find_maker(places)
    if turned is None or turned.op_type != "Transpose":
        return ""
    found = graph.find_maker(turned.input[0])
    if (
        attributes(turned).get("perm", [1, 0]) != [1, 0]
        or found is None
        or found.op_type != "NonZero"
    ):
        return ""
    return "" if graph.shape_of(found.input[0]) is None else found.input[0]


def _find_values(graph: OnnxGraph, updates: str, mask: str) -> str:
    """Return the tensor whose entries, one after another, are assigned; those found come first in
    it."""
    name = updates
    while (node := graph.find_maker(name)) is not None and _keeps_order(graph, node, mask):
        name = node.input[0]
    shape, counted = graph.shape_of(name), graph.counted.get(name)
    if not shape or (counted is not None and counted.axis != 0):
        return ""
    return name if math.prod(shape) else ""


def _keeps_order(graph: OnnxGraph, node: onnx.NodeProto, mask: str) -> bool:
    """Return whether the entries of a node's result are those of its input, from the first on."""
    given = [graph.constants.get(name) for name in node.input]

    def is_all(index: int, value: int) -> bool:
        one = given[index] if index < len(given) else np.array([value])
        return one is not None and one.reshape(-1).tolist() == [value]

    if node.op_type == "Reshape":
        return is_all(1, -1)
    if node.op_type == "Slice":  # as many as places: those are all that were found
        is_computed = len(given) > 2 and given[2] is None
        return is_computed and is_all(1, 0) and is_all(3, 0) and is_all(4, 1)
    return node.op_type == "Expand" and _is_as_it_was(graph, node, mask)


def _is_as_it_was(graph: OnnxGraph, node: onnx.NodeProto, mask: str) -> bool:
    """Return whether an Expand to as many rows as places leaves its input: its rows are of that
    mask."""
    shape, counted = graph.shape_of(node.input[0]), graph.counted.get(node.input[0])
    if not shape or counted is None:
        return False
    found = graph.find_maker(counted.source)
    is_same = found is not None and _root(graph, found.input[0]) == _root(graph, mask)
    return is_same and 1 not in shape and graph.shape_of(node.input[1]) == (len(shape),)


def _root(graph: OnnxGraph, name: str) -> str:
    while (node := graph.find_maker(name)) is not None and node.op_type in _KEEPS_PLACES:
        name = node.input[0]
    return name
