"""Rules for matrix products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.families.conv.centred_rule import centred_rule
from adrenoc.kernels.families.conv.dense_rule import dense_conv
from adrenoc.kernels.families.matmul.gemv_rule import gemv_rule, suits_gemv
from adrenoc.kernels.families.matmul.matmul import MatmulTile, matmul
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.row_product import CENTRED
from adrenoc.kernels.work_group import pick_work_group
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class MatmulWork:
    """A batched product of activations."""

    out: Extents
    depth_blocks: int
    storage_bytes: int
    half: bool


def matmul_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a product: by a constant matrix it is a 1 x 1 convolution, of two
    activations a batched product.

    Few vectors by a constant matrix have a kernel of their own.
    """
    a_name, b_name = node.inputs[:2]
    b = context.graph.tensors[b_name]
    if b.value is not None and b.value.ndim == 2:
        if suits_gemv(context.graph.operand(node.output).extents):
            return gemv_rule(context, node, "gemv", _reshape_to_oihw)
        if node.attrs.get(CENTRED):
            return centred_rule(context, node, _reshape_to_oihw)
        return dense_conv(context, node, "dense", ConvGeometry(kernel=(1, 1)), _reshape_to_oihw)
    work = MatmulWork(
        out=context.graph.operand(node.output).extents,
        depth_blocks=context.graph.operand(a_name).extents.blocks,
        storage_bytes=bytes_of(context.options.storage_dtype),
        half=context.options.compute_dtype == "float16",
    )
    machine = context.machine
    tile = context.choose(
        node,
        "matmul",
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "matmul", half=work.half)
    left, right = kernel.input(a_name), kernel.input(b_name)
    out, epilogue = kernel.output()
    matmul(kernel.builder, tile, left, right, out, epilogue)
    return kernel.call()


def candidates(work: MatmulWork, limits: Limits, costs: Cost) -> Iterator[MatmulTile]:
    """Rows by blocks of columns, as many as there are and as registers hold."""
    e, cost, wave = work.out, costs.matmul, costs.pipes.wave_threads
    for rows in cost.rows:
        for blocks in cost.blocks:
            if rows > max(e.w, 1) or blocks > e.blocks or rows * blocks > cost.most_sums:
                continue
            extents = (-(-e.w // rows), e.h, e.n * -(-e.blocks // blocks))
            usual = pick_work_group(extents, limits)
            yield MatmulTile(rows=rows, blocks=blocks, work_group=usual)
            x, y, z = usual
            if 2 * x * y * z <= min(wave, limits.max_work_group_size) and 2 * z <= 2 * extents[2]:
                yield MatmulTile(rows=rows, blocks=blocks, work_group=(x, y, 2 * z))


def estimate_clocks(work: MatmulWork, tile: MatmulTile, machine: Machine) -> float:
    """Clocks of the whole product."""
    e, sums = work.out, tile.rows * tile.blocks
    cost, rates = machine.cost.matmul, machine.cost.pipes
    group = math.prod(tile.work_group)
    threads = machine.threads_of(group)
    grid = (-(-e.w // tile.rows), e.h, e.n * -(-e.blocks // tile.blocks))
    groups = math.prod(-(-g // t) for g, t in zip(grid, tile.work_group, strict=True))
    waves = groups * math.ceil(group / threads)
    texels = tile.rows + LANES * tile.blocks
    mads = LANES * LANES * sums
    lanes = machine.lanes * (machine.half_rate if work.half and threads == machine.wave else 1.0)
    overhead = texels * cost.texel_slots + cost.loop_slots
    texture = texels / machine.texels_of(work.storage_bytes)
    busiest = threads * work.depth_blocks * max(mads / lanes + overhead / machine.lanes, texture)
    slots = mads + texels + overhead
    issued = threads / rates.threads_a_slot * slots
    serial = work.depth_blocks * (rates.texture_latency_clocks + issued)
    registers = (sums + texels) * (0.5 if work.half else 1.0) + cost.address_registers
    resident = machine.resident_waves(registers * threads / machine.wave)
    return machine.clocks(waves, busiest, serial, resident)


def _reshape_to_oihw(matrix: np.ndarray) -> np.ndarray:
    """`[K, N]` as the weights of a 1 x 1 convolution of K channels to N."""
    return np.ascontiguousarray(matrix.T)[:, :, None, None]
