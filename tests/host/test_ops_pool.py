"""Pools, reductions and softmax over all windows and axes that change the kernel."""

import numpy as np
import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


def test_max_pool(ops, device, preset):
    x = ops.input(2, 7, 13, 11, low=-3.0, high=-1.0)
    for attrs in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [5, 3], "pads": [2, 0, 1, 2]},
        {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 2, 1, 2]},
        {"kernel_shape": [13, 11]},
    ):
        ops.output(ops("MaxPool", x, **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_avg_pool(device, preset):
    ops = Ops(opset=19)
    x = ops.input(1, 5, 12, 9)
    for attrs in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [5, 4], "pads": [2, 0, 1, 2]},
        {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 1, 2, 1]},
    ):
        ops.output(ops("AveragePool", x, **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
@pytest.mark.parametrize("channels", (1, 3, 30))
def test_pools_of_odd_channels(ops, device, preset, channels):
    x = ops.input(2, channels, 6, 7)
    ops.output(ops("MaxPool", x, kernel_shape=[3, 3], strides=[1, 2], pads=[1, 1, 1, 1]))
    ops.output(ops("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    ops.output(ops("GlobalAveragePool", ops("Relu", x)))
    ops.output(ops("GlobalMaxPool", x))
    ops.check(device, preset)


def test_pools_between_convolutions(ops, device):
    """The pools read and write textures, with an epilogue behind them."""
    y = ops("Conv", ops.input(1, 3, 16, 15), ops.weight(10, 3, 3, 3), pads=[1, 1, 1, 1])
    a = ops("Relu", ops("AveragePool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    b = ops("MaxPool", y, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    z = ops("Conv", ops("Add", a, b), ops.weight(6, 10, 1, 1))
    ops.output(ops("GlobalAveragePool", z))
    ops.check(device, "fp32")


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_pools_of_one_dimension(ops, device, preset):
    x = ops.input(2, 6, 17)
    ops.output(ops("MaxPool", x, kernel_shape=[3], strides=[2], pads=[1, 1]))
    ops.output(ops("AveragePool", x, kernel_shape=[4], strides=[3], pads=[1, 2]))
    ops.check(device, preset)
    assert ops.fallbacks == []


def test_windows_over_everything(ops, device, preset):
    """They are reductions: rows and columns that threads share."""
    x = ops("Tanh", ops.input(2, 7, 9, 10))
    for kind in ("AveragePool", "MaxPool"):
        ops.output(ops("Relu", ops(kind, x, kernel_shape=[9, 10])))
        ops.output(ops(kind, x, kernel_shape=[9, 10], pads=[0, 0, 1, 1], strides=[9, 10]))
    ops.check(device, preset)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_windows_by_their_length_round_up(ops, device, p):
    x = ops.input(1, 7, 6, 5)
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    ops.output(ops("LpPool", x, p=p, ceil_mode=1, **window))
    ops.check(device, "fp32")


def reduced(ops: Ops, kind: str, x: str, axes: tuple[int, ...] | None, keepdims: int) -> str:
    inputs = [x] if axes is None else [x, ops.ints(*axes)]
    return ops(f"Reduce{kind}", *inputs, keepdims=keepdims)


def test_means(ops, device, preset):
    y = ops("Sigmoid", ops.input(2, 7, 5, 6))
    for axes, keepdims in (
        ((2, 3), 1),
        ((2, 3), 0),
        ((1,), 1),
        ((1,), 0),
        ((0, 2), 0),
        ((1, 3), 0),
        (None, 1),
        ((3,), 0),
    ):
        ops.output(reduced(ops, "Mean", y, axes, keepdims))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("mean") == 8


def test_one_number_of_all_is_a_texel_that_keeps_small_values(ops, device, preset):
    y = ops("Relu", ops.input(1, 6, 30, 40))
    span = ops("Sub", reduced(ops, "Max", y, None, 0), reduced(ops, "Min", y, None, 0))
    scale = ops("Mul", span, ops.const(1e-7))
    ops.output(ops("Mul", y, ops("Div", ops.const(1e-7), scale)))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "fp16"))
def test_every_kind(ops, device, preset):
    """The padding lanes of five channels must not count: all data lie above or below zero."""
    above, below = ops.input(1, 5, 3, 4, low=0.5), ops.input(1, 5, 3, 4, low=-1.0, high=-0.5)
    for kind in ("Sum", "Max", "Min", "Prod"):
        for x in (above, below):
            y = ops("Mul", x, ops.const(1.5))
            ops.output(reduced(ops, kind, y, (1,), 0))
        ops.output(reduced(ops, kind, above, (1, 2), 1), reduced(ops, kind, above, (2,), 1))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("shape", ((6,), (3, 30), (2, 9, 10), (1, 2, 3, 1, 5, 7)))
def test_ranks(ops, device, shape):
    y = ops("Relu", ops.input(*shape))
    ops.output(reduced(ops, "Sum", y, (-1,), 1), reduced(ops, "Max", y, (0,), 1))
    if len(shape) > 1:
        ops.output(reduced(ops, "Mean", y, (-1,), 0), reduced(ops, "Min", y, (0,), 0))
    ops.check(device, "fp32")


def test_five_wide_axes_are_a_loop_nest(ops, device):
    y = reduced(ops, "Sum", ops.input(2, 3, 2, 3, 2, 5), (2,), 0)
    ops.output(ops("Relu", y))
    ops.check(device, "fp32")
    assert len(ops.fallbacks) == 1
    assert "too many extents above one" in ops.fallbacks[0]


def test_many_elements_in_half(ops, device):
    """8192 ones: a half sum of them would stop at 2048."""
    x = ops.input(1, 4, 64, 128, low=0.99, high=1.01)
    ops.output(reduced(ops, "Mean", x, (2, 3), 1), reduced(ops, "Mean", x, (1, 2, 3), 0))
    ops.check(device, "fp16", tolerance=1e-3)


@pytest.mark.parametrize("kind", ("Softmax", "LogSoftmax"))
def test_softmax(ops, device, preset, kind):
    x = ops.input(2, 7, 5, 6, low=-8.0, high=8.0)
    for axis in (0, 1, 2, 3):
        ops.output(ops(kind, x, axis=axis))
    ops.output(ops("Mul", ops(kind, ops.input(3, 30), axis=-1), ops.weight(30)))
    ops.check(device, preset)
    assert ops.kernels.count("softmax" if kind == "Softmax" else "log_softmax") == 5


def test_softmax_is_stable(ops, device):
    """Exponentials of these overflow, and so do those of the padding lanes' zeros."""
    x = ops("Add", ops.input(4, 5), ops.const(np.float32(-1000.0)))
    y = ops("Add", ops.input(4, 5), ops.const(np.float32(1000.0)))
    ops.output(ops("Softmax", x, axis=1), ops("Softmax", y, axis=1))
    ops.output(ops("Softmax", x, axis=0))
    ops.check(device, "fp32", tolerance=2e-4)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_more_channels_than_layers(ops, device, preset):
    """Such tensors lie as rows of texels: the same kernels, other coordinates, guarded borders."""
    y = ops("Relu", ops.input(2, 9001))
    ops.output(ops("Softmax", y, axis=1), reduced(ops, "Max", y, (1,), 0))
    ops.output(ops("LayerNormalization", y, ops.weight(9001), ops.weight(9001)))
    x = ops("Relu", ops.input(1, 8197, 3, 4))
    for kind in ("MaxPool", "AveragePool"):
        ops.output(ops(kind, x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    ops.output(ops("Neg", reduced(ops, "Mean", x, (2, 3), 1)))
    ops.check(device, preset)
    assert any("rows" in d.taken for d in ops.decisions)
