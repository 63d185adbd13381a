"""Entries whose number depends on data, scattered into a tensor: the missing ones go nowhere.

Before -> after, of up to 18 rows u for places i of x [9, 32]:
    y = ScatterElements(x, i, u, axis=0)
    y = Slice(ScatterElements(Concat(x, a row of zeros), Where(found, i, 9), u), 0, 9)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.graph import OnnxGraph, TensorType, attributes, copy_node

Mask = Callable[[OnnxGraph, str, str, int], str]
"""Puts a number into the missing entries of a tensor: graph, tensor, label, number."""


def scatter_found(
    graph: OnnxGraph, node: onnx.NodeProto, mask: Mask
) -> list[onnx.NodeProto] | None:
    """Return what takes the place of a ScatterElements or ScatterND by counted indices, or None."""
    if node.op_type not in ("ScatterElements", "ScatterND") or len(node.input) < 3:
        return None
    data, indices, updates = node.input[:3]
    known, places = graph.types.get(data), graph.types.get(indices)
    one, other = graph.counted.get(indices), graph.counted.get(updates)
    if known is None or not known.shape or places is None or not places.shape:
        return None
    if graph.counted.get(data) is not None or one is None or other is None:
        return None
    by_row = node.op_type == "ScatterND"
    if one != other or (by_row and (places.shape[-1] != 1 or one.axis == len(places.shape) - 1)):
        return None
    axis = 0 if by_row else attributes(node).get("axis", 0) % len(known.shape)
    extent, prefix = known.shape[axis], f"{node.output[0]}/found/"
    shape = (*known.shape[:axis], 1, *known.shape[axis + 1 :])
    graph.set_constant(f"{prefix}beyond", np.zeros(shape, known.dtype))
    for name, number in (("first", 0), ("end", extent), ("axis", axis)):
        graph.set_constant(f"{prefix}{name}", np.array([number], np.int64))
    longer = (*known.shape[:axis], extent + 1, *known.shape[axis + 1 :])
    for name in ("longer", "whole"):
        graph.types[f"{prefix}{name}"] = TensorType(element=known.element, shape=longer)
    scatter = copy_node(node)
    masked = mask(graph, indices, f"from_{extent}", extent), mask(graph, updates, "updates", 0)
    scatter.input[:] = [f"{prefix}longer", *masked]
    scatter.output[:] = [f"{prefix}whole"]
    window = [f"{prefix}{name}" for name in ("whole", "first", "end", "axis")]
    return [
        helper.make_node("Concat", [data, f"{prefix}beyond"], [f"{prefix}longer"], axis=axis),
        scatter,
        helper.make_node("Slice", window, [node.output[0]]),
    ]
