"""Pixel shuffles behind convolutions, which write the pixels themselves, against onnxruntime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.run_op import Ops

pytestmark = pytest.mark.operator


def _shuffled(ops: Ops, x: str, channels: int, block: int, mode: str, **attrs: Any) -> str:
    """A convolution of 8 channels to pixels of `channels`."""
    out = channels * block * block
    kernel = attrs.pop("kernel", 3)
    made = ops("Conv", x, ops.weight(out, 8, kernel, kernel), ops.weight(out), **attrs)
    return ops("DepthToSpace", made, blocksize=block, mode=mode)


@pytest.mark.parametrize(
    ("preset", "mode"), [("fp32", "CRD"), ("buffer", "DCR"), ("mixed", "DCR"), ("fp16", "CRD")]
)
def test_convolutions_write_the_pixels(device: Any, preset: str, mode: str) -> None:
    """Channels of no whole block, an output of the model, uneven padding, several readers."""
    ops = Ops()
    x = ops("Relu", ops.input(2, 8, 5, 6))
    one = _shuffled(ops, x, 5, 2, mode, pads=[1, 1, 1, 1])
    other = _shuffled(ops, x, 3, 3, mode, pads=[0, 1, 2, 1])
    point = _shuffled(ops, x, 4, 2, mode, kernel=1)
    ops.output(other, ops("Conv", one, ops.weight(6, 5, 3, 3)), ops("Sigmoid", one))
    ops.output(ops("Conv", point, ops.weight(2, 4, 1, 1)))
    ops.check(device, preset)
    assert [k for k in ops.kernels if k.startswith("reshape")] == []
    assert ops.kernels.count("conv2d_transpose") == 3


@pytest.mark.parametrize("preset", ["fp32", "buffer"])
def test_what_stands_before_and_after_the_shuffle(device: Any, preset: str) -> None:
    """Slopes of channels on both sides, and a sum with another tensor of its size."""
    ops = Ops()
    x = ops("Relu", ops.input(1, 8, 4, 5))
    made = ops("Conv", x, ops.weight(24, 8, 3, 3), ops.weight(24), pads=[1, 1, 1, 1])
    sloped = ops("PRelu", made, ops.weight(24, 1, 1))
    large = ops("DepthToSpace", sloped, blocksize=2, mode="CRD")
    beside = ops("Relu", ops.input(1, 6, 8, 10))
    after = ops("PRelu", large, ops.weight(6, 1, 1))
    ops.output(ops("Conv", ops("Add", after, beside), ops.weight(3, 6, 3, 3)))
    ops.check(device, preset)
    assert [k for k in ops.kernels if k.startswith("reshape")] == []


def test_what_is_also_read_as_it_is_stays(device: Any) -> None:
    ops = Ops()
    x = ops("Relu", ops.input(1, 8, 4, 5))
    made = ops("Conv", x, ops.weight(16, 8, 3, 3), pads=[1, 1, 1, 1])
    large = ops("DepthToSpace", made, blocksize=2, mode="DCR")
    ops.output(ops("Conv", large, ops.weight(3, 4, 3, 3)), ops("Sigmoid", made))
    ops.check(device, "fp32")
    assert any("also read as it is" in d.reason for d in ops.decisions)
