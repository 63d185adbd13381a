"""Transposed convolutions: every phase of every stride, groups, dilation, one dimension."""

import pytest

pytestmark = pytest.mark.operator

PRESETS = ("fp32", "mixed", "fp16", "buffer")


@pytest.mark.parametrize("preset", PRESETS)
def test_strides_and_kernels(ops, device, preset):
    x = ops.input(2, 5, 4, 6)
    for (kh, kw), attrs in (
        ((2, 2), {"strides": [2, 2]}),
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((3, 3), {"pads": [1, 0, 1, 2]}),
        ((2, 3), {"strides": [3, 2], "output_padding": [1, 0]}),
        ((3, 5), {"strides": [1, 5], "pads": [0, 3, 1, 1]}),
        ((3, 2), {"dilations": [2, 3], "strides": [2, 2], "pads": [1, 0, 0, 1]}),
    ):
        y = ops("ConvTranspose", x, ops.weight(5, 6, kh, kw), ops.weight(6), **attrs)
        ops.output(ops("Relu", y))
    ops.check(device, preset)
    assert ops.fallbacks == []
    assert ops.kernels.count("conv2d_transpose") == 7


@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_groups(ops, device, preset):
    for channels, per_group, groups in ((8, 4, 2), (6, 5, 3), (9, 5, 3), (5, 1, 5), (3, 2, 3)):
        x = ops.input(1, channels, 4, 5)
        w = ops.weight(channels, per_group, 3, 3)
        ops.output(ops("ConvTranspose", x, w, strides=[2, 2], pads=[1, 1, 1, 1], group=groups))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed"))
def test_one_dimension(ops, device, preset):
    x = ops.input(2, 6, 11)
    y = ops("Conv", x, ops.weight(8, 3, 3), pads=[2, 1], strides=[2], group=2)
    ops.output(y, ops("Conv", ops("Relu", x), ops.weight(5, 6, 3), dilations=[2]))
    ops.output(ops("ConvTranspose", y, ops.weight(8, 3, 4), strides=[2], pads=[1, 0]))
    ops.check(device, preset)


def test_strides_far_beyond_the_kernel_are_a_loop_nest(ops, device):
    """Weights for each of 10,000 phases would be zeros, but for nine."""
    x = ops.input(1, 2, 2, 2)
    ops.output(ops("ConvTranspose", x, ops.weight(2, 3, 3, 3), strides=[100, 100]))
    ops.check(device, "fp32")
    assert "9 taps lie in 10000 places" in ops.fallbacks[0]
