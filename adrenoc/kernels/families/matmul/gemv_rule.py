"""Rules for products of few vectors by a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.operand import WORDS
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.families.matmul.gemv import MAX_PIXELS, GemvOperands, GemvTile, gemv
from adrenoc.kernels.families.matmul.gemv_dot import gemv_dot, pack_rows
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import Oihw
from adrenoc.kernels.families.shared.dot_products import WORD_BYTES, suits_dot
from adrenoc.kernels.families.shared.integer_bias import split_bias
from adrenoc.kernels.families.shared.local_token import TokenWork
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.row_product import (
    declare_gate,
    declare_norm,
    declare_token,
    extents_read,
    mix_work,
    read_form,
)
from adrenoc.kernels.flat_access import FlatAccess, flat_order
from adrenoc.kernels.weights import pack_conv
from adrenoc.kernels.work_group import groups_within, power_of_two
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

FLATTENED = "flattened"
"""Attribute of a product of one vector that is read from the image that it is flattened from."""


@dataclass(frozen=True, kw_only=True)
class GemvWork:
    """Extents of a product: vectors, blocks of four inputs and of four outputs."""

    vectors: int
    in_blocks: int
    out_blocks: int
    storage_bytes: int
    matrices: int = 1
    normed: bool = False
    token: TokenWork | None = None
    """What each work-group does to make the vector; None where it reads it."""


def suits_gemv(out: Extents) -> bool:
    """Return whether a product has few enough vectors."""
    return out.n * out.h * out.w <= MAX_PIXELS


def gemv_rule(
    context: RuleContext, node: Node, family: str, oihw: Callable[[np.ndarray], np.ndarray]
) -> KernelCall:
    """Make the kernel of a matrix times a few vectors, for which reading the weights is the time.

    The node's first input holds the vectors, its second the matrix, which `oihw` transposes to
    [O, I, 1, 1]; a second matrix and a norm's gains may come behind (`row_product.py`).

    Sums are in float whatever the preset: the kernel waits for its weights.
    """
    form = read_form(node)
    work = work_of(context.graph, node, context.options)
    if suits_dot(context, node, oihw):
        return _dot_rule(context, node, f"{family}_dot", work, oihw)
    machine = context.machine
    tile = context.choose(
        node,
        family,
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, family)
    x = declare_token(kernel, node)
    kind, pack = f"{family}1", oihw
    if node.attrs.get(FLATTENED):
        order = flat_order(x.spec)
        x, kind = FlatAccess(x, kernel.builder), f"{family}_flat"

        def pack(weight: np.ndarray) -> np.ndarray:
            ordered = oihw(weight)[:, np.maximum(order, 0)]
            ordered[:, order < 0] = 0
            return ordered

    weights = tuple(
        kernel.pack_constant(name, kind, lambda w: pack_conv(pack(w), 1))
        for (name,) in form.matrices
    )
    operands = GemvOperands(
        x=x, weights=weights, norm=declare_norm(kernel, node), finish=declare_gate(kernel, node)
    )
    out, epilogue = kernel.output()
    gemv(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def work_of(graph: Graph, node: Node, options: CompileOptions) -> GemvWork:
    """Return the extents of a product of few vectors."""
    out, form = graph.operand(node.output).extents, read_form(node)
    in_blocks = _read_blocks(extents_read(graph, node), node)
    return GemvWork(
        vectors=out.n * out.h * out.w,
        in_blocks=in_blocks,
        out_blocks=out.blocks,
        storage_bytes=bytes_of(options.storage_dtype),
        matrices=len(form.matrices),
        normed=bool(form.gains),
        token=mix_work(graph, node, in_blocks),
    )


def _read_blocks(e: Extents, node: Node) -> int:
    """Blocks of four inputs of each product."""
    return e.blocks * e.h * e.w if node.attrs.get(FLATTENED) else e.blocks


def _dot_rule(
    context: RuleContext, node: Node, family: str, work: GemvWork, oihw: Oihw
) -> KernelCall:
    """Return the same of bytes: a step takes sixteen inputs, and reads as many bytes as four
    floats."""
    x_name, weight_name = node.inputs[:2]
    machine, limits = context.machine, context.limits
    tiles = candidates(work, limits, machine.cost)
    floats = min(estimate_clocks(work, tile, machine) for tile in tiles)
    steps = -(-work.in_blocks // WORDS)
    work = replace(work, in_blocks=steps, storage_bytes=WORD_BYTES)
    tile = context.choose(
        node,
        family,
        candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    context.byte_costs.add(estimate_clocks(work, tile, machine), floats)
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, family)
    x = kernel.input(x_name)
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{x_name} does not lie in bytes")
    weight = kernel.flat(weight_name, f"{family}_rows", pack_rows, oihw, "float32")
    rest = bias.operand(kernel, family, x.spec.low, oihw)
    out, epilogue = kernel.output()
    gemv_dot(kernel.builder, tile, x, weight, rest, out, epilogue)
    return kernel.call()


def candidates(
    work: GemvWork, limits: Limits, costs: Cost, groups: Sequence[int] = ()
) -> Iterator[GemvTile]:
    """Teams of any power of two that the input blocks feed, in groups of up to a wave, or of these
    sizes."""
    cost = costs.gemv
    for splits in cost.splits:
        if splits > work.in_blocks:
            break
        for threads in groups or groups_within(cost.threads, limits):
            blocks = min(threads // splits, power_of_two(work.out_blocks))
            folded = work.vectors * (work.matrices + work.normed)
            shared = folded * splits * blocks * LANES * FLOAT_BYTES if splits > 1 else 0
            token = work.token.local_bytes(splits * blocks) if work.token is not None else 0
            if not blocks or shared + token > limits.local_mem_bytes:
                continue
            for unroll in cost.unrolls:
                if unroll == 1 or unroll * splits <= work.in_blocks:
                    yield GemvTile(work_group=(splits, blocks, 1), unroll=unroll)


def estimate_clocks(work: GemvWork, tile: GemvTile, machine: Machine) -> float:
    """Clocks of the whole product."""
    splits, blocks, _ = tile.work_group
    threads_a_wave = machine.threads_of(splits * blocks)
    of_group = math.ceil(splits * blocks / threads_a_wave)
    waves = math.ceil(work.out_blocks / blocks) * of_group
    # The waves of a group share the processors that share local memory, however many others idle.
    waves = max(waves, math.ceil(of_group / machine.waves_together) * machine.processors)
    busiest, serial = walk_clocks(work, tile, threads_a_wave, machine)
    making, make_serial, brought = 0.0, 0.0, 0.0
    if work.token is not None:
        making, make_serial = work.token.clocks(splits * blocks, machine)
        # Before the first barrier, so that nothing of the product hides it.
        brought = machine.memory_clocks(work.token.memory_bytes)
    held = _texels(work) * tile.unroll + _sums(work) + machine.cost.gemv.other_registers
    beside = machine.resident_waves(held * threads_a_wave / machine.wave)
    pipes = machine.clocks(waves, busiest + making, serial + make_serial, beside)
    weights = work.in_blocks * work.out_blocks * LANES * LANES * work.matrices * work.storage_bytes
    resident = beside * threads_a_wave / machine.wave
    memory = machine.memory_clocks(weights)
    return brought + machine.overlap_with_memory(pipes, memory, resident)


def walk_clocks(
    work: GemvWork, tile: GemvTile, threads_a_wave: int, machine: Machine
) -> tuple[float, float]:
    """Return how long a wave keeps the busiest pipe with its sums of one output block a team, and
    how long it takes alone."""
    cost, rates = machine.cost.gemv, machine.cost.pipes
    steps, texels, sums = math.ceil(work.in_blocks / tile.splits), _texels(work), _sums(work)
    mads = LANES * LANES * work.vectors * work.matrices + 2 * LANES * work.vectors * work.normed
    overhead = cost.texel_slots * texels + cost.loop_slots / tile.unroll
    alu = (mads + overhead) / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    levels = math.ceil(math.log(tile.splits, LANES)) if tile.splits > 1 else 0
    serial = (
        math.ceil(steps / tile.unroll) * rates.texture_latency_clocks
        + steps * threads_a_wave / rates.threads_a_slot * (mads + texels + overhead)
        + levels * cost.barrier_clocks * (1 + sums / LANES)
    )
    return threads_a_wave * steps * max(alu, texture), serial


def _texels(work: GemvWork) -> int:
    """Texels that a step reads."""
    return LANES * work.matrices + work.vectors + work.normed


def _sums(work: GemvWork) -> int:
    """Vectors of sums that a thread holds."""
    return work.vectors * (work.matrices + work.normed)
