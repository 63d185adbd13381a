"""Every tile and weight route that the cost model may pick computes the same convolution."""

from __future__ import annotations

from typing import Any

import pytest
from run_op import Ops

from adrenoc.kernels.families.conv import dense_rule as rules
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.kernels.families.shared.scored import Scored

pytestmark = pytest.mark.operator

TILES = (
    ConvTile(pixels=7, out_blocks=2, route=Route.TEXTURE, work_group=(4, 4, 2)),
    ConvTile(pixels=3, out_blocks=4, route=Route.BUFFER, work_group=(4, 8, 1)),
    ConvTile(pixels=4, out_blocks=2, route=Route.LOCAL, work_group=(4, 4, 1), chunk=2),
    ConvTile(
        pixels=2, out_blocks=2, route=Route.LOCAL, work_group=(4, 2, 8), bands=2, split_k=4, chunk=1
    ),
    ConvTile(
        pixels=3, out_blocks=1, route=Route.LOCAL, work_group=(4, 2, 4), bands=4, chunk=4, unroll=2
    ),
    ConvTile(
        pixels=1,
        out_blocks=3,
        route=Route.LOCAL,
        work_group=(8, 1, 2),
        split_k=2,
        chunk=2,
        unroll=2,
    ),
    ConvTile(pixels=5, out_blocks=5, route=Route.LOCAL, work_group=(5, 3, 1), chunk=2),
    ConvTile(
        pixels=8, out_blocks=3, route=Route.LOCAL, work_group=(2, 5, 4), bands=2, split_k=2, chunk=1
    ),
)


@pytest.mark.parametrize(
    "tile", TILES, ids=lambda t: f"{t.pixels}x{t.out_blocks}x{t.split_k}u{t.unroll}-{t.route.value}"
)
@pytest.mark.parametrize("preset", ("fp32", "mixed", "fp16", "buffer"))
def test_a_tile(tile: ConvTile, preset: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "score_tiles", lambda *_: Scored(lambda: [tile], lambda _: 0.0))
    ops = Ops()
    x = ops.input(2, 18, 9, 13)  # five input blocks: no k-step of several divides them
    for kernel, attrs in (
        (3, {"pads": [1, 1, 1, 1]}),
        (1, {"strides": [2, 2]}),
        (5, {"pads": [2, 2, 2, 2]}),
    ):
        # 30 channels are 8 blocks, 17 are 5: groups of blocks that are not full
        channels = 30 if tile.route is Route.TEXTURE else 17
        ops.output(ops("Conv", x, ops.weight(channels, 18, kernel, kernel), **attrs))
    ops.check(device, preset)
