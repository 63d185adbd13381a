"""Depthwise convolutions agree with onnxruntime."""

from dataclasses import replace

import pytest

from adrenoc.target.target import load_target

pytestmark = pytest.mark.operator


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
def test_windows(ops, preset, device):
    x = ops.input(2, 10, 9, 13)  # images of three blocks: a work-group holds parts of two
    for kernel, attrs in (
        (3, {"pads": [1, 1, 1, 1]}),
        (3, {"pads": [0, 1, 1, 0], "strides": [2, 2]}),
        (5, {"pads": [2, 2, 2, 2]}),
        (3, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ):
        ops.output(ops("Conv", x, ops.weight(10, 1, kernel, kernel), group=10, **attrs))
    ops.check(device, preset)


@pytest.mark.parametrize(("channels", "kernel"), [(512, 7), (64, 14), (12, 51)])
def test_taps_fit_into_local_memory(ops, channels, kernel, device):
    """Down to one position, as face networks end: all threads of a group are of other channels."""
    x = ops.input(1, channels, kernel, kernel)
    ops.output(ops("Conv", x, ops.weight(channels, 1, kernel, kernel), group=channels))
    ops.check(device, "fp32", target="host:660")
    assert ops.fallbacks == []


def test_taps_that_no_image_holds_lie_in_a_buffer(ops, device):
    target = load_target("host")
    narrow = replace(target.limits, image2d_max_width_texels=48)
    x = ops.input(1, 10, 9, 13)
    ops.output(ops("Conv", x, ops.weight(10, 1, 3, 3), group=10, pads=[1, 1, 1, 1]))
    ops.check(device, "mixed", target=replace(target, gpu=replace(target.gpu, limits=narrow)))
