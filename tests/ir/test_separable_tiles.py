"""Tiles of depthwise convolutions with 1x1 ones before or after them: the cost model."""

import math
import random
from dataclasses import replace

import pytest

from adrenoc.ir.layout import Extents
from adrenoc.kernels.families.expansion.expansion_plan import AxisSpan, HaloRegion
from adrenoc.kernels.families.expansion.expansion_rule import ExpansionWork, candidates, local_bytes
from adrenoc.kernels.families.separable import SeparableTile, SeparableWork, score_tiles
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvWork, Route
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.target import load_target

WORK = SeparableWork(
    depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=32),
    source=Extents(1, 32, 112, 112),
    pointwise=ConvWork(
        geometry=ConvGeometry(kernel=(1, 1)),
        out=Extents(1, 16, 112, 112),
        in_blocks=8,
        channels=4,
        storage_bytes=2,
        half=False,
    ),
    finish_work=0,
)
"""MobileNetV2's first block."""


def test_an_activation_between_the_two_takes_registers():
    """With it, twelve sums of floats and the texels of three pixels spill on the Adreno 660."""
    target = load_target("adreno:a660")
    machine = Machine.from_performance(target.performance, target.cost)

    def held(finish_work: int) -> int:
        tiles = score_tiles(replace(WORK, finish_work=finish_work), target.limits, machine)
        tile = min(tiles, key=tiles)
        return tile.pixels * tile.out_blocks

    assert held(0) == 12
    assert held(8) < 12


def test_threads_that_share_sums_take_registers():
    """Nine sums of floats and fifteen texels leave no room for what splits are added with."""
    target = load_target("adreno:a660")
    work = replace(
        WORK,
        depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=144),
        source=Extents(1, 144, 56, 56),
        pointwise=replace(
            WORK.pointwise, out=Extents(1, 24, 56, 56), in_blocks=36, storage_bytes=4
        ),
        finish_work=8,
    )
    tiles = score_tiles(
        work, target.limits, Machine.from_performance(target.performance, target.cost)
    )
    tile = min(tiles, key=tiles)
    assert tile.split_k == 1 or tile.pixels * tile.out_blocks < 9


def test_pixels_that_lie_apart_take_registers():
    """Eight sums of floats and fifteen texels spill where the depthwise half has a stride."""
    target = load_target("adreno:a660")
    depthwise = ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1), groups=144)
    work = replace(
        WORK,
        depthwise=depthwise,
        source=Extents(1, 144, 56, 56),
        pointwise=replace(
            WORK.pointwise, out=Extents(1, 32, 28, 28), in_blocks=36, storage_bytes=4
        ),
        finish_work=8,
    )
    tiles = score_tiles(
        work, target.limits, Machine.from_performance(target.performance, target.cost)
    )
    tile = min(tiles, key=tiles)
    assert tile.rolled or (tile.pixels, tile.out_blocks) != (2, 4)


def test_kernels_hold_what_the_device_has():
    """ShuffleNetV2's fourth unit on `adreno`: the last round of loads goes beyond the weights."""
    target = load_target("adreno")
    work = replace(
        WORK,
        depthwise=ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1), groups=116),
        source=Extents(1, 116, 28, 28),
        pointwise=replace(
            WORK.pointwise, out=Extents(1, 116, 14, 14), in_blocks=29, storage_bytes=4
        ),
    )
    tiles = list(
        score_tiles(work, target.limits, Machine.from_performance(target.performance, target.cost))
    )
    assert len(tiles) > 500
    for tile in tiles:
        threads = math.prod(tile.work_group or ())
        span = tile.chunk * tile.split_k
        weights = -(-span * 4 * tile.out_blocks * tile.bands // threads) * threads
        assert (weights + span * 9) * 16 <= target.limits.local_mem_bytes


def test_sums_of_splits_go_through_local_memory():
    """Eight splits of three k-steps move more sums than weights: in an Adreno 750's machine code,
    MobileNetV2's second block takes 0.065 ms so and 0.052 with four, if width counts."""
    target = load_target("adreno:a750")
    work = replace(
        WORK,
        depthwise=ConvGeometry(kernel=(3, 3), strides=(2, 2), padding=(1, 1), groups=96),
        source=Extents(1, 96, 112, 112),
        pointwise=replace(WORK.pointwise, out=Extents(1, 24, 56, 56), in_blocks=24),
        finish_work=8,
        finish_texels=1,
    )
    machine = Machine.from_performance(target.performance, target.cost)
    scored = score_tiles(work, target.limits, machine)
    many, few = (
        SeparableTile(
            pixels=2,
            out_blocks=3,
            route=Route.LOCAL,
            work_group=(4, 32 // splits, splits),
            split_k=splits,
            chunk=24 // splits,
            rolled=True,
        )
        for splits in (8, 4)
    )
    assert {many, few} <= set(scored)
    assert scored(many) > 1.1 * scored(few)


def test_wide_weights_take_a_register():
    """Nine sums of floats beside fifteen texels leave an Adreno 750 two waves, as nine sums of
    halves do not: only then it pays to write the taps out, which asks for them at once."""
    target = load_target("adreno:a750")
    machine = Machine.from_performance(target.performance, target.cost)
    work = replace(
        WORK,
        depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=144),
        source=Extents(1, 144, 56, 56),
        pointwise=replace(WORK.pointwise, out=Extents(1, 24, 56, 56), in_blocks=36),
        finish_work=8,
        finish_texels=1,
    )
    scored = score_tiles(work, target.limits, machine)
    tile = min(scored, key=scored)
    assert (tile.pixels, tile.out_blocks, tile.rolled) == (3, 3, False)


@pytest.mark.parametrize("seed", range(40))
def test_a_work_group_computes_all_that_it_reads(seed):
    choice = random.Random(seed)
    kernel, stride, dilation = (
        choice.choice((1, 3, 5, 7)),
        choice.choice((1, 2, 3)),
        choice.choice((1, 2)),
    )
    padding, least = choice.randint(0, 4), (kernel - 1) * dilation + 1
    extent = choice.randint(max(1, least - 2 * padding), 40)
    out = (extent + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
    made = choice.randint(1, out)
    span = AxisSpan.from_extents(extent, out, made, kernel, stride, dilation, padding)
    for number in range(span.count):
        first = number * span.step - span.padding
        origin = max(first, 0)
        if span.shifted:
            origin = min(origin, extent - span.computed)
        computed = set(range(origin, origin + span.computed))
        read = {
            (number * made + m) * stride + k * dilation - padding
            for m in range(made)
            for k in range(kernel)
            if number * made + m < out
        }
        assert {row for row in read if 0 <= row < extent} <= computed <= set(range(extent))
        assert read <= set(range(first, first + span.read))
        assert span.shifted or computed <= set(range(first, first + span.read))


def _work(channels: int, wide: int, size: int, *, half: bool) -> ExpansionWork:
    return ExpansionWork(
        depthwise=ConvGeometry(kernel=(3, 3), padding=(1, 1), groups=wide),
        source=Extents(1, channels, size, size),
        out=Extents(1, wide, size, size),
        storage_bytes=2,
        half=half,
        kept="float16" if half else "float32",
        finish_work=8,
        epilogue_work=8,
    )


@pytest.mark.parametrize(("channels", "size"), [(24, 56), (160, 7), (1024, 14)])
def test_tiles_of_halves_fit_as_floats_too(channels, size):
    """For the first sums of a deep network become float after the pairs are chosen."""
    target = load_target("adreno:a660")
    limits = target.limits
    work = _work(channels, 4 * channels, size, half=True)
    tiles = list(candidates(work, limits, target.cost))
    assert tiles
    for tile in tiles:
        region = HaloRegion.from_geometry(
            work.depthwise, work.source, work.out, tile.rows, tile.columns
        )
        assert local_bytes(replace(work, half=False), tile, region) <= limits.local_mem_bytes


def test_no_tile_where_local_memory_cannot_hold_the_weights():
    target = load_target("adreno:a660")
    assert not list(candidates(_work(8192, 2048, 7, half=True), target.limits, target.cost))
