"""Tiles of a depthwise convolution with the 1x1 convolution after it: the cost model."""

import math
from dataclasses import replace

from adrenoc.ir.layout import Extents
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
