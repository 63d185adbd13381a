"""The rule for products by weights of few bits: one kernel for one token and for many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from adrenoc.base import tvmapi
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.builder import groups_within, power_of_two
from adrenoc.kernels.families.conv.conv_tile_local import (
    bytes_of,
    local_candidates,
    local_counts,
    vector_bytes,
    waves_of,
    weights_of,
)
from adrenoc.kernels.families.n_bits.n_bits import (
    NBitsOperands,
    NBitsTile,
    NBitsWeights,
    n_bits,
    n_bits_matrix,
    pack_blocks,
    pack_words,
    word_inputs,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvTile, ConvWork, pointwise_work
from adrenoc.kernels.families.shared.machine import (
    MOST_KNOWN,
    Column,
    Machine,
    Scored,
    TileTable,
    larger,
    round_up,
)
from adrenoc.kernels.families.shared.row_product import (
    NORMED,
    bytes_of_mix,
    declare_gate,
    declare_norm,
    declare_token,
    extents_read,
    mix_clocks,
    parts_read,
    read_form,
)
from adrenoc.kernels.walk import FOLDED_AT_ONCE
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

HALF_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class NBitsWork:
    """Extents of a product: tokens, words of some inputs, blocks of four outputs."""

    tokens: int
    steps: int
    word_inputs: int
    out_blocks: int
    storage_bytes: int
    zeros: bool
    matrices: int = 1
    normed: bool = False
    parts: int = 0
    """In how many parts the token comes, each with all of its numbers; 0: whole."""
    mix_bytes: int = 0
    """Local memory that the mix of these takes."""


def n_bits_rule(context: RuleContext, node: Node) -> KernelCall:
    """`attrs`: `block`, the inputs of a scale, and `zero` where no zero points are inputs.

    Few tokens wait for their weights, and their sums are in float whatever the preset; of many,
    the weights are opened once for all.
    """
    e = context.graph.operand(node.output).extents
    if not suits_few(e, context.cost):
        return _matrix_rule(context, node)
    work = work_of(context.graph, node, context.options)
    machine = context.machine
    tile = context.choose(
        node,
        "n_bits",
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "n_bits")
    operands = operands_of(kernel, node)
    out, epilogue = kernel.output()
    n_bits(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def work_of(graph: Graph, node: Node, options: CompileOptions) -> NBitsWork:
    """Return the extents of a product of few tokens."""
    e, inputs = graph.operand(node.output).extents, word_inputs(int(node.attrs["bits"]))
    return NBitsWork(
        tokens=e.n * e.h * e.w,
        steps=-(-extents_read(graph, node).c // inputs),
        word_inputs=inputs,
        out_blocks=e.blocks,
        storage_bytes=tvmapi.bytes_of(options.storage_dtype),
        zeros=bool(node.attrs["zeros"]),
        matrices=len(read_form(node).matrices),
        normed=bool(node.attrs.get(NORMED)),
        parts=parts_read(graph, node),
        mix_bytes=bytes_of_mix(graph, node),
    )


def suits_few(out: Extents, cost: Cost) -> bool:
    """Return whether a product has so few tokens that opening its weights for some at a time
    wins."""
    return out.n * out.h * out.w <= cost.n_bits.few_tokens


def _matrix_rule(context: RuleContext, node: Node) -> KernelCall:
    work = matrix_work(context.graph, node, context.options)
    tiles = score_matrix_tiles(work, context.limits, context.machine, int(node.attrs["bits"]))
    tile = context.choose(node, "n_bits_matrix", tiles, tiles)
    kernel = context.kernel(node, "n_bits_matrix", half=work.half)
    operands = operands_of(kernel, node)
    out, epilogue = kernel.output()
    n_bits_matrix(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def matrix_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    """Return a product of many tokens as the 1x1 convolution that it is."""
    return replace(pointwise_work(graph, node, options), textures=False)


@lru_cache(maxsize=MOST_KNOWN)
def score_matrix_tiles(
    work: ConvWork, limits: Limits, machine: Machine, bits: int
) -> Scored[ConvTile]:
    """Return the tiles of a product of many tokens, each with its estimate."""
    return Scored(
        lambda: matrix_candidates(work, limits, machine.cost, bits),
        lambda tile: matrix_clocks(work, tile, machine, bits),
    )


def operands_of(kernel: NodeKernel, node: Node) -> NBitsOperands:
    """Declare what a product reads: x, a matrix, perhaps another one, perhaps gains of a norm.

    `attrs` have `gated` where a second matrix is there, whose products `parts` finish, and the
    epsilon as `normed` where there are gains.
    """
    x = declare_token(kernel, node)
    weights = tuple(declare_weights(kernel, node, names) for names in read_form(node).matrices)
    norm = declare_norm(kernel, node)
    return NBitsOperands(x=x, weights=weights, norm=norm, finish=declare_gate(kernel, node))


def declare_weights(kernel: NodeKernel, node: Node, names: tuple[str, ...]) -> NBitsWeights:
    """Declare a matrix, with its scales and zero points, as the next arguments."""
    words, scales, *zeros = names
    return NBitsWeights(
        words=kernel.flat(words, "n_bits_words", pack_words, np.asarray, "uint8"),
        scales=kernel.pack_constant(scales, "n_bits", pack_blocks),
        zeros=kernel.pack_constant(zeros[0], "n_bits", pack_blocks) if zeros else None,
        zero=float(node.attrs["zero"]),
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
    )


def matrix_candidates(
    work: ConvWork, limits: Limits, costs: Cost, bits: int
) -> TileTable[ConvTile]:
    """Return tiles that bring whole words."""
    tiles = local_candidates(work, limits, costs)
    return tiles.where(lambda tile: tile.chunk * tile.split_k * LANES % word_inputs(bits) == 0)


def matrix_clocks(work: ConvWork, tile: ConvTile, machine: Machine, bits: int) -> Column:
    """Return clocks of the 1x1 convolution, and of opening its weights for each work-group."""
    costs, cost = machine.cost.n_bits, machine.cost.pipes
    counts = local_counts(work, tile, machine)
    threads = math.prod(tile.work_group or (1, 1, 1))
    vectors = LANES * tile.out_blocks * tile.bands * tile.chunk * tile.split_k
    words = counts.chunks * round_up(vectors / word_inputs(bits) / threads)
    stored = words * word_inputs(bits)
    opening = stored * costs.open_slots + words * costs.read_slots * 2
    texels = counts.k_steps * counts.texels
    alu = counts.alu + opening + machine.cost.conv_local.texel_alu * texels
    busiest = larger(
        machine.wave * alu / machine.lanes,
        machine.wave * texels / machine.texels_of(work.load_bytes),
    )
    slots = counts.slots + opening + (1 + machine.cost.conv_local.texel_slots) * texels
    waits = counts.waits + words + counts.k_steps
    serial = machine.slots_a_wave * slots + waits * cost.buffer_latency_clocks
    resident = machine.resident_waves(counts.registers)
    waves = waves_of(work, tile, machine.wave)
    opened = weights_of(work, tile) * LANES * work.storage_bytes
    moved = bytes_of(work, tile) - opened + opened // word_inputs(bits)
    return machine.hedge(
        busiest,
        counts.reads + stored,
        vector_bytes(work),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), machine.memory_clocks(moved), resident
        ),
    )


def candidates(work: NBitsWork, limits: Limits, costs: Cost) -> Iterator[NBitsTile]:
    """Yield teams of any power of two that the words feed, in groups of up to a wave."""
    cost = costs.n_bits
    for tokens in cost.tokens:
        if tokens > power_of_two(work.tokens) and tokens > 1:
            break
        for blocks in cost.blocks:
            sums = blocks * tokens * work.matrices
            if sums > cost.most_sums or blocks > work.out_blocks:
                continue
            for splits in cost.splits:
                if splits > work.steps:
                    break
                for threads in groups_within(cost.threads, limits):
                    wide = min(threads // splits, power_of_two(-(-work.out_blocks // blocks)))
                    held = (sums + tokens) * splits * wide * LANES * FLOAT_BYTES
                    taken = work.mix_bytes + (held if splits > 1 else 0)
                    if not wide or taken > limits.local_mem_bytes:
                        continue
                    for unroll in cost.unrolls:
                        if unroll == 1 or unroll * splits <= work.steps:
                            yield NBitsTile(
                                work_group=(splits, wide, 1),
                                tokens=tokens,
                                blocks=blocks,
                                unroll=unroll,
                            )


def estimate_clocks(work: NBitsWork, tile: NBitsTile, machine: Machine) -> float:
    """Return clocks of the whole product."""
    cost, rates = machine.cost.n_bits, machine.cost.pipes
    splits, wide, _ = tile.work_group
    steps = math.ceil(work.steps / splits)
    blocks = tile.blocks * work.matrices
    vectors = work.word_inputs * blocks * (cost.unpack_vectors + tile.tokens)
    vectors += tile.tokens * (cost.token_vectors + blocks + 2 * 2 * work.normed)
    reads = blocks * (2 + work.zeros) + 2 * (tile.tokens + work.normed)
    alu = (LANES * vectors + cost.read_slots * reads + cost.loop_slots / tile.unroll) / (
        machine.lanes
    )
    texture = reads / machine.texels_of(work.storage_bytes)
    threads_a_wave = machine.threads_of(splits * wide)
    teams = math.ceil(work.tokens / tile.tokens) * math.ceil(work.out_blocks / tile.blocks)
    waves = math.ceil(teams / wide) * math.ceil(splits * wide / threads_a_wave)
    busiest = threads_a_wave * steps * max(alu, texture)
    sums = tile.tokens * blocks
    held = 2 * sums + (blocks + 2 * tile.tokens) * tile.unroll + cost.other_registers
    registers = held * threads_a_wave / machine.wave
    levels = math.ceil(math.log(splits, FOLDED_AT_ONCE)) if splits > 1 else 0
    serial = (
        math.ceil(steps / tile.unroll) * rates.texture_latency_clocks
        + steps * threads_a_wave / rates.threads_a_slot * LANES * vectors
        + levels * cost.barrier_clocks * (1 + sums / LANES)
    )
    beside = machine.resident_waves(registers)
    read_blocks = work.steps * work.word_inputs // LANES
    mixing, mix_serial = mix_clocks(work.parts, read_blocks, splits * wide, machine)
    passes = math.ceil(work.tokens / tile.tokens)
    weights = passes * work.steps * work.out_blocks * work.matrices * LANES * FLOAT_BYTES
    memory = machine.memory_clocks(weights)
    resident = beside * threads_a_wave / machine.wave
    return machine.hedge(
        busiest + mixing,
        (sums + tile.tokens * work.normed) * fold_visits(splits) * threads_a_wave / machine.wave,
        LANES * FLOAT_BYTES,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial + mix_serial, beside), memory, resident
        ),
    )


def fold_visits(splits: int) -> float:
    """Return how often a wave goes to local memory for each value that a team of so many folds.

    Every wave with a member that folds goes there for all of its threads.
    """
    if splits == 1:
        return 0.0
    return 2.0 + (FOLDED_AT_ONCE + 1) * math.log(splits, FOLDED_AT_ONCE)
