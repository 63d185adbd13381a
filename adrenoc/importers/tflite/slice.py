"""Operators that cut parts out of tensors, or write them into tensors.

Source: TFLite operator reference.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import constant_value, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Node, Result


def _slice(node: Node) -> Result:
    shape, begins, sizes = node.shape(), node.ints(1), node.ints(2)
    ends = [d if s == -1 else b + s for d, b, s in zip(shape, begins, sizes, strict=True)]
    axes = list(range(len(shape)))
    return node.move(relax.op.strided_slice(node.data(), axes, begins, ends))


def _strided_slice(node: Node) -> Result:
    """Masks name positions of begin, end and stride: NumPy's rules for an index of slices."""
    begins, ends, steps = node.ints(1), node.ints(2), node.ints(3)
    masks = {
        name: int(node.option(f"{name}Mask", 0))
        for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    }

    def is_set(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    count = len(begins)
    shape = node.shape()
    taken = sum(not is_set("NewAxis", p) and not is_set("Ellipsis", p) for p in range(count))
    axes, low, high, stride, result = [], [], [], [], []
    axis = 0
    for position in range(count):
        if is_set("Ellipsis", position):
            for _ in range(len(shape) - taken):
                result.append(shape[axis])
                axis += 1
            continue
        if is_set("NewAxis", position):
            result.append(1)
            continue
        extent, step = shape[axis], steps[position]
        begin, end = begins[position], ends[position]
        if is_set("ShrinkAxis", position):
            first = begin + extent if begin < 0 else begin
            bounds = (first, first + 1, 1)
        else:
            if bool(node.option("Offset", False)) and not is_set("End", position):
                end = begin + end
            index = slice(
                None if is_set("Begin", position) else begin,
                None if is_set("End", position) else end,
                step,
            )
            bounds = index.indices(extent)
            result.append(len(range(*bounds)))
        axes.append(axis)
        low.append(bounds[0])
        # Going backwards, -1 would mean the last element: what lies before the first is -(n+1).
        high.append(bounds[1] if bounds[1] >= 0 else -(extent + 1))
        stride.append(bounds[2])
        axis += 1
    result += shape[axis:]
    part = relax.op.strided_slice(node.data(), axes, low, high, stride)
    return node.move(relax.op.reshape(part, result))


def _dynamic_update_slice(node: Node) -> Result:
    """The start is kept so that the update lies inside of the operand."""
    shape, update = node.shape(), node.shape(1)
    free = [d - u for d, u in zip(shape, update, strict=True)]
    if constant_value(node.data(2)) is not None:
        starts = [min(max(s, 0), f) for s, f in zip(node.ints(2), free, strict=True)]
        return node.move(_overwritten(node, starts))
    start = node.data(2).astype("int32")
    low = make_constant(np.zeros(len(free), np.int32))
    start = relax.op.maximum(start, low)
    start = relax.op.minimum(start, make_constant(np.asarray(free, np.int32)))
    x, moved, inside = node.data(), node.data(1), None
    for axis, extent in enumerate(shape):
        first = relax.op.strided_slice(start, [0], [axis], [axis + 1])
        places = make_constant(np.arange(extent, dtype=np.int32))
        offset = places - first
        least, most = (make_constant(np.int32(v)) for v in (0, update[axis] - 1))
        kept = relax.op.minimum(relax.op.maximum(offset, least), most)
        hit = relax.op.equal(kept, offset)
        along = [extent if a == axis else 1 for a in range(len(shape))]
        hit = relax.op.reshape(hit, along)
        inside = hit if inside is None else relax.op.logical_and(inside, hit)
        moved = relax.op.take(moved, kept, axis=axis, mode="clip")
    return node.move(relax.op.where(inside, moved, x))


def _overwritten(node: Node, starts: list[int]) -> relax.Expr:
    """Return the update between the parts of the operand before and after it, axis by axis."""
    x, middle = node.data(), node.data(1)
    shape, update = node.shape(), node.shape(1)
    for axis in reversed(range(len(shape))):
        begins, ends = list(starts), [s + u for s, u in zip(starts, update, strict=True)]
        for after in range(axis + 1, len(shape)):
            begins[after], ends[after] = 0, shape[after]
        parts = []
        for low, high in ((0, starts[axis]), (ends[axis], shape[axis])):
            begins[axis], bounded = low, [*ends[:axis], high, *ends[axis + 1 :]]
            part = relax.op.strided_slice(x, list(range(len(shape))), list(begins), bounded)
            parts.append(node.emit(part) if high > low else None)
        joined = [p for p in (parts[0], middle, parts[1]) if p is not None]
        middle = relax.op.concat(joined, axis=axis) if len(joined) > 1 else middle
    return middle


SLICE_OPS: dict[str, Convert] = {
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
}
