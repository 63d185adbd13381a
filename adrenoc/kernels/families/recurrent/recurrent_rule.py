"""The rule of a recurrent layer, and what its schedules cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.importers.relax.recurrent_cells import GATES
from adrenoc.importers.relax.recurrent_nest import cell_of
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.recurrent.recurrent import RecurrentOperands, RecurrentTile, recurrent
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class RecurrentWork:
    """The extents of a layer: blocks of four units, steps, elements of the batch."""

    kind: str
    blocks: int
    steps: int
    batch: int
    reset_before: bool

    @property
    def gates(self) -> int:
        """Parts of the sums."""
        return GATES[self.kind]


def recurrent_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: what the inputs add to the gates of all steps, the weights of the state; then
    peepholes or an inner bias, and the first states, where `attrs` say so."""
    attrs, tensors = node.attrs, context.graph.tensors
    batch, steps, _ = tensors[node.inputs[0]].shape
    blocks = -(-tensors[node.output].shape[2] // LANES)
    work = RecurrentWork(
        kind=str(attrs["kind"]),
        blocks=blocks,
        steps=steps,
        batch=batch,
        reset_before=bool(attrs["reset_before"]),
    )
    machine = context.machine
    tile = context.choose(
        node,
        "recurrent",
        candidates(work, context.limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, "recurrent", carries=True)
    projected, weights, *others = node.inputs
    # What an epilogue reads stands behind them.
    first = int(attrs["extras"])
    extras, states = others[:first], others[first : first + int(attrs["states"])]
    operands = RecurrentOperands(
        projected=kernel.input(projected),
        weights=kernel.pack_constant(weights, "recurrent", pack_recurrence),
        extra=kernel.input(extras[0]) if extras else None,
        states=tuple(kernel.input(name) for name in states),
        cell=cell_of(attrs),
        steps=steps,
        batch=batch,
        blocks=blocks,
        reverse=bool(attrs["reverse"]),
        reset_before=work.reset_before,
        keeps_cell=bool(attrs["keeps_cell"]),
    )
    out, epilogue = kernel.output()
    recurrent(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def pack_recurrence(weights: np.ndarray) -> np.ndarray:
    """[gates, unit, from unit] -> texels [1, block, from unit * gates, 4 units], filled with
    zeros."""
    gates, units, _ = weights.shape
    more = -units % LANES
    filled = np.pad(weights, ((0, 0), (0, more), (0, more)))
    blocks = filled.shape[1] // LANES
    parts = filled.reshape(gates, blocks, LANES, blocks * LANES)
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 2)).reshape(1, blocks, -1, LANES)


def candidates(work: RecurrentWork, limits: Limits, costs: Cost) -> Iterator[RecurrentTile]:
    """Powers of two of teams, and of members that have something to add up."""
    for splits in costs.recurrent.splits:
        if splits > work.blocks:
            break
        for teams in costs.recurrent.teams:
            tile = RecurrentTile(work_group=(splits, teams, 1))
            shared = tile.shared_bytes(work.kind, work.blocks, reset_before=work.reset_before)
            too_many = teams > 1 and teams >= 2 * work.blocks
            fits = splits * teams <= limits.max_work_group_size and shared <= limits.local_mem_bytes
            if fits and not too_many:
                yield tile


def estimate_clocks(work: RecurrentWork, tile: RecurrentTile, machine: Machine) -> float:
    """Clocks of all steps of one work-group: each thread waits for its weights, then for others."""
    cost, rates = machine.cost.recurrent, machine.cost.pipes
    rounds = math.ceil(work.blocks / tile.teams)
    texels = math.ceil(work.blocks / tile.splits) * LANES * work.gates
    waves = math.ceil(tile.splits * tile.teams / machine.wave)
    folds = math.ceil(math.log2(tile.splits)) if tile.splits > 1 else 0
    busy = waves * machine.wave * texels / machine.texels_of(2)
    waits = rates.texture_latency_clocks * math.ceil(texels / cost.texels_a_wait)
    of_round = max(busy, waits) + (folds + 1) * cost.barrier_clocks + cost.end_clocks
    groups = math.ceil(work.batch / machine.processors)
    return machine.launch_clocks + groups * work.steps * rounds * of_round
