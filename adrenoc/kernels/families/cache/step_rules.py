"""Rules for the attention of one new token: over parts of the rows, and what joins these."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.importers.relax.cache_constants import Kinds, head_of, name_constants, rows_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.cache.cache_rules import (
    both_quanta_of,
    gains_of,
    numbers_of,
    rotation_of,
    tokens_of,
)
from adrenoc.kernels.families.cache.join_parts import join_parts, write_part
from adrenoc.kernels.families.cache.step_attention import step_attention
from adrenoc.kernels.families.cache.step_operands import StepOperands, StepTile
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.mixed_parts import OF_SCORES
from adrenoc.kernels.work_group import groups_within, power_of_two
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits

_WIDEST = 2
"""Counts of lanes that are tried, the largest."""

STEP, JOIN = "step_attention", "join_parts"

OF_STEP: Kinds = (
    ("tables", "rotated", 2),
    ("gains", "normed", 2),
    ("bias", "biased", 1),
    ("scales", "bits", 2),
)
"""Constants of attention of one token: `gains` of queries and of keys."""
OF_JOIN: Kinds = (("sinks", "sunk", 1),)
"""Constants of what joins its parts."""


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """Extents: heads of keys, query heads for each, blocks of a head, rows, parts of these."""

    kept: int
    group: int
    blocks: int
    rows: int
    splits: int
    element_bytes: float


def attends_one_token(graph: Graph, node: Node) -> bool:
    """Return whether a node is the attention of one token over a cache."""
    return node.op == "cached_attention" and tokens_of(graph.tensors[node.inputs[0]].shape) == 1


def joins_parts(node: Node) -> bool:
    """Return whether a node puts the parts of such an attention together."""
    return node.op == JOIN


def count_splits(kept: int, rows: int, machine: Machine) -> int:
    """In how many parts to take the rows: a GPU needs several groups for each processor."""
    cost = machine.cost.cached
    wanted = math.ceil(machine.processors * cost.groups / kept)
    return max(1, min(power_of_two(wanted), power_of_two(max(rows // cost.least_rows, 1))))


def parts_shape(splits: int, queries: int, head: int) -> tuple[int, ...]:
    """Return the shape of what the parts leave."""
    return (splits, queries, head + OF_SCORES)


def step_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the row's number, keys, values, the new key and the new value; then
    constants where `attrs` say so (`OF_STEP`).  It changes keys and values."""
    attrs, graph = node.attrs, context.graph
    q, position, keys, _, key, value, *others = node.inputs
    work = work_of(graph, node, keys)
    machine = context.machine
    tile = context.choose(
        node,
        STEP,
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, context.limits),
    )
    kernel = context.kernel(node, STEP)
    heads = (kernel.input(q), kernel.input(key), kernel.input(value))
    position_access = kernel.input(position)
    held = name_constants(OF_STEP, attrs, others)
    rotation = rotation_of(kernel, node, held["tables"])
    norms = tuple(gains_of(kernel, node, held["gains"][at : at + 1]) for at in range(2))
    bias = numbers_of(kernel, held["bias"], "bias")
    quanta = both_quanta_of(kernel, node, held["scales"])
    caches = [kernel.builder.output(graph.operand(name)) for name in node.changes]
    out = kernel.builder.output(graph.operand(node.output))
    kernel.arguments += [*node.changes, node.output]
    kernel.written = 1 + len(node.changes)
    operands = StepOperands(
        heads=heads,
        firsts=tuple(attrs["firsts"]),
        norms=(norms[0], norms[1]),
        rotation=rotation,
        bias=bias,
        quanta=quanta,
        position=position_access,
        keys=caches[0],
        values=caches[1],
        queries=work.kept * work.group,
        kept=work.kept,
        head=work.blocks * LANES,
        rows=rows_of(work.rows, attrs),
        held=work.rows,
        scale=float(attrs["scale"]),
        window=int(attrs["window"]),
        cap=float(attrs["cap"]),
        splits=work.splits,
    )
    write_part(kernel.builder, step_attention(kernel.builder, tile, operands), out)
    return kernel.call()


def join_parts_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: the parts, perhaps sinks."""
    kernel = context.kernel(node, JOIN)
    parts = kernel.input(node.inputs[0])
    held = name_constants(OF_JOIN, node.attrs, node.inputs[1:])
    sinks = numbers_of(kernel, held["sinks"], "sinks")
    _, epilogue = kernel.output()
    join_parts(kernel.builder, parts, sinks, epilogue)
    return kernel.call()


def work_of(graph: Graph, node: Node, keys: str) -> StepWork:
    """Return the extents of a node."""
    _, kept, rows, width = graph.tensors[keys].shape
    bits = int(node.attrs["bits"])
    dtype = np.dtype(graph.operand(keys).dtype)
    return StepWork(
        kept=kept,
        group=int(node.attrs["heads"]) // kept,
        blocks=head_of(width, bits) // LANES,
        rows=rows,
        splits=graph.tensors[node.output].shape[0],
        element_bytes=bits / 8 if bits else dtype.itemsize,
    )


def fits_step(head: int, group: int, limits: Limits, machine: Machine) -> str | None:
    """Return why no schedule fits heads of so many numbers, so many queries to one of keys."""
    if next(_tiles(head // LANES, group, limits, machine.cost), None) is not None:
        return None
    return (
        f"{group} query heads of {head} to one of keys take more threads or local memory than a "
        "group has"
    )


def candidates(work: StepWork, limits: Limits, costs: Cost) -> Iterator[StepTile]:
    """Powers of two of threads that hold a head, and of lanes that share its blocks evenly."""
    return _tiles(work.blocks, work.group, limits, costs)


def _tiles(blocks: int, group: int, limits: Limits, costs: Cost) -> Iterator[StepTile]:
    cost = costs.cached
    for threads in groups_within(cost.threads, limits):
        if blocks > threads:
            continue
        # The more lanes share a row, the longer the runs of memory that a wave reads.
        for lanes in [lanes for lanes in cost.lanes if blocks % lanes == 0][-_WIDEST:]:
            tile = StepTile(threads=threads, lanes=lanes)
            if tile.shared_bytes(blocks, group) <= limits.local_mem_bytes:
                yield tile


def estimate_clocks(work: StepWork, tile: StepTile, machine: Machine, limits: Limits) -> float:
    """Clocks as a mean over caches that are filled by some shares."""
    filled = [math.ceil(work.rows / part) for part in machine.cost.cached.filled_parts]
    return sum(_clocks_of(work, tile, rows, machine, limits) for rows in filled) / len(filled)


def _clocks_of(
    work: StepWork, tile: StepTile, filled: int, machine: Machine, limits: Limits
) -> float:
    """Clocks with so many rows there: scores, agreeing on them, values."""
    cost, rates = machine.cost.cached, machine.cost.pipes
    rows = math.ceil(filled / work.splits)
    runs = math.ceil(rows / tile.threads)
    vectors = tile.lanes * (work.blocks // tile.lanes) + math.ceil(
        tile.threads / tile.turns(work.blocks)
    )
    alu = vectors * (cost.vector_slots + LANES * work.group) / machine.lanes
    waves = math.ceil(tile.threads / machine.wave) * work.kept * work.splits
    held = work.group * (work.blocks // tile.lanes + 1) + cost.registers
    beside = min(
        machine.resident_waves(held),
        machine.waves_of_groups(
            tile.threads,
            tile.shared_bytes(work.blocks, work.group),
            limits.local_mem_bytes,
        )
        or 1,
    )
    busiest = runs * min(machine.wave, tile.threads) * alu
    serial = runs * (
        cost.folds * cost.fold_clocks + 2 * tile.lanes * rates.buffer_latency_clocks + busiest
    )
    pipes = machine.clocks(waves, busiest, serial, beside)
    numbers = 2 * work.kept * filled * work.blocks * LANES
    memory = machine.memory_clocks(math.ceil(numbers * work.element_bytes))
    return machine.overlap_with_memory(pipes, memory, beside)
