"""A convolution of any extents has schedules, also where each row has weights of its own."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adrenoc.ir.layout import Extents
from adrenoc.kernels.families.conv import conv_rules
from adrenoc.kernels.families.conv.conv_tile_local import local_counts
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.winograd.winograd import Tiling, multiply_candidates, winograd
from adrenoc.kernels.families.winograd.winograd_conv_rule import conv_candidates
from adrenoc.kernels.weights import whole_k_steps
from adrenoc.target.target import load_target

TARGET = load_target("adreno")
LIMITS = TARGET.limits


@given(
    in_blocks=st.integers(1, 70),
    channels=st.integers(1, 300),
    tiles=st.integers(1, 70),
    half=st.booleans(),
)
@example(in_blocks=64, channels=1, tiles=1, half=False)
def test_a_product_of_tiles_has_schedules(in_blocks, channels, tiles, half):
    work = ConvWork(
        geometry=ConvGeometry(kernel=(1, 1)),
        out=Extents(1, channels, 16, tiles),
        in_blocks=in_blocks,
        channels=4,
        storage_bytes=2 if half else 4,
        half=half,
        weight_sets=16,
    )
    found = list(multiply_candidates(work, LIMITS, TARGET.cost))
    assert found
    for tile in found:
        window = whole_k_steps(in_blocks, tile.k_step)
        assert in_blocks <= window <= TARGET.cost.conv_local.most_padding * in_blocks
        assert tile.chunk % tile.unroll == 0
        assert tile.chunk * tile.split_k <= window


@given(
    in_blocks=st.integers(1, 70),
    channels=st.integers(1, 300),
    size=st.integers(1, 60),
    half=st.booleans(),
)
def test_schedules_of_winograd_in_one_kernel_fit(in_blocks, channels, size, half):
    work = ConvWork(
        geometry=ConvGeometry(kernel=(3, 3), padding=(1, 1)),
        out=Extents(1, channels, size, size),
        in_blocks=in_blocks,
        channels=4,
        storage_bytes=2 if half else 4,
        half=half,
    )
    tiling = Tiling.cover(winograd(2), work.out)
    for tile in conv_candidates(work, tiling, LIMITS, TARGET.cost, textures=True):
        assert tile.threads <= LIMITS.max_work_group_size
        assert tile.chunk % (tile.split_k * tile.unroll) == 0
        assert tile.work_group == (16 * tile.columns, 1, tile.bands * tile.split_k)
        # Each thread makes at most one row of a transformed tile of a chunk.
        assert 4 * tile.group_tiles * tile.chunk <= tile.threads


@pytest.mark.parametrize("half", [False, True])
def test_a_convolution_is_searched_once_by_all_passes(half):
    machine = Machine.from_performance(TARGET.performance, TARGET.cost)

    def work() -> ConvWork:
        return ConvWork(
            geometry=ConvGeometry(kernel=(3, 3), padding=(1, 1)),
            out=Extents(1, 32, 28, 28),
            in_blocks=8,
            channels=4,
            storage_bytes=2,
            half=half,
        )

    tiles = conv_rules.score_tiles(work(), LIMITS, machine)
    assert conv_rules.score_tiles(work(), LIMITS, machine) is tiles
    assert conv_rules.least_clocks(work(), LIMITS, machine) == tiles.least
    for tile in list(tiles)[::100]:
        assert tiles(tile) == conv_rules.estimate_clocks(work(), tile, machine)


def _registers_660(work: ConvWork, **actions: Any) -> float:
    tile = ConvTile(route=Route.LOCAL, work_group=(4, 32, 1), **actions)
    target = load_target("adreno:a660")
    return local_counts(
        work, tile, Machine.from_performance(target.performance, target.cost)
    ).registers


def test_registers_of_convolutions_as_built():
    """Sixteen leave four waves on an Adreno 660, one more leaves two."""
    point = ConvWork(
        geometry=ConvGeometry(kernel=(1, 1)),
        out=Extents(1, 1024, 14, 14),
        in_blocks=64,
        channels=4,
        storage_bytes=2,
        half=True,
        textures=True,
    )
    assert _registers_660(point, pixels=2, out_blocks=4, chunk=64, unroll=4) <= 16
    assert _registers_660(point, pixels=5, out_blocks=2, chunk=32, unroll=2) <= 16
    assert _registers_660(point, pixels=4, out_blocks=3, chunk=32, unroll=2, split_k=2) <= 16
    assert _registers_660(point, pixels=5, out_blocks=3, chunk=32, unroll=2) > 16
    assert _registers_660(point, pixels=7, out_blocks=2, chunk=32, unroll=1, split_k=2) > 16
    strided = replace(
        point,
        geometry=ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1)),
        out=Extents(1, 128, 28, 28),
        in_blocks=32,
    )
    assert _registers_660(strided, pixels=2, out_blocks=3, chunk=8, unroll=2) <= 16
    assert _registers_660(strided, pixels=2, out_blocks=4, chunk=16, unroll=1) <= 16
    dense = replace(strided, geometry=ConvGeometry(kernel=(3, 3), padding=(1, 1)))
    assert _registers_660(dense, pixels=3, out_blocks=2, chunk=4, unroll=2) <= 16
    assert _registers_660(strided, pixels=2, out_blocks=2, chunk=32, unroll=2) <= 16


HALF_ONLY = 14
"""From this width on, weights in local memory are better in halves alone."""


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kernel, stride", [(16, 16), (14, 14), (9, 1), (11, 4)])
def test_wide_rows_of_texels_come_with_weights_in_local_memory(kernel, stride, half):
    """Patches of an image: 0.113 ms where texels of weights took 0.296 (Adreno 660, 16 x 16).

    In float a wide row leaves registers for one pixel: 0.47 ms if wide reads of local memory take
    longer, and 0.12 if not, where texels take 0.195 either way.
    """
    target = load_target("adreno:a660")
    work = ConvWork(
        geometry=ConvGeometry(kernel=(kernel, kernel), strides=(stride, stride)),
        out=Extents(1, 192, 14, 14),
        in_blocks=1,
        channels=3,
        storage_bytes=2 if half else 4,
        half=half,
    )
    tiles = conv_rules.score_tiles(
        work, target.limits, Machine.from_performance(target.performance, target.cost)
    )
    local = [tile for tile in tiles if tile.route is Route.LOCAL]
    assert (min(tiles, key=tiles) in local) == (half or kernel < HALF_ONLY)


@pytest.mark.parametrize("gpu", ["a618", "a660", "a750"])
@pytest.mark.parametrize("kernel, stride", [(16, 16), (14, 14), (8, 8), (7, 4)])
def test_patches_of_floats_stay_in_registers(gpu, kernel, stride):
    """A row of seven patches of 16 texels went to memory: 0.96 ms in place of 0.20 (660, mixed)."""
    target = load_target(f"adreno:{gpu}")
    machine = Machine.from_performance(target.performance, target.cost)
    work = ConvWork(
        geometry=ConvGeometry(kernel=(kernel, kernel), strides=(stride, stride)),
        out=Extents(1, 192, 14, 14),
        in_blocks=1,
        channels=3,
        storage_bytes=2,
        half=False,
        textures=True,
    )
    best = next(conv_rules.score_tiles(work, target.limits, machine).rank())
    if best.route is Route.LOCAL:
        assert local_counts(work, best, machine).registers <= machine.registers / 2
