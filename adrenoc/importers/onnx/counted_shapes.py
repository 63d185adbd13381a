"""Shapes that models compute of tensors whose number of entries depends on data.

What such a tensor is reshaped or expanded to is stated as constants, with its counted axis open.

Before -> after, of x [18 at most, 4]:
    n = Shape(x, end=1); y = Reshape(x, Concat(n, [2, 2]))       y = Reshape(x, [-1, 2, 2])

Values assigned where a mask holds: one value everywhere, or the k-th to the k-th place.

Exporters write x[m] = value, x[m] = f(x[m]) and masked_scatter with the places that NonZero finds,
turned or a column for each axis of the mask, and with as many values as there are, while neither
number has to be known.

Before -> after, of x [3, 8, 6] and m [3, 8]:
    a, b = NonZero(m); y = ScatterND(x, Concat(Unsqueeze(a), Unsqueeze(b)), Expand(value, ...))
    y = Where(Reshape(m, [3, 8, 1]), value, x)
Before -> after, of x and m [3, 8]:
    i = Transpose(NonZero(m)); y = ScatterND(x, i, Slice(Reshape(v, [-1]), 0, Shape(i)[0]))
    k = CumSum(Reshape(m, [-1])) - 1; y = Where(m, Reshape(Gather(Reshape(v, [-1]), k), [3, 8]), x)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from adrenoc.importers.onnx.graph import Counted, OnnxGraph, attributes
from adrenoc.importers.onnx.infer import NodeWriter


@dataclass(frozen=True)
class _Extent:
    """A number of a shape: as many as there may be, and what counts it where data does."""

    most: int
    counted: Counted | None = None


def state_shape(graph: OnnxGraph, node: NodeProto) -> None:
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
    """Make the counted extent the open one; one that was open is what is left."""
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
    """Make the counted extent a one, which keeps what the data has."""
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


def _shape(graph: OnnxGraph, node: NodeProto) -> list[_Extent] | None:
    shape, counted = graph.shape_of(node.input[0]), graph.counted.get(node.input[0])
    if shape is None:
        return None
    extents = [_Extent(extent) for extent in shape]
    if counted is not None:
        extents[counted.axis] = _Extent(extents[counted.axis].most, counted)
    attrs = attributes(node)
    return extents[slice(attrs.get("start", 0), attrs.get("end"))]


def _same(graph: OnnxGraph, node: NodeProto) -> list[_Extent] | None:
    return _extents(graph, node.input[0])


def _concat(graph: OnnxGraph, node: NodeProto) -> list[_Extent] | None:
    made: list[_Extent] = []
    for name in node.input:
        part = _extents(graph, name)
        if part is None:
            return None
        made += part
    return made


def _gather(graph: OnnxGraph, node: NodeProto) -> list[_Extent] | None:
    indices, whole = graph.constants.get(node.input[1]), _extents(graph, node.input[0])
    if indices is None or whole is None:
        return None
    picked = [int(i) for i in indices.reshape(-1)]
    if any(not -len(whole) <= i < len(whole) for i in picked):
        return None
    return [whole[i] for i in picked]


def _where(graph: OnnxGraph, node: NodeProto) -> list[_Extent] | None:
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


def _is_of_ones(node: NodeProto) -> bool:
    value = attributes(node).get("value")
    if node.op_type != "ConstantOfShape" or value is None:
        return False
    return bool((onnx.numpy_helper.to_array(value) == 1).all())


_RULES: Mapping[str, Callable[[OnnxGraph, NodeProto], list[_Extent] | None]] = {
    "Cast": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _same,
    "Shape": _shape,
    "Squeeze": _same,
    "Unsqueeze": _same,
    "Where": _where,
}


_KEEPS_PLACES = ("Cast", "Expand", "Identity", "Reshape", "Unsqueeze")
"""What a mask passes through on its way from rows to elements."""
_KEEPS_ENTRIES = (*_KEEPS_PLACES, "Squeeze")
_REPEATS = ("Expand", "Identity", "Reshape", "Squeeze", "Tile", "Unsqueeze")


def assign_masked(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Return what takes the place of a ScatterND by the places of a mask, or None."""
    if node.op_type != "ScatterND" or attributes(node).get("reduction", b"none") != b"none":
        return None
    data, places, updates = node.input[:3]
    shape, mask = graph.shape_of(data), _find_mask(graph, places)
    held = graph.shape_of(mask)
    if shape is None or held is None or graph.counted.get(data) is not None:
        return None
    value = _find_value(graph, updates)
    if value and held == shape[: len(held)]:
        return _assign_one(graph, node, mask, value)
    values = _find_values(graph, updates, mask)
    return _assign_each(graph, node, mask, values) if values and held == shape else None


def _assign_one(graph: OnnxGraph, node: NodeProto, mask: str, value: str) -> list[NodeProto]:
    """Assign a constant of one element wherever a mask of the first axes holds."""
    known, shape = graph.types[node.input[0]], graph.shape_of(mask) or ()
    prefix = f"{node.output[0]}/value/"
    wide = (*shape, *[1] * (len(known.shape or ()) - len(shape)))
    graph.set_constant(f"{prefix}wide", np.array(wide, np.int64))
    graph.set_constant(f"{prefix}one", graph.constants[value].reshape(()).astype(known.dtype))
    names = [f"{prefix}{name}" for name in ("mask", "there")]
    return [
        helper.make_node("Cast", [mask], names[:1], to=TensorProto.BOOL),
        helper.make_node("Reshape", [names[0], f"{prefix}wide"], names[1:]),
        helper.make_node("Where", [names[1], f"{prefix}one", node.input[0]], [node.output[0]]),
    ]


def _assign_each(graph: OnnxGraph, node: NodeProto, mask: str, values: str) -> list[NodeProto]:
    """Assign the k-th of some values to the k-th place of a mask of the data's own shape."""
    extents = graph.shape_of(node.input[0]) or ()
    count = math.prod(graph.shape_of(values) or ())
    write = NodeWriter(graph=graph, prefix=f"{node.output[0]}/assigned/")
    one, first, last = (
        write.constant(name, np.array(number, np.int32))
        for name, number in (("one", 1), ("first", 0), ("last", count - 1))
    )
    flat = write.constant("flat", np.array([-1], np.int64))
    whole = write.constant("whole", np.array(extents, np.int64))
    if graph.types[mask].element != TensorProto.BOOL:
        none = write.constant("none", np.zeros((), graph.types[mask].dtype))
        mask = write("Not", write("Equal", mask, none, out="same"), out="mask")
    ones = write("Where", mask, one, first, out="ones")
    rank = write("CumSum", write("Reshape", ones, flat, out="steps"), first, out="rank")
    above = write("Max", write("Sub", rank, one, out="number"), first, out="above")
    at = write("Min", above, last, out="at")
    row = write("Reshape", values, flat, out="values")
    picked = write("Gather", row, at, out="picked")
    spread = write("Reshape", picked, whole, out="spread")
    return [helper.make_node("Where", [mask, spread, node.input[0]], [node.output[0]])]


def _find_values(graph: OnnxGraph, updates: str, mask: str) -> str:
    """Return the tensor whose entries are assigned one after another, those found first."""
    name = updates
    while (node := graph.find_maker(name)) is not None and _keeps_order(graph, node, mask):
        name = node.input[0]
    shape, counted = graph.shape_of(name), graph.counted.get(name)
    if not shape or (counted is not None and counted.axis != 0):
        return ""
    return name if math.prod(shape) else ""


def _keeps_order(graph: OnnxGraph, node: NodeProto, mask: str) -> bool:
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


def _is_as_it_was(graph: OnnxGraph, node: NodeProto, mask: str) -> bool:
    """Return whether an Expand to as many rows as places leaves its input, rows of that mask."""
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


def _is_turned(node: NodeProto) -> bool:
    return bool(attributes(node).get("perm", [1, 0]) == [1, 0])


def _find_column(graph: OnnxGraph, name: str) -> tuple[str, int]:
    """Return of which mask and axis a column says the places; ("", 0) of others."""
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


def _read_column(graph: OnnxGraph, node: NodeProto, name: str) -> tuple[str, int]:
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
