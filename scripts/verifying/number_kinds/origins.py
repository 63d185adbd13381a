"""Where a tensor comes from: given, cast of integers, learned, looked up or carried by steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scripts.verifying.number_kinds.draw import Draw, Shape, Tensor

Origin = Callable[[Draw, Shape], Tensor]
TAME = ("small", "unit", "pixels", "channels", "sparse")
"""Ranges of what a learned product reads: its results fit a half with the weights made here."""


def given(d: Draw, shape: Shape) -> Tensor:
    """A graph input in float."""
    return d.floats(shape)


def cast(d: Draw, shape: Shape) -> Tensor:
    """Whole numbers, over all that their type holds, as floats; often brought to 1."""
    dtype = d.one_of((np.uint8, np.int8, np.uint16, np.int16, np.int32))
    limits = np.iinfo(dtype)
    values = d.random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    x = d.to_float(d.input(values))
    d.tell(np.dtype(dtype).name)
    if dtype is np.int32 or d.maybe():
        x = d.scale(x, 1 / float(limits.max))
    return x


def positions(d: Draw, shape: Shape) -> Tensor:
    """Positions, timesteps or ids, as floats."""
    top = d.one_of((49, 999, 2047, 8191, 65535, 100_000))
    d.tell(f"ids to {top}")
    if d.maybe():
        count = shape[1]
        first = int(d.random.integers(0, max(1, top - count)))
        column = (first + np.arange(count)).reshape(1, -1, *(1,) * (len(shape) - 2))
        ids = np.broadcast_to(column, shape).astype(np.int64)
    else:
        ids = d.random.integers(0, top, shape, endpoint=True)
    return d.to_float(d.input(np.ascontiguousarray(ids)))


def product(d: Draw, shape: Shape) -> Tensor:
    """What one or two learned products make."""
    gain = d.one_of((0.05, 1.0, 1.0, 8.0, 40.0))
    mean = d.one_of((0.0, 0.0, 0.0, 20.0)) * gain
    d.tell(f"product x{gain:g}" + (f" about {mean:g}" if mean else ""))
    if len(shape) == 4:
        return _convolved(d, shape, gain, mean)
    width = d.one_of((16, 48))
    x = d.floats((*shape[:-1], width), TAME)
    if d.maybe(0.3):
        hidden = d("MatMul", x, d.const(d.weights(width, width, gain=1 / max(x.size, 1e-3))))
        x = Tensor(d("Relu", hidden).name, x.shape, 1.0)
    weights = d.weights(width, shape[-1], gain=gain / max(x.size, 1e-3))
    made = d("MatMul", x, d.const(weights), shape=shape)
    made = d("Add", made, d.const(mean + gain * d.random.normal(size=shape[-1])), shape=shape)
    return Tensor(made.name, shape, 4 * gain + mean)


def _convolved(d: Draw, shape: Shape, gain: float, mean: float) -> Tensor:
    _, channels, height, width = shape
    many, kernel = d.one_of((3, 16)), d.one_of((1, 3))
    x = d.floats((1, many, height, width), TAME)
    weights = d.random.normal(size=(channels, many, kernel, kernel))
    weights *= gain / max(x.size, 1e-3) / np.sqrt(many * kernel * kernel)
    bias = mean + gain * d.random.normal(size=channels)
    pads = [kernel // 2] * 4
    made = d("Conv", x, d.const(weights), d.const(bias), pads=pads, shape=shape)
    return Tensor(made.name, shape, 4 * gain + mean)


def attended(d: Draw, shape: Shape) -> Tensor:
    """Values mixed by attention."""
    count, width = shape[1], int(np.prod(shape[2:]))
    d.tell("attention")
    x = d.floats((1, count, 16), ("unit", "small"))
    gain = 1 / max(x.size, 1e-3)
    q, k, v = (d("MatMul", x, d.const(d.weights(16, n, gain=gain))) for n in (16, 16, width))
    k = d("Transpose", k, perm=[0, 2, 1])
    share = d("Softmax", d.scale(d("MatMul", q, k), 0.25), axis=-1)
    made = d("MatMul", share, v, shape=(1, count, width))
    if len(shape) != 3:
        made = d("Reshape", made, d.ints(*shape), shape=shape)
    return Tensor(made.name, shape, 3.0)


def normal(d: Draw, shape: Shape) -> Tensor:
    """What a layer norm makes."""
    d.tell("norm")
    x = d.floats(shape, ("unit", "pixels", "small", "channels"))
    scale = np.exp(0.5 * d.random.normal(size=shape[-1]))
    made = d("LayerNormalization", x, d.const(scale), d.const(d.random.normal(size=shape[-1])))
    return Tensor(made.name, shape, 5.0)


def looked_up(d: Draw, shape: Shape) -> Tensor:
    """Rows of a table."""
    size, count = d.one_of((0.02, 1.0, 30.0)), int(np.prod(shape[1:-1]))
    d.tell(f"table x{size:g}")
    table = d.const(d.random.normal(size=(50, shape[-1])) * size)
    ids = d.input(d.random.integers(0, 50, (1, count)))
    made = d("Gather", table, ids, axis=0, shape=(1, count, shape[-1]))
    if len(shape) != 3:
        made = d("Reshape", made, d.ints(*shape), shape=shape)
    return Tensor(made.name, shape, 3 * size)


def carried(d: Draw, shape: Shape) -> Tensor:
    """States of a recurrent layer."""
    count, width = int(np.prod(shape[1:-1])), shape[-1]
    if count > 64 or width > 32:
        return product(d, shape)
    d.tell("states")
    x = d.floats((count, 1, 8), ("unit",))
    w = d.const(d.random.normal(size=(1, 3 * width, 8)) * 0.5)
    r = d.const(d.random.normal(size=(1, 3 * width, width)) / np.sqrt(width))
    made = d.several("GRU", x, w, r, count=1, hidden_size=width, linear_before_reset=1)[0]
    made = d("Reshape", made, d.ints(*shape), shape=shape)
    return Tensor(made.name, shape, 1.0)


def transformed(d: Draw, shape: Shape) -> Tensor:
    """Products by a constant basis of cosines."""
    d.tell("basis")
    count = d.one_of((32, 64))
    x = d.floats((*shape[:-1], count), ("unit", "pixels", "sound", "small", "mean"))
    angles = np.outer(np.arange(count) + 0.5, np.arange(shape[-1])) * np.pi / count
    made = d("MatMul", x, d.const(np.cos(angles)), shape=shape)
    return Tensor(made.name, shape, x.size * 8)


ORIGINS: dict[str, Origin] = {
    "given": given,
    "cast": cast,
    "positions": positions,
    "product": product,
    "attention": attended,
    "norm": normal,
    "table": looked_up,
    "states": carried,
    "basis": transformed,
}
LEARNED = ("product", "attention", "norm", "table", "states")


def draw_origin(d: Draw, shape: Shape, names: Sequence[str] = tuple(ORIGINS)) -> Tensor:
    """A tensor from somewhere; half of all come as they are given or from integers."""
    plain = [name for name in names if name in ("given", "cast", "positions")]
    name = d.one_of(plain) if plain and d.maybe() else d.one_of(names)
    return ORIGINS[name](d, shape)
