"""Weights, biases and folded norms that bring tensors beyond half, a small factor a layer."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.host.run_op import Ops

Build = Callable[[Ops], str]
_REASON = "of data of one"


def _layers(
    ops: Ops,
    *,
    weights: Callable[..., np.ndarray],
    act: str = "Relu",
    count: int = 4,
    channels: int = 32,
    low: float = 0.0,
    groups: int = 1,
) -> str:
    """Convolutions in a row, each with an activation."""
    y = ops.input(1, channels, 6, 5, low=low)
    for _ in range(count):
        shape = (channels, channels // groups, 3, 3)
        y = ops("Conv", y, ops.const(weights(*shape)), pads=[1] * 4, group=groups)
        y = ops(act, y) if act else y
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _all_of(value: float) -> Callable[..., np.ndarray]:
    return lambda *shape: np.full(shape, value)


def _of_both_signs(ops: Ops) -> str:
    """Most weights are positive, as a mean of .06 under noise of .12 is."""
    return _layers(ops, weights=lambda *shape: ops.values(*shape) * 0.4 + 0.06)


def _silu(ops: Ops) -> str:
    y = ops.input(1, 32, 6, 5, low=0)
    for _ in range(4):
        y = ops("Conv", y, ops.const(np.full((32, 32, 3, 3), 0.1)), pads=[1] * 4)
        y = ops("Mul", y, ops("Sigmoid", y))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _dense(ops: Ops) -> str:
    y = ops.input(4, 96, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Gemm", y, ops.const(np.full((96, 96), 0.2)), ops.weight(96)))
    return y


def _one_row(ops: Ops) -> str:
    """One channel alone is beyond half, and what reads it."""
    weights = ops.values(32, 32, 3, 3) * 0.1
    weights[5] = np.abs(weights[5]) * 100
    return _layers(ops, weights=lambda *_: weights, count=3)


def _transposed(ops: Ops) -> str:
    y = ops.input(1, 24, 3, 2, low=0)
    for _ in range(3):
        weights = ops.const(np.full((24, 24, 4, 4), 0.5))
        y = ops("Relu", ops("ConvTranspose", y, weights, strides=[2, 2], pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _of_sequences(ops: Ops) -> str:
    y = ops.input(1, 24, 20, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((24, 24, 3), 0.3)), pads=[1, 1]))
    return y


def _of_volumes(ops: Ops) -> str:
    y = ops.input(1, 8, 4, 4, 4, low=0)
    for _ in range(4):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((8, 8, 3, 3, 3), 0.2)), pads=[1] * 6))
    return y


def _biases(ops: Ops) -> str:
    y = ops.input(1, 8, 6, 5)
    for _ in range(2):
        weights, bias = ops.weight(8, 8, 3, 3), ops.const(np.full(8, 5e4))
        y = ops("Relu", ops("Conv", y, weights, bias, pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _sum_of_biases(ops: Ops) -> str:
    x, bias = ops.input(1, 8, 6, 5), ops.const(np.full(8, 3e4))
    y = ops("Sum", *(ops("Conv", x, ops.weight(8, 8, 1, 1), bias) for _ in range(3)))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _folded_norms(ops: Ops) -> str:
    y = ops.input(1, 8, 6, 5)
    for _ in range(2):
        y = ops("Conv", y, ops.weight(8, 8, 3, 3), pads=[1] * 4)
        scale, offset = ops.const(np.full(8, 2e3)), ops.const(np.zeros(8))
        variance = ops.const(np.ones(8))
        y = ops("Relu", ops("BatchNormalization", y, scale, offset, offset, variance))
    return ops("MaxPool", y, kernel_shape=[2, 2])


def _doubled(ops: Ops) -> str:
    """What is added to itself seventeen times."""
    y = ops.input(1, 8, 6, 5, low=0)
    for _ in range(17):
        y = ops("MaxPool", ops("Add", y, y), kernel_shape=[1, 1])
    return y


def _of_bytes(ops: Ops) -> str:
    y = ops("Cast", ops.whole_input(1, 32, 6, 5, count=256, dtype=np.uint8), to=1)
    for _ in range(2):
        y = ops("Relu", ops("Conv", y, ops.const(np.full((32, 32, 3, 3), 0.1)), pads=[1] * 4))
    return ops("MaxPool", y, kernel_shape=[2, 2])


GROWN: dict[str, Build] = {
    "positive": lambda ops: _layers(ops, weights=_all_of(0.1)),
    "negative": lambda ops: _layers(ops, weights=_all_of(-0.1), act=""),
    "of_data_of_both_signs": lambda ops: _layers(ops, weights=_all_of(0.3), low=-1.0),
    "leaky": lambda ops: _layers(ops, weights=_all_of(0.1), act="LeakyRelu"),
    "depthwise": lambda ops: _layers(ops, weights=_all_of(0.9), count=7, groups=32),
    "grouped": lambda ops: _layers(ops, weights=_all_of(0.4), groups=4),
    "of_both_signs": _of_both_signs,
    "silu": _silu,
    "dense": _dense,
    "one_row": _one_row,
    "transposed": _transposed,
    "of_sequences": _of_sequences,
    "of_volumes": _of_volumes,
    "biases": _biases,
    "sum_of_biases": _sum_of_biases,
    "folded_norms": _folded_norms,
    "doubled": _doubled,
    "of_bytes": _of_bytes,
}


@pytest.mark.parametrize("preset", ["mixed", "fp16"])
def test_grown_tensors_are_no_infinities(ops, device, preset):
    ops.output(*(ops("Mul", build(ops), ops.const(0.5)) for build in GROWN.values()))
    ops.check(device, preset)
    assert any(_REASON in d.reason for d in ops.decisions)


def _running_sum(ops: Ops) -> str:
    """40,000 numbers of up to four."""
    x = ops("Relu", ops.input(1, 40000, low=0.0, high=4.0))
    return ops("Mul", ops("CumSum", x, ops.const(1, np.int64), reverse=1), ops.const(0.5))


def test_running_sums_are_no_infinities(ops, device):
    ops.output(_running_sum(ops))
    ops.check(device, "mixed")


def test_what_hides_is_no_size(ops, device):
    """Masks and the padding of maxima are far below zero and make nothing large."""
    x = ops.input(1, 8, 6, 5)
    padded = ops("Pad", x, ops.ints(0, 0, 1, 1, 0, 0, 1, 1), ops.const(-np.inf))
    largest = ops("MaxPool", padded, kernel_shape=[3, 3])
    mask = ops.const(np.where(np.arange(5) < 3, 0.0, -3e4))
    scores = ops("MaxPool", ops("Add", largest, mask), kernel_shape=[1, 1])
    ops.output(ops("Softmax", scores, axis=-1))
    ops.check(device, "mixed")
    assert not any(_REASON in d.reason for d in ops.decisions)


def test_a_gate_beyond_half_is_no_infinity(device):
    """The factors are up to 800 each; in a layer of a Llama they were 256 and 262."""
    ops = Ops(seed=3)
    x = ops("Tanh", ops("MatMul", ops.input(8, 32), ops.const(ops.values(32, 32))))
    gate = ops("MatMul", x, ops.const(np.abs(ops.values(32, 64)) * 360))
    up = ops("MatMul", x, ops.const(np.abs(ops.values(32, 64)) * 360))
    gated = ops("Mul", up, ops("Mul", gate, ops("Sigmoid", gate)))
    ops.output(ops("MatMul", gated, ops.const(ops.values(64, 16) * 1e-3)))
    ops.check(device, "fp16", tolerance=1e-2)
    assert any(d.taken == "stored divided by 16" for d in ops.decisions)
