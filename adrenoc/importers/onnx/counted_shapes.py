"""Shapes that models compute of tensors whose number of entries depends on data.

What such a tensor is reshaped or expanded to is stated as constants, with its counted axis open.

Before -> after, of x [18 at most, 4]:
    n = Shape(x, end=1); y = Reshape(x, Concat(n, [2, 2]))       y = Reshape(x, [-1, 2, 2])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from adrenoc.importers.onnx.graph import Counted, OnnxGraph, attributes


@dataclass(frozen=True)
class _Extent:
    """A number of a shape: as many as there may be, and what counts it where data does."""

    most: int
    counted: Counted | None = None


def state_shape(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    """Give a Reshape or Expand of a counted tensor a constant shape, where that says the same."""
    if node.op_type not in ("Reshape", "Expand") or len(node.input) < 2:
        return
    own, known = graph.counted.get(node.input[0]), graph.shape_of(node.input[0])
    if node.input[1] in graph.constants or own is None or known is None:
        return
    extents = _extents(graph, node.input[1])
    if extents is None or any(
        e.counted is not None and e.counted.source != own.source for e in extents
    ):
        return
    is_expand = node.op_type == "Expand"
    shape = _expand(known, own, extents) if is_expand else _reshape(known, extents)
    if shape is not None:
        name = f"{node.output[0]}/shape"
        graph.set_constant(name, np.array(shape, np.int64))
        node.input[1] = name


def _reshape(shape: Sequence[int], extents: Sequence[_Extent]) -> list[int] | None:
    """The counted extent becomes the open one; one that was open is what is left."""
    if sum(e.counted is not None for e in extents) != 1:
        return None
    wanted = [shape[i] if e.most == 0 and i < len(shape) else e.most for i, e in enumerate(extents)]
    if -1 in wanted:
        others = math.prod(e for e in wanted if e != -1)
        if not others or math.prod(shape) % others:
            return None
        wanted[wanted.index(-1)] = math.prod(shape) // others
    return [-1 if e.counted is not None else w for e, w in zip(extents, wanted, strict=True)]


def _expand(shape: Sequence[int], own: Counted, extents: Sequence[_Extent]) -> list[int] | None:
    """The counted extent becomes a one, which keeps what the data has."""
    place = own.axis - len(shape) + len(extents)
    wanted = []
    for index, extent in enumerate(extents):
        if extent.counted is None and index == place and extent.most != 1:
            return None
        if extent.counted is not None and index != place:
            return None
        wanted.append(1 if index == place else extent.most)
    return wanted


def _extents(graph: OnnxGraph, name: str) -> list[_Extent] | None:
    """Return the numbers of a shape that a model computes, where they are plain to see."""
    value = graph.constants.get(name)
    if value is not None:
        return [_Extent(int(v)) for v in value.reshape(-1)] if value.ndim < 2 else None
    node = graph.find_maker(name)
    rule = _RULES.get(node.op_type) if node is not None else None
    return rule(graph, node) if rule is not None else None


def _shape(graph: OnnxGraph, node: onnx.NodeProto) -> list[_Extent] | None:
    shape, counted = graph.shape_of(node.input[0]), graph.counted.get(node.input[0])
    if shape is None:
        return None
    extents = [_Extent(extent) for extent in shape]
    if counted is not None:
        extents[counted.axis] = _Extent(extents[counted.axis].most, counted)
    attrs = attributes(node)
    return extents[slice(attrs.get("start", 0), attrs.get("end"))]


def _same(graph: OnnxGraph, node: onnx.NodeProto) -> list[_Extent] | None:
    return _extents(graph, node.input[0])


def _concat(graph: OnnxGraph, node: onnx.NodeProto) -> list[_Extent] | None:
    made: list[_Extent] = []
    for name in node.input:
        part = _extents(graph, name)
        if part is None:
            return None
        made += part
    return made


def _gather(graph: OnnxGraph, node: onnx.NodeProto) -> list[_Extent] | None:
    indices, whole = graph.constants.get(node.input[1]), _extents(graph, node.input[0])
    if indices is None or whole is None:
        return None
    picked = [int(i) for i in indices.reshape(-1)]
    if any(not -len(whole) <= i < len(whole) for i in picked):
        return None
    return [whole[i] for i in picked]


def _where(graph: OnnxGraph, node: onnx.NodeProto) -> list[_Extent] | None:
    """Return what PyTorch expands by: Where(shape == -1, 1, shape), of a shape that has no -1."""
    shape, same = node.input[2], graph.find_maker(node.input[0])
    if same is None or same.op_type != "Equal" or shape not in same.input:
        return None
    others = [name for name in same.input if name != shape]
    extents = _extents(graph, shape)
    if len(others) != 1 or not _is_minus_one(graph, others[0]) or extents is None:
        return None
    return extents if all(e.most >= 0 for e in extents) else None


def _is_minus_one(graph: OnnxGraph, name: str) -> bool:
    value, node = graph.constants.get(name), graph.find_maker(name)
    if value is not None:
        return bool((value == -1).all())
    if node is None or node.op_type != "Mul":
        return False
    factors = [graph.constants.get(n) for n in node.input]
    filled = [graph.find_maker(n) for n in node.input]
    negated = any(f is not None and bool((f == -1).all()) for f in factors)
    return negated and any(f is not None and _is_of_ones(f) for f in filled)


def _is_of_ones(node: onnx.NodeProto) -> bool:
    value = attributes(node).get("value")
    if node.op_type != "ConstantOfShape" or value is None:
        return False
    return bool((onnx.numpy_helper.to_array(value) == 1).all())


_RULES: Mapping[str, Callable[[OnnxGraph, onnx.NodeProto], list[_Extent] | None]] = {
    "Cast": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _same,
    "Shape": _shape,
    "Squeeze": _same,
    "Unsqueeze": _same,
    "Where": _where,
}
