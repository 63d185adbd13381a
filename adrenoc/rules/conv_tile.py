"""Pick the tile of a convolution by a cost model of the target.

The model counts, for one wave and one input block of one tap, the cycles that each pipe of a
micro shader processor is busy: arithmetic, texture reads, buffer loads.  The busiest pipe gives
the throughput; registers give how many waves hide each other's latency.  Rates that the target
file does not state are those of the Adreno 660, the slowest pipe ratio of the listed GPUs.

Source: shared rate tables of the GPUs (`targets/gpu/*.toml`); the same model as the analyser
that `scripts/bench_kernels` asks, so that its figures can be held against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from adrenoc.gpu import Limits, Performance
from adrenoc.kernels.conv2d import UNROLLED_TAPS, ConvGeometry, ConvTile, Route
from adrenoc.layout import Extents

WAVE = 128
NARROWEST_GROUP = 4
"""Threads along W in a work-group, where the image has so many."""
BUFFER_BYTES_PER_CLOCK = 64.0
"""Per micro shader processor; the width of its path to the second-level cache."""
TEXTURE_LATENCY_CLOCKS = 150
BUFFER_LATENCY_CLOCKS = 300
ADDRESS_REGISTERS = 7
"""Full registers that coordinates, loop counters and pointers take, as the ISA of built kernels
shows."""
TEXEL_OVERHEAD = 5.0
"""Instructions that a texture read takes beside itself: coordinates to float, centred, in a row."""
HALF_LOAD_OVERHEAD = 20.0
"""The same of a 16-byte load of halves, which are then taken apart."""
FLOAT_LOAD_OVERHEAD = 5.0
LOOP_OVERHEAD = 6.0
MAX_SUMS = 32
"""Vectors of sums a thread: beyond, no listed GPU keeps two waves in flight."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the model needs of a GPU, per micro shader processor."""

    processors: int
    lanes: float
    half_rate: float
    texels: float
    registers: int

    @staticmethod
    def of(performance: Performance) -> Machine:
        """From a target's figures; unknown ones are an Adreno 660's."""
        p = performance
        processors = (p.compute_units or 3) * (p.micro_sps_per_compute_unit or 2)
        lanes = (p.fp32_fma_lanes or 128 * processors) / processors
        texels = (p.texels_per_clock or 4 * processors) / processors
        return Machine(
            processors=processors,
            lanes=lanes,
            half_rate=p.fp16_rate or 2.0,
            texels=texels,
            registers=p.registers_vec4_per_fiber_slot or 64,
        )


@dataclass(frozen=True, kw_only=True)
class ConvWork:
    """One convolution: its extents and precisions."""

    geometry: ConvGeometry
    out: Extents
    in_blocks: int
    """Input blocks that one output block reads."""
    storage_bytes: int
    """Of one element in memory: 2 or 4."""
    half: bool
    """Whether arithmetic is in half precision."""


def candidates(work: ConvWork, limits: Limits) -> Iterator[ConvTile]:
    """The tiles that suit the extents of a convolution."""
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
        yield min(_power_of_two(z), most), 1, 1
        return
    for gx in _sizes(x):
        if gx < min(x, NARROWEST_GROUP):
            continue
        for gy in _sizes(y):
            if gx * gy > most:
                break
            yield gx, gy, min(_power_of_two(z), most // (gx * gy))


def estimate_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the whole convolution on the target."""
    e, geometry = work.out, work.geometry
    kh, kw = geometry.kernel
    texels, loads = _reads(work, tile)
    mads = tile.pixels * tile.out_blocks * 16
    steps = kh * kw * work.in_blocks
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    # Beside the multiply-adds: a coordinate for each read, unpacking, and the loop.
    unpack = HALF_LOAD_OVERHEAD if work.half else FLOAT_LOAD_OVERHEAD
    overhead = TEXEL_OVERHEAD * texels + unpack * loads + LOOP_OVERHEAD
    alu = mads / lanes + overhead / machine.lanes
    texture = texels / machine.texels * max(1.0, work.storage_bytes * 4 / 16)
    buffer = loads * 16 / BUFFER_BYTES_PER_CLOCK
    busiest = WAVE * steps * max(alu, texture, buffer)
    gx, gy, gz = tile.work_group or (1, 1, 1)
    columns, per_image = math.ceil(e.w / tile.pixels), math.ceil(e.blocks / tile.out_blocks)
    if columns * e.h == 1:
        groups = math.ceil(e.n * per_image / gx)
    else:
        groups = math.ceil(columns / gx) * math.ceil(e.h / gy) * math.ceil(e.n * per_image / gz)
    waves = math.ceil(groups * math.ceil(gx * gy * gz / WAVE) / machine.processors)
    resident = min(16, machine.registers // _registers(work, tile))
    resident = max(1, resident - resident % 2)  # waves come and go in pairs
    latency = TEXTURE_LATENCY_CLOCKS + (BUFFER_LATENCY_CLOCKS if loads else 0)
    taps_a_wait = kw if kw <= UNROLLED_TAPS else 1
    serial = steps * (latency / taps_a_wait + WAVE / 64 * (mads + texels + overhead))
    return max(waves * busiest, math.ceil(waves / resident) * serial)


def _reads(work: ConvWork, tile: ConvTile) -> tuple[float, float]:
    """Texels and 16-byte loads that one thread reads for one tap and input block."""
    kw, stride = work.geometry.kernel[1], work.geometry.strides[1]
    activation = float(tile.pixels)
    if kw <= UNROLLED_TAPS and work.geometry.dilation[1] == 1:
        activation = min(activation, ((tile.pixels - 1) * stride + kw) / kw)
    weights = 4 * tile.out_blocks
    if tile.route is Route.TEXTURE:
        return activation + weights, 0.0
    return activation, weights * (0.5 if work.half else 1.0)


def _registers(work: ConvWork, tile: ConvTile) -> int:
    """Full registers of four that a thread needs."""
    kw = work.geometry.kernel[1]
    columns = tile.pixels + (kw - 1 if kw <= UNROLLED_TAPS else 0)
    vectors = tile.pixels * tile.out_blocks + columns + 4 * tile.out_blocks
    return math.ceil(vectors * (0.5 if work.half else 1.0)) + ADDRESS_REGISTERS


def _sizes(extent: int) -> list[int]:
    """Powers of two up to the extent, and the extent itself where it is small."""
    sizes = [1 << i for i in range(6) if 1 << i < 2 * extent]
    return sorted({*sizes, extent} if extent <= WAVE // 2 else sizes)


def _power_of_two(extent: int) -> int:
    """The smallest power of two that covers `extent`."""
    return 1 << max(extent - 1, 0).bit_length()
