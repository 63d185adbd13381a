"""Tensors with as many entries along one axis as there may be; those found come first.

How many boxes NonMaxSuppression finds, and how many elements NonZero, depends on data, while shapes
are fixed.  Their results hold -1 beyond the last entry that was found.  What is computed entry by
entry from such a result keeps that property: its missing entries are computed from the index 0,
and an output of the model gets -1 there.  Scattered, they go nowhere, and shapes that they have a
part in are stated with it open (`counted_shapes.py`).  What else mixes entries, or asks for their
number, is refused.

Before -> after, of up to 10 boxes:
    s = NonMaxSuppression(...); i = Gather(s, 2, axis=1); output b = Gather(boxes, i)
    s = ... (10 rows, the last ones of -1)
    found = s[:, 0] > -1; i = Where(found, s[:, 2], 0); b = Where(found, boxes[i], -1)
Before -> after, of up to 18 rows u for places i of x [9, 32]:
    y = ScatterElements(x, i, u, axis=0)
    y = Slice(ScatterElements(Concat(x, a row of zeros), Where(found, i, 9), u), 0, 9)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import NodeProto, helper

from adrenoc.importers.onnx.follow_axes import Visit, find_rule
from adrenoc.importers.onnx.graph import (
    Counted,
    OnnxGraph,
    TensorType,
    all_nodes,
    attributes,
    copy_node,
    first_output,
)
from adrenoc.importers.onnx.infer import NodeWriter

# fmt: off
_BY_ELEMENT = frozenset({
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf",
    "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "Pow", "PRelu", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt",
    "Sub", "Sum", "Tanh", "Where", "Xor",
})
# fmt: on

Own = Mapping[str, Counted]
Rule = Callable[[OnnxGraph, NodeProto, Own], "int | None"]


def _follow_axis(graph: OnnxGraph, node: NodeProto) -> Counted | str:
    """Return what the results of `node` are, or in words why they are nothing that can be had."""
    known = ((name, graph.counted.get(name)) for name in node.input)
    own = {name: counted for name, counted in known if counted is not None}
    sources = sorted({one.source for one in own.values()})
    if len(sources) > 1:
        found = " and of ".join(f"'{name}'" for name in sources)
        return f"the numbers of entries of {found} depend on data: use one of them at a time"
    rule = _RULES.get(node.op_type, _follow_one)
    fits = node.op_type not in _OF_FIRST or set(own) == {node.input[0]}
    is_known = None not in [graph.shape_of(name) for name in (*node.input, *node.output) if name]
    axis = rule(graph, node, own) if fits and own and is_known else None
    if axis is None:
        what = f"'{next(iter(own))}'" if own else "a tensor of the graph around it"
        return (
            f"how many entries {what} has depends on data: they can be gathered by, sliced from "
            "the first on, and computed one by one; give them as an output, and do this on the CPU"
        )
    return replace(next(iter(own.values())), axis=axis)


def _shape(graph: OnnxGraph, name: str) -> tuple[int, ...]:
    return graph.shape_of(name) or ()


def _read_ints(graph: OnnxGraph, name: str) -> list[int] | None:
    value = graph.constants.get(name)
    return None if value is None else [int(v) for v in value.reshape(-1)]


def _ints(graph: OnnxGraph, node: NodeProto, index: int, name: str) -> list[int] | None:
    """Return integers that are a constant input in newer opsets, and an attribute in older ones."""
    if len(node.input) > index and node.input[index]:
        return _read_ints(graph, node.input[index])
    given = attributes(node).get(name)
    return None if given is None else [int(v) for v in given]


def _follow_elements(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    """Operands are aligned at the right; only counted ones may extend along the counted axis."""
    rank = len(_shape(graph, node.output[0]))
    aligned = {own[n].axis + rank - len(_shape(graph, n)) for n in node.input if n in own}
    if len(aligned) != 1:
        return None
    (axis,) = aligned
    extent = _shape(graph, node.output[0])[axis]
    for name in filter(None, node.input):
        shape = _shape(graph, name)
        place = axis - rank + len(shape)
        if (shape[place] if place >= 0 else 1) != (extent if name in own else 1):
            return None
    return axis


def _reshape(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    """Keep the axis where it stays whole, and the wanted shape leaves its extent open."""
    wanted = _ints(graph, node, 1, "shape")
    before, after = _shape(graph, node.input[0]), _shape(graph, node.output[0])
    axis = own[node.input[0]].axis
    for place, extent in enumerate(after):
        is_open = wanted is not None and (
            wanted[place] == -1 or (wanted[place] == 0 and place == axis)
        )
        whole = math.prod(before[:axis]) == math.prod(after[:place])
        if is_open and whole and extent == before[axis]:
            return place
    return None


def _slice(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    """Keep the axis where only its first entries are taken, which are the first that were found."""
    rank, axis = len(_shape(graph, node.input[0])), own[node.input[0]].axis
    starts, ends = _ints(graph, node, 1, "starts"), _ints(graph, node, 2, "ends")
    if starts is None or ends is None:
        return None
    axes = _ints(graph, node, 3, "axes")
    if axes is None and len(node.input) > 3 and node.input[3]:
        return None
    steps = _ints(graph, node, 4, "steps")
    if steps is None and len(node.input) > 4 and node.input[4]:
        return None
    for place, of in enumerate(axes or range(len(starts))):
        step = steps[place] if steps else 1
        if of % rank == axis and not (starts[place] == 0 and step == 1 and ends[place] > 0):
            return None
    return axis


def _gather_nd(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    if node.input[0] in own or attributes(node).get("batch_dims", 0):
        return None
    axis = own[node.input[1]].axis
    return axis if axis < len(_shape(graph, node.input[1])) - 1 else None


def _expand(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    """Keep the axis where it keeps its extent, and the wanted shape leaves that to the data."""
    wanted = _ints(graph, node, 1, "shape")
    before, after = _shape(graph, node.input[0]), _shape(graph, node.output[0])
    axis = own[node.input[0]].axis
    place = axis + len(after) - len(before)
    stated = place - len(after) + len(wanted or ())
    if wanted is None or before[axis] == 1 or after[place] != before[axis]:
        return None
    return place if stated < 0 or wanted[stated] == 1 else None


def _follow_one(graph: OnnxGraph, node: NodeProto, own: Own) -> int | None:
    """Follow the axis of one operand, or the same of all parts of a Concat."""
    rule = find_rule(node.op_type)
    read = [at for at, name in enumerate(node.input) if name in own]
    if rule is None or len(read) != (len(node.input) if node.op_type == "Concat" else 1):
        return None
    found = {
        rule(
            Visit(
                node=node,
                at=at,
                axis=own[node.input[at]].axis,
                rank_of=lambda name: len(_shape(graph, name)),
                ints_of=lambda name: _read_ints(graph, name),
                opset=graph.opset,
            )
        ).axis
        for at in read
    }
    axis = found.pop() if len(found) == 1 else None
    return None if axis is None or _meets_entries(graph, node, own, axis) else axis


def _meets_entries(graph: OnnxGraph, node: NodeProto, own: Own, axis: int) -> bool:
    """Return whether a batch or a bias of another operand has entries of its own along the axis."""
    rank = len(_shape(graph, node.output[0]))
    is_batch = node.op_type == "MatMul" and axis < rank - 2
    beside = node.input if is_batch else node.input[2:] if node.op_type == "Gemm" else ()
    shapes = [_shape(graph, name) for name in beside if name and name not in own]
    return any(len(s) >= rank - axis and s[axis - rank] != 1 for s in shapes)


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_BY_ELEMENT, _follow_elements),
    "Expand": _expand,
    "GatherND": _gather_nd,
    "Reshape": _reshape,
    "Slice": _slice,
}
_OF_FIRST = ("Expand", "Reshape", "Slice")
"""Those whose first input alone may be counted."""

COUNTS = ("NonMaxSuppression", "NonZero")
"""Operators whose results are counted."""

_INDICES = {"Gather": 1, "GatherND": 1}


def find_counted_inputs(graph: OnnxGraph, node: NodeProto) -> list[str]:
    """Return the counted tensors that a node reads, in its nested graphs too."""
    if not graph.counted:
        return []
    read = (name for inner in all_nodes([node]) for name in inner.input)
    return list(dict.fromkeys(name for name in read if graph.counted.get(name) is not None))


def begin(graph: OnnxGraph, node: NodeProto) -> None:
    """Give the result of one of `COUNTS` as many entries as it may find, or note a refusal."""
    name = node.output[0]
    shape = _most_rows(graph, node) if node.op_type == "NonMaxSuppression" else _most(graph, node)
    if shape is None:
        graph.refusals[name] = (
            "how much it gives depends on data, and how much it may give is not known: fix its "
            "shapes, and make the number of boxes a class a constant"
        )
        return
    graph.types[name] = TensorType(element=onnx.TensorProto.INT64, shape=shape)
    if 0 in shape:
        graph.log.add(name, "is empty", f"{node.op_type} may find nothing")
        return
    axis = 0 if node.op_type == "NonMaxSuppression" else 1
    graph.counted[name] = Counted(source=name, source_axis=axis, axis=axis)
    what = f"{shape[axis]} {'rows' if axis == 0 else 'columns'}"
    reason = f"how many {node.op_type} finds depends on data, and shapes are fixed"
    graph.log.add(name, f"gives {what}; those beyond the last found hold -1", reason)


def is_one_picture(graph: OnnxGraph, node: NodeProto) -> bool:
    """Return whether a node finds which pictures are there, by a flag each, where there is one.

    So encoders of several pictures (Idefics3's, SmolVLM's: `pixel_values` of five axes) leave those
    out that are zeros alone."""
    pixels = (spec.shape for spec in graph.inputs if spec.name == "pixel_values")
    return (
        node.op_type == "NonZero"
        and any(len(shape) == 5 for shape in pixels)
        and graph.shape_of(node.input[0]) == (1,)
    )


def find_one(graph: OnnxGraph, node: NodeProto) -> np.ndarray:
    """Return what such a node finds."""
    reason = "the encoder leaves pictures of zeros alone out, and one that is given is none"
    graph.log.add(node.output[0], "finds the one picture", reason)
    return np.zeros((1, 1), np.int64)


def follow(graph: OnnxGraph, node: NodeProto) -> None:
    """Mark what `node` makes of counted tensors, or note why it cannot be had. Nodes that make
    missing indices harmless are put before it.  Its types are known already."""
    if first_output(node) in graph.counted:
        return
    axes = _follow_axis(graph, node)
    if isinstance(axes, str):
        graph.refusals[node.output[0]] = axes
        for name in node.output:
            graph.types.pop(name, None)
        return
    position = _INDICES.get(node.op_type)
    if position is not None and graph.counted.get(node.input[position]) is not None:
        node.input[position] = mask_missing(graph, node.input[position], "indices", 0)
    graph.counted.update({name: axes for name in node.output if name})


def mask_outputs(graph: OnnxGraph) -> None:
    """Put -1 into the missing entries of the model's outputs."""
    for output in graph.outputs:
        known, counted = graph.types.get(output), graph.counted.get(output)
        if known is None or counted is None or counted.source == output:
            continue
        inner = f"{output}/unmasked"
        for node in graph.nodes:
            node.input[:] = [inner if name == output else name for name in node.input]
            node.output[:] = [inner if name == output else name for name in node.output]
        graph.types[inner], graph.counted[inner] = known, counted
        graph.counted[output] = None
        mask_missing(graph, inner, "found", -1, out=output)
        count = (known.shape or ())[counted.axis]
        held = "False" if known.dtype == "bool" else str(_missing(known.dtype, -1))
        graph.log.add(
            output,
            f"its axis {counted.axis} has {count} entries; those beyond the last found hold {held}",
            f"how many there are depends on the data of '{counted.source}'",
        )


def mask_missing(graph: OnnxGraph, name: str, label: str, value: int, out: str = "") -> str:
    """Return `name` with `value` in its missing entries; append the nodes that put it there."""
    known, counted = graph.types[name], graph.counted[name]
    write = NodeWriter(graph=graph, prefix=f"{name}/{label}/")
    result = out or f"{write.prefix}value"
    if counted is None or any(result in node.output for node in graph.nodes):
        return result
    shape = known.shape or ()
    extent = shape[counted.axis]
    first = write.constant("first", np.array(0, np.int64))
    there = write("Gather", counted.source, first, out="keys", axis=1 - counted.source_axis)
    if graph.shape_of(there) != (extent,):
        some = write.constant("some", np.arange(extent))
        there = write("Gather", there, some, out="some_keys", axis=0)
    there = write("Greater", there, write.constant("none", np.array(-1, np.int64)), out="there")
    wide = [extent if a == counted.axis else 1 for a in range(len(shape))]
    there = write("Reshape", there, write.constant("wide", np.array(wide, np.int64)), out="mask")
    missing = write.constant("missing", np.array(_missing(known.dtype, value), known.dtype))
    return write("Where", there, name, missing, whole=result)


def _missing(dtype: str, value: int) -> int:
    """Return what marks a missing entry: `value`, or what holds the most of unsigned integers."""
    if dtype == "bool":
        return 0
    return int(np.iinfo(dtype).max) if dtype.startswith("uint") and value < 0 else value


def scatter_found(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
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
    scatter = copy_node(node)
    masked = (
        mask_missing(graph, indices, f"from_{extent}", extent),
        mask_missing(graph, updates, "updates", 0),
    )
    scatter.input[:] = [f"{prefix}longer", *masked]
    scatter.output[:] = [f"{prefix}whole"]
    window = [f"{prefix}{name}" for name in ("whole", "first", "end", "axis")]
    return [
        helper.make_node("Concat", [data, f"{prefix}beyond"], [f"{prefix}longer"], axis=axis),
        scatter,
        helper.make_node("Slice", window, [node.output[0]]),
    ]


def _most_rows(graph: OnnxGraph, node: NodeProto) -> tuple[int, ...] | None:
    scores = graph.shape_of(node.input[1])
    most = node.input[2] if len(node.input) > 2 else ""
    if scores is None or len(scores) != 3:
        return None
    if most and most not in graph.constants:
        return None
    limit = max(int(graph.scalar(most)), 0) if most else 0
    batch, classes, boxes = scores
    return batch * classes * min(limit, boxes), 3


def _most(graph: OnnxGraph, node: NodeProto) -> tuple[int, ...] | None:
    """Return the shape of NonZero's result where every element counts."""
    shape = graph.shape_of(node.input[0])
    return (len(shape), int(np.prod(shape))) if shape else None
