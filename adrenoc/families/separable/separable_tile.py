"""Tiles of a depthwise convolution with the 1x1 convolution after it, and what they cost.

The 1x1 half costs what it does in `conv_tile_local`, but for its texels, which each thread
computes.  What that takes is the target's (`SeparableCost`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from adrenoc.families.conv.conv_tile_local import (
    adds_in_parts,
    fills,
    groups_of,
    local_counts,
    vector_bytes,
    waves_of,
    weights_of,
)
from adrenoc.families.conv.conv_tile_local import local_bytes as pointwise_bytes
from adrenoc.families.separable.separable import SeparableTile
from adrenoc.families.shared.conv_geometry import ConvGeometry
from adrenoc.families.shared.conv_tile_shape import Route
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.machine import Machine
from adrenoc.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.target.cost.cost import Cost
from adrenoc.target.cost.depthwise_cost import SeparableCost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class SeparableWork:
    """Both convolutions as a cost model sees them."""

    depthwise: ConvGeometry
    source: Extents
    """What the depthwise part reads."""
    pointwise: ConvWork
    finish_work: int
    """Scalar instructions that make four elements of the sums of the depthwise part."""
    finish_texels: int = 0
    """Texels that those read of each block beside the sums."""

    @property
    def taps(self) -> int:
        """The taps (weights) that one channel of the depthwise convolution has."""
        return self.depthwise.kernel[0] * self.depthwise.kernel[1]


def candidates(work: SeparableWork, limits: Limits, costs: Cost) -> Iterator[SeparableTile]:
    """The tiles that suit the extents."""
    e, cost = work.pointwise.out, costs.separable
    for pixels in cost.pixels:
        if pixels > 1 and 2 * pixels > e.w:
            continue
        texels = work.depthwise.kernel[0] * len(work.depthwise.columns(pixels))
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            for width, height in groups_of(-(-e.w // pixels), e.h, costs):
                for bands, split_k in _deep(work, limits, costs, out_blocks, width * height):
                    tile = SeparableTile(
                        pixels=pixels,
                        out_blocks=out_blocks,
                        route=Route.LOCAL,
                        work_group=(width, height, bands * split_k),
                        bands=bands,
                        split_k=split_k,
                    )
                    for chunk in _chunks(work, limits, cost, tile):
                        for rolled in (False, True) if texels <= cost.most_texels else (True,):
                            yield replace(tile, chunk=chunk, rolled=rolled)


def _deep(
    work: SeparableWork, limits: Limits, costs: Cost, out_blocks: int, threads: int
) -> Iterator[tuple[int, int]]:
    """Bands and splits."""
    cost = costs.separable
    deepest = min(costs.pipes.wave_threads, limits.max_work_group_size) // threads
    runs = -(-work.pointwise.out.blocks // out_blocks)
    for split_k in cost.split_k:
        bands = min(deepest // split_k, runs)
        if bands < 1 or (split_k > 1 and 2 * split_k > work.pointwise.in_blocks):
            return
        enough = threads * bands * split_k >= min(cost.fewest_threads, limits.max_work_group_size)
        if fills(work.pointwise, split_k, costs.conv_local) and (enough or split_k * 2 > deepest):
            yield bands, split_k


def _chunks(
    work: SeparableWork, limits: Limits, cost: SeparableCost, tile: SeparableTile
) -> Iterator[int]:
    """Input blocks of a split at a time: the most that fit in chunks that are alike."""
    k_steps = -(-work.pointwise.in_blocks // tile.split_k)
    longest = cost.most_blocks_a_part if work.pointwise.half else k_steps
    held = {
        n: local_bytes(work, replace(tile, chunk=n))
        for n in range(1, min(longest, k_steps) + 1)
        if k_steps % n == 0
    }
    known = set()
    for most in cost.shared_bytes:
        fit = [n for n, size in held.items() if size <= min(most, limits.local_mem_bytes)]
        if fit and fit[-1] not in known:
            known.add(fit[-1])
            yield fit[-1]


def local_bytes(work: SeparableWork, tile: SeparableTile) -> int:
    """Local memory of a work-group: what the 1x1 convolution holds, and taps beside it."""
    of_block = (work.taps + work.finish_texels) * LANES * FLOAT_BYTES
    return pointwise_bytes(work.pointwise, tile) + tile.chunk * tile.split_k * of_block


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: SeparableWork, limits: Limits, machine: Machine) -> Scored[SeparableTile]:
    """The tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, limits),
    )


def estimate_clocks(
    work: SeparableWork, tile: SeparableTile, machine: Machine, limits: Limits
) -> float:
    """Clocks of both on the target."""
    cost, rates = machine.cost.separable, machine.cost.pipes
    counts = local_counts(work.pointwise, tile, machine, parts_by_chunk=True)
    rows = work.depthwise.kernel[0]
    columns = len(work.depthwise.columns(tile.pixels))
    texels, k_steps = rows * columns, counts.k_steps
    made = tile.pixels * (work.taps * LANES + work.finish_work)
    passes = rows if tile.rolled else 0
    alu = counts.alu + k_steps * (made + cost.texel_alu * texels + cost.row_alu * passes)
    reads = counts.reads + k_steps * (work.taps + 1)
    of_k_step = made + cost.texel_slots * texels + cost.row_slots * passes + work.taps
    slots = counts.slots + k_steps * of_k_step
    busiest = max(
        machine.wave * alu / machine.lanes,
        machine.wave * k_steps * texels / machine.texels_of(work.pointwise.storage_bytes),
    )
    waits: float = k_steps * max(1, passes) + cost.chunk_waits * (counts.chunks - 1)
    waits += cost.last_waits + math.log2(tile.split_k)
    serial = machine.slots_a_wave * slots + waits * rates.buffer_latency_clocks
    registers = _registers(work, tile, columns if tile.rolled else texels, machine.cost)
    registers += cost.chunk_registers if counts.chunks > 1 else 0
    if registers > machine.registers / 2:  # what does not fit goes to memory
        serial *= rates.spilled
    threads, shared = math.prod(tile.work_group or (1,)), local_bytes(work, tile)
    by_memory = machine.waves_of_groups(threads, shared, limits.local_mem_bytes)
    resident = max(1, min(machine.resident_waves(registers), by_memory))
    waves = waves_of(work.pointwise, tile, machine.wave)
    memory = machine.memory_clocks(_bytes(work, tile))
    return machine.hedge(
        busiest,
        reads,
        vector_bytes(work.pointwise),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def _registers(work: SeparableWork, tile: SeparableTile, texels: int, costs: Cost) -> float:
    """Full registers of four that a thread needs."""
    cost = costs.separable
    sums = float(tile.pixels * tile.out_blocks)
    if work.pointwise.half:
        sums *= 1.0 if adds_in_parts(work.pointwise, tile) else 0.5
    finish = cost.finish_registers if work.finish_work else 0.0
    split_k = costs.conv_local.split_k_registers if tile.split_k > 1 else 0.0
    strided = cost.stride_registers if work.depthwise.strides[1] > 1 else 0.0
    return sums + texels + tile.pixels + cost.other_registers + finish + split_k + strided


def _bytes(work: SeparableWork, tile: SeparableTile) -> int:
    """What memory has to move: the input, the output, weights and taps."""
    source, out, of_one = work.source, work.pointwise.out, work.pointwise.storage_bytes
    vectors = source.n * source.h * source.w * source.blocks
    vectors += out.n * out.h * out.w * out.blocks
    vectors += weights_of(work.pointwise, tile)
    return (vectors * of_one + source.blocks * work.taps * FLOAT_BYTES) * LANES
