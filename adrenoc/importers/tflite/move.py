"""Operators that move elements: what is quantised stays as it is.

Operators that cut parts out of tensors, or write them into tensors.

Source: TFLite operator reference.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant
from adrenoc.importers.tflite.elementwise import Convert
from adrenoc.importers.tflite.node import Ints, QuantisedResult, Result, TfliteNode

_MIRRORS: tuple[Literal["reflect"], Literal["symmetric"]] = ("reflect", "symmetric")
_MOST_REPEATS = 1 << 16
"""Of an axis: each is an operand of a concatenation."""


def _reshape(node: TfliteNode) -> Result:
    stated = node.results[0].shape and all(d > 0 for d in node.results[0].shape)
    computed = node.has(1) and not node.is_constant(1)
    if stated and (computed or not node.results[0].open_axes):
        shape = list(node.results[0].shape)
    elif len(node.inputs) > 1 and node.has(1):
        shape = node.ints(1)
    else:
        shape = [int(d) for d in node.option("NewShape", [])] or list(node.results[0].shape)
    if node.info().dtype == "COMPLEX64":
        shape = [*shape, 2]  # as the importer holds complex numbers
    size = math.prod(node.shape())
    if -1 in shape:
        rest = -math.prod(shape)
        shape = [size // rest if d == -1 else d for d in shape]
    return node.move(relax.op.reshape(node.data(), shape))


def _squeeze(node: TfliteNode) -> Result:
    rank = len(node.shape())
    given = [int(d) % rank for d in node.option("SqueezeDims", [])]
    axes = given or [a for a, d in enumerate(node.shape()) if d == 1]
    shape = [d for a, d in enumerate(node.shape()) if a not in axes]
    return node.move(relax.op.reshape(node.data(), shape))


def _same_scale(node: TfliteNode, index: int) -> relax.Expr:
    """Return an operand in the units of the first one; LiteRT rounds it to those of the result."""
    info, first = node.info(index), node.info(0)
    if not info.is_quantised or info.scale == first.scale:
        return node.data(index)
    return node.data(index) * make_constant(np.float32(info.scale / first.scale))


def _concat(node: TfliteNode) -> Result:
    present = [i for i in range(len(node.inputs)) if 0 not in node.shape(i)]
    parts = [_same_scale(node, i) for i in present]
    axis = int(node.option("Axis")) % len(node.shape(present[0]))
    joined = relax.op.concat(parts, axis=axis)
    info = node.info(0)
    if not info.is_quantised:
        return node.activate(joined)
    exact = all(node.info(i).scale == info.scale for i in present)
    return node.activate(QuantisedResult(expr=joined, scale=info.scales, is_integer=exact))


def _pack(node: TfliteNode) -> Result:
    axis = int(node.option("Axis")) % (len(node.shape()) + 1)
    parts = [relax.op.expand_dims(_same_scale(node, i), axis) for i in range(len(node.inputs))]
    return node.move(relax.op.concat(parts, axis=axis))


def _unpack(node: TfliteNode) -> list[Result]:
    shape = node.shape()
    axis = int(node.option("Axis")) % len(shape)
    rest = [d for a, d in enumerate(shape) if a != axis]
    return [
        node.move(relax.op.reshape(_slice_of(node, axis, i, i + 1), rest))
        for i in range(shape[axis])
    ]


def _slice_of(node: TfliteNode, axis: int, begin: int, end: int, index: int = 0) -> relax.Expr:
    return relax.op.strided_slice(node.data(index), [axis], [begin], [end])


def _split(node: TfliteNode) -> list[Result]:
    axis = int(node.scalar(0)) % len(node.shape(1))
    each = node.shape(1)[axis] // len(node.results)
    return [
        node.move(_slice_of(node, axis, i * each, (i + 1) * each, 1), 1)
        for i in range(len(node.results))
    ]


def _split_v(node: TfliteNode) -> list[Result]:
    axis = int(node.scalar(2)) % len(node.shape())
    sizes = node.ints(1)
    rest = node.shape()[axis] - sum(s for s in sizes if s >= 0)
    bounds = np.cumsum([0, *(rest if s < 0 else s for s in sizes)])
    return [node.move(_slice_of(node, axis, int(b), int(e))) for b, e in itertools.pairwise(bounds)]


def _pad(node: TfliteNode) -> Result:
    """PAD fills with zero, which is the zero point of what is quantised; PADV2 names a value."""
    width = node.ints(1)
    fill = float(node.results[0].zero - node.info().zero) if node.info().is_quantised else 0.0
    if node.operator.kind == "PADV2":
        fill = float(node.scalar(2))
        if node.info(2).is_quantised:
            fill += node.info(2).zero - node.info().zero
    return node.move(relax.op.nn.pad(node.data(), width, pad_value=fill))


def _mirror_pad(node: TfliteNode) -> Result:
    """Mirror with the edge (SYMMETRIC) or without it (REFLECT): one take an axis."""
    width, x = node.ints(1), node.data()
    symmetric = int(node.option("Mode", 0)) == 1
    for axis, extent in enumerate(node.shape()):
        before, after = width[2 * axis : 2 * axis + 2]
        if not 0 <= min(before, after) <= max(before, after) <= extent - (not symmetric):
            raise RefusedError(f"it mirrors {before} and {after} of {extent} elements")
        if before or after:
            places = np.pad(np.arange(extent), (before, after), _MIRRORS[symmetric])
            x = relax.op.take(x, make_constant(places.astype(np.int32)), axis=axis, mode="clip")
    return node.move(x)


def _tile(node: TfliteNode) -> Result:
    x, axes = node.data(), len(node.shape())
    for axis, count in enumerate(node.ints(1)):
        if count > _MOST_REPEATS:
            raise RefusedError(
                f"it repeats axis {axis} {count} times, expected up to {_MOST_REPEATS}"
            )
        if count > 1 and axis < axes:
            x = relax.op.concat([x] * count, axis=axis)
    return node.move(x)


def _range(node: TfliteNode) -> Result:
    start, limit, step = (node.scalar(i) for i in range(3))
    check_grown(math.ceil((limit - start) / step))
    return make_constant(np.arange(start, limit, step).astype(node.dtype()))


def _reverse(node: TfliteNode) -> Result:
    x = node.data()
    for axis in node.ints(1):
        x = relax.op.flip(x, axis % len(node.shape()))
    return node.move(x)


def _reverse_sequence(node: TfliteNode) -> Result:
    return node.move(
        relax.op.reverse_sequence(
            node.data(),
            node.data(1).astype("int32"),
            int(node.option("SeqDim")),
            int(node.option("BatchDim")),
        )
    )


def _rearrange(
    node: TfliteNode, split: Sequence[int], order: Sequence[int], shape: Sequence[int]
) -> relax.Expr:
    turned = relax.op.permute_dims(relax.op.reshape(node.data(), list(split)), list(order))
    return relax.op.reshape(turned, list(shape))


def _depth_to_space(node: TfliteNode) -> Result:
    n, h, w, c = node.shape()
    b = int(node.option("BlockSize"))
    split = (n, h, w, b, b, c // (b * b))
    shape = (n, h * b, w * b, c // (b * b))
    return node.move(_rearrange(node, split, (0, 1, 3, 2, 4, 5), shape))


def _space_to_depth(node: TfliteNode) -> Result:
    n, h, w, c = node.shape()
    b = int(node.option("BlockSize"))
    split = (n, h // b, b, w // b, b, c)
    shape = (n, h // b, w // b, c * b * b)
    return node.move(_rearrange(node, split, (0, 1, 3, 2, 4, 5), shape))


def _batch_to_space(node: TfliteNode) -> Result:
    block, crops = node.ints(1), np.asarray(node.ints(2)).reshape(-1, 2)
    batch, *rest = node.shape()
    axes = len(block)
    spatial, tail = rest[:axes], rest[axes:]
    split = [*block, batch // math.prod(block), *spatial, *tail]
    order = [axes]
    for axis in range(axes):
        order += [axes + 1 + axis, axis]
    order += range(2 * axes + 1, len(split))
    grown = [d * b for d, b in zip(spatial, block, strict=True)]
    whole = _rearrange(node, split, order, [batch // math.prod(block), *grown, *tail])
    ends = [int(g - c[1]) for g, c in zip(grown, crops, strict=True)]
    begins = [int(c[0]) for c in crops]
    return node.move(relax.op.strided_slice(whole, list(range(1, axes + 1)), begins, ends))


def _space_to_batch(node: TfliteNode) -> Result:
    block, pads = node.ints(1), node.ints(2)
    batch, *rest = node.shape()
    axes = len(block)
    width = [0, 0, *pads, *[0] * (2 * (len(rest) - axes))]
    padded = relax.op.nn.pad(node.data(), width) if any(width) else node.data()
    grown = [
        rest[a] + pads[2 * a] + pads[2 * a + 1] if a < axes else rest[a] for a in range(len(rest))
    ]
    split = [batch]
    for axis in range(axes):
        split += [grown[axis] // block[axis], block[axis]]
    split += grown[axes:]
    order = [*(2 + 2 * a for a in range(axes)), 0, *(1 + 2 * a for a in range(axes))]
    order += range(2 * axes + 1, len(split))
    shape = [
        batch * math.prod(block),
        *(g // b for g, b in zip(grown, block, strict=False)),
        *grown[axes:],
    ]
    turned = relax.op.permute_dims(relax.op.reshape(padded, split), order)
    return node.move(relax.op.reshape(turned, shape))


def _dilate(node: TfliteNode) -> Result:
    """Put elements apart by steps, with a value between them."""
    x, fill = node.data(), node.data(2)
    if dtype_of(fill) != dtype_of(x):
        seen = f"a value of {dtype_of(fill)} between elements of {dtype_of(x)}"
        raise RefusedError(f"{seen}, expected the same dtype")
    none = [0] * len(node.shape())
    apart = [step - 1 for step in node.ints(1)]
    return node.move(set_apart(x, node.shape(), none, none, apart, fill))


def set_apart(
    x: relax.Expr, shape: Ints, low: Ints, high: Ints, interior: Ints, fill: relax.Expr
) -> relax.Expr:
    """Put so many of `fill` between elements of each axis and beside them; fewer than none cut."""
    fill = relax.op.reshape(fill, [])
    for axis, extent in enumerate(shape):
        # Where each result element comes from; -1 for what is filled in.
        check_grown(extent * (interior[axis] + 1) + max(low[axis], 0) + max(high[axis], 0))
        spread = np.full((extent - 1) * (interior[axis] + 1) + 1, -1)
        spread[:: interior[axis] + 1] = np.arange(extent)
        places = np.pad(spread, (max(low[axis], 0), max(high[axis], 0)), constant_values=-1)
        places = places[max(-low[axis], 0) : len(places) - max(-high[axis], 0)]
        if np.array_equal(places, np.arange(extent)):
            continue
        taken = make_constant(np.maximum(places, 0).astype(np.int32))
        x = relax.op.take(x, taken, axis=axis, mode="clip")
        along = [-1 if a == axis else 1 for a in range(len(shape))]
        x = relax.op.where(make_constant((places >= 0).reshape(along)), x, fill)
    return x


def _slice(node: TfliteNode) -> Result:
    shape, begins, sizes = node.shape(), node.ints(1), node.ints(2)
    ends = [d if s == -1 else b + s for d, b, s in zip(shape, begins, sizes, strict=True)]
    axes = list(range(len(shape)))
    return node.move(relax.op.strided_slice(node.data(), axes, begins, ends))


def _strided_slice(node: TfliteNode) -> Result:
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


def _dynamic_update_slice(node: TfliteNode) -> Result:
    """Move the start so that the update lies inside of the operand."""
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


def _overwritten(node: TfliteNode, starts: list[int]) -> relax.Expr:
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


MOVE_OPS: dict[str, Convert] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_ARGS": lambda node: node.like(np.broadcast_shapes(node.ints(0), node.ints(1))),
    "BROADCAST_TO": lambda node: node.move(relax.op.broadcast_to(node.data(), node.ints(1))),
    "CONCATENATION": _concat,
    "DENSIFY": lambda node: node.move(node.data()),
    "DEPTH_TO_SPACE": _depth_to_space,
    "DILATE": _dilate,
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "EXPAND_DIMS": lambda node: node.move(relax.op.expand_dims(node.data(), int(node.scalar(1)))),
    "FILL": lambda node: node.move(relax.op.broadcast_to(node.data(1), node.ints(0)), 1),
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RANGE": _range,
    "RANK": lambda node: make_constant(np.asarray(len(node.shape()), np.int32)),
    "RESHAPE": _reshape,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SHAPE": lambda node: make_constant(np.asarray(node.shape()).astype(node.results[0].dtype)),
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "TRANSPOSE": lambda node: node.move(relax.op.permute_dims(node.data(), node.ints(1))),
    "UNPACK": _unpack,
}
