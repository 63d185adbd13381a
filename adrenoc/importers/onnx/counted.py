"""Tensors with as many entries along one axis as there may be; those found come first.

How many boxes NonMaxSuppression finds, and how many elements NonZero, depends on data, while shapes
are fixed.  Their results hold -1 beyond the last entry that was found.  What is computed entry by
entry from such a result keeps that property: its missing entries are computed from the index 0,
and an output of the model gets -1 there.  Scattered, they go nowhere (`fold.py`), and
shapes that they have a part in are stated with it open (`counted_shapes.py`).  What else mixes
entries, or asks for their number, is refused.

Before -> after, of up to 10 boxes:
    s = NonMaxSuppression(...); i = Gather(s, 2, axis=1); output b = Gather(boxes, i)
    s = ... (10 rows, the last ones of -1)
    found = s[:, 0] > -1; i = Where(found, s[:, 2], 0); b = Where(found, boxes[i], -1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from adrenoc.importers.onnx.counted_axes import follow_axis
from adrenoc.importers.onnx.graph import Counted, OnnxGraph, TensorType, all_nodes, first_output

COUNTS = ("NonMaxSuppression", "NonZero")
"""Operators whose results are counted."""

_INDICES = {"Gather": 1, "GatherND": 1}


def find_counted_inputs(graph: OnnxGraph, node: onnx.NodeProto) -> list[str]:
    """Return the counted tensors that a node reads, in its nested graphs too."""
    if not graph.counted:
        return []
    read = (name for inner in all_nodes([node]) for name in inner.input)
    return list(dict.fromkeys(name for name in read if graph.counted.get(name) is not None))


def begin(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    """Give the result of one of `COUNTS` as many entries as it may find.

    A refusal is noted where these are not known.
    """
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


def follow(graph: OnnxGraph, node: onnx.NodeProto) -> None:
    """Mark what `node` makes of counted tensors, or note why it cannot be had.

    Nodes that make missing indices harmless are put before it.  Its types are known already.
    """
    if first_output(node) in graph.counted:
        return
    axes = follow_axis(graph, node)
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
    """`name` with `value` in its missing entries; appends the nodes that put it there."""
    known, counted = graph.types[name], graph.counted[name]
    prefix = f"{name}/{label}/"
    result = out or f"{prefix}value"
    if counted is None or any(result in node.output for node in graph.nodes):
        return result
    shape = known.shape or ()
    extent = shape[counted.axis]

    def add(op: str, inputs: Sequence[str], result: str, made: TensorType, **attrs: int) -> str:
        graph.nodes.append(helper.make_node(op, list(inputs), [result], **attrs))
        graph.types[result] = made
        graph.counted[result] = None
        return result

    def constant(suffix: str, array: np.ndarray) -> str:
        graph.set_constant(prefix + suffix, array)
        return prefix + suffix

    whole, own = graph.types[counted.source], counted.source_axis
    keys = TensorType(element=whole.element, shape=((whole.shape or ())[own],))
    inputs = [counted.source, constant("first", np.array(0, np.int64))]
    there = add("Gather", inputs, prefix + "keys", keys, axis=1 - own)
    if keys.shape != (extent,):
        keys = replace(keys, shape=(extent,))
        inputs = [there, constant("some", np.arange(extent))]
        there = add("Gather", inputs, prefix + "some_keys", keys, axis=0)
    truth = TensorType(element=onnx.TensorProto.BOOL, shape=(extent,))
    inputs = [there, constant("none", np.array(-1, np.int64))]
    there = add("Greater", inputs, prefix + "there", truth)
    wide = tuple(extent if a == counted.axis else 1 for a in range(len(shape)))
    inputs = [there, constant("wide", np.array(wide, np.int64))]
    there = add("Reshape", inputs, prefix + "mask", replace(truth, shape=wide))
    missing = constant("missing", np.array(_missing(known.dtype, value), known.dtype))
    return add("Where", [there, name, missing], result, known)


def _missing(dtype: str, value: int) -> int:
    """Return what marks a missing entry: `value`, or what holds the most of unsigned integers."""
    if dtype == "bool":
        return 0
    return int(np.iinfo(dtype).max) if dtype.startswith("uint") and value < 0 else value


def _most_rows(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[int, ...] | None:
    scores = graph.shape_of(node.input[1])
    most = node.input[2] if len(node.input) > 2 else ""
    if scores is None or len(scores) != 3:
        return None
    if most and most not in graph.constants:
        return None
    limit = max(int(graph.scalar(most)), 0) if most else 0
    batch, classes, boxes = scores
    return batch * classes * min(limit, boxes), 3


def _most(graph: OnnxGraph, node: onnx.NodeProto) -> tuple[int, ...] | None:
    """Return the shape of NonZero's result where every element counts."""
    shape = graph.shape_of(node.input[0])
    return (len(shape), int(np.prod(shape))) if shape else None
