"""Tiles of the convolution whose weights come as texels or from a buffer, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.conv.conv2d import UNROLLED_TAPS
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.kernels.families.shared.conv_weights import BYTES_A_LOAD
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.tile_columns import (
    Column,
    TileTable,
    choose,
    is_one,
    larger,
    round_up,
    smaller,
)
from adrenoc.kernels.work_group import power_of_two, power_of_two_within
from adrenoc.target.cost.conv_cost import ConvTextureCost
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

_ROUTES = (Route.TEXTURE, Route.BUFFER)
_NUMBERS = ("pixels", "out_blocks", "x", "y", "z", "route")
"""What the search finds of a tile; its route by the place among `_ROUTES`."""


def texture_candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTable[ConvTile]:
    """Return the tiles that suit the extents."""
    rows = list(_rows(work, limits, costs))
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    pixels, out_blocks, x, y, z, route = columns
    actions = {
        "pixels": pixels,
        "out_blocks": out_blocks,
        "route": np.array(_ROUTES, dtype=object)[route],
        "work_group": (x, y, z),
    }
    return TileTable(ConvTile, actions, len(rows))


def _rows(
    work: ConvWork, limits: Limits, costs: Cost
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Pixels, output blocks, work-group and route (a place of `_ROUTES`) of each."""
    e, cost = work.out, costs.conv_texture
    for pixels in cost.pixels:
        if pixels > 1 and pixels > e.w // 2:
            break
        columns = -(-e.w // pixels)
        flat = list(_groups(columns, e.h, 1, limits, costs))
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            if work.geometry.groups > 1 and out_blocks > 1:
                break
            per_image = -(-e.blocks // out_blocks)
            if e.blocks % out_blocks == 0:
                for group in _groups(columns, e.h, e.n * per_image, limits, costs):
                    yield pixels, out_blocks, *group, 0
            per_load = 2 if work.half else 1
            if work.geometry.groups == 1 and out_blocks % per_load == 0:
                for x, y, _ in flat:
                    yield pixels, out_blocks, x, y, 1, 1


def _groups(x: int, y: int, z: int, limits: Limits, costs: Cost) -> Iterator[tuple[int, int, int]]:
    """Work-groups of at most a wave.

    Neighbours in x read neighbouring texels, so groups are not narrow where the image is wide.
    """
    cost = costs.conv_texture
    most = min(costs.pipes.wave_threads, limits.max_work_group_size)
    deepest = power_of_two_within(limits.group_sides[2])
    if x * y == 1:
        yield min(power_of_two(z), most), 1, 1
        return
    for gx in _sizes(x, cost):
        if gx < min(x, cost.narrowest_group, most):
            continue
        for gy in _sizes(y, cost):
            if gx * gy > most:
                break
            yield gx, gy, min(power_of_two(z), most // (gx * gy), deepest)


def texture_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Clocks of the whole convolution on the target."""
    e, geometry = work.out, work.geometry
    cost, rates = machine.cost.conv_texture, machine.cost.pipes
    kh, kw = geometry.kernel
    texels, loads = _reads(work, tile)
    sums = tile.pixels * tile.out_blocks
    mads = sums * LANES * (work.channels + (1 if work.half else 0))  # halves: `kernels/sums.py`
    steps = kh * kw * work.in_blocks
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    # Beside the multiply-adds: a coordinate for each read, unpacking, and the loop.
    unpack = cost.half_load_slots if work.half else cost.float_load_slots
    overhead = cost.texel_slots * texels + unpack * loads + cost.loop_slots
    overhead += work.texel_work * _activations(work, tile)
    alu = mads / lanes + overhead / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    buffer = loads * BYTES_A_LOAD / rates.bytes_per_clock
    busiest = machine.wave * (
        steps * larger(larger(alu, texture), buffer) + cost.end_alu * sums / machine.lanes
    )
    gx, gy, gz = tile.work_group or (1, 1, 1)
    columns, per_image = round_up(e.w / tile.pixels), round_up(e.blocks / tile.out_blocks)
    groups = choose(
        columns * e.h == 1,
        round_up(e.n * per_image / gx),
        round_up(columns / gx) * round_up(e.h / gy) * round_up(e.n * per_image / gz),
    )
    waves = groups * round_up(gx * gy * gz / machine.wave)
    # The weights of each tap are waited for, whatever else is under way.
    in_texture = is_one(tile.route, Route.TEXTURE)
    latency = choose(in_texture, rates.texture_latency_clocks, rates.buffer_latency_clocks)
    slots = steps * (mads + texels + overhead) + cost.start_slots + cost.end_slots * sums
    serial = steps * latency + machine.slots_a_wave * slots
    resident = machine.resident_waves(_registers(work, tile, cost))
    return machine.clocks(waves, busiest, serial, resident)


def _activations(work: ConvWork, tile: ConvTile) -> Column:
    """Activation texels that one thread reads for one tap and input block."""
    kw, stride = work.geometry.kernel[1], work.geometry.strides[1]
    if kw <= UNROLLED_TAPS and work.geometry.dilation[1] == 1:
        return smaller(1.0 * tile.pixels, ((tile.pixels - 1) * stride + kw) / kw)
    return 1.0 * tile.pixels


def _reads(work: ConvWork, tile: ConvTile) -> tuple[Column, Column]:
    """Texels and 16-byte loads that one thread reads for one tap and input block."""
    activation = _activations(work, tile) + work.block_texels
    weights = work.channels * tile.out_blocks
    in_texture, loads = is_one(tile.route, Route.TEXTURE), weights * (0.5 if work.half else 1.0)
    return activation + choose(in_texture, weights, 0), choose(in_texture, 0.0, loads)


def _registers(work: ConvWork, tile: ConvTile, cost: ConvTextureCost) -> Column:
    """Full registers of four that a thread needs."""
    kw = work.geometry.kernel[1]
    columns = tile.pixels + work.block_texels + (kw - 1 if kw <= UNROLLED_TAPS else 0)
    vectors = tile.pixels * tile.out_blocks + columns + LANES * tile.out_blocks
    return round_up(vectors * (0.5 if work.half else 1.0)) + cost.address_registers


def _sizes(extent: int, cost: ConvTextureCost) -> list[int]:
    """Sides up to the extent, and the extent itself where it is small."""
    sizes = [side for side in cost.sides if side < 2 * extent]
    return sorted({*sizes, extent} if extent <= cost.most_whole else sizes)
