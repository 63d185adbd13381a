"""Rectangles and tiles of an expansion with its depthwise convolution: what has to hold for all."""

import random
from dataclasses import replace

import pytest

from adrenoc.ir.layout import Extents
from adrenoc.kernels.families.expansion.expansion_plan import AxisSpan, HaloRegion
from adrenoc.kernels.families.expansion.expansion_rule import ExpansionWork, candidates, local_bytes
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.target.target import load_target


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
