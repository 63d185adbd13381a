"""The rule of depthwise convolutions: how many pixels a thread makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.families.depthwise.depthwise import (
    UNROLLED_ROWS,
    DepthwiseTile,
    depthwise,
    pack_taps,
    rows_read,
)
from adrenoc.kernels.families.depthwise.depthwise_dot import depthwise_dot, pack_tap_words
from adrenoc.kernels.families.shared.constant_runs import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import Oihw
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.dot_products import WORD_BYTES, suits_dot
from adrenoc.kernels.families.shared.integer_bias import split_bias
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.kernels.families.shared.tile_columns import (
    Column,
    TileTable,
    choose,
    larger,
    look_up,
    round_up,
)
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


def depthwise_rule(
    context: RuleContext,
    node: Node,
    work: ConvWork,
    oihw: Callable[[np.ndarray], np.ndarray],
) -> KernelCall:
    """Return a convolution of each channel by itself, with weights that `oihw` orders.

    In float whatever the preset: see `adrenoc/kernels/families/depthwise/depthwise.py`.
    """
    machine = context.machine
    if suits_dot(context, node, oihw):
        return _dot_rule(context, node, work, oihw, machine)
    tiles = score_tiles(work, context.limits, machine)
    tile = context.choose(node, "depthwise_conv2d", tiles, tiles)
    kernel = context.kernel(node, "depthwise_conv2d")
    x = kernel.input(node.inputs[0])
    wz = tile.work_group[2]
    pack = partial(_pack, oihw=oihw, blocks=wz)
    texels = has_texel_weights(work, machine)
    weight = declare_run(
        kernel, node.inputs[1], f"depthwise{wz}", pack, dtype=ACCUMULATOR, texels=texels
    )
    out, epilogue = kernel.output()
    shares = bool(context.limits.local_mem_bytes)
    depthwise(kernel.builder, work.geometry, tile, x, weight, out, epilogue, shares=shares)
    return kernel.call()


def _dot_rule(
    context: RuleContext, node: Node, work: ConvWork, oihw: Oihw, machine: Machine
) -> KernelCall:
    """Return the same of bytes, which dot products take as they are."""
    family = "depthwise_dot"
    words = replace(work, storage_bytes=1, words=context.limits.dot_instructions)
    tiles = score_tiles(words, context.limits, machine)
    tile = context.choose(node, family, tiles, tiles)
    context.byte_costs.add(tiles(tile), score_tiles(work, context.limits, machine).least)
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, family)
    x = kernel.input(node.inputs[0])
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{node.inputs[0]} does not lie in bytes")
    low, wz = x.spec.low, tile.work_group[2]
    weight = kernel.flat(
        node.inputs[1], f"{family}{wz}", lambda w: pack_tap_words(w, wz), oihw, "float32"
    )
    rest = bias.operand(kernel, family, low, oihw)
    out, epilogue = kernel.output()
    shares = bool(context.limits.local_mem_bytes)
    depthwise_dot(
        kernel.builder, work.geometry, tile, x, weight, rest, out, epilogue, shares=shares
    )
    return kernel.call()


def _pack(weight: np.ndarray, oihw: Callable[[np.ndarray], np.ndarray], blocks: int) -> np.ndarray:
    return pack_taps(oihw(weight), blocks)


def blocks_held(taps: int, limits: Limits) -> int:
    """Blocks of channels whose taps a work-group can have at once.

    Those of local memory bound it; where there is none, threads read them where they lie.
    """
    if not limits.local_mem_bytes:
        return limits.max_work_group_size
    return limits.local_mem_bytes // (taps * LANES * bytes_of(ACCUMULATOR))


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[DepthwiseTile]:
    """Return the tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTable[DepthwiseTile]:
    """Return the tiles that suit the extents."""
    shapes = list(_shapes(work, limits, costs))
    names = ("rows", "pixels", "width", "height", "depth")
    rows, pixels, *group = np.array(shapes, dtype=np.int64).reshape(-1, len(names)).T
    actions = {"rows": rows, "pixels": pixels, "work_group": tuple(group)}
    return TileTable(DepthwiseTile, actions, len(shapes))


def _shapes(
    work: ConvWork, limits: Limits, costs: Cost
) -> Iterator[tuple[int, int, int, int, int]]:
    """Rows and pixels of a thread, and the three sides of its work-group."""
    e, (kh, kw), cost = work.out, work.geometry.kernel, costs.depthwise
    most = min(costs.pipes.wave_threads, limits.max_work_group_size)
    held, deepest = blocks_held(kh * kw, limits), limits.group_sides[2]
    for rows in cost.rows:
        for pixels in cost.pixels:
            smallest = rows * pixels == 1
            many = rows * pixels * kh * kw > cost.most_multiplies
            if (rows > e.h or pixels > e.w or many) and not smallest:
                continue
            columns, lines = -(-e.w // pixels), -(-e.h // rows)
            for wx in {min(columns, width) for width in cost.widths}:
                for wy in {min(lines, height) for height in cost.heights}:
                    if wx * wy <= most:
                        deep = min(most // (wx * wy), e.n * e.blocks, held, deepest)
                        yield rows, pixels, wx, wy, deep


def estimate_clocks(work: ConvWork, tile: DepthwiseTile, machine: Machine) -> Column:
    """Clocks of the whole convolution on the target; of a tile of columns, an array of them."""
    e, geometry, (kh, kw) = work.out, work.geometry, work.geometry.kernel
    cost, rates = machine.cost.depthwise, machine.cost.pipes
    wx, wy, wz = tile.work_group
    pixels = tile.rows * tile.pixels
    rows = look_up(tile.rows, lambda rows: rows_read(geometry, rows))
    columns = look_up(tile.pixels, lambda pixels: len(geometry.columns(pixels)))
    texels = rows * columns
    taps = tile.rows * kh * kw
    mads = pixels * kh * kw * LANES * max(1, work.words)
    of_read = cost.word_slots if work.words else cost.texel_slots
    other = cost.start_slots + of_read * texels + cost.store_slots * pixels
    reads = machine.texels_of(work.storage_bytes)
    if work.words:
        reads = rates.bytes_per_clock / WORD_BYTES
    texel_taps = has_texel_weights(work, machine)
    brought = round_up(kh * kw / (wx * wy)) * texel_taps
    latency = rates.buffer_latency_clocks if work.words else rates.texture_latency_clocks
    first_wait = latency if texel_taps else rates.buffer_latency_clocks
    busiest = larger(
        machine.wave * (mads + other) / machine.lanes,
        machine.wave * (texels / reads + brought / machine.texels_of(bytes_of(ACCUMULATOR))),
    )
    groups = round_up(e.w / tile.pixels / wx) * round_up(e.h / tile.rows / wy)
    groups = groups * round_up(e.n * e.blocks / wz)
    waves = groups * round_up(wx * wy * wz / machine.wave)
    # Compilers read ahead: most texels wait beside the sums and some of the taps.
    read = kh * kw * (1 if work.words else cost.taps_ahead)
    vectors = registers = cost.texels_ahead * texels + pixels + read
    serial = machine.slots_a_wave * (mads + taps + other) + first_wait + rows * latency
    if work.words or kh > UNROLLED_ROWS:  # threads of one row read it in a loop
        in_loop = tile.rows == 1
        of_row = columns + pixels + kw
        vectors = choose(in_loop, of_row, vectors)
        registers = choose(in_loop, of_row + 1, registers)
        looped = machine.slots_a_wave * (mads + taps + other + cost.row_slots * kh)
        looped = looped + (cost.start_waits + kh) * first_wait
        serial = choose(in_loop, looped, serial)
    spills = vectors + cost.other_registers > machine.registers / 2
    serial = choose(spills, serial * rates.spilled, serial)
    resident = machine.resident_waves(registers)
    memory = machine.memory_clocks(_bytes(work))
    return machine.hedge(
        busiest,
        taps,
        LANES * bytes_of(ACCUMULATOR),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def _bytes(work: ConvWork) -> int:
    """Return what memory has to move: the input, the output and the taps."""
    e, geometry = work.out, work.geometry
    pixels = e.n * e.h * e.w * (1 + math.prod(geometry.strides)) * work.storage_bytes
    return (pixels + math.prod(geometry.kernel) * bytes_of(ACCUMULATOR)) * e.blocks * LANES
