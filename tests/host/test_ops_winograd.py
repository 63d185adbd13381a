"""3x3 convolutions by Winograd's algorithm agree with onnxruntime, whatever the tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_op import Ops

from adrenoc.passes import split_winograd
from adrenoc.rules import machine


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost model would not choose it for images as small as these."""
    monkeypatch.setattr(machine, "LAUNCH_US", -1e9)


@pytest.mark.parametrize("outputs", (2, 3, 4))
@pytest.mark.parametrize("preset", ("fp32", "buffer"))
def test_every_tile_size(
    outputs: int, preset: str, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"float32": (outputs,), "float16": (2,)}
    monkeypatch.setattr(split_winograd, "OUTPUTS", sizes)
    ops = Ops()
    x = ops.input(2, 6, 9, 13)
    for pads in ([1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 1]):
        ops.output(ops("Conv", x, ops.weight(10, 6, 3, 3), pads=pads))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16"))
def test_with_an_epilogue_that_reads_other_tensors(preset: str, device: Any) -> None:
    ops = Ops()
    x = ops.input(1, 8, 12, 14)
    conv = ops("Conv", x, ops.weight(8, 8, 3, 3), ops.weight(8), pads=[1, 1, 1, 1])
    ops.output(ops("Relu", ops("Add", conv, x)))
    ops.check(device, preset)


@pytest.mark.parametrize("preset", ("mixed", "fp16", "buffer"))
def test_inputs_near_the_end_of_half(preset: str, device: Any) -> None:
    """Sums of four of them are beyond it."""
    ops = Ops()
    x = ops.input(1, 8, 12, 14, low=2e4, high=6e4)
    weight = ops.const(np.full((4, 8, 3, 3), 1e-3))
    ops.output(ops("Conv", x, weight, pads=[1, 1, 1, 1]))
    ops.check(device, preset)
    assert "winograd_tiles" in ops.kernels
