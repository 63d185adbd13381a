"""The rule for products by weights in 4 bits: one kernel for one token and for many."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.families.n_bits.n_bits import (
    WORD_INPUTS,
    NBitsOperands,
    NBitsTile,
    n_bits,
    pack_blocks,
    pack_words,
)
from adrenoc.families.shared.context import KernelCall, RuleContext
from adrenoc.families.shared.machine import Machine
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.work_group import power_of_two
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits
from adrenoc.tvmapi import bytes_of


@dataclass(frozen=True, kw_only=True)
class NBitsWork:
    """Extents of a product: tokens, words of eight inputs, blocks of four outputs."""

    tokens: int
    steps: int
    out_blocks: int
    storage_bytes: int
    zeros: bool


def n_bits_rule(context: RuleContext, node: Node) -> KernelCall:
    """`attrs`: `block`, the inputs of a scale, and `zero` where no zero points are inputs.

    Sums are in float whatever the preset: with one token the kernel waits for its weights.
    """
    x_name, words_name, scales_name, *zeros_name = node.inputs[: 4 if node.attrs["zeros"] else 3]
    e = context.graph.operand(node.output).extents
    work = NBitsWork(
        tokens=e.n * e.h * e.w,
        steps=-(-context.graph.operand(x_name).extents.c // WORD_INPUTS),
        out_blocks=e.blocks,
        storage_bytes=bytes_of(context.options.storage_dtype),
        zeros=bool(zeros_name),
    )
    machine = context.machine
    tile = context.choose(
        node,
        "n_bits",
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "n_bits")
    x = kernel.input(x_name)
    words = kernel.flat(words_name, "n_bits_words", pack_words, np.asarray, "uint8")
    scales = kernel.pack_constant(scales_name, "n_bits", pack_blocks)
    zeros = kernel.pack_constant(zeros_name[0], "n_bits", pack_blocks) if zeros_name else None
    operands = NBitsOperands(
        x=x,
        words=words,
        scales=scales,
        zeros=zeros,
        zero=float(node.attrs["zero"]),
        block=int(node.attrs["block"]),
    )
    out, epilogue = kernel.output()
    n_bits(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def candidates(work: NBitsWork, limits: Limits, costs: Cost) -> Iterator[NBitsTile]:
    """Teams of any power of two that the words feed, in groups of up to a wave."""
    cost = costs.n_bits
    for tokens in cost.tokens:
        if tokens > power_of_two(work.tokens) and tokens > 1:
            break
        for blocks in cost.blocks:
            if blocks * tokens > cost.most_sums or blocks > work.out_blocks:
                continue
            for splits in cost.splits:
                if splits > work.steps:
                    break
                for threads in cost.threads:
                    wide = min(threads // splits, power_of_two(-(-work.out_blocks // blocks)))
                    held = tokens * blocks * splits * wide * LANES * FLOAT_BYTES
                    if not wide or (splits > 1 and held > limits.local_mem_bytes):
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
    """Clocks of the whole product."""
    cost, rates = machine.cost.n_bits, machine.cost.pipes
    splits, wide, _ = tile.work_group
    steps = math.ceil(work.steps / splits)
    vectors = WORD_INPUTS * tile.blocks * (cost.unpack_vectors + tile.tokens)
    vectors += tile.tokens * (cost.token_vectors + tile.blocks)
    reads = tile.blocks * (2 + work.zeros) + 2 * tile.tokens
    alu = (LANES * vectors + cost.read_slots * reads + cost.loop_slots / tile.unroll) / (
        machine.lanes
    )
    texture = reads / machine.texels_of(work.storage_bytes)
    threads_a_wave = machine.threads_of(splits * wide)
    teams = math.ceil(work.tokens / tile.tokens) * math.ceil(work.out_blocks / tile.blocks)
    waves = math.ceil(teams / wide) * math.ceil(splits * wide / threads_a_wave)
    busiest = threads_a_wave * steps * max(alu, texture)
    sums = tile.tokens * tile.blocks
    held = 2 * sums + (tile.blocks + 2 * tile.tokens) * tile.unroll + cost.other_registers
    registers = held * threads_a_wave / machine.wave
    levels = math.ceil(math.log(splits, LANES)) if splits > 1 else 0
    serial = (
        math.ceil(steps / tile.unroll) * rates.texture_latency_clocks
        + steps * threads_a_wave / rates.threads_a_slot * LANES * vectors
        + levels * cost.barrier_clocks * (1 + sums / LANES)
    )
    beside = machine.resident_waves(registers)
    pipes = machine.clocks(waves, busiest, serial, beside)
    passes = math.ceil(work.tokens / tile.tokens)
    weights = passes * work.steps * work.out_blocks * LANES * FLOAT_BYTES
    resident = beside * threads_a_wave / machine.wave
    return machine.overlap_with_memory(pipes, machine.memory_clocks(weights), resident)
