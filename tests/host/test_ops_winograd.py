"""3x3 convolutions by Winograd's algorithm agree with onnxruntime, whatever the tile."""

from dataclasses import replace

import numpy as np
import pytest

from adrenoc.kernels.families.shared.conv_geometry import Route
from adrenoc.kernels.families.shared.machine import Machine, Scored
from adrenoc.kernels.families.winograd import winograd_conv_rule as winograd_conv
from adrenoc.kernels.families.winograd.winograd_conv import WinogradTile
from adrenoc.passes.fuse import split_winograd
from adrenoc.target.target import load_target
from tests.decided import set_joins

pytestmark = pytest.mark.operator


@pytest.fixture
def split(monkeypatch) -> None:
    """Three kernels: the cost model would not choose them for images as small as these."""
    monkeypatch.setattr(split_winograd, "LAUNCHES", -1e9)
    known = Machine.from_performance
    monkeypatch.setattr(
        Machine, "from_performance", lambda *of: replace(known(*of), winograd_least_pixels=1)
    )
    set_joins(monkeypatch, winograd_least_launches=0)


@pytest.fixture
def whole(monkeypatch) -> None:
    """One kernel."""
    set_joins(monkeypatch, winograd_least_launches=0, winograd=1e-9, winograd_three=1e9)


FEW_COLUMNS = load_target("adreno").cost.winograd_conv.few_columns


def _tile(
    tiles: int,
    blocks: int,
    columns: int,
    bands: int,
    split_k: int,
    chunk: int,
    unroll: int = 1,
    route: Route | None = None,
) -> WinogradTile:
    return WinogradTile(
        tiles=tiles,
        out_blocks=blocks,
        work_group=(16 * columns, 1, bands * split_k),
        columns=columns,
        split_k=split_k,
        chunk=chunk,
        unroll=unroll,
        route=route or (Route.BUFFER if columns < FEW_COLUMNS else Route.LOCAL),
    )


TILES = [
    _tile(1, 1, 1, 1, 1, 1),
    _tile(5, 1, 1, 2, 2, 4, 2),
    _tile(3, 2, 4, 1, 1, 3),
    _tile(2, 1, 8, 2, 1, 2, 2),
    _tile(2, 3, 4, 1, 2, 4),
    _tile(5, 1, 1, 2, 2, 4, 2, Route.TEXTURE),
    _tile(3, 2, 1, 2, 1, 4, 1, Route.TEXTURE),
]


@pytest.mark.parametrize(
    ("preset", "number"),
    [*(("fp16", n) for n in range(len(TILES))), *(("fp32", n) for n in (1, 2, 5, 6)), ("mixed", 6)],
)
@pytest.mark.usefixtures("whole")
def test_every_schedule_of_one_kernel(ops, preset, number, device, monkeypatch):
    """Blocks, tiles and pixels beyond the last; chunks of which the last is filled up."""
    only = TILES[number : number + 1]
    monkeypatch.setattr(
        winograd_conv, "score_tiles", lambda *_: Scored(lambda: only, lambda _: 0.0)
    )
    x = ops.input(2, 22, 13, 17)
    for pads in ([0, 0, 0, 0], [2, 0, 1, 1]):
        ops.output(ops("Conv", x, ops.weight(10, 22, 3, 3), pads=pads))
    ops.check(device, preset)
    assert sum(d.taken.endswith("in one kernel") for d in ops.decisions) == 2


@pytest.mark.parametrize("outputs", (2, 3, 4))
@pytest.mark.parametrize("preset", ("fp32", "buffer"))
@pytest.mark.usefixtures("split")
def test_every_tile_size(ops, outputs, preset, device, monkeypatch):
    monkeypatch.setattr(split_winograd, "OUTPUTS", {"float32": (outputs,), "float16": (2,)})
    x = ops.input(2, 6, 9, 13)
    for pads in ([1, 1, 1, 1], [0, 0, 0, 0], [2, 0, 1, 1]):
        ops.output(ops("Conv", x, ops.weight(10, 6, 3, 3), pads=pads))
    ops.check(device, preset)


@pytest.mark.parametrize("kernels", ("split", "whole"))
def test_with_an_epilogue_that_reads_other_tensors(ops, kernels, preset, device, request):
    request.getfixturevalue(kernels)
    x = ops.input(1, 8, 12, 14)
    conv = ops("Conv", x, ops.weight(8, 8, 3, 3), ops.weight(8), pads=[1, 1, 1, 1])
    ops.output(ops("Relu", ops("Add", conv, x)))
    ops.check(device, preset)


@pytest.mark.parametrize(
    ("kernels", "preset"),
    (("split", "mixed"), ("split", "fp16"), ("split", "buffer"), ("whole", "fp16")),
)
def test_inputs_near_the_end_of_half(ops, kernels, preset, device, request):
    """Sums of four of them are beyond it."""
    request.getfixturevalue(kernels)
    x = ops.input(1, 8, 12, 14, low=2e4, high=6e4)
    weight = ops.const(np.full((4, 8, 3, 3), 1e-3))
    ops.output(ops("Conv", x, weight, pads=[1, 1, 1, 1]))
    ops.check(device, preset)
    assert ("winograd_tiles" in ops.kernels) is (kernels == "split")


@pytest.mark.usefixtures("split")
def test_what_is_computed_where_it_is_read_stays_one_kernel(ops, device):
    """A scale and an activation in the place of the convolution's input."""
    x = ops("MaxPool", ops.input(1, 16, 13, 15), kernel_shape=[2, 2])
    scaled = ops("Relu", ops("Add", ops("Mul", x, ops.weight(16, 1, 1)), ops.weight(16, 1, 1)))
    ops.output(ops("Conv", scaled, ops.weight(8, 16, 3, 3)))
    ops.output(ops("Relu", x))
    ops.check(device, "fp32")


@pytest.mark.usefixtures("whole")
def test_weights_near_the_end_of_half_are_not_transformed(ops, device):
    x = ops.input(1, 8, 12, 14, low=-1e-3, high=1e-3)
    weight = ops.const(np.full((4, 8, 3, 3), 5e4))
    ops.output(ops("Conv", x, weight, pads=[1, 1, 1, 1]))
    ops.check(device, "mixed")
    reasons = [d.reason for d in ops.decisions if d.taken == "not by Winograd's algorithm"]
    assert len(reasons) == 1
    assert "up to 2.25 times as large" in reasons[0]
    assert "5e+04" in reasons[0]
