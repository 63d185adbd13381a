"""Sums and what is left of them: cumulative sums, reductions, norms, differences, steps."""

from __future__ import annotations

import numpy as np

from scripts.verifying.number_kinds.draw import Draw, Tensor
from scripts.verifying.number_kinds.origins import draw_origin, positions


def cumulative(d: Draw) -> None:
    """CumSum of masks, durations, phases and learned numbers."""
    count = d.one_of((16, 100, 500, 3000))
    shape = (1, count, d.one_of((1, 4)))
    what = d.one_of(("mask", "durations", "phases", "any"))
    d.tell(what, str(count))
    if what == "mask":
        x = d.to_float(d.input((d.random.uniform(size=shape) < 0.9).astype(np.int64)))
    elif what == "durations":
        x = d.to_float(d.input(d.random.integers(0, 30, shape)))
    elif what == "phases":
        x = d.input(d.random.uniform(0.01, 0.3, shape).astype(np.float32))
    else:
        x = draw_origin(d, shape, ("given", "product", "norm", "cast"))
    made = d(
        "CumSum", x, d.const(1, np.int64), exclusive=int(d.maybe(0.3)), reverse=int(d.maybe(0.3))
    )
    if what == "mask" and d.maybe():
        made = d("Mul", made, x)
    elif what == "durations" and d.maybe():
        made = d("Sub", made, d("Slice", made, d.ints(0), d.ints(1), d.ints(1)))
    elif what == "phases" and d.maybe():
        made = d("Sin", d.scale(made, 2 * np.pi / 10))
    d.output(made)


def reductions(d: Draw) -> None:
    """Sums, means, norms and logs of sums, over many numbers."""
    shape = (1, d.one_of((7, 8)), d.one_of((64, 300, 2000)))
    x = draw_origin(d, shape, ("given", "cast", "positions", "product", "norm", "table"))
    op = d.one_of(("Sum", "Mean", "L2", "L1", "LogSumExp", "SumSquare", "Variance", "Pool"))
    d.tell(op)
    axis = d.one_of((-1, 1))
    if op == "LogSumExp":
        x = d.fit(x, d.one_of((1.0, 30.0, 80.0)))
    if op == "Variance":
        centred = d("Sub", x, d("ReduceMean", x, d.ints(axis), keepdims=1))
        made = d("ReduceMean", d("Mul", centred, centred), d.ints(axis), keepdims=1)
        made = d("Sqrt", made) if d.maybe() else made
    elif op == "Pool":
        made = d("GlobalAveragePool", x)
    else:
        made = d(f"Reduce{op}", x, d.ints(axis), keepdims=1)
    if op in ("L2", "L1", "Sum") and d.maybe():
        made = d("Div", x, d("Max", d("Abs", made), d.const(1e-12)))
    d.output(made)


def norms(d: Draw) -> None:
    """Norms of what has a large mean, mixed scales or hardly any spread."""
    op = d.one_of(("Group", "Instance", "Layer", "RMS", "parts", "Batch"))
    shape = (1, d.one_of((4, 8, 16)), *d.one_of(((8, 8), (16, 16), (20, 7))))
    if op in ("Layer", "RMS", "parts"):
        shape = d.rows()
    x = draw_origin(d, shape)
    eps = d.one_of((1e-12, 1e-6, 1e-5, 1e-3))
    channels = shape[1] if op in ("Group", "Instance", "Batch") else shape[-1]
    scale = d.const(np.exp(0.5 * d.random.normal(size=channels)))
    bias = d.const(d.random.normal(size=channels))
    d.tell(op, f"{eps:g}")
    if op == "Group":
        made = d("GroupNormalization", x, scale, bias, num_groups=d.one_of((1, 2, 4)), epsilon=eps)
    elif op == "Instance":
        made = d("InstanceNormalization", x, scale, bias, epsilon=eps)
    elif op == "Layer":
        made = d("LayerNormalization", x, scale, bias, epsilon=eps)
    elif op == "RMS":
        mean = d("ReduceMean", d("Mul", x, x), d.ints(-1), keepdims=1)
        made = d("Mul", d("Div", x, d("Sqrt", d.shift(mean, eps))), scale)
    elif op == "parts":
        centred = d("Sub", x, d("ReduceMean", x, d.ints(-1), keepdims=1))
        spread = d("ReduceMean", d("Mul", centred, centred), d.ints(-1), keepdims=1)
        made = d("Div", centred, d("Sqrt", d.shift(spread, eps)))
        made = d("Add", d("Mul", made, scale), bias)
    else:
        size = max(x.size, 1e-6)
        mean = d.const(d.random.uniform(0.2, 0.8, channels) * size)
        spread = d.const((size * d.random.uniform(0.01, 0.3, channels)) ** 2)
        made = d("BatchNormalization", x, scale, bias, mean, spread)
    if d.maybe(0.3):
        made = d("Mul", made, d("Sigmoid", made))
    d.output(made)


def differences(d: Draw) -> None:
    """What is left of two numbers that are nearly alike."""
    what = d.one_of(("ids", "neighbours", "mean", "moments", "distance", "pair", "rest"))
    d.tell(what)
    if what == "ids":
        ids = positions(d, (1, d.one_of((8, 20))))
        rows = d("Unsqueeze", ids, d.ints(2), shape=(*ids.shape, 1))
        made = d("Sub", rows, d("Unsqueeze", ids, d.ints(1)))
        made = d.scale(d("Neg", d("Abs", made)), d.one_of((1.0, 0.0625, 0.5**8)))
        d.output(made)
        return
    x = draw_origin(d, d.rows())
    if what == "neighbours":
        later = d("Slice", x, d.ints(1), d.ints(10**6), d.ints(1))
        made = d("Sub", later, d("Slice", x, d.ints(0), d.ints(-1), d.ints(1)))
    elif what == "mean":
        made = d("Sub", x, d("ReduceMean", x, d.ints(d.one_of((1, 2))), keepdims=1))
    elif what == "moments":
        mean = d("ReduceMean", x, d.ints(1), keepdims=1)
        squares = d("ReduceMean", d("Mul", x, x), d.ints(1), keepdims=1)
        made = d("Sub", squares, d("Mul", mean, mean))
    elif what == "distance":
        other = d.input((d.random.normal(size=x.shape) * x.size * 1e-2).astype(np.float32))
        near = d("Add", x, other)
        made = d("ReduceL2", d("Sub", near, x), d.ints(-1), keepdims=1)
    elif what == "pair":
        factor = 1 + d.one_of((1e-2, 1e-3)) * d.random.normal(size=x.shape[-1])
        made = d("Sub", d.scale(x, factor), x)
    else:
        made = d("Sub", x, d.scale(d("Floor", d("Div", x, d.const(max(x.size, 1e-6) / 8))), 1.0))
    d.output(d.scale(made, 1.0) if d.maybe(0.3) else made)


def recurrent(d: Draw) -> None:
    """One to three recurrent layers over many steps, whose gates keep what came long ago."""
    op = d.one_of(("GRU", "GRU", "LSTM", "RNN"))
    steps, width = d.one_of((50, 100, 200)), d.one_of((8, 16, 32))
    layers = d.one_of((1, 2, 3))
    d.tell(op, f"{layers} x {steps} x {width}")
    source = d.one_of(("given", "product", "positions"))
    x = draw_origin(d, (steps, 1, 16), (source,))
    x = d.fit(x, d.one_of((1.0, 4.0)))
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    keep = d.one_of((0.0, 2.0, 4.0))
    for _ in range(layers):
        rows = x.shape[-1]
        w = d.random.normal(size=(1, gates * width, rows)) * d.one_of((0.5, 1.5)) / np.sqrt(rows)
        r = d.random.normal(size=(1, gates * width, width)) * d.one_of((0.6, 1.0)) / np.sqrt(width)
        b = d.random.normal(size=(1, 2 * gates * width)) * 0.3
        first = {"GRU": 0, "LSTM": 2 * width, "RNN": 0}[op]  # the gate that keeps the state
        if op != "RNN":
            b[:, first : first + width] += keep
        attributes = {"linear_before_reset": 1} if op == "GRU" and d.maybe(0.8) else {}
        made = d.several(
            op, x, d.const(w), d.const(r), d.const(b), count=1, hidden_size=width, **attributes
        )[0]
        made = d("Squeeze", made, d.ints(1))
        x = Tensor(made.name, (steps, 1, width), 1.0)
    if d.maybe():
        x = d("MatMul", x, d.const(d.weights(width, 8)))
    d.output(x)
