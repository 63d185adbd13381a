"""Each operator, alone and of any size, keeps to a bar of its own, far below that of a network.

What is read has been rounded to halves before, so that errors are those of the operator: of its
weights' rounding, of its sums, of what it stores.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.host.run_op import Ops, relative_error


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An operator and its largest error over the range, in mixed and in fp16."""

    make: Callable[[Ops, np.random.Generator], str]
    mixed: float
    fp16: float


def _held(ops: Ops, random: np.random.Generator, *shape: int) -> str:
    """A tensor between kernels whose values are halves."""
    name = ops.input(*shape)
    ops.given(name, random.standard_normal(shape).astype(np.float16).astype(np.float32))
    return ops("MaxPool", name, kernel_shape=[1, 1])


def _size(random: np.random.Generator, low: int, high: int) -> int:
    return int(random.integers(low, high + 1))


def _conv(ops: Ops, random: np.random.Generator, taps: int, deep: int) -> str:
    channels, out = _size(random, deep // 2, deep), _size(random, 3, 24)
    x = _held(ops, random, 1, channels, _size(random, 9, 14), _size(random, 9, 14))
    pads = [taps // 2] * 4
    return ops("Conv", x, ops.weight(out, channels, taps, taps), ops.weight(out), pads=pads)


def _depthwise(ops: Ops, random: np.random.Generator) -> str:
    channels = _size(random, 5, 20)
    x = _held(ops, random, 1, channels, 13, 11)
    return ops("Conv", x, ops.weight(channels, 1, 5, 5), group=channels, pads=[2] * 4)


def _grouped(ops: Ops, random: np.random.Generator) -> str:
    x = _held(ops, random, 1, 24, 11, _size(random, 9, 12))
    return ops("Conv", x, ops.weight(18, 4, 3, 3), group=6)


def _transposed(ops: Ops, random: np.random.Generator, taps: int) -> str:
    channels = _size(random, 40, 90)
    x = _held(ops, random, 1, channels, 9, 9)
    return ops("ConvTranspose", x, ops.weight(channels, 7, taps, taps), strides=[2, 2])


def _dense(ops: Ops, random: np.random.Generator, rows: int, depth: int) -> str:
    x = _held(ops, random, 1, 1, rows, depth)
    return ops("MatMul", x, ops.weight(depth, _size(random, 9, 40)))


def _matmul(ops: Ops, random: np.random.Generator, depth: int) -> str:
    rows, columns = _size(random, 9, 30), _size(random, 9, 30)
    a, b = _held(ops, random, 1, 2, rows, depth), _held(ops, random, 1, 2, depth, columns)
    return ops("MatMul", a, b)


def _attention(ops: Ops, random: np.random.Generator) -> str:
    tokens = _size(random, 20, 50)
    q, k, v = (_held(ops, random, 1, 2, tokens, 16) for _ in range(3))
    scores = ops("MatMul", q, ops("Transpose", k, perm=[0, 1, 3, 2]))
    scaled = ops("Mul", scores, ops.const(0.25))
    return ops("MatMul", ops("Softmax", scaled, axis=-1), v)


def _on_image(op: str, *others, **attrs) -> Callable[[Ops, np.random.Generator], str]:
    def make(ops: Ops, random: np.random.Generator) -> str:
        x = _held(ops, random, 1, _size(random, 5, 30), _size(random, 7, 20), 12)
        return ops(op, x, *(make_other(ops) for make_other in others), **attrs)

    return make


STORED = 5e-4
"""A rounding of a result in half, 2^-11 of the largest."""

BARS = {
    "1x1": Bar(make=lambda o, r: _conv(o, r, 1, 400), mixed=STORED, fp16=2e-3),
    "3x3": Bar(make=lambda o, r: _conv(o, r, 3, 60), mixed=STORED, fp16=2e-3),
    "7x7": Bar(make=lambda o, r: _conv(o, r, 7, 6), mixed=STORED, fp16=2e-3),
    "grouped": Bar(make=_grouped, mixed=STORED, fp16=1e-3),
    "depthwise": Bar(make=_depthwise, mixed=STORED, fp16=STORED),
    "transposed 2": Bar(make=lambda o, r: _transposed(o, r, 2), mixed=STORED, fp16=2e-3),
    "transposed 3": Bar(make=lambda o, r: _transposed(o, r, 3), mixed=STORED, fp16=STORED),
    "dense": Bar(make=lambda o, r: _dense(o, r, 70, 300), mixed=STORED, fp16=2e-3),
    "dense of few": Bar(make=lambda o, r: _dense(o, r, 3, 300), mixed=STORED, fp16=STORED),
    "matmul": Bar(make=lambda o, r: _matmul(o, r, 64), mixed=STORED, fp16=1e-3),
    "matmul of long": Bar(make=lambda o, r: _matmul(o, r, 400), mixed=STORED, fp16=1e-3),
    "attention": Bar(make=_attention, mixed=STORED, fp16=STORED),
    "softmax": Bar(make=_on_image("Softmax", axis=1), mixed=STORED, fp16=STORED),
    "mean": Bar(make=_on_image("GlobalAveragePool"), mixed=STORED, fp16=STORED),
    "pool": Bar(
        make=_on_image("AveragePool", kernel_shape=[3, 3]), mixed=STORED, fp16=STORED
    ),
    "length": Bar(
        make=_on_image("ReduceL2", lambda o: o.ints(2, 3)), mixed=STORED, fp16=STORED
    ),
    "layer norm": Bar(
        make=_on_image("LayerNormalization", lambda o: o.weight(12), lambda o: o.weight(12)),
        mixed=STORED,
        fp16=STORED,
    ),
    "gelu": Bar(make=_on_image("Gelu"), mixed=STORED, fp16=STORED),
    "resize": Bar(
        make=_on_image("Resize", lambda o: "", lambda o: o.const([1, 1, 2, 2]), mode="linear"),
        mixed=STORED,
        fp16=STORED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("preset", "seed"), [("mixed", 0), ("fp16", 0), ("fp16", 1)])
def test_operators_keep_to_their_bars(device, preset, seed):
    ops, random = Ops(seed, opset=20), np.random.default_rng(seed)
    made = {name: bar.make(ops, random) for name, bar in BARS.items()}
    ops.output(*made.values())
    expected, seen = ops.reference(), ops.run(device, preset)
    errors = {name: relative_error(seen[t], expected[t]) for name, t in made.items()}
    beyond = {
        name: f"{error:.1e}"
        for name, error in errors.items()
        if not error <= getattr(BARS[name], preset)
    }
    assert not beyond, errors
