"""Constant bases and integer signals: spectra, rotations, pixels and samples as they come."""

from __future__ import annotations

import numpy as np

from scripts.verifying.number_kinds.draw import Draw, Tensor
from scripts.verifying.number_kinds.origins import cast, draw_origin, positions


def spectra(d: Draw) -> None:
    """A short-time Fourier transform by Conv or MatMul, its power, mel bands and a log."""
    size, hop = d.one_of(((64, 16), (128, 32), (256, 128)))
    count = size + hop * d.one_of((3, 10))
    x = _signal(d, count)
    bins = size // 2 + 1
    angle = 2 * np.pi * np.outer(np.arange(bins), np.arange(size)) / size
    window = np.hanning(size + 1)[:size]
    bases = [np.cos(angle) * window, -np.sin(angle) * window]
    frames = (count - size) // hop + 1
    shape = (1, bins, frames)
    if d.maybe():
        d.tell("Conv")
        if d.maybe(0.3):
            both = d("Conv", x, d.const(np.concatenate(bases)[:, None]), strides=[hop])
            parts = d.several("Split", both, count=2, axis=1, num_outputs=2)
        else:
            parts = [d("Conv", x, d.const(b[:, None]), strides=[hop]) for b in bases]
    else:
        d.tell("MatMul")
        picked = np.arange(frames)[:, None] * hop + np.arange(size)
        rows = d("Gather", x, d.const(picked, np.int64), axis=2)
        rows = d("Squeeze", rows, d.ints(1))
        products = [d("MatMul", rows, d.const(b.T)) for b in bases]
        parts = [d("Transpose", p, perm=[0, 2, 1]) for p in products]
    power = d("Add", *(d("Mul", p, p) for p in parts))
    power = Tensor(power.name, shape, (x.size * size / 4) ** 2)
    _show(d, power, bins)


def _signal(d: Draw, count: int) -> Tensor:
    """Tones in noise, quiet or loud, in floats or integers."""
    time = np.arange(count)
    wave = sum(np.sin(f * time + p) / 2 for f, p in d.random.uniform(0, 3, (2, 2)))
    wave = (wave + 0.01 * d.random.normal(size=count)) / 1.1 * 10 ** d.random.uniform(-3, 0)
    way = d.one_of(("float", "float16k", "int16", "int32", "silence"))
    d.tell(way)
    shape = (1, 1, count)
    if way == "silence":
        wave[count // 2 :] = 0
    if way in ("float", "silence"):
        return d.input(wave.reshape(shape).astype(np.float32))
    if way == "float16k":
        return d.input((wave * 32767).round().reshape(shape).astype(np.float32))
    top = np.iinfo(way).max
    x = d.to_float(d.input((wave * top).reshape(shape).astype(way)))
    return d.scale(x, 1 / top) if way == "int32" or d.maybe() else x


def _show(d: Draw, power: Tensor, bins: int) -> None:
    """As networks read a power spectrum."""
    eps = power.size * 1e-10
    if d.maybe():
        d.tell("mel")
        bands = d.one_of((8, 20))
        centres = np.linspace(1, bins - 1, bands)[:, None]
        mel = np.maximum(0, 1 - np.abs(np.arange(bins) - centres) * bands / bins)
        power = d("MatMul", d.const(mel), power, shape=(1, bands, power.shape[2]))
    way = d.one_of(("log", "decibels", "root", "cube", "power", "pcen", "normal"))
    d.tell(way)
    if way == "log":
        made = d("Log", d.shift(power, eps))
    elif way == "decibels":
        made = d.scale(d("Log", d("Max", power, d.const(eps))), 10 / np.log(10))
        made = d("Max", made, d.shift(d("ReduceMax", made, keepdims=1), -80.0))
    elif way == "root":
        made = d("Sqrt", power)
    elif way == "cube":
        made = d("Pow", d.shift(power, eps), d.const(1 / 3))
    elif way == "pcen":
        mean = d("ReduceMean", power, d.ints(2), keepdims=1)
        made = d("Div", power, d("Pow", d.shift(mean, eps), d.const(0.98)))
    elif way == "normal":
        log = d("Log", d("Sqrt", d.shift(power, eps)))
        centred = d("Sub", log, d("ReduceMean", log, d.ints(2), keepdims=1))
        spread = d("Sqrt", d("ReduceMean", d("Mul", centred, centred), d.ints(2), keepdims=1))
        made = d("Div", centred, d.shift(spread, 1e-5))
    else:
        made = power
    d.output(made)


def rotations(d: Draw) -> None:
    """Rotary positions, from tables or computed, of learned queries."""
    count, half = d.one_of((8, 24)), d.one_of((4, 16))
    frequencies = d.one_of((10_000.0, 500_000.0)) ** (-np.arange(half) / half)
    shape = (1, count, 2 * half)
    q = draw_origin(d, shape, ("given", "product", "norm"))
    ids = positions(d, (1, count))
    if d.maybe(0.3):
        d.tell("table")
        table = np.outer(np.arange(4096), frequencies)
        index = d.input(d.random.integers(0, 4096, (1, count)))
        cos, sin = (d("Gather", d.const(f(table)), index, axis=0) for f in (np.cos, np.sin))
    elif d.maybe():
        d.tell("MatMul")
        column = d("Unsqueeze", ids, d.ints(2))
        angle = d("MatMul", column, d.const(frequencies[None]))
        cos, sin = d("Cos", angle), d("Sin", angle)
    else:
        d.tell("Mul")
        column = d("Unsqueeze", ids, d.ints(2))
        angle = d("Mul", column, d.const(frequencies))
        double = d("Concat", angle, angle, axis=-1)
        cos = d("Slice", d("Cos", double), d.ints(0), d.ints(half), d.ints(-1))
        sin = d("Slice", d("Sin", double), d.ints(half), d.ints(2 * half), d.ints(-1))
    a = d("Slice", q, d.ints(0), d.ints(half), d.ints(-1))
    b = d("Slice", q, d.ints(half), d.ints(2 * half), d.ints(-1))
    turned = d("Sub", d("Mul", a, cos), d("Mul", b, sin))
    other = d("Add", d("Mul", b, cos), d("Mul", a, sin))
    made = d("Concat", turned, other, axis=-1)
    made = Tensor(made.name, shape, q.size)
    if d.maybe():
        made = d("MatMul", made, d("Transpose", made, perm=[0, 2, 1]))
    d.output(made)


def integers(d: Draw) -> None:
    """Integers cast to floats, and the layer that reads them."""
    shape = d.image()
    x = cast(d, shape)
    way = d.one_of(("Conv", "MatMul", "normal", "pool", "resize", "alone", "relu"))
    d.tell(way)
    size = max(x.size, 1e-6)
    if way == "Conv":
        weights = d.random.normal(size=(8, shape[1], 3, 3)) / (size * 3 * np.sqrt(shape[1]))
        made = d("Conv", x, d.const(weights), pads=[1, 1, 1, 1])
    elif way == "MatMul":
        made = d("MatMul", x, d.const(d.weights(shape[-1], 12, gain=1 / size)))
    elif way == "normal":
        mean = size * d.random.uniform(0.3, 0.6, (1, shape[1], 1, 1))
        made = d("Div", d("Sub", x, d.const(mean)), d.const(size * 0.25))
        weights = d.random.normal(size=(8, shape[1], 3, 3)) / (3 * np.sqrt(shape[1]))
        made = d("Conv", made, d.const(weights), pads=[1, 1, 1, 1])
    elif way == "pool":
        made = d(d.one_of(("AveragePool", "MaxPool")), x, kernel_shape=[2, 2], strides=[2, 2])
    elif way == "resize":
        made = d("Resize", x, "", d.const([1, 1, 2, 2]), mode="linear")
    elif way == "relu":
        made = d("Relu", d("Sub", x, d.const(size / 2)))
    else:
        made = d.scale(x, 2.0)
    d.output(made)


def layers(d: Draw) -> None:
    """A few learned layers, fed with numbers in some range, as they lie between other things."""
    shape = d.image()
    x = d.floats(shape, ("tiny", "small", "unit", "pixels", "sound", "channels", "mean", "sparse"))
    size = max(x.size, 1e-9)
    channels = shape[1]
    for depth in range(d.one_of((1, 2, 3))):
        gain = (1 / size if depth == 0 else 1.0) * d.one_of((0.5, 2.0))
        weights = d.random.normal(size=(8, channels, 3, 3)) * gain / (3 * np.sqrt(channels))
        made = d("Conv", x, d.const(weights), d.const(d.random.normal(size=8)), pads=[1] * 4)
        way = d.one_of(("Relu", "Sigmoid", "swish", "Tanh", "Elu", "norm", "HardSwish"))
        d.tell(way)
        if way == "swish":
            made = d("Mul", made, d("Sigmoid", made))
        elif way == "norm":
            ones, zeros = d.const(np.ones(8)), d.const(np.zeros(8))
            made = d("InstanceNormalization", made, ones, zeros)
        else:
            made = d(way, made)
        x, channels = Tensor(made.name, (1, 8, *shape[2:])), 8
    end = d.one_of(("", "Softmax", "pool", "l2"))
    if way == "norm" and end == "pool":
        end = ""  # Such a mean is 0, and all that anybody computes is rounding.
    d.tell(end)
    if end == "Softmax":
        x = d("Softmax", x, axis=1)
    elif end == "pool":
        x = d("GlobalAveragePool", x)
    elif end == "l2":
        x = d("Div", x, d.shift(d("ReduceL2", x, d.ints(1), keepdims=1), 1e-12))
    d.output(x)
