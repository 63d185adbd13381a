"""NonMaxSuppression with as many rows as there may be; rows beyond the last found hold -1.

How many boxes are found depends on data, and shapes are fixed.  The rows that are found come
first, in the order of the standard: by batch, class and score.

Source: ONNX operator reference, NonMaxSuppression-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from adrenoc.importers.onnx_node import Node
from adrenoc.importers.relax_values import make_constant
from adrenoc.importers.suppression import Suppression, selection

_NO_LIMIT = -1e29
"""Less than any score that counts."""


def _non_max_suppression(node: Node) -> relax.Expr:
    """TVM: as many rows as are found, at run time."""
    batches, classes, boxes = node.shape(1)
    most = min(int(_number(node, 2, 0)), boxes)
    rules = Suppression(
        by_class=most,
        total=most,
        least=_NO_LIMIT if node.input(4) is None else _number(node, 4, 0.0),
        least_counts=False,
        overlap=_number(node, 3, 0.0),
        overlap_counts=False,
    )
    name = node.bb.add_func(
        selection(boxes, 1, rules).with_attr("tirx.noalias", True), "non_max_suppression"
    )
    corners = _corners(node)
    rows = []
    for batch in range(batches):
        own = _part(node, corners, [batch], [boxes, 4])
        for kind in range(classes):
            scores = _part(node, node.inputs[1], [batch, kind], [boxes, 1])
            ty = relax.TensorType((most, 3), "float32")
            picked = node.emit(relax.call_tir(name, [own, scores], ty))
            number = node.emit(relax.op.strided_slice(picked, [1], [0], [1]))
            found = node.emit(relax.op.greater_equal(number, make_constant(np.float32(0))))
            where = make_constant(np.tile(np.array([batch, kind], np.float32), (most, 1)))
            row = node.emit(relax.op.concat([where, number], 1))
            rows.append(node.emit(relax.op.where(found, row, make_constant(np.float32(-1)))))
    joined = rows[0] if len(rows) == 1 else node.emit(relax.op.concat(rows, 0))
    return relax.op.astype(_found_first(node, joined, batches * classes * most), "int64")


def _found_first(node: Node, rows: relax.Expr, count: int) -> relax.Expr:
    """The rows that hold something, in their order, then the others."""
    first = node.emit(relax.op.strided_slice(rows, [1], [0], [1]))
    first = node.emit(relax.op.reshape(first, [count]))
    missing = node.emit(
        relax.op.astype(node.emit(relax.op.less(first, make_constant(np.float32(0)))), "float32")
    )
    behind = node.emit(relax.op.multiply(missing, make_constant(np.float32(count))))
    keys = node.emit(relax.op.add(behind, make_constant(np.arange(count, dtype=np.float32))))
    order = node.emit(relax.op.argsort(keys, axis=0, descending=False, dtype="int32"))
    return node.emit(relax.op.take(rows, order, axis=0))


def _number(node: Node, index: int, missing: float) -> float:
    value = node.constant(index)
    return missing if value is None else float(value.reshape(-1)[0])


def _part(node: Node, expr: relax.Expr, at: list[int], shape: list[int]) -> relax.Expr:
    axes = list(range(len(at)))
    part = node.emit(relax.op.strided_slice(expr, axes, at, [i + 1 for i in at]))
    return node.emit(relax.op.reshape(part, shape))


def _corners(node: Node) -> relax.Expr:
    """Boxes as two corners, which may come in any order."""
    boxes = node.inputs[0]
    if not int(node.attrs.get("center_point_box", 0)):
        return boxes
    centre = node.emit(relax.op.strided_slice(boxes, [2], [0], [2]))
    size = node.emit(relax.op.strided_slice(boxes, [2], [2], [4]))
    half = node.emit(relax.op.multiply(size, node.like(0.5)))
    low, high = (node.emit(op(centre, half)) for op in (relax.op.subtract, relax.op.add))
    return node.emit(relax.op.concat([low, high], 2))


SUPPRESS_OPS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "NonMaxSuppression": _non_max_suppression
}
