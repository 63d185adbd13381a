"""Rules for the two kernels of a product of rounded tokens by weights of few bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.families.conv.conv_tile_local import (
    Counts,
    bytes_of,
    local_candidates,
    local_counts,
    waves_of,
    weights_of,
)
from adrenoc.kernels.families.conv.split_k import vectors_added
from adrenoc.kernels.families.n_bits.n_bits_dot import RoundedOperands, n_bits_dot
from adrenoc.kernels.families.n_bits.n_bits_rule import (
    declare_weights,
    matrix_work,
    score_matrix_tiles,
)
from adrenoc.kernels.families.n_bits.rounded import BYTE_BITS, Rounding, round_tokens
from adrenoc.kernels.families.n_bits.unpack import word_inputs
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.dot_products import SIXTEEN, WORD_BYTES
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.row_product import read_form
from adrenoc.kernels.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.kernels.families.shared.shared_weights import vectors_held
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

ROUNDING = "rounding"
"""Attribute of both nodes: how the tokens are rounded."""


@dataclass(frozen=True, kw_only=True)
class DotWork:
    """A product as estimates see it: the 1x1 convolution of bytes, and what few bits add."""

    conv: ConvWork
    rounding: Rounding
    zeros: bool


def rounding_of(graph: Graph, node: Node) -> Rounding:
    """Return how the tokens of a product by weights of few bits would be rounded."""
    return Rounding(
        inputs=graph.tensors[node.inputs[0]].shape[-1],
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
        zero=0 if node.attrs["zeros"] else int(node.attrs["zero"]),
    )


def dot_work(graph: Graph, node: Node, rounding: Rounding, costs: CostModel) -> DotWork:
    """Return what estimates need of a product, before its tokens are rounded or after."""
    conv = replace(
        matrix_work(graph, node, costs.options),
        in_blocks=rounding.first_beside,
        channels=WORDS,
        storage_bytes=WORD_BYTES,
        half=False,
        texel_work=costs.machine.cost.conv_dot.load_work,
        words=costs.limits.dot_instructions,
        image=None,
    )
    return DotWork(conv=conv, rounding=rounding, zeros=bool(node.attrs["zeros"]))


def round_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that rounds tokens."""
    kernel = context.kernel(node, "round_tokens")
    x = kernel.input(node.inputs[0])
    out, _ = kernel.output()
    if not isinstance(out, BytesAccess):
        raise ValueError(f"{node.output} does not lie in bytes")
    round_tokens(kernel.builder, node.attrs[ROUNDING], x, out)
    return kernel.call()


def dot_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that multiplies rounded tokens."""
    costs = CostModel(options=context.options, limits=context.limits, machine=context.machine)
    work = dot_work(context.graph, node, node.attrs[ROUNDING], costs)
    tiles = score_dot_tiles(work, context.limits, context.machine)
    tile = context.choose(node, "n_bits_dot", tiles, tiles)
    kernel = context.kernel(node, "n_bits_dot")
    x = kernel.input(node.inputs[0])
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{node.inputs[0]} does not lie in bytes")
    (names,) = read_form(node).matrices
    operands = RoundedOperands(
        x=x, rounding=work.rounding, weights=declare_weights(kernel, node, names)
    )
    out, epilogue = kernel.output()
    n_bits_dot(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def least_matrix_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Clocks of the product with its weights opened to floats, at best."""
    work, bits = matrix_work(graph, node, costs.options), int(node.attrs["bits"])
    return score_matrix_tiles(work, costs.limits, costs.machine, bits).least


@lru_cache(maxsize=MOST_KNOWN)
def score_dot_tiles(work: DotWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles of the product of rounded tokens, each with its estimate."""
    return Scored(
        lambda: dot_candidates(work, limits, machine.cost),
        lambda tile: dot_clocks(work, tile, machine),
    )


def dot_candidates(work: DotWork, limits: Limits, costs: Cost) -> Iterator[ConvTile]:
    """Tiles whose k-steps are single groups of inputs, and whole ones."""
    blocks = work.conv.in_blocks
    for tile in local_candidates(work.conv, limits, costs):
        whole = tile.unroll * SIXTEEN == work.rounding.group and blocks % tile.k_step == 0
        if whole and dot_bytes(work, tile) <= limits.local_mem_bytes:
            yield tile


def dot_bytes(work: DotWork, tile: ConvTile) -> int:
    """Local memory of a work-group: weights, what belongs to them, and sums of splits."""
    threads = math.prod(tile.work_group or (1, 1, 1))
    span = min(tile.chunk * tile.split_k, work.conv.in_blocks)
    of_group = tile.out_blocks * tile.bands
    weights = vectors_held(LANES * of_group * span, threads, half=False)
    beside = span // tile.unroll * of_group * (1 + work.zeros)
    added = vectors_added(tile.pixels * tile.out_blocks, tile.split_k, threads)
    return (weights + beside + added) * LANES * FLOAT_BYTES


def dot_clocks(work: DotWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the 1x1 convolution of bytes, of scaling its parts, and of opening its words."""
    costs, cost, conv = machine.cost.n_bits, machine.cost.pipes, work.conv
    counts: Counts = local_counts(conv, tile, machine)
    threads = math.prod(tile.work_group or (1, 1, 1))
    sums, parts = tile.pixels * tile.out_blocks, BYTE_BITS // work.rounding.bits
    words = counts.chunks * math.ceil(
        LANES * tile.out_blocks * tile.bands * tile.chunk * tile.split_k / parts / threads
    )
    opening = words * (LANES * 2 * parts + costs.read_slots * 2)
    scaling = counts.k_steps * sums * LANES * (costs.part_vectors + work.zeros)
    texels = counts.k_steps * (counts.texels + tile.pixels)
    alu = counts.alu + opening + scaling + texels * conv.texel_work
    busiest = max(
        machine.wave * alu / machine.lanes,
        machine.wave * texels / machine.texels_of(conv.load_bytes),
    )
    slots = counts.slots + opening + scaling + texels * (1 + conv.texel_work)
    waits = counts.waits + words + counts.k_steps
    serial = machine.slots_a_wave * slots + waits * cost.buffer_latency_clocks
    registers = counts.registers + 2 * tile.pixels
    resident = machine.resident_waves(registers)
    opened = weights_of(conv, tile) * LANES * conv.storage_bytes
    moved = bytes_of(conv, tile) - opened + opened // word_inputs(work.rounding.bits) * LANES
    return machine.hedge(
        busiest,
        counts.reads + words * parts + counts.k_steps * tile.out_blocks * (1 + work.zeros),
        LANES * FLOAT_BYTES,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves_of(conv, tile, machine.wave), busy, serial, resident),
            machine.memory_clocks(moved),
            resident,
        ),
    )


def round_clocks(work: DotWork, machine: Machine) -> float:
    """Clocks of rounding the tokens: memory's, for a number is read once."""
    e = work.conv.out
    tokens = e.n * e.h * e.w
    read = tokens * work.rounding.inputs * FLOAT_BYTES
    return machine.memory_clocks(read, tokens * work.rounding.channels) + machine.launch_clocks
