"""Numbers that decide: comparisons, largest ones, indices, whole parts, coordinates, masks."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from scripts.verifying.number_kinds.draw import Draw, Tensor
from scripts.verifying.number_kinds.origins import draw_origin

LOWEST = float(np.finfo(np.float32).min)


def choices(d: Draw) -> None:
    """Where, ArgMax, TopK and table rows by numbers that lie close together."""
    x = draw_origin(d, (1, d.one_of((3, 8)), d.one_of((16, 50, 200))))
    d.rule(x)
    what = d.one_of(("ArgMax", "TopK", "Greater", "Equal", "Gather", "OneHot", "Sign"))
    d.tell(what)
    size = max(x.size, 1e-6)
    if what == "ArgMax":
        near = d.shift(d.scale(x, d.one_of((1.0, 1e-2))), d.one_of((0.0, size)))
        d.output(d(d.one_of(("ArgMax", "ArgMin")), near, axis=-1, keepdims=0))
    elif what == "TopK":
        values, indices = d.several("TopK", x, d.ints(5), count=2, axis=-1)
        d.output(values, indices)
    elif what in ("Greater", "Sign"):
        threshold = d.const(d.random.uniform(0.1, 0.9) * size)
        chosen = d(d.one_of(("Greater", "LessOrEqual")), x, threshold)
        d.output(d("Where", chosen, x, d.const(0.0)) if d.maybe() else d.to_float(chosen))
    elif what == "Equal":
        largest = d("ReduceMax", x, d.ints(-1), keepdims=1)
        d.output(d.to_float(d("Equal", x, largest)))
    else:
        count = d.one_of((100, 3000))
        share = d("Clip", d("Abs", d.fit(x, 1.0)), d.const(0.0), d.const(0.999))
        index = d("Cast", d("Floor", d.scale(share, float(count))), to=TensorProto.INT64)
        table = d.const(d.random.normal(size=(count, 2)))
        d.output(d("Gather", table, index, axis=0))


def wholes(d: Draw) -> None:
    """Whole parts and remainders, as phases, buckets and quanta take them."""
    x = draw_origin(d, d.rows())
    d.rule(x)
    op = d.one_of(("fraction", "Mod", "Round", "Ceil", "bucket", "cast", "quanta", "wrap"))
    d.tell(op)
    x = d.fit(x, d.one_of((3.0, 300.0, 10_000.0))) if d.maybe(0.7) else x
    if op == "fraction":
        made = d("Sub", x, d("Floor", x))
    elif op == "Mod":
        made = d("Mod", x, d.const(d.one_of((1.0, 2 * np.pi, 7.0))), fmod=1)
    elif op == "wrap":
        turn = d.const(2 * np.pi)
        made = d("Sub", x, d("Mul", d("Floor", d.shift(d("Div", x, turn), 0.5)), turn))
    elif op in ("Round", "Ceil"):
        made = d(op, x)
    elif op == "cast":
        made = d.to_float(d("Cast", d("Clip", x, d.const(-1e9), d.const(1e9)), to=6))
    elif op == "quanta":
        made = d.scale(d("Round", d.scale(x, 64.0)), 1 / 64)
    else:
        log = d("Log", d.shift(d.scale(d("Abs", x), 1 / 8), 1.0))
        made = d("Min", d("Floor", d.scale(log, 16 / np.log(128 / 8))), d.const(31.0))
    d.output(made)


def coordinates(d: Draw) -> None:
    """Boxes of detectors, sampling grids, and what is decided by them."""
    what = d.one_of(("yolo", "anchors", "distances", "grid", "grid", "area"))
    d.tell(what)
    if what == "grid":
        _sample(d)
        return
    count = d.one_of((16, 100))
    raw = draw_origin(d, (1, count, 4), ("given", "product", "norm", "attention"))
    raw = d.fit(raw, d.one_of((1.0, 4.0)))
    side = d.one_of((320.0, 640.0, 1920.0))
    centres = d.random.uniform(0, side, (1, count, 2))
    half = (1, count, 2)
    xy, wh = (d("Slice", raw, d.ints(a), d.ints(a + 2), d.ints(-1), shape=half) for a in (0, 2))
    if what == "yolo":
        stride = 32.0
        xy = d.scale(d.shift(d.scale(d("Sigmoid", xy), 2.0), np.floor(centres / stride)), stride)
        wh = d("Mul", d.scale(d("Sigmoid", wh), 2.0), d.scale(d("Sigmoid", wh), 2.0))
        wh = d.scale(wh, 20.0)
    elif what == "distances":
        xy = d.shift(d("Neg", d("Softplus", xy)), centres)
        wh = d.scale(d("Softplus", wh), 8.0)
    else:
        sizes = d.random.uniform(10, 60, (1, count, 2))
        xy = d.shift(d("Mul", d.scale(xy, 0.1), d.const(sizes)), centres)
        wh = d("Mul", d("Exp", d.scale(wh, 0.2)), d.const(sizes))
    low, high = d("Sub", xy, d.scale(wh, 0.5)), d("Add", xy, d.scale(wh, 0.5))
    if what == "area" or d.maybe(0.4):
        sides = d("Sub", high, low)
        d.output(sides, d("ReduceProd", sides, d.ints(-1), keepdims=1))
    else:
        d.output(d("Concat", low, high, axis=-1))


def _sample(d: Draw) -> None:
    """Read pixels at computed places; neighbours are nothing alike."""
    width, height = d.one_of((64, 256, 1000)), d.one_of((4, 16))
    picture = d.input(d.random.normal(size=(1, 2, height, width)).astype(np.float32))
    grid = draw_origin(d, (1, 6, 10, 2), ("given", "product", "norm"))
    grid = d("Tanh", d.fit(grid, 1.5)) if d.maybe() else d.fit(grid, 1.0)
    mode = d.one_of(("linear", "linear", "nearest"))
    if mode == "nearest":
        d.rule(grid)
    align = int(d.maybe())
    d.output(d("GridSample", picture, grid, mode=mode, align_corners=align))


def masks(d: Draw) -> None:
    """Softmax of masked scores, with rows that nothing is left of, and exporters' guards."""
    heads, count, width = d.one_of((1, 2, 4)), d.one_of((4, 8, 16)), d.one_of((8, 16))
    shape = (1, heads, count, count)
    if d.maybe():
        scores = d.floats(shape, ("unit", "small", "pixels"))
    else:
        x = d.floats((1, heads, count, width), ("unit",))
        q, k = (d("MatMul", x, d.const(d.weights(width, width, gain=2.0))) for _ in range(2))
        turned = d("Transpose", k, perm=[0, 1, 3, 2])
        scores = d.scale(d("MatMul", q, turned), 1 / np.sqrt(width))
        scores = Tensor(scores.name, shape, 4.0)
    low = d.one_of((-np.inf, -np.inf, LOWEST, -1e9, -65504.0, -10_000.0))
    keep = d.random.uniform(size=(1, 1, count, count)) < 0.6
    whole = d.maybe(0.6)  # some row is masked as a whole
    keep[..., 0] |= not whole
    if whole:
        keep[:, :, : 1 + count // 4] = False
    way = d.one_of(("Where", "Where", "Add", "ints", "constant"))
    d.tell(way, f"{low:g}", "whole rows" if whole else "")
    if way == "Where":
        masked = d("Where", d.input(keep), scores, d.const(low))
    elif way == "ints":
        ones = d.to_float(d.input(keep.astype(np.int64)))
        finite = max(low, LOWEST)
        masked = d("Add", scores, d("Mul", d("Sub", d.const(1.0), ones), d.const(finite)))
    else:
        added = np.where(keep, 0, low).astype(np.float32)
        masked = d("Add", scores, d.const(added) if way == "constant" else d.input(added))
    masked = Tensor(masked.name, shape, 4.0)
    if low != -np.inf and d.maybe(0.2):
        masked = d("Clip", masked, d.const(LOWEST))
    share = d("Softmax", masked, axis=-1)
    if low == -np.inf and d.maybe(0.8):
        d.tell("guard")
        share = d("Where", d("IsNaN", share), d.const(0.0), share)
    if d.maybe(0.6):
        v = d.floats((1, heads, count, width), ("unit",))
        share = d("MatMul", share, v)
    d.output(share)
