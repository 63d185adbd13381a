"""Pools: windows at borders, dilated, rounded up, in both layouts of the data."""

import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")


@pytest.mark.parametrize("preset", PRESETS)
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


@pytest.mark.parametrize("preset", PRESETS)
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
    x = ops.input(1, 3, 16, 15)
    y = ops("Conv", x, ops.weight(10, 3, 3, 3), pads=[1, 1, 1, 1])
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


@pytest.mark.parametrize("preset", PRESETS)
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
