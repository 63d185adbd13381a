"""Operators that find: as many rows (columns) as there may be; those beyond the last hold -1.

How many are found depends on data, and shapes are fixed.  Those that are found come first, in the
order of the standard: boxes by batch, class and score.

Source: ONNX operator reference, NonMaxSuppression-11 and NonZero-13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.values import dtype_of, make_constant
from adrenoc.importers.suppression import Suppression, first_found, selection_by_class

_NO_LIMIT = -1e29
"""Less than any score that counts."""


def _non_max_suppression(node: Node) -> relax.Expr:
    """TVM: as many rows as are found, at run time."""
    batches, classes, boxes = node.shape(1)
    if node.shape() != (batches, boxes, 4):
        raise RefusedError(f"boxes of {list(node.shape())}; expected {[batches, boxes, 4]}")
    most = min(int(_number(node, 2, 0)), boxes)
    total = batches * classes * most
    rules = Suppression(
        by_class=most,
        total=total,
        least=_NO_LIMIT if node.input(4) is None else _number(node, 4, 0.0),
        least_counts=False,
        overlap=_number(node, 3, 0.0),
        overlap_counts=False,
    )
    function = selection_by_class(batches, classes, boxes, rules)
    name = node.bb.add_func(function.with_attr("tirx.noalias", True), "non_max_suppression")
    arguments = [_corners(node), node.inputs[1]]
    rows = relax.call_tir(name, arguments, relax.TensorType((total, 3), "float32"))
    return rows.astype("int64")


def _non_zero(node: Node) -> relax.Expr:
    """TVM: as many columns as are found, at run time."""
    shape = node.shape()
    count = int(np.prod(shape))
    flat = node.emit(relax.op.reshape(node.inputs[0], [count]))
    nothing = make_constant(np.array(0, dtype_of(flat)))
    if dtype_of(flat) != "bool":
        flat = node.emit(relax.op.not_equal(flat, nothing))
    marks = flat.astype("float32")
    function = first_found(count).with_attr("tirx.noalias", True)
    name = node.bb.add_func(function, "non_zero")
    numbers = relax.call_tir(name, [marks], relax.TensorType((count,), "int32"))
    there = numbers >= make_constant(np.array(0, np.int32))
    columns = []
    for axis, extent in enumerate(shape):
        stride = make_constant(np.array(np.prod(shape[axis + 1 :], dtype=int), np.int32))
        column = relax.op.floor_divide(numbers, stride)
        column = relax.op.floor_mod(column, make_constant(np.array(extent, np.int32)))
        column = relax.op.where(there, column, make_constant(np.array(-1, np.int32)))
        columns.append(node.emit(relax.op.reshape(column, [1, count])))
    joined = columns[0] if len(columns) == 1 else relax.op.concat(columns, 0)
    return joined.astype("int64")


def _number(node: Node, index: int, missing: float) -> float:
    value = node.number(index)
    return missing if value is None else float(value)


def _corners(node: Node) -> relax.Expr:
    """Boxes as two corners, which may come in any order."""
    boxes = node.inputs[0]
    if not int(node.attrs.get("center_point_box", 0)):
        return boxes
    centre = relax.op.strided_slice(boxes, [2], [0], [2])
    half = relax.op.strided_slice(boxes, [2], [2], [4]) * node.like(0.5)
    low, high = (op(centre, half) for op in (relax.op.subtract, relax.op.add))
    return relax.op.concat([low, high], 2)


SUPPRESS_OPS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
}
