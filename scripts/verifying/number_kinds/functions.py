"""Functions that make much of little: angles, powers, logs, and the tails of activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scripts.verifying.number_kinds.draw import Draw, Tensor
from scripts.verifying.number_kinds.origins import draw_origin


def angles(d: Draw) -> None:
    """Sin and Cos of frequencies times positions, behind what exporters put between."""
    x = draw_origin(d, d.rows())
    top = d.one_of((3.0, 30.0, 300.0, 1000.0))
    way = d.one_of(("mul", "matmul", "divide", "outer"))
    if way == "outer":
        count = d.one_of((4, 16, 32))
        frequencies = 10_000.0 ** (-np.arange(count) / count)
        x = d("Unsqueeze", x, d.ints(3), shape=(*x.shape, 1))
        angle = d.scale(x, frequencies if x.size > 45 else frequencies * top / max(x.size, 1e-9))
    elif way == "matmul":
        count = d.one_of((4, 16, 33))
        basis = d.random.normal(size=(x.shape[-1], count)) * top / np.sqrt(x.shape[-1])
        angle = d("MatMul", x, d.const(basis / max(x.size, 1e-9)), shape=(*x.shape[:-1], count))
    elif way == "divide":
        angle = d("Div", x, d.const(max(x.size, 1e-9) / top))
    else:
        scales = top * 10.0 ** -np.linspace(0, 2, x.shape[-1]) / max(x.size, 1e-9)
        angle = d.scale(x, scales)
    angle = _pass_on(d, angle)
    d.tell(way)
    made = d(d.one_of(("Sin", "Cos")), angle)
    if d.maybe():
        made = d("Concat", made, d(d.one_of(("Sin", "Cos")), angle), axis=-1)
        width = 2 * angle.shape[-1]
        if d.maybe():
            made = d("MatMul", made, d.const(d.weights(width, 16)))
    d.output(made)


def _pass_on(d: Draw, x: Tensor) -> Tensor:
    """What moves or joins numbers, and changes none."""
    way = d.one_of(("", "", *_WAYS))
    d.tell(way)
    return _WAYS[way](d, x) if way else x


def _join(d: Draw, x: Tensor) -> Tensor:
    return d("Concat", x, x, axis=-1, shape=(*x.shape[:-1], 2 * x.shape[-1]))


def _choose(d: Draw, x: Tensor) -> Tensor:
    chosen = d.input(d.random.uniform(size=x.shape) < 0.7)
    return Tensor(d("Where", chosen, x, d.const(0.5)).name, x.shape, x.size)


def _reshape(d: Draw, x: Tensor) -> Tensor:
    flat = (x.shape[0], int(np.prod(x.shape[1:])))
    return d("Reshape", x, d.ints(*flat), shape=flat)


def _transpose(d: Draw, x: Tensor) -> Tensor:
    order = [0, 2, 1, 3][: len(x.shape)]
    return d("Transpose", x, perm=order, shape=tuple(x.shape[i] for i in order))


def _slice(d: Draw, x: Tensor) -> Tensor:
    cut = (x.shape[0], x.shape[1] - 1, *x.shape[2:])
    return d("Slice", x, d.ints(1), d.ints(10**6), d.ints(1), shape=cut)


def _expand(d: Draw, x: Tensor) -> Tensor:
    wide = (2, *x.shape[1:])
    return d("Expand", x, d.ints(*wide), shape=wide)


def _turn(d: Draw, x: Tensor) -> Tensor:
    return d.shift(x, np.pi / 2)


_WAYS: dict[str, Callable[[Draw, Tensor], Tensor]] = {
    "Concat": _join,
    "Where": _choose,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Expand": _expand,
    "Add": _turn,
}


def powers(d: Draw) -> None:
    """Exponentials, roots, powers, reciprocals and quotients, in ranges that floats hold."""
    x = draw_origin(d, d.rows() if d.maybe() else d.image())
    op = d.one_of(("Exp", "Sqrt", "Pow", "Reciprocal", "Div", "Square", "Rsqrt", "Sigmoid"))
    d.tell(op)
    if op == "Exp":
        made = d("Exp", d.fit(x, d.one_of((1.0, 8.0, 30.0))))
        if d.maybe():
            made = d("Log", d.shift(made, 1.0))
    elif op == "Sigmoid":
        made = d("Sigmoid", d.fit(x, d.one_of((1.0, 20.0))))
        made = d("Div", made, d.shift(d("Neg", made), 1.0 + 1e-5)) if d.maybe() else made
    elif op == "Sqrt":
        made = d("Sqrt", d("Abs", x))
    elif op == "Square":
        made = d("Mul", x, x)
        made = d("ReduceSum", made, d.ints(-1), keepdims=1)
    elif op == "Pow":
        base = d("Abs", d.fit(x, d.one_of((1.0, 30.0))))
        made = d("Pow", d.shift(base, 1e-3), d.const(d.one_of((0.3, 0.5, 1.7, 2.0, 3.0, -0.5))))
    elif op == "Rsqrt":
        made = d("Reciprocal", d("Sqrt", d.shift(d("Mul", x, x), max(x.size, 1e-6) ** 2 * 1e-2)))
        made = d("Mul", x, made)
    elif op == "Reciprocal":
        made = d("Reciprocal", d.shift(d("Abs", x), max(x.size, 1e-6) * 1e-2))
    else:
        largest = d("ReduceMax", d("Abs", x), d.ints(-1), keepdims=1)
        made = d("Div", x, d.shift(largest, 1e-8))
    d.output(made)


def tails(d: Draw) -> None:
    """Activations where their result is far smaller than what it is made of."""
    near = d.one_of(("zero", "far"))
    size = 10 ** d.random.uniform(-6, -1) if near == "zero" else d.random.uniform(8, 30)
    shape = d.rows()
    if near == "zero":
        x = d.input((d.random.uniform(0.1, 1, shape) * -size).astype(np.float32))
        op = d.one_of(("Elu", "Selu", "Celu", "ExpMinus1", "LogPlus1", "Tanh", "Erf", "Sin"))
    else:
        x = d.input(d.random.uniform(-size, -size + 1, shape).astype(np.float32))
        op = d.one_of(("Softplus", "Mish", "Sigmoid", "SoftplusLog", "Silu", "LogSigmoid"))
    d.tell(op, f"{-size:.1e}")
    if op == "ExpMinus1":  # what rounds in floats is excused: it is as inexact everywhere
        made = d("Sub", d("Exp", x), d.const(1.0))
    elif op == "LogPlus1":
        made = d("Log", d.shift(x, 1.0))
    elif op == "SoftplusLog":
        made = d("Log", d("Softplus", x))
    elif op == "LogSigmoid":
        made = d("Log", d("Sigmoid", x))
    elif op == "Silu":
        made = d("Mul", x, d("Sigmoid", x))
    else:
        made = d(op, x)
    if near == "zero" and d.maybe(0.7):
        made = d("Div", made, x)
    elif near == "zero" or op in ("Softplus", "Mish", "Sigmoid", "Silu"):
        made = d.scale(made, 1 / size if near == "zero" else np.exp(size))
    d.output(made)


def root_logs(d: Draw) -> None:
    """A root, power or sum before a log, brought to a range by its own least and largest."""
    x = draw_origin(d, d.rows() if d.maybe() else d.image())
    before = d.one_of(("root", "square", "sum", "softmax", "clip", "plain"))
    d.tell(before)
    eps = max(x.size, 1e-6) * d.one_of((1e-8, 1e-5, 1e-3))
    if before == "root":
        y = d("Sqrt", d.shift(d("Mul", x, x), eps * eps + 1e-37))
    elif before == "square":
        y = d.shift(d("Mul", x, x), eps * eps + 1e-37)
    elif before == "sum":
        y = d.shift(d("ReduceSum", d("Mul", x, x), d.ints(-1), keepdims=1), eps * eps + 1e-37)
    elif before == "softmax":
        y = d("Softmax", d.fit(x, 20.0), axis=-1)
    elif before == "clip":
        y = d("Max", d("Abs", x), d.const(eps))
    else:
        y = d.shift(d("Abs", x), eps)
    made = d("Log", y)
    if d.maybe():
        made = d.scale(made, 10 / np.log(10))
    if d.maybe():
        least = d("ReduceMin", made, keepdims=1)
        span = d("Sub", d("ReduceMax", made, keepdims=1), least)
        made = d("Div", d("Sub", made, least), d.shift(span, 1e-6))
    elif d.maybe():
        top = d("ReduceMax", made, keepdims=1)
        made = d("Max", made, d.shift(top, -80.0))
    d.output(made)
