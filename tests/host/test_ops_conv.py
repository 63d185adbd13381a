"""Convolutions: extents, strides, dilation, groups, depthwise, padding; epilogues behind them."""

import numpy as np
import pytest

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")


@pytest.mark.parametrize("preset", PRESETS)
def test_kernels_and_strides(ops, device, preset):
    x = ops.input(2, 5, 13, 11)
    for kernel, attrs in (
        ((1, 1), {}),
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [0, 1, 1, 0]}),
        ((3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((5, 5), {"strides": [1, 2], "pads": [2, 1, 3, 0]}),
        ((7, 1), {"auto_pad": "SAME_UPPER"}),
        ((1, 7), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ):
        ops.output(ops("Conv", x, ops.weight(6, 5, *kernel), ops.weight(6), **attrs))
    ops.check(device, preset)
    assert ops.fallbacks == []


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_stem(ops, device, preset):
    x = ops.input(1, 3, 21, 24)
    y = ops("Conv", x, ops.weight(16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3])
    ops.output(ops("Relu", y), ops("Conv", y, ops.weight(1, 16, 3, 3)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_groups(ops, device, preset):
    """Groups whose channels do not fill blocks of four share the blocks of their neighbours."""
    for channels, out, groups in ((8, 16, 2), (6, 15, 3), (9, 15, 3), (12, 6, 6), (30, 10, 5)):
        x = ops.input(1, channels, 5, 6)
        w = ops.weight(out, channels // groups, 3, 3)
        ops.output(ops("Conv", x, w, pads=[1, 1, 1, 1], group=groups))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", PRESETS)
def test_depthwise(ops, device, preset):
    for channels, multiplier, kernel, attrs in (
        (7, 1, 3, {"pads": [1, 1, 1, 1]}),
        (30, 1, 5, {"strides": [2, 2], "pads": [1, 2, 2, 1]}),
        (8, 1, 3, {"dilations": [2, 2]}),
        (6, 2, 3, {"strides": [2, 1]}),
        (1, 1, 3, {}),
    ):
        x = ops.input(2, channels, 9, 8)
        w = ops.weight(channels * multiplier, 1, kernel, kernel)
        ops.output(ops("Conv", x, w, ops.weight(channels * multiplier), group=channels, **attrs))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed", "buffer"))
def test_chain_with_epilogues(ops, device, preset):
    """Odd channels between convolutions: padding lanes must stay zero behind every epilogue."""
    x = ops.input(1, 3, 8, 9)
    a = ops("Sigmoid", ops("Conv", x, ops.weight(5, 3, 3, 3), ops.weight(5), pads=[1, 1, 1, 1]))
    b = ops("Conv", a, ops.weight(5, 5, 1, 1), ops.weight(5))
    c = ops("Clip", ops("Add", b, a), ops.const(0.0), ops.const(6.0))
    d = ops("Exp", ops("Mul", c, ops.weight(1, 5, 1, 1)))
    e = ops("Conv", d, ops.weight(7, 5, 3, 3), strides=[2, 2])
    f = ops("Mul", e, ops("HardSigmoid", ops("GlobalAveragePool", e)))
    ops.output(c, ops("Conv", f, ops.weight(2, 7, 1, 1)))
    ops.check(device, preset)


def test_computed_weights_are_a_loop_nest(ops, device):
    x, w = ops.input(1, 3, 5, 5), ops.input(2, 3, 3, 3)
    ops.output(ops("Conv", x, ops("Relu", w), pads=[1, 1, 1, 1]))
    ops.check(device, "fp32")
    assert len(ops.fallbacks) == 1
    assert "computed" in ops.fallbacks[0]


@pytest.mark.parametrize("preset", ["fp32", "fp16"])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "pad", "size"),
    [(3, 16, 16, 0, 64), (3, 11, 4, 2, 47), (6, 9, 1, 4, 15), (5, 12, 3, 0, 33)],
)
def test_wide_rows(ops, device, channels, kernel, stride, pad, size, preset):
    rng = np.random.default_rng(7)
    shape = (10, channels, kernel, kernel)
    weight = ops.const(rng.standard_normal(shape).astype(np.float32) / kernel)
    x = ops.input(1, channels, size, size + 3)
    held = ops("MaxPool", x, kernel_shape=[1, 1])
    made = ops("Conv", held, weight, strides=[stride] * 2, pads=[pad] * 4)
    ops.output(ops("Sigmoid", made))
    ops.check(device, preset)
