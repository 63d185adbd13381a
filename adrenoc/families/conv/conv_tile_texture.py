"""Tiles of the convolution whose weights come as texels or from a buffer, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from adrenoc.families.conv.conv2d import UNROLLED_TAPS
from adrenoc.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.families.shared.conv_weights import BYTES_A_LOAD
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.machine import Machine
from adrenoc.ir.layout import LANES
from adrenoc.kernels.work_group import power_of_two
from adrenoc.target.cost.conv_cost import ConvTextureCost
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


def texture_candidates(work: ConvWork, limits: Limits, costs: Cost) -> Iterator[ConvTile]:
    """The tiles that suit the extents."""
    e, cost = work.out, costs.conv_texture
    for pixels in cost.pixels:
        if pixels > 1 and pixels > e.w // 2:
            break
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            if work.geometry.groups > 1 and out_blocks > 1:
                break
            columns, per_image = -(-e.w // pixels), -(-e.blocks // out_blocks)
            if e.blocks % out_blocks == 0:
                for group in _groups(columns, e.h, e.n * per_image, limits, costs):
                    yield ConvTile(
                        pixels=pixels,
                        out_blocks=out_blocks,
                        route=Route.TEXTURE,
                        work_group=group,
                    )
            per_load = 2 if work.half else 1
            if work.geometry.groups == 1 and out_blocks % per_load == 0:
                for x, y, _ in _groups(columns, e.h, 1, limits, costs):
                    yield ConvTile(
                        pixels=pixels,
                        out_blocks=out_blocks,
                        route=Route.BUFFER,
                        work_group=(x, y, 1),
                    )


def _groups(x: int, y: int, z: int, limits: Limits, costs: Cost) -> Iterator[tuple[int, int, int]]:
    """Work-groups of at most a wave.

    Neighbours in x read neighbouring texels, so groups are not narrow where the image is wide.
    """
    cost = costs.conv_texture
    most = min(costs.pipes.wave_threads, limits.max_work_group_size)
    if x * y == 1:
        yield min(power_of_two(z), most), 1, 1
        return
    for gx in _sizes(x, cost):
        if gx < min(x, cost.narrowest_group, most):
            continue
        for gy in _sizes(y, cost):
            if gx * gy > most:
                break
            yield gx, gy, min(power_of_two(z), most // (gx * gy))


def texture_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> float:
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
        steps * max(alu, texture, buffer) + cost.end_alu * sums / machine.lanes
    )
    gx, gy, gz = tile.work_group or (1, 1, 1)
    columns, per_image = math.ceil(e.w / tile.pixels), math.ceil(e.blocks / tile.out_blocks)
    if columns * e.h == 1:
        groups = math.ceil(e.n * per_image / gx)
    else:
        groups = math.ceil(columns / gx) * math.ceil(e.h / gy) * math.ceil(e.n * per_image / gz)
    waves = groups * math.ceil(gx * gy * gz / machine.wave)
    # The weights of each tap are waited for, whatever else is under way.
    latency = rates.buffer_latency_clocks if loads else rates.texture_latency_clocks
    slots = steps * (mads + texels + overhead) + cost.start_slots + cost.end_slots * sums
    serial = steps * latency + machine.slots_a_wave * slots
    resident = machine.resident_waves(_registers(work, tile, cost))
    return machine.clocks(waves, busiest, serial, resident)


def _activations(work: ConvWork, tile: ConvTile) -> float:
    """Activation texels that one thread reads for one tap and input block."""
    kw, stride = work.geometry.kernel[1], work.geometry.strides[1]
    if kw <= UNROLLED_TAPS and work.geometry.dilation[1] == 1:
        return min(float(tile.pixels), ((tile.pixels - 1) * stride + kw) / kw)
    return float(tile.pixels)


def _reads(work: ConvWork, tile: ConvTile) -> tuple[float, float]:
    """Texels and 16-byte loads that one thread reads for one tap and input block."""
    activation = _activations(work, tile) + work.block_texels
    weights = work.channels * tile.out_blocks
    if tile.route is Route.TEXTURE:
        return activation + weights, 0.0
    return activation, weights * (0.5 if work.half else 1.0)


def _registers(work: ConvWork, tile: ConvTile, cost: ConvTextureCost) -> int:
    """Full registers of four that a thread needs."""
    kw = work.geometry.kernel[1]
    columns = tile.pixels + work.block_texels + (kw - 1 if kw <= UNROLLED_TAPS else 0)
    vectors = tile.pixels * tile.out_blocks + columns + LANES * tile.out_blocks
    return math.ceil(vectors * (0.5 if work.half else 1.0)) + cost.address_registers


def _sizes(extent: int, cost: ConvTextureCost) -> list[int]:
    """Sides up to the extent, and the extent itself where it is small."""
    sizes = [side for side in cost.sides if side < 2 * extent]
    return sorted({*sizes, extent} if extent <= cost.most_whole else sizes)
