"""Tiles of the convolution that keeps its weights in local memory, and what they cost.

One pass of the innermost loop takes one input block and one kernel row.  Its instructions beside
the multiply-adds, and its registers, are the target's (`ConvLocalCost`).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.families.conv.centred_conv import (
    TEXELS_AT_ONCE,
    Shares,
    vectors_of_statistics,
)
from adrenoc.kernels.families.conv.local_conv import vectors_added
from adrenoc.kernels.families.shared.conv_geometry import ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.conv_weights import (
    has_texel_weights,
    vectors_a_load,
    vectors_held,
)
from adrenoc.kernels.families.shared.machine import (
    Column,
    Machine,
    TileTable,
    choose,
    larger,
    look_up,
    round_up,
    smaller,
)
from adrenoc.kernels.weights import whole_k_steps
from adrenoc.target.conv_cost import ConvLocalCost
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits


class NormCounts(NamedTuple):
    """Of one thread; nothing where there is no norm."""

    alu: Column = 0
    slots: Column = 0
    texels: Column = 0
    waits: Column = 0


def count_norm(work: ConvWork, tile: ConvTile, machine: Machine) -> NormCounts:
    """Return every work-group takes the statistics of its pixels anew, from their own texels."""
    if not work.centred:
        return NormCounts()
    cost, shares = machine.cost.conv_local, Shares.from_tile(tile, work.in_blocks)
    texels = work.in_blocks / shares.members * shares.rounds
    finished = 2 * LANES * tile.pixels * tile.out_blocks
    alu = cost.norm_texel_alu * texels + cost.norm_alu * shares.rounds + finished
    slots = cost.norm_texel_slots * texels + cost.norm_slots * shares.rounds + 2 * finished
    lots = tile.out_blocks * round_up(tile.pixels / LANES)
    return NormCounts(
        alu=alu,
        slots=slots,
        texels=texels + 2 * tile.out_blocks,
        waits=texels / TEXELS_AT_ONCE + lots + cost.norm_waits,
    )


_NUMBERS = (
    *("pixels", "out_blocks", "width", "height"),
    *("bands", "split_k", "chunk", "unroll"),
)
"""What the search finds of a tile."""


def local_candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTable[ConvTile]:
    """Return the tiles that suit the extents."""
    e, cost = work.out, costs.conv_local
    search, rows = _Search(work, limits, costs), []
    for pixels in cost.pixels:
        if pixels > 1 and pixels > -(-e.w // 2) and pixels != e.w:
            continue
        groups = list(groups_of(-(-e.w // pixels), e.h, costs))
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            for group in groups:
                of_group = search.find_depths(out_blocks, group)
                rows += [(pixels, out_blocks, *group, *depth) for depth in of_group]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    pixels_of, blocks_of, width, height, bands, split_k, chunk, unroll = columns
    actions = {
        "pixels": pixels_of,
        "out_blocks": blocks_of,
        "route": Route.LOCAL,
        "work_group": (width, height, bands * split_k),
        "bands": bands,
        "split_k": split_k,
        "chunk": chunk,
        "unroll": unroll,
    }
    table = TileTable(ConvTile, actions, len(rows))
    return table.where(lambda tiles: local_bytes(work, tiles) <= limits.local_mem_bytes)


def groups_of(columns: int, rows: int, costs: Cost) -> Iterator[tuple[int, int]]:
    """Yield threads along W and H: whole rows where they are short, else powers of two."""
    cost, wave = costs.conv_local, costs.pipes.wave_threads
    widths = {min(columns, w) for w in cost.widths}
    if columns <= cost.most_whole_row:
        widths.add(columns)
    for width in sorted(widths):
        heights = {*cost.heights} | ({rows} if rows <= cost.most_whole_column else set())
        heights |= {max(1, wave // width)}
        for height in sorted(heights):
            if width * height <= wave and height < 2 * rows:
                yield width, height


class _Search:
    """The bands and splits that fill one wave: the same few for many shapes of work-groups."""

    def __init__(self, work: ConvWork, limits: Limits, costs: Cost) -> None:
        self._work, self._cost = work, costs.conv_local
        self._most = min(costs.pipes.wave_threads, limits.max_work_group_size)
        self._deepest = limits.group_sides[2]
        self._found: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
        self._chunks: dict[tuple[int, int, int], int] = {}

    def find_depths(
        self, out_blocks: int, group: tuple[int, int]
    ) -> list[tuple[int, int, int, int]]:
        """Return bands, splits, chunk and unrolling that suit a work-group of so many threads."""
        key = out_blocks, group[0] * group[1]
        if key not in self._found:
            self._found[key] = list(self._search(self._cost, *key))
        return self._found[key]

    def _search(
        self, cost: ConvLocalCost, out_blocks: int, threads: int
    ) -> Iterator[tuple[int, int, int, int]]:
        work = self._work
        deepest = min(self._most // threads, self._deepest)
        runs = -(-work.out.blocks // out_blocks)
        for split_k in cost.split_k:
            bands = min(deepest // split_k, runs)
            if bands < 1 or (split_k > 1 and 2 * split_k > work.in_blocks):
                break
            twice = 2 * split_k
            more = split_k < cost.split_k[-1] and 2 * twice <= work.in_blocks and twice <= deepest
            more = more and fills(work, twice, cost)
            if more and threads * bands * split_k < cost.fewest_threads:
                continue
            for unroll in cost.unrolls:
                if not fills(work, split_k * unroll, cost):
                    continue
                chunk = self._chunk(out_blocks * bands, split_k, unroll)
                # One k-step of a chunk would share its registers with what brings the weights.
                if chunk > unroll or chunk == unroll == 1:
                    yield bands, split_k, chunk, unroll

    def _chunk(self, group_blocks: int, split_k: int, unroll: int) -> int:
        key = group_blocks, split_k, unroll
        if key not in self._chunks:
            self._chunks[key] = _chunk(self._work, self._cost, *key)
        return self._chunks[key]


def fills(work: ConvWork, k_step: int, cost: ConvLocalCost) -> bool:
    """Return whether k-steps of so many input blocks leave little empty."""
    return whole_k_steps(work.in_blocks, k_step) <= cost.most_padding * work.in_blocks


def _chunk(
    work: ConvWork, cost: ConvLocalCost, group_blocks: int, split_k: int, unroll: int
) -> int:
    """Input blocks of a split at a time, in whole k-steps: the most that fit; 0 if none does.

    `group_blocks` are the output blocks of a work-group, whose weights it holds, four vectors each.
    All chunks are alike, so that the loop over them is not written twice, unless that makes many
    of them.
    """
    element = 2 if work.half else FLOAT_BYTES
    vectors, k_step = work.geometry.kernel[1] * LANES * group_blocks, split_k * unroll
    fit = cost.shared_bytes // (vectors * LANES * element * k_step)
    k_steps = whole_k_steps(work.in_blocks, k_step) // k_step
    most = min(fit, k_steps)
    if not most:
        return 0
    alike = next(n for n in range(most, 0, -1) if k_steps % n == 0)
    return unroll * (alike if split_k > 1 or alike >= cost.alike_share * most else most)


def local_bytes(work: ConvWork, tile: ConvTile) -> Column:
    """Local memory of a work-group: weights, or what adds up the splits, and what else is read.

    Sums of bytes are integers of another type, so that they lie beside the weights.
    """
    threads = math.prod(tile.work_group or (1, 1, 1))
    span = smaller(tile.chunk * tile.split_k, whole_k_steps(work.in_blocks, tile.k_step))
    weights = vectors_held(_vectors(work, tile) * span, threads, half=work.half)
    added = vectors_added(tile.pixels * tile.out_blocks, tile.split_k, threads)
    if work.centred:
        added = vectors_of_statistics(tile, work.in_blocks, added)
    held = weights + added if work.words else larger(weights, added)
    element = 2 if work.half else FLOAT_BYTES
    return (held * element + work.block_texels * span * FLOAT_BYTES) * LANES


def _vectors(work: ConvWork, tile: ConvTile) -> int:
    """Weights of one input block and kernel row that a work-group needs, in vectors of four."""
    return work.geometry.kernel[1] * LANES * tile.out_blocks * tile.bands


class ThreadCounts(NamedTuple):
    """What one thread does of a convolution."""

    alu: Column
    """Instructions of the arithmetic pipe; those of half arithmetic are as long as they take."""
    slots: Column
    """Instructions and empty slots, but for those of texels."""
    k_steps: Column
    chunks: Column
    texels: Column
    """Texels that a thread reads in one k-step."""
    loads: Column
    """Loads of weights: texels, or 16 bytes each."""
    reads: Column
    """Vectors from local memory."""
    waits: Column
    """How often a thread waits for buffers and at barriers; waits for texels are not among them."""
    registers: Column


def local_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return clocks of the whole convolution on the target."""
    counts = local_counts(work, tile, machine)
    cost, rates = machine.cost.conv_local, machine.cost.pipes
    texels = counts.k_steps * counts.texels
    made = 1.0 * work.texel_work * texels
    if work.image is not None:
        columns = look_up(tile.pixels, lambda pixels: len(work.geometry.columns(pixels)))
        made = made + cost.numbers_alu * texels + cost.pixel_alu * columns * counts.k_steps
    norm = count_norm(work, tile, machine)
    alu = counts.alu + made + cost.texel_alu * texels + norm.alu
    slots = counts.slots + made + (1 + cost.texel_slots) * texels + norm.slots
    as_texels = has_texel_weights(work, machine)
    busiest = larger(
        machine.wave * alu / machine.lanes,
        machine.wave
        * (texels + norm.texels + counts.loads * as_texels)
        / machine.texels_of(work.load_bytes),
    )
    at_once: float = cost.texels_a_wait
    if work.image is not None:
        at_once = cost.half_loads_a_wait if work.half else cost.float_loads_a_wait
    waits = counts.waits + counts.k_steps * round_up(counts.texels / at_once) + norm.waits
    # Only what is under way is waited for: a stem reads little before each barrier.
    waits = smaller(waits, texels + norm.texels + counts.loads)
    serial = machine.slots_a_wave * slots + waits * (
        rates.texture_latency_clocks if as_texels else rates.buffer_latency_clocks
    )
    # Work-groups of two waves, which start together, get half of the registers each.
    spills = counts.registers > machine.registers / 2
    serial = choose(spills, serial * rates.spilled, serial)
    resident = machine.resident_waves(counts.registers)
    waves, memory = waves_of(work, tile, machine.wave), machine.memory_clocks(bytes_of(work, tile))
    stored = counts.loads * vectors_a_load(half=work.half, texels=as_texels)
    return machine.hedge(
        busiest,
        counts.reads + stored,
        vector_bytes(work),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def vector_bytes(work: ConvWork) -> int:
    """Bytes of a vector of four in local memory, where numbers lie as arithmetic takes them."""
    return LANES * (2 if work.half else FLOAT_BYTES)


def local_counts(
    work: ConvWork, tile: ConvTile, machine: Machine, *, parts_by_chunk: bool = False
) -> ThreadCounts:
    """Return what one thread does, whatever it is that makes its texels."""
    cost, (kh, kw) = machine.cost.conv_local, work.geometry.kernel
    sums = tile.pixels * tile.out_blocks
    blocks = tile.unroll
    texels = blocks * look_up(tile.pixels, work.loads)
    mads = blocks * sums * LANES * work.channels * kw * max(1, work.words)
    reads = blocks * (work.channels * tile.out_blocks * kw + work.block_texels)
    flush = choose(adds_in_parts(work, tile), sums * LANES, 0)
    k_steps = kh * round_up(work.in_blocks / (tile.split_k * blocks))
    chunks = kh * round_up(work.in_blocks / (tile.split_k * tile.chunk))
    as_texels = has_texel_weights(work, machine)
    loads = _loads(work, tile, texels=as_texels)
    load_alu = cost.texel_load_alu if as_texels else cost.load_alu
    load_slots = cost.texel_load_slots if as_texels else cost.load_slots
    meetings = look_up(tile.split_k, math.log2)
    halvings = meetings * sums
    half = machine.half_rate if work.half else 1.0
    adding = flush * (chunks if parts_by_chunk else k_steps)
    ends = cost.end_slots + cost.split_k_slots * halvings
    return ThreadCounts(
        alu=k_steps * (mads / half + cost.k_step_alu)
        + adding / half
        + chunks * (cost.chunk_alu + load_alu * loads)
        + ends,
        slots=k_steps * (mads + reads + cost.k_step_slots)
        + adding
        + chunks * (cost.chunk_slots + load_slots * loads)
        + ends,
        k_steps=k_steps,
        chunks=chunks,
        texels=texels,
        loads=chunks * loads,
        reads=k_steps * reads,
        waits=cost.chunk_waits * chunks + cost.end_waits + meetings,
        registers=_registers(work, tile, texels, cost, texel_weights=as_texels),
    )


def waves_of(work: ConvWork, tile: ConvTile, wave: int) -> Column:
    """Return waves of the whole kernel."""
    e = work.out
    wx, wy, deep = tile.work_group or (1, 1, 1)
    groups = (
        round_up(e.w / tile.pixels / wx)
        * round_up(e.h / wy)
        * e.n
        * _count_channel_groups(work, tile)
    )
    return groups * round_up(wx * wy * deep / wave)


def _count_channel_groups(work: ConvWork, tile: ConvTile) -> Column:
    """Return work-groups along the output blocks of an image."""
    return round_up(work.out.blocks / (tile.out_blocks * tile.bands))


def bytes_of(work: ConvWork, tile: ConvTile) -> Column:
    """Return what memory has to move: weights of whole work-groups, the input and the output."""
    e, geometry = work.out, work.geometry
    pixel = math.prod(geometry.strides) * work.pixel_bytes
    moved = weights_of(work, tile) + e.n * e.h * e.w * e.blocks
    return e.n * e.h * e.w * pixel + moved * LANES * work.storage_bytes


def weights_of(work: ConvWork, tile: ConvTile) -> Column:
    """Return weights in vectors of four, those included that fill the last work-group."""
    out_blocks = _count_channel_groups(work, tile) * tile.out_blocks * tile.bands
    taps = work.weight_sets * math.prod(work.geometry.kernel)
    return taps * work.in_blocks * out_blocks * LANES


def _loads(work: ConvWork, tile: ConvTile, *, texels: bool) -> Column:
    """Return loads of a thread to bring a chunk: texels, or 16 bytes each."""
    vectors, threads = _vectors(work, tile), math.prod(tile.work_group or (1, 1, 1))
    per_load = vectors_a_load(half=work.half, texels=texels)
    return round_up(vectors * tile.chunk * tile.split_k / per_load / threads)


def _registers(
    work: ConvWork, tile: ConvTile, texels: Column, cost: ConvLocalCost, *, texel_weights: bool
) -> Column:
    """Return full registers of four that a thread needs."""
    sums, is_split = tile.pixels * tile.out_blocks, tile.split_k > 1
    if work.words:
        split_k = choose(is_split, cost.words_split_k_registers, 0)
        return sums + (1 + cost.word_registers) * texels + cost.words_registers + split_k
    if work.in_blocks == 1:
        waiting, other = cost.stem_weights, _stem_registers(work, tile, cost)
    else:
        waiting = cost.waiting_weights
        other = cost.other_registers + choose(is_split, cost.split_k_registers, 0)
        if texel_weights:  # no pointers
            other = cost.texel_registers + choose(is_split, cost.texel_split_k_registers, 0)
        if work.geometry.kernel[1] > 1:
            other = other + cost.taps_registers
            other = other + (cost.stride_registers if work.geometry.strides[1] > 1 else 0)
    if not work.half:
        return sums + texels + waiting + other
    parts = choose(adds_in_parts(work, tile), tile.pixels, 0)
    return (sums + parts + texels + waiting) / 2 + other


def _stem_registers(work: ConvWork, tile: ConvTile, cost: ConvLocalCost) -> Column:
    """Return those of coordinates and pointers where there is one input block."""
    # Texels of one block share two addresses; of wide rows of an image, each load has its own.
    if not work.half and (work.image is None or work.geometry.kernel[1] <= cost.narrow_row):
        return 0.0
    return cost.stem_registers + choose(tile.bands > 1, cost.bands_registers, 0)


def adds_in_parts(work: ConvWork, tile: ConvTile) -> Column:
    """Return whether the products of a pass are added up before they are added to the total."""
    passes = work.in_blocks * work.geometry.kernel[0] // tile.unroll
    return (passes > tile.split_k) & work.half
