"""Tiles of a depthwise convolution with the 1x1 convolution after it, and what they cost.

The 1x1 half costs what it does in `conv_tile_local`, but for its texels, which each thread
computes.  What that takes is fitted to the machine code of built kernels (`scripts/bench_kernels`;
Adreno 660 and 750, 3x3 to 16 and 24 channels).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from adrenoc.families.conv.conv_tile_local import (
    SLICE_REGISTERS,
    fills,
    groups_of,
    in_parts,
    local_counts,
    waves_of,
    weights_of,
)
from adrenoc.families.separable.separable import SeparableTile
from adrenoc.families.shared.conv_geometry import ConvGeometry
from adrenoc.families.shared.conv_tile_shape import Route
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    LOCAL_READ_CLOCKS,
    SPILLED,
    WAVE,
    Machine,
)
from adrenoc.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.ir.layout import LANES, Extents
from adrenoc.target.gpu import Limits

SHARED_BYTES = (4096, 16384)
"""Local memory of a work-group that is worth a try."""
PIXELS, OUT_BLOCKS, SLICES = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 8), (1, 2, 4, 8)
MOST_SUMS = 16
MOST_TEXELS = 16
"""That a thread asks for at once, where all rows of taps are written out."""
MOST_BLOCKS_A_PART = 8
"""Input blocks whose products are added up in halves."""
FEWEST_THREADS = WAVE // 2
TEXEL_ALU, TEXEL_SLOTS = 5.0, 7.0
"""Of a texel: its column and row as floats."""
ROW_ALU, ROW_SLOTS = 15.0, 30.0
"""Of a row of taps that stays a turn of a loop."""
CHUNK_WAITS, LAST_WAITS = 5, 3
"""How often a thread waits for a chunk, and for the last one."""
OTHER_REGISTERS, CHUNK_REGISTERS = 2.0, 3.0
"""What coordinates take, and what is kept where chunks follow each other."""
FINISH_REGISTERS = 2.0
"""What a bias and an activation between the two take."""
STRIDE_REGISTERS = 4.0
"""What coordinates take more where pixels lie apart."""
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class SeparableWork:
    """Both convolutions as a cost model sees them."""

    depthwise: ConvGeometry
    source: Extents
    """What the depthwise half reads."""
    pointwise: ConvWork
    finish_work: int
    """Scalar instructions that make four elements of the sums of the depthwise half."""

    @property
    def taps(self) -> int:
        """Of one channel."""
        return self.depthwise.kernel[0] * self.depthwise.kernel[1]


def candidates(work: SeparableWork, limits: Limits) -> Iterator[SeparableTile]:
    """The tiles that suit the extents."""
    e = work.pointwise.out
    for pixels in PIXELS:
        if pixels > 1 and 2 * pixels > e.w:
            continue
        texels = work.depthwise.kernel[0] * len(work.depthwise.columns(pixels))
        for out_blocks in OUT_BLOCKS:
            if out_blocks > e.blocks or pixels * out_blocks > MOST_SUMS:
                break
            for width, height in groups_of(-(-e.w // pixels), e.h):
                for deep in _deep(work, limits, out_blocks, width * height):
                    for chunk in _chunks(work, limits, out_blocks, pixels, (width, height), deep):
                        for rolled in (False, True) if texels <= MOST_TEXELS else (True,):
                            yield SeparableTile(
                                pixels=pixels,
                                out_blocks=out_blocks,
                                route=Route.LOCAL,
                                work_group=(width, height, deep[0] * deep[1]),
                                bands=deep[0],
                                slices=deep[1],
                                chunk=chunk,
                                rolled=rolled,
                            )


def _deep(
    work: SeparableWork, limits: Limits, out_blocks: int, threads: int
) -> Iterator[tuple[int, int]]:
    """Bands and slices."""
    deepest = min(WAVE, limits.max_work_group_size) // threads
    runs = -(-work.pointwise.out.blocks // out_blocks)
    for slices in SLICES:
        bands = min(deepest // slices, runs)
        if bands < 1 or (slices > 1 and 2 * slices > work.pointwise.in_blocks):
            return
        enough = threads * bands * slices >= min(FEWEST_THREADS, limits.max_work_group_size)
        if fills(work.pointwise, slices) and (enough or slices * 2 > deepest):
            yield bands, slices


def _chunks(
    work: SeparableWork,
    limits: Limits,
    out_blocks: int,
    pixels: int,
    group: tuple[int, int],
    deep: tuple[int, int],
) -> Iterator[int]:
    """Input blocks of a slice at a time: the most that fit in chunks that are alike."""
    bands, slices = deep
    turns = -(-work.pointwise.in_blocks // slices)
    known = set()
    for most in SHARED_BYTES:
        fit = [
            n
            for n in range(1, turns + 1)
            if turns % n == 0
            and (n <= MOST_BLOCKS_A_PART or not work.pointwise.half)
            and _shared_bytes(work, out_blocks, pixels, math.prod(group), bands, slices, n)
            <= min(most, limits.local_mem_bytes)
        ]
        if fit and fit[-1] not in known:
            known.add(fit[-1])
            yield fit[-1]


def _shared_bytes(
    work: SeparableWork,
    out_blocks: int,
    pixels: int,
    across: int,
    bands: int,
    slices: int,
    chunk: int,
) -> int:
    """Local memory of a work-group: taps, and weights, or what adds up the slices."""
    element = 2 if work.pointwise.half else FLOAT_BYTES
    weights = LANES * out_blocks * bands * element
    others = (work.taps + 1) * FLOAT_BYTES
    adding = slices // 2 * across * bands * pixels * out_blocks * element
    span = chunk * slices
    return (max(span * weights, adding) + span * others) * LANES


def shared_bytes(work: SeparableWork, tile: SeparableTile) -> int:
    """Local memory of a work-group."""
    wx, wy, _ = tile.work_group or (1, 1, 1)
    return _shared_bytes(
        work, tile.out_blocks, tile.pixels, wx * wy, tile.bands, tile.slices, tile.chunk
    )


@lru_cache(maxsize=MOST_KNOWN)
def scored(work: SeparableWork, limits: Limits, machine: Machine) -> Scored[SeparableTile]:
    """The tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits), lambda tile: estimate_clocks(work, tile, machine, limits)
    )


def estimate_clocks(
    work: SeparableWork, tile: SeparableTile, machine: Machine, limits: Limits
) -> float:
    """Clocks of both on the target."""
    counts = local_counts(work.pointwise, tile, machine, parts_by_chunk=True)
    rows = work.depthwise.kernel[0]
    columns = len(work.depthwise.columns(tile.pixels))
    texels, turns = rows * columns, counts.turns
    made = tile.pixels * (work.taps * LANES + work.finish_work)
    passes = rows if tile.rolled else 0
    alu = counts.alu + turns * (made + TEXEL_ALU * texels + ROW_ALU * passes)
    reads = counts.reads + turns * (work.taps + 1)
    slots = counts.slots + turns * (made + TEXEL_SLOTS * texels + ROW_SLOTS * passes + work.taps)
    busiest = max(
        WAVE * alu / machine.lanes,
        WAVE * turns * texels / machine.texels_of(work.pointwise.storage_bytes),
        reads * LOCAL_READ_CLOCKS,
    )
    waits: float = turns * max(1, passes) + CHUNK_WAITS * (counts.chunks - 1) + LAST_WAITS
    waits += math.log2(tile.slices)
    serial = 2 * slots + waits * BUFFER_LATENCY_CLOCKS
    registers = _registers(work, tile, columns if tile.rolled else texels)
    registers += CHUNK_REGISTERS if counts.chunks > 1 else 0
    if registers > machine.registers / 2:  # what does not fit goes to memory
        serial *= SPILLED
    threads, shared = math.prod(tile.work_group or (1,)), shared_bytes(work, tile)
    by_memory = machine.waves_of_groups(threads, shared, limits.local_mem_bytes)
    resident = max(1, min(machine.resident_waves(registers), by_memory))
    pipes = machine.clocks(waves_of(work.pointwise, tile), busiest, serial, resident)
    return machine.with_memory(pipes, machine.memory_clocks(_bytes(work, tile)), resident)


def _registers(work: SeparableWork, tile: SeparableTile, texels: int) -> float:
    """Full registers of four that a thread needs."""
    sums = float(tile.pixels * tile.out_blocks)
    if work.pointwise.half:
        sums *= 1.0 if in_parts(work.pointwise, tile) else 0.5
    finish = FINISH_REGISTERS if work.finish_work else 0.0
    slices = SLICE_REGISTERS if tile.slices > 1 else 0.0
    strided = STRIDE_REGISTERS if work.depthwise.strides[1] > 1 else 0.0
    return sums + texels + tile.pixels + OTHER_REGISTERS + finish + slices + strided


def _bytes(work: SeparableWork, tile: SeparableTile) -> int:
    """What memory has to move: the input, the output, weights and taps."""
    source, out, of_one = work.source, work.pointwise.out, work.pointwise.storage_bytes
    vectors = source.n * source.h * source.w * source.blocks
    vectors += out.n * out.h * out.w * out.blocks
    vectors += weights_of(work.pointwise, tile)
    return (vectors * of_one + source.blocks * work.taps * FLOAT_BYTES) * LANES
