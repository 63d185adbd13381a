"""Tiles of the convolution whose weights come as texels or from a buffer, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from adrenoc.families.conv.conv2d import UNROLLED_TAPS
from adrenoc.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    BYTES_PER_CLOCK,
    TEXTURE_LATENCY_CLOCKS,
    WAVE,
    Machine,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.work_group import power_of_two
from adrenoc.target.gpu import Limits

NARROWEST_GROUP = 4
"""Threads along W in a work-group, where the image has so many."""
ADDRESS_REGISTERS = 7
"""Full registers that coordinates, loop counters and pointers take, as the ISA of built kernels
shows."""
TEXEL_OVERHEAD = 5.0
"""Instructions that a texture read takes beside itself: coordinates to float, centred, in a row."""
HALF_LOAD_OVERHEAD = 20.0
"""The same of a 16-byte load of halves, which are then taken apart."""
FLOAT_LOAD_OVERHEAD = 5.0
LOOP_OVERHEAD = 6.0
START_SLOTS, END_SLOTS, END_ALU = 100.0, 25.0, 10.0
"""Before the loops; and after, for each sum."""
MAX_SUMS = 32
"""Vectors of sums a thread: beyond, no listed GPU keeps two waves in flight."""


def texture_candidates(work: ConvWork, limits: Limits) -> Iterator[ConvTile]:
    """The tiles that suit the extents."""
    e = work.out
    for pixels in (1, 2, 3, 4, 5, 6, 7, 8):
        if pixels > 1 and pixels > e.w // 2:
            break
        for out_blocks in (1, 2, 4, 8):
            if out_blocks > e.blocks or pixels * out_blocks > MAX_SUMS:
                break
            if work.geometry.groups > 1 and out_blocks > 1:
                break
            columns, per_image = -(-e.w // pixels), -(-e.blocks // out_blocks)
            if e.blocks % out_blocks == 0:
                for group in _groups(columns, e.h, e.n * per_image, limits):
                    yield ConvTile(
                        pixels=pixels,
                        out_blocks=out_blocks,
                        route=Route.TEXTURE,
                        work_group=group,
                    )
            per_load = 2 if work.half else 1
            if work.geometry.groups == 1 and out_blocks % per_load == 0:
                for x, y, _ in _groups(columns, e.h, 1, limits):
                    yield ConvTile(
                        pixels=pixels,
                        out_blocks=out_blocks,
                        route=Route.BUFFER,
                        work_group=(x, y, 1),
                    )


def _groups(x: int, y: int, z: int, limits: Limits) -> Iterator[tuple[int, int, int]]:
    """Work-groups of at most a wave.

    Neighbours in x read neighbouring texels, so groups are at least four wide where the image
    is.
    """
    most = min(WAVE, limits.max_work_group_size)
    if x * y == 1:
        yield min(power_of_two(z), most), 1, 1
        return
    for gx in _sizes(x):
        if gx < min(x, NARROWEST_GROUP):
            continue
        for gy in _sizes(y):
            if gx * gy > most:
                break
            yield gx, gy, min(power_of_two(z), most // (gx * gy))


def texture_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the whole convolution on the target."""
    e, geometry = work.out, work.geometry
    kh, kw = geometry.kernel
    texels, loads = _reads(work, tile)
    sums = tile.pixels * tile.out_blocks
    mads = sums * LANES * (work.channels + (1 if work.half else 0))  # halves: `kernels/sums.py`
    steps = kh * kw * work.in_blocks
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    # Beside the multiply-adds: a coordinate for each read, unpacking, and the loop.
    unpack = HALF_LOAD_OVERHEAD if work.half else FLOAT_LOAD_OVERHEAD
    overhead = TEXEL_OVERHEAD * texels + unpack * loads + LOOP_OVERHEAD
    overhead += work.texel_work * _activations(work, tile)
    alu = mads / lanes + overhead / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    buffer = loads * 16 / BYTES_PER_CLOCK
    busiest = WAVE * (steps * max(alu, texture, buffer) + END_ALU * sums / machine.lanes)
    gx, gy, gz = tile.work_group or (1, 1, 1)
    columns, per_image = math.ceil(e.w / tile.pixels), math.ceil(e.blocks / tile.out_blocks)
    if columns * e.h == 1:
        groups = math.ceil(e.n * per_image / gx)
    else:
        groups = math.ceil(columns / gx) * math.ceil(e.h / gy) * math.ceil(e.n * per_image / gz)
    waves = groups * math.ceil(gx * gy * gz / WAVE)
    # The weights of each tap are waited for, whatever else is under way.
    latency = BUFFER_LATENCY_CLOCKS if loads else TEXTURE_LATENCY_CLOCKS
    slots = steps * (mads + texels + overhead) + START_SLOTS + END_SLOTS * sums
    serial = steps * latency + WAVE / 64 * slots
    resident = machine.resident_waves(_registers(work, tile))
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


def _registers(work: ConvWork, tile: ConvTile) -> int:
    """Full registers of four that a thread needs."""
    kw = work.geometry.kernel[1]
    columns = tile.pixels + work.block_texels + (kw - 1 if kw <= UNROLLED_TAPS else 0)
    vectors = tile.pixels * tile.out_blocks + columns + 4 * tile.out_blocks
    return math.ceil(vectors * (0.5 if work.half else 1.0)) + ADDRESS_REGISTERS


def _sizes(extent: int) -> list[int]:
    """Powers of two up to the extent, and the extent itself where it is small."""
    sizes = [1 << i for i in range(6) if 1 << i < 2 * extent]
    return sorted({*sizes, extent} if extent <= WAVE // 2 else sizes)
