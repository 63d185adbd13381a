"""The rule of depthwise convolutions: how many pixels a thread makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from adrenoc.families.depthwise.depthwise import (
    UNROLLED_ROWS,
    DepthwiseTile,
    depthwise,
    pack_taps,
    rows_read,
)
from adrenoc.families.depthwise.depthwise_dot import depthwise_dot, pack_tap_words
from adrenoc.families.shared.context import KernelCall, RuleContext
from adrenoc.families.shared.conv_geometry import Oihw
from adrenoc.families.shared.conv_work import ConvWork
from adrenoc.families.shared.dot_products import WORD_BYTES, suits_dot
from adrenoc.families.shared.integer_bias import split_bias
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    BYTES_PER_CLOCK,
    LOCAL_READ_CLOCKS,
    SPILLED,
    TEXTURE_LATENCY_CLOCKS,
    WAVE,
    Machine,
)
from adrenoc.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.target.gpu import Limits
from adrenoc.tvmapi import bits_of

MOST_MULTIPLIES = 320
"""Of vectors in one kernel: they are written out, and compilers take long over long kernels."""
ROW_SLOTS, START_WAITS = 30.0, 3
"""Of a kernel row that is a turn of a loop; and how often a thread waits beside those."""
OTHER_REGISTERS = 6
"""Full registers that have to be free beside vectors, or some of these go to memory."""
START, TEXEL, STORE = 60.0, 7.0, 10.0
"""Instructions of a thread beside its multiply-adds: in all, a texel read, a pixel stored."""
WORD = 14.0
"""Of a word read: its address in a buffer, that of the nearest pixel inside, and a choice."""


def depthwise_rule(
    context: RuleContext,
    node: Node,
    work: ConvWork,
    oihw: Callable[[np.ndarray], np.ndarray],
) -> KernelCall:
    """A convolution of each channel by itself, with weights that `oihw` orders.

    In float whatever the preset: see `adrenoc/families/depthwise/depthwise.py`.
    """
    machine = Machine.of(context.performance)
    if suits_dot(context, node, oihw):
        return _dot_rule(context, node, work, oihw, machine)
    tiles = scored(work, context.limits, machine)
    tile = context.choose(node, "depthwise_conv2d", tiles, tiles)
    kernel = context.kernel(node, "depthwise_conv2d")
    x = kernel.input(node.inputs[0])
    wz = tile.work_group[2]
    pack = partial(_pack, oihw=oihw, blocks=wz)
    weight = kernel.flat(node.inputs[1], f"depthwise{wz}", pack, dtype="float32")
    out, epilogue = kernel.output()
    depthwise(kernel.builder, work.geometry, tile, x, weight, out, epilogue)
    return kernel.call()


def _dot_rule(
    context: RuleContext, node: Node, work: ConvWork, oihw: Oihw, machine: Machine
) -> KernelCall:
    """The same of bytes, which dot products take as they are."""
    family = "depthwise_dot"
    words = replace(work, storage_bytes=1, words=context.limits.dot_instructions)
    tiles = scored(words, context.limits, machine)
    tile = context.choose(node, family, tiles, tiles)
    context.byte_costs.add(tiles(tile), scored(work, context.limits, machine).least)
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
    depthwise_dot(kernel.builder, work.geometry, tile, x, weight, rest, out, epilogue)
    return kernel.call()


def _pack(weight: np.ndarray, oihw: Callable[[np.ndarray], np.ndarray], blocks: int) -> np.ndarray:
    return pack_taps(oihw(weight), blocks)


def blocks_held(taps: int, limits: Limits) -> int:
    """Blocks of channels whose taps local memory holds at once."""
    return limits.local_mem_bytes // (taps * LANES * bits_of(ACCUMULATOR) // 8)


@lru_cache(maxsize=MOST_KNOWN)
def scored(work: ConvWork, limits: Limits, machine: Machine) -> Scored[DepthwiseTile]:
    """The tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits), lambda tile: estimate_clocks(work, tile, machine)
    )


def candidates(work: ConvWork, limits: Limits) -> Iterator[DepthwiseTile]:
    """The tiles that suit the extents."""
    e, (kh, kw) = work.out, work.geometry.kernel
    most = min(WAVE, limits.max_work_group_size)
    held = blocks_held(kh * kw, limits)
    for rows in (1, 2, 3, 4, 7):
        for pixels in (1, 2, 3, 4, 7, 8):
            smallest = rows * pixels == 1
            if (rows > e.h or pixels > e.w or rows * pixels * kh * kw > MOST_MULTIPLIES) and (
                not smallest
            ):
                continue
            columns, lines = -(-e.w // pixels), -(-e.h // rows)
            for wx in {min(columns, 1 << i) for i in range(2, 6)}:
                for wy in {min(lines, 1 << i) for i in range(5)}:
                    if wx * wy <= most:
                        deep = min(most // (wx * wy), e.n * e.blocks, held)
                        yield DepthwiseTile(rows=rows, pixels=pixels, work_group=(wx, wy, deep))


def estimate_clocks(work: ConvWork, tile: DepthwiseTile, machine: Machine) -> float:
    """Clocks of the whole convolution on the target."""
    e, geometry = work.out, work.geometry
    kh, kw = geometry.kernel
    wx, wy, wz = tile.work_group
    columns = {
        p * geometry.strides[1] + k * geometry.dilation[1]
        for p in range(tile.pixels)
        for k in range(kw)
    }
    pixels = tile.rows * tile.pixels
    texels = rows_read(geometry, tile.rows) * len(columns)
    taps = tile.rows * kh * kw
    mads = pixels * kh * kw * LANES * max(1, work.words)
    other = START + (WORD if work.words else TEXEL) * texels + STORE * pixels
    reads = BYTES_PER_CLOCK / WORD_BYTES if work.words else machine.texels_of(work.storage_bytes)
    latency = BUFFER_LATENCY_CLOCKS if work.words else TEXTURE_LATENCY_CLOCKS
    busiest = max(
        WAVE * (mads + other) / machine.lanes,
        WAVE * texels / reads,
        taps * LOCAL_READ_CLOCKS,
    )
    rows = rows_read(geometry, tile.rows)
    serial = 2 * (mads + taps + other) + BUFFER_LATENCY_CLOCKS + rows * latency
    groups = math.ceil(e.w / tile.pixels / wx) * math.ceil(e.h / tile.rows / wy)
    groups *= math.ceil(e.n * e.blocks / wz)
    waves = groups * math.ceil(wx * wy * wz / WAVE)
    if tile.rows == 1 and (work.words or kh > UNROLLED_ROWS):
        vectors = float(len(columns) + pixels + kw)
        registers = vectors + 1
        serial = 2 * (mads + taps + other + ROW_SLOTS * kh)
        serial += (START_WAITS + kh) * BUFFER_LATENCY_CLOCKS
    else:  # compilers read ahead: most texels wait beside the sums and some of the taps
        read = kh * kw if work.words else 0.5 * kh * kw
        vectors = registers = 0.75 * texels + pixels + read
    if vectors + OTHER_REGISTERS > machine.registers / 2:
        serial *= SPILLED
    resident = machine.resident_waves(registers)
    pipes = machine.clocks(waves, busiest, serial, resident)
    return machine.with_memory(pipes, machine.memory_clocks(_bytes(work)), resident)


def _bytes(work: ConvWork) -> int:
    """What memory has to move: the input, the output and the taps."""
    e, geometry = work.out, work.geometry
    pixels = e.n * e.h * e.w * (1 + math.prod(geometry.strides)) * work.storage_bytes
    return (pixels + math.prod(geometry.kernel) * bits_of(ACCUMULATOR) // 8) * e.blocks * LANES
