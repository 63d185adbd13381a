"""Rules for matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.families.conv.dense_rule import dense_conv
from adrenoc.families.matmul.gemv_rule import gemv_rule, suits_gemv
from adrenoc.families.matmul.matmul import MatmulTile, matmul
from adrenoc.families.shared.context import KernelCall, RuleContext
from adrenoc.families.shared.conv_geometry import ConvGeometry
from adrenoc.families.shared.machine import TEXTURE_LATENCY_CLOCKS, WAVE, Machine
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import Extents
from adrenoc.kernels.work_group import pick_work_group
from adrenoc.target.gpu import Limits
from adrenoc.tvmapi import bits_of

ROWS = (1, 2, 4, 8)
BLOCKS = (1, 2, 4)
MAX_SUMS = 16
"""Vectors of sums a thread: beyond, few waves are left to hide each other's reads."""
SLOTS_A_TEXEL = 5.0
LOOP_SLOTS = 8.0
ADDRESS_REGISTERS = 8


@dataclass(frozen=True, kw_only=True)
class MatmulWork:
    """A batched product of activations."""

    out: Extents
    depth_blocks: int
    storage_bytes: int
    half: bool


def matmul_rule(context: RuleContext, node: Node) -> KernelCall:
    """A product by a constant matrix is a 1 x 1 convolution; of two activations, a batched one.

    Few vectors by a constant matrix have a kernel of their own.
    """
    a_name, b_name = node.inputs[:2]
    b = context.graph.tensors[b_name]
    if b.value is not None and b.value.ndim == 2:
        if suits_gemv(context.graph.operand(node.output).extents):
            return gemv_rule(context, node, "gemv", _as_oihw)
        return dense_conv(context, node, "dense", ConvGeometry(kernel=(1, 1)), _as_oihw)
    work = MatmulWork(
        out=context.graph.operand(node.output).extents,
        depth_blocks=context.graph.operand(a_name).extents.blocks,
        storage_bytes=bits_of(context.options.storage_dtype) // 8,
        half=context.options.compute_dtype == "float16",
    )
    machine = Machine.of(context.performance)
    tile = context.choose(
        node,
        "matmul",
        candidates(work, context.limits),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "matmul", half=work.half)
    left, right = kernel.input(a_name), kernel.input(b_name)
    out, epilogue = kernel.output()
    matmul(kernel.builder, tile, left, right, out, epilogue)
    return kernel.call()


def candidates(work: MatmulWork, limits: Limits) -> Iterator[MatmulTile]:
    """Rows by blocks of columns, as many as there are and as registers hold."""
    e = work.out
    for rows in ROWS:
        for blocks in BLOCKS:
            if rows > max(e.w, 1) or blocks > e.blocks or rows * blocks > MAX_SUMS:
                continue
            extents = (-(-e.w // rows), e.h, e.n * -(-e.blocks // blocks))
            usual = pick_work_group(extents, limits)
            yield MatmulTile(rows=rows, blocks=blocks, work_group=usual)
            x, y, z = usual
            if 2 * x * y * z <= min(WAVE, limits.max_work_group_size) and 2 * z <= 2 * extents[2]:
                yield MatmulTile(rows=rows, blocks=blocks, work_group=(x, y, 2 * z))


def estimate_clocks(work: MatmulWork, tile: MatmulTile, machine: Machine) -> float:
    """Clocks of the whole product."""
    e, sums = work.out, tile.rows * tile.blocks
    group = math.prod(tile.work_group)
    threads = WAVE if group > WAVE // 2 else WAVE // 2
    grid = (-(-e.w // tile.rows), e.h, e.n * -(-e.blocks // tile.blocks))
    groups = math.prod(-(-g // t) for g, t in zip(grid, tile.work_group, strict=True))
    waves = groups * math.ceil(group / threads)
    texels = tile.rows + 4 * tile.blocks
    mads = 16 * sums
    lanes = machine.lanes * (machine.half_rate if work.half and threads == WAVE else 1.0)
    overhead = texels * SLOTS_A_TEXEL + LOOP_SLOTS
    texture = texels / machine.texels_of(work.storage_bytes)
    busiest = threads * work.depth_blocks * max(mads / lanes + overhead / machine.lanes, texture)
    slots = mads + texels + overhead
    serial = work.depth_blocks * (TEXTURE_LATENCY_CLOCKS + threads / 64 * slots)
    registers = (sums + texels) * (0.5 if work.half else 1.0) + ADDRESS_REGISTERS
    resident = machine.resident_waves(registers * threads / WAVE)
    return machine.clocks(waves, busiest, serial, resident)


def _as_oihw(matrix: np.ndarray) -> np.ndarray:
    """`[K, N]` as the weights of a 1 x 1 convolution of K channels to N."""
    return np.ascontiguousarray(matrix.T)[:, :, None, None]
