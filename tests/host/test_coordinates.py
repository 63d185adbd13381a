"""What says where to read is no half: at a thousand pixels it would be off by half a pixel."""

import numpy as np
import pytest

_WIDTH, _HEIGHT = 1024, 6


@pytest.mark.parametrize("preset", ("mixed", "fp16"))
def test_grids_of_wide_images(ops, device, preset):
    """Pixels plus a flow, scaled and joined, as networks warp one image onto another."""
    image = ops.input(1, 3, _HEIGHT, _WIDTH)
    flow = ops("MaxPool", ops.input(1, 2, _HEIGHT, _WIDTH), kernel_shape=[1, 1])
    pixels = np.stack(np.meshgrid(np.arange(_WIDTH), np.arange(_HEIGHT)))[None]
    place = ops("Add", flow, ops.const(pixels.astype(np.float32)))
    last = np.array([_WIDTH - 1, _HEIGHT - 1], np.float32).reshape(1, 2, 1, 1)
    scaled = ops("Sub", ops("Mul", place, ops.const(2 / last)), ops.const(1.0))
    x, y = (
        ops("Slice", scaled, *(ops.const([v], np.int64) for v in (axis, axis + 1, 1)))
        for axis in (0, 1)
    )
    grid = ops("Transpose", ops("Concat", x, y, axis=1), perm=[0, 2, 3, 1])
    ops.output(ops("GridSample", image, grid, align_corners=1, padding_mode="border"))
    ops.check(device, preset, tolerance=2e-3)
    assert any(d.taken == "float32" for d in ops.decisions)


def test_indices_and_plain_windows_cost_nothing(ops, device):
    """Integers and the places that a kernel works out itself are no tensors of floats."""
    x = ops("MaxPool", ops.input(1, 8, 5, 7), kernel_shape=[1, 1])
    taken = ops("Gather", x, ops.const([3, 0, 2], np.int64), axis=3)
    ops.output(ops("Relu", ops("Resize", taken, "", ops.const([1.0, 1.0, 2.0, 2.0]))))
    ops.check(device, "mixed")
    assert not any("reads another tensor where it points" in d.reason for d in ops.decisions)
