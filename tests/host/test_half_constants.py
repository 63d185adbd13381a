"""Constants that halves cannot hold: above 65504, or with too few digits left below 2^-14."""

from collections.abc import Callable

import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops, float], str]
"""The reader of a constant of about this size, and what brings the result back to about 1."""

LARGE, SMALL = 1e6, 1e-7


def _held(ops: Ops, size: float, *shape: int) -> str:
    """A tensor between kernels, as small as the constant is large."""
    bound = 1e-3 if size == LARGE else 1.0
    return ops("MaxPool", ops.input(*shape, low=-bound, high=bound), kernel_shape=[1, 1])


def _back(ops: Ops, y: str, size: float) -> str:
    """The result at about 1, after a kernel that only hands it on."""
    handed_on = ops("MaxPool", y, kernel_shape=[1, 1])
    return ops("Mul", handed_on, ops.const(1e-3 if size == LARGE else 1 / size))


def _vector(ops: Ops, size: float, *shape: int) -> str:
    return ops.const(ops.values(*shape) * size)


def _conv(
    channels: tuple[int, int], kernel: int, extent: tuple[int, int] = (9, 10), group: int = 1
) -> Build:
    def build(ops: Ops, size: float) -> str:
        into, out = channels
        x = _held(ops, size, 1, into, *extent)
        weight = _vector(ops, size, out, into // group, kernel, kernel)
        pads = [kernel // 2] * 4
        y = ops("Conv", x, weight, _vector(ops, size * 1e-3, out), group=group, pads=pads)
        return _back(ops, ops("Relu", y), size)

    return build


def _transposed(ops: Ops, size: float) -> str:
    x = _held(ops, size, 1, 8, 6, 5)
    y = ops("ConvTranspose", x, _vector(ops, size, 8, 6, 2, 2), strides=[2, 2])
    return _back(ops, y, size)


def _pair(ops: Ops, size: float) -> str:
    """A depthwise convolution and a 1x1 one that would be one kernel."""
    x = _held(ops, size, 1, 16, 24, 24)
    y = ops("Relu", ops("Conv", x, ops.weight(16, 1, 3, 3), group=16, pads=[1] * 4))
    return _back(ops, ops("Conv", y, _vector(ops, size, 24, 16, 1, 1)), size)


def _joined(ops: Ops, size: float) -> str:
    """A concatenation that is written in place."""
    x = _held(ops, size, 1, 8, 6, 5)
    parts = [ops("Conv", x, _vector(ops, size, out, 8, 1, 1)) for out in (8, 4)]
    return _back(ops, ops("Concat", *parts, axis=1), size)


def _prologue(ops: Ops, size: float) -> str:
    """A factor of each channel that a convolution would compute where it reads."""
    scaled = ops("Mul", _held(ops, size, 1, 8, 12, 12), _vector(ops, size, 8, 1, 1))
    y = ops("Conv", ops("Relu", scaled), ops.weight(16, 8, 1, 1))
    return ops("Mul", y, ops.const(1e-3 if size == LARGE else 1 / size))


def _product(rows: int) -> Build:
    def build(ops: Ops, size: float) -> str:
        x = _held(ops, size, 1, 1, rows, 24)
        return _back(ops, ops("MatMul", x, _vector(ops, size, 24, 20)), size)

    return build


def _batched(ops: Ops, size: float) -> str:
    x = _held(ops, size, 1, 3, 7, 24)
    return _back(ops, ops("MatMul", x, _vector(ops, size, 1, 3, 24, 20)), size)


def _gemm(ops: Ops, size: float) -> str:
    x = ops("Flatten", _held(ops, size, 1, 24, 1, 1))
    y = ops("Gemm", x, _vector(ops, size, 20, 24), _vector(ops, size * 1e-3, 20), transB=1)
    return _back(ops, ops("Reshape", y, ops.ints(1, 1, 1, 20)), size)


def _factor(ops: Ops, size: float) -> str:
    y = ops("Mul", _held(ops, size, 1, 8, 6, 5), _vector(ops, size, 8, 1, 1))
    return _back(ops, y, size)


def _sum(ops: Ops, size: float) -> str:
    """The data is as large as what is added, in a kernel that holds it in float."""
    x = ops("Mul", _held(ops, size, 1, 8, 6, 5), ops.const(1e9 if size == LARGE else size))
    y = ops("Relu", ops("Add", x, _vector(ops, size, 8, 1, 1)))
    return ops("Mul", y, ops.const(1 / size))


def _after_product(ops: Ops, size: float) -> str:
    """A factor of each channel in the epilogue of a convolution, after a function."""
    x = _held(ops, size, 1, 8, 9, 10)
    y = ops("Tanh", ops("Conv", x, ops.weight(12, 8, 3, 3), pads=[1] * 4))
    return _back(ops, ops("Mul", y, _vector(ops, size, 12, 1, 1)), size)


def _table(ops: Ops, size: float) -> str:
    rows = ops("Gather", _vector(ops, size, 40, 12), ops.whole_input(7, count=40))
    rows = ops("Reshape", rows, ops.ints(1, 1, 7, 12))
    if size == LARGE:
        return ops("Mul", rows, ops.const(1 / size))
    return _back(ops, rows, size)


def _norm(ops: Ops, size: float) -> str:
    x = _held(ops, SMALL, 1, 5, 6, 16)
    gamma, beta = _vector(ops, size, 16), _vector(ops, size, 16)
    y = ops("LayerNormalization", x, gamma, beta)
    return ops("Mul", ops("MaxPool", y, kernel_shape=[1, 1]), ops.const(1 / size))


READERS: dict[str, Build] = {
    "conv_1x1": _conv((12, 20), 1),
    "conv_3x3": _conv((12, 20), 3),
    "conv_3x3_winograd": _conv((128, 128), 3, extent=(28, 28)),
    "depthwise": _conv((12, 12), 3, group=12),
    "conv_transposed": _transposed,
    "pair": _pair,
    "joined": _joined,
    "prologue": _prologue,
    "gemv": _product(1),
    "matmul": _product(150),
    "batched": _batched,
    "gemm": _gemm,
    "factor": _factor,
    "sum": _sum,
    "after_product": _after_product,
    "table": _table,
    "norm": _norm,
}


@pytest.mark.parametrize("size", (LARGE, SMALL))
@pytest.mark.parametrize("preset", ("mixed", "fp16"))
@pytest.mark.parametrize("name", READERS)
def test_constants_beyond_half_are_floats(ops, device, name, preset, size):
    ops.output(READERS[name](ops, size))
    ops.check(device, preset, tolerance=4e-3)
    assert any(d.taken == "float32" for d in ops.decisions)
    assert not any(d.taken.startswith("infinite") for d in ops.decisions)
