"""Tiles of the convolution that keeps its weights in local memory, and what they cost.

One pass of the innermost loop takes one input block and one kernel row.  Its instructions beside
the multiply-adds, and its registers, are fitted to the machine code of built kernels
(`scripts/bench_kernels`; Adreno 660, tiles of 1 to 8 pixels and 1 to 4 blocks).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from adrenoc.families.shared.conv_tile_shape import ConvTile, Route
from adrenoc.families.shared.conv_weights import HALVES_A_LOAD
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    LOCAL_READ_CLOCKS,
    WAVE,
    Machine,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.weights import whole_turns
from adrenoc.target.gpu import Limits

SHARED_BYTES = 8192
"""Local memory for the weights of a work-group: a quarter of what the listed GPUs have, so that
several work-groups run beside each other."""
TURN_SLOTS, TURN_ALU = 48.0, 27.0
"""Instructions and empty slots of a turn of the loop beside reads and multiply-adds, and those of
them that take the arithmetic pipe."""
TEXEL_SLOTS, TEXEL_ALU = 2.4, 0.4
"""The same for each texel: its column as a float."""
NUMBERS_ALU, PIXEL_ALU = 6.0, 4.0
"""Of each load of an image's numbers, which has an address of 64 bits, and of each texel that is
put together of them."""
CHUNK_SLOTS, CHUNK_ALU = 72.0, 15.0
LOAD_SLOTS, LOAD_ALU = 22.0, 19.0
"""To bring a chunk, and for each load of it."""
CHUNK_WAITS, END_WAITS, TEXELS_A_WAIT = 3.0, 6.0, 12
"""How often a thread waits for a chunk, and at the end; and how many texels it gets in a wait."""
LOADS_A_WAIT = {False: 3.0, True: 1.5}
"""The same of the numbers of an image, by whether they become halves."""
END_SLOTS, SLICE_SLOTS = 30.0, 18.0
"""At the end; and for each sum and each halving of the slices."""
OTHER_REGISTERS, SLICE_REGISTERS, TAPS_REGISTERS, STRIDE_REGISTERS = 2.5, 3.0, 1.0, 0.25
"""Full registers that coordinates, loop counters and pointers take; more of them where slices are
added, where a row has several taps, and where those of neighbours lie apart."""
WAITING_WEIGHTS = 3
STEM_REGISTERS, BANDS_REGISTERS, STEM_WEIGHTS = 2.5, 0.5, 2
"""The same of the only input block: no loop over turns, whose counters and pointers would be kept.
Fitted to the waves that 60 built kernels keep on an Adreno 660 and 750, in floats and halves."""
WORD_REGISTERS, WORDS_REGISTERS, WORDS_SLICES = 0.25, 5.3, 5.0
"""Of bytes: for each load, which has an address of 64 bits; beside them; and more with slices."""
NARROW_ROW = 3
SLICES = (1, 2, 4, 8, 16)
UNROLLS = (1, 2, 4)
"""Input blocks a turn."""
MOST_PADDING = 1.15
"""Input blocks with those that fill up the last turn, for each that is there."""


def local_candidates(work: ConvWork, limits: Limits) -> Iterator[ConvTile]:
    """The tiles that suit the extents."""
    e = work.out
    for pixels in (1, 2, 3, 4, 5, 7):
        if pixels > 1 and pixels > -(-e.w // 2) and pixels != e.w:
            continue
        for out_blocks in (1, 2, 3, 4):
            if out_blocks > e.blocks or pixels * out_blocks > 16:
                break
            for group in groups_of(-(-e.w // pixels), e.h):
                yield from _deep(work, limits, pixels, out_blocks, group)


def groups_of(columns: int, rows: int) -> Iterator[tuple[int, int]]:
    """Threads along W and H: whole rows where they are short, else powers of two."""
    widths = {min(columns, w) for w in (4, 8, 16, 32)}
    if columns <= WAVE // 4:
        widths.add(columns)
    for width in sorted(widths):
        heights = {1 << i for i in range(6)} | ({rows} if rows <= WAVE // 2 else set())
        heights |= {max(1, WAVE // width)}
        for height in sorted(heights):
            if width * height <= WAVE and height < 2 * rows:
                yield width, height


def _deep(
    work: ConvWork, limits: Limits, pixels: int, out_blocks: int, group: tuple[int, int]
) -> Iterator[ConvTile]:
    """The bands and slices that fill one wave."""
    width, height = group
    deepest = min(WAVE, limits.max_work_group_size) // (width * height)
    runs = -(-work.out.blocks // out_blocks)
    for slices in SLICES:
        bands = min(deepest // slices, runs)
        if bands < 1 or (slices > 1 and 2 * slices > work.in_blocks):
            break
        twice = 2 * slices
        more = slices < SLICES[-1] and 2 * twice <= work.in_blocks and twice <= deepest
        more = more and fills(work, twice)
        if more and width * height * bands * slices < WAVE // 4:
            continue
        for unroll in UNROLLS:
            if not fills(work, slices * unroll):
                continue
            chunk = _chunk(work, out_blocks * bands, slices, unroll)
            # One turn of a chunk would share its registers with what brings the weights.
            if chunk > unroll or chunk == unroll == 1:
                yield ConvTile(
                    pixels=pixels,
                    out_blocks=out_blocks,
                    route=Route.LOCAL,
                    work_group=(width, height, bands * slices),
                    bands=bands,
                    slices=slices,
                    chunk=chunk,
                    unroll=unroll,
                )


def fills(work: ConvWork, turn: int) -> bool:
    """Whether turns of so many input blocks leave little empty."""
    return whole_turns(work.in_blocks, turn) <= MOST_PADDING * work.in_blocks


def _chunk(work: ConvWork, group_blocks: int, slices: int, unroll: int) -> int:
    """Input blocks of a slice at a time, in whole turns: the most that fit; 0 if none does.

    `group_blocks` are the output blocks of a work-group, whose weights it holds, four vectors each.
    All chunks are alike, so that the loop over them is not written twice, unless that makes many
    of them.
    """
    element = 2 if work.half else 4
    vectors, turn = work.geometry.kernel[1] * LANES * group_blocks, slices * unroll
    fit = SHARED_BYTES // (vectors * LANES * element * turn)
    turns = whole_turns(work.in_blocks, turn) // turn
    most = min(fit, turns)
    if not most:
        return 0
    alike = next(n for n in range(most, 0, -1) if turns % n == 0)
    return unroll * (alike if slices > 1 or 4 * alike >= most else most)


class Counts(NamedTuple):
    """What one thread does of a convolution."""

    alu: float
    """Instructions of the arithmetic pipe; those of half arithmetic are as long as they take."""
    slots: float
    """Instructions and empty slots, but for those of texels."""
    turns: int
    chunks: int
    texels: int
    """Of a turn."""
    reads: float
    """Vectors from local memory."""
    waits: float
    """For buffers and at barriers; those for texels are not among them."""
    registers: float


def local_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the whole convolution on the target."""
    counts = local_counts(work, tile, machine)
    texels = counts.turns * counts.texels
    made = float(work.texel_work * texels)
    if work.image is not None:
        columns = len(work.geometry.columns(tile.pixels))
        made += NUMBERS_ALU * texels + PIXEL_ALU * columns * counts.turns
    alu = counts.alu + made + TEXEL_ALU * texels
    slots = counts.slots + made + (1 + TEXEL_SLOTS) * texels
    busiest = max(
        WAVE * alu / machine.lanes,
        WAVE * texels / machine.texels_of(work.load_bytes),
        counts.reads * LOCAL_READ_CLOCKS,
    )
    at_once = TEXELS_A_WAIT if work.image is None else LOADS_A_WAIT[work.half]
    waits = counts.waits + counts.turns * math.ceil(counts.texels / at_once)
    # Only what is under way is waited for: a stem reads little before each barrier.
    waits = min(waits, texels + counts.chunks * _loads(work, tile))
    serial = 2 * slots + waits * BUFFER_LATENCY_CLOCKS
    resident = machine.resident_waves(counts.registers)
    pipes = machine.clocks(waves_of(work, tile), busiest, serial, resident)
    return machine.with_memory(pipes, machine.memory_clocks(bytes_of(work, tile)), resident)


def local_counts(
    work: ConvWork, tile: ConvTile, machine: Machine, *, parts_by_chunk: bool = False
) -> Counts:
    """What one thread does, whatever it is that makes its texels."""
    kh, kw = work.geometry.kernel
    sums = tile.pixels * tile.out_blocks
    blocks = tile.unroll
    texels = blocks * work.loads(tile.pixels)
    mads = blocks * sums * LANES * work.channels * kw * max(1, work.words)
    reads = blocks * (work.channels * tile.out_blocks * kw + work.block_texels)
    flush = sums * LANES if in_parts(work, tile) else 0
    turns = kh * math.ceil(work.in_blocks / (tile.slices * blocks))
    chunks = kh * math.ceil(work.in_blocks / (tile.slices * tile.chunk))
    loads = _loads(work, tile)
    halvings = math.log2(tile.slices) * sums
    half = machine.half_rate if work.half else 1.0
    adding = flush * (chunks if parts_by_chunk else turns)
    ends = END_SLOTS + SLICE_SLOTS * halvings
    return Counts(
        alu=turns * (mads / half + TURN_ALU)
        + adding / half
        + chunks * (CHUNK_ALU + LOAD_ALU * loads)
        + ends,
        slots=turns * (mads + reads + TURN_SLOTS)
        + adding
        + chunks * (CHUNK_SLOTS + LOAD_SLOTS * loads)
        + ends,
        turns=turns,
        chunks=chunks,
        texels=texels,
        reads=turns * reads,
        waits=CHUNK_WAITS * chunks + END_WAITS + math.log2(tile.slices),
        registers=_registers(work, tile, texels),
    )


def waves_of(work: ConvWork, tile: ConvTile) -> int:
    """Waves of the whole kernel."""
    e = work.out
    wx, wy, deep = tile.work_group or (1, 1, 1)
    groups = math.ceil(e.w / tile.pixels / wx) * math.ceil(e.h / wy) * e.n * _supers(work, tile)
    return groups * math.ceil(wx * wy * deep / WAVE)


def _supers(work: ConvWork, tile: ConvTile) -> int:
    """Work-groups along the output blocks of an image."""
    return math.ceil(work.out.blocks / (tile.out_blocks * tile.bands))


def bytes_of(work: ConvWork, tile: ConvTile) -> int:
    """What memory has to move: weights of whole work-groups, the input and the output."""
    e, geometry = work.out, work.geometry
    pixel = math.prod(geometry.strides) * work.pixel_bytes
    moved = weights_of(work, tile) + e.n * e.h * e.w * e.blocks
    return e.n * e.h * e.w * pixel + moved * LANES * work.storage_bytes


def weights_of(work: ConvWork, tile: ConvTile) -> int:
    """Weights in vectors of four, those included that fill the last work-group."""
    out_blocks = _supers(work, tile) * tile.out_blocks * tile.bands
    taps = work.weight_sets * math.prod(work.geometry.kernel)
    return taps * work.in_blocks * out_blocks * LANES


def _loads(work: ConvWork, tile: ConvTile) -> int:
    """Loads of a thread to bring a chunk, 16 bytes each."""
    vectors = work.geometry.kernel[1] * LANES * tile.out_blocks * tile.bands
    per_load = HALVES_A_LOAD // LANES if work.half else 1
    threads = math.prod(tile.work_group or (1, 1, 1))
    return math.ceil(vectors * tile.chunk * tile.slices / per_load / threads)


def _registers(work: ConvWork, tile: ConvTile, texels: int) -> float:
    """Full registers of four that a thread needs."""
    sums = tile.pixels * tile.out_blocks
    if work.words:
        slices = WORDS_SLICES if tile.slices > 1 else 0
        return sums + (1 + WORD_REGISTERS) * texels + WORDS_REGISTERS + slices
    if work.in_blocks == 1:
        waiting, other = STEM_WEIGHTS, _stem_registers(work, tile)
    else:
        waiting = WAITING_WEIGHTS
        other = OTHER_REGISTERS + (SLICE_REGISTERS if tile.slices > 1 else 0)
        if work.geometry.kernel[1] > 1:
            other += TAPS_REGISTERS + (STRIDE_REGISTERS if work.geometry.strides[1] > 1 else 0)
    if not work.half:
        return sums + texels + waiting + other
    partial = 2 if in_parts(work, tile) else 1
    return (sums * partial + texels + waiting) / 2 + other


def _stem_registers(work: ConvWork, tile: ConvTile) -> float:
    """Those of coordinates and pointers where there is one input block."""
    # Texels of one block share two addresses; of wide rows of an image, each load has its own.
    if not work.half and (work.image is None or work.geometry.kernel[1] <= NARROW_ROW):
        return 0.0
    return STEM_REGISTERS + (BANDS_REGISTERS if tile.bands > 1 else 0)


def in_parts(work: ConvWork, tile: ConvTile) -> bool:
    """Whether the products of a pass are added up before they are added to the total."""
    passes = work.in_blocks * work.geometry.kernel[0] // tile.unroll
    return work.half and passes > tile.slices
