"""A sequence of a recurrent layer in one kernel: the state stays in local memory from step to step.

A work-group makes one element of the batch.  Teams of its threads take a block of four units each,
or several one after the other, and the members of a team share the products of the state; barriers
stand between steps, where launches would take longer than the work.  What the inputs add to the
gates was multiplied before, for all steps at once.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import Expr, fconst, floormod, iconst, lane, minimum, splat
from adrenoc.importers.relax.own import RECURRENT
from adrenoc.importers.relax.recurrent import GATES, PEEPHOLES, cell_of
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Layout, channels_last
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.operator import (
    Along,
    Batch,
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    count_per_input_element,
    one_of,
)
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, Team, plus, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

_LEAST_LOCAL_BYTES = 16384
"""Local memory that every GPU has: what a layer keeps there has to fit."""


@dataclass(frozen=True, kw_only=True)
class RecurrentTile:
    """`work_group` is (members of a team, teams, 1)."""

    work_group: tuple[int, int, int]

    @property
    def splits(self) -> int:
        """Threads that share the sums of a block of units."""
        return self.work_group[0]

    @property
    def teams(self) -> int:
        """Blocks of units that are made at the same time."""
        return self.work_group[1]

    def shared_bytes(self, kind: str, blocks: int, *, reset_before: bool) -> int:
        """Return local memory: the state twice, what lies beside it, sums of members."""
        folded = self.splits * self.teams * GATES[kind] if self.splits > 1 else 0
        held = (2 + count_beside(kind, reset_before=reset_before)) * blocks
        return (held + folded) * LANES * FLOAT_BYTES


def count_beside(kind: str, *, reset_before: bool) -> int:
    """Return vectors of all units that a work-group keeps beside the state."""
    if kind == "GRU":
        return 2 if reset_before else 0
    return 1 if kind == "LSTM" else 0


@dataclass(frozen=True, kw_only=True)
class RecurrentWork:
    """The extents of a layer: blocks of four units, steps, elements of the batch."""

    kind: str
    blocks: int
    steps: int
    batch: int
    reset_before: bool
    """Of a GRU: the reset is multiplied with the state, before the product."""

    @property
    def gates(self) -> int:
        """Parts of the sums."""
        return GATES[self.kind]


class _Sequence:
    """The local memory of a work-group, and what is done with it.

    Inputs: what the inputs add to the gates of all steps, the weights of the state; then peepholes
    or an inner bias, and the first states, where the attributes say so.

    Shapes:
        projected: [batch, steps, gates * 4 * blocks]
        weights: texels [1, blocks, 4 * blocks * gates] of four units each
        extra: [n, 4 * blocks], peepholes or the inner bias of a GRU; or None
        states: of none, or each [batch, units]: the state, and an LSTM's cell
        out: [batch, step, units]; where the cell is kept, it is one more step
    """

    def __init__(self, kernel: NodeKernel, tile: RecurrentTile, work: RecurrentWork) -> None:
        attrs, builder = kernel.node.attrs, kernel.builder
        projected, weights, *others = kernel.node.inputs
        # What an epilogue reads stands behind them.
        first = int(attrs["extras"])
        self._projected = kernel.input(projected)
        self._weights = kernel.pack_constant(weights, "recurrent", pack_recurrence)
        self._extra = kernel.input(others[0]) if first else None
        self._states = [kernel.input(name) for name in others[first : first + int(attrs["states"])]]
        self._out, self._epilogue = kernel.output()
        self._cell, self._reverse = cell_of(attrs), bool(attrs["reverse"])
        self._keeps_cell = bool(attrs["keeps_cell"])
        self._builder, self._tile, self._work = builder, tile, work
        _, _, self._batch = builder.threads(
            tile.splits, tile.teams, work.batch, work_group=tile.work_group, cooperate=True
        )
        self._team = Team.make_along_x(builder, tile.work_group)
        self._rounds = -(-work.blocks // tile.teams)
        self._state = builder.allocate_shared(2 * work.blocks, dtype=ACCUMULATOR)
        self._beside = [
            builder.allocate_shared(work.blocks, dtype=ACCUMULATOR)
            for _ in range(count_beside(work.kind, reset_before=work.reset_before))
        ]
        """An LSTM's cell; the update of a GRU that resets first, and its state times the reset."""
        places = tile.splits * tile.teams * work.gates if tile.splits > 1 else 0
        self._held = builder.allocate_shared(places, dtype=ACCUMULATOR) if places else None

    def emit(self) -> None:
        """Emit out[batch, step, :] = the state after each step."""
        self._begin()
        with self._builder.loop(self._work.steps, "t", rolled=True) as t:
            self._step(t)
        if self._keeps_cell:
            for block in self._each_block():
                with self._builder.when(self._may_write(block)):
                    n, _, h, w = self._place(iconst(self._work.steps), block)
                    self._epilogue.write(
                        n, block, h, w, self._builder.let(self._beside[0][block], "cell")
                    )

    def _begin(self) -> None:
        """Bring the state before the first step."""
        zero = splat(fconst(0.0, ACCUMULATOR))
        held = [self._state, *(self._beside if self._work.kind == "LSTM" else ())]
        for number, to in enumerate(held):
            for block in self._each_block():
                with self._builder.when(self._may_write(block)):
                    to[block] = zero
                    if self._states:
                        to[block] = self._read(self._states[number], [self._batch], block)
        self._builder.barrier()

    def _step(self, t: Expr) -> None:
        """Go one step on, from one half of the state's memory to the other."""
        builder, o = self._builder, self._work
        odd = builder.let(floormod(t, 2), "odd")
        before = builder.let(odd * iconst(o.blocks), "before")
        after = builder.let(iconst(o.blocks) - before, "after")
        step = builder.let(iconst(o.steps - 1) - t, "step") if self._reverse else t
        if o.kind == "GRU" and o.reset_before:
            self._find_resets(step, before)
            held, offset, first = self._beside[1], iconst(0), 2
        else:
            held, offset, first = self._state, before, 0
        for block in self._each_block():
            sums = self._products(held, offset, block, range(first, self._work.gates))
            with builder.when(self._may_write(block)):
                state = self._finish(step, block, sums, before)
                state = builder.let(state, "state")
                self._state[after + block] = state
                n, _, h, w = self._place(step, block)
                self._epilogue.write(n, block, h, w, state)
            builder.barrier()

    def _find_resets(self, step: Expr, before: Expr) -> None:
        """Write the update, and the state times the reset, of a GRU that resets first."""
        builder = self._builder
        for block in self._each_block():
            sums = self._products(self._state, before, block, range(2))
            with builder.when(self._may_write(block)):
                update, reset = (
                    self._cell.activate(0, self._input(step, block, gate) + sums[gate], _constant)
                    for gate in range(2)
                )
                self._beside[0][block] = builder.let(update, "update")
                self._beside[1][block] = builder.let(reset * self._state[before + block], "kept")
            builder.barrier()

    def _finish(self, step: Expr, block: Expr, sums: Sequence[Expr], before: Expr) -> Expr:
        """Return the new state of a block; an LSTM's new cell is put in its place."""
        o, builder = self._work, self._builder
        cell = self._cell
        if o.kind == "RNN":
            return cell.step_rnn(self._input(step, block, 0) + sums[0], _constant)
        if o.kind == "LSTM":
            gates = [self._input(step, block, gate) + sums[gate] for gate in range(4)]
            peepholes = self._extras(PEEPHOLES, block)
            old = builder.let(self._beside[0][block], "cell")
            new = builder.let(cell.change_cell(gates, old, peepholes, _constant), "new")
            self._beside[0][block] = new
            return cell.let_out(gates, new, peepholes, _constant)
        old = builder.let(self._state[before + block], "old")
        if o.reset_before:
            update, inner = self._beside[0][block], sums[0]
        else:
            update, reset = (
                cell.activate(0, self._input(step, block, gate) + sums[gate], _constant)
                for gate in range(2)
            )
            inner = sums[2]
            for bias in self._extras(1, block):
                inner = inner + bias
            inner = reset * inner
        new = cell.activate(1, self._input(step, block, 2) + inner, _constant)
        return cell.step_gru(builder.let(update, "update"), builder.let(new, "new"), old)

    def _products(
        self, held: SharedArray, offset: Expr, block: Expr, gates: range
    ) -> Sequence[Expr]:
        """Return the sums of some gates of a block over all of a vector in local memory."""
        builder, o, tile = self._builder, self._work, self._tile
        sums = builder.registers(len(gates), dtype=ACCUMULATOR, fill=0.0)
        row = builder.let(minimum(block, iconst(o.blocks - 1)), "row")
        rounds = -(-o.blocks // tile.splits)
        with builder.loop(rounds, "k", rolled=True) as k:
            part = builder.let(k * iconst(tile.splits) + self._team.member, "part")
            is_there = part < iconst(o.blocks) if o.blocks % tile.splits else None
            with builder.when(is_there):
                vector = builder.let(held[offset + part], "h")
                for number in range(LANES):
                    unit = builder.let(part * iconst(LANES) + iconst(number), "unit")
                    for at, gate in enumerate(gates):
                        column = unit * iconst(self._work.gates) + iconst(gate)
                        weight = self._weights.texel(iconst(0), iconst(0), row, column)
                        sums[at] = sums[at] + splat(lane(vector, number)) * widen(weight)
        values = [sums[at] for at in range(len(gates))]
        return self._team.fold(builder, values, [plus] * len(values), held=self._held)

    def _input(self, step: Expr, block: Expr, gate: int) -> Expr:
        """Return what the input of a step adds to a gate."""
        at = block + iconst(gate * self._work.blocks)
        return self._read(self._projected, [self._batch, step], at)

    def _extras(self, count: int, block: Expr) -> list[Expr]:
        """Return rows of what the kernel reads beside weights; none where there is nothing."""
        extra = self._extra
        if extra is None:
            return []
        return [self._read(extra, [iconst(number)], block) for number in range(count)]

    def _read(self, access: Access, before: list[Expr], block: Expr) -> Expr:
        """Return four channels of a tensor whose last axis they are."""
        n, _, h, w = access.position([*before, iconst(0)])
        return self._builder.let(widen(access.texel(n, block, h, w)), "x")

    def _place(self, step: Expr, block: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        n, _, h, w = self._out.position([self._batch, step, iconst(0)])
        return n, block, h, w

    def _each_block(self) -> Iterator[Expr]:
        """Yield the blocks of this thread's team, one after the other."""
        if self._rounds == 1:
            yield self._team.index
            return
        with self._builder.loop(self._rounds, "round", rolled=True) as number:
            first = number * iconst(self._tile.teams) + self._team.index
            yield self._builder.let(first, "block")

    def _may_write(self, block: Expr) -> Expr | None:
        """Return whether this thread writes for its team; None: always."""
        is_first = self._team.member == iconst(0) if self._tile.splits > 1 else None
        if self._work.blocks % self._tile.teams == 0:
            return is_first
        is_there = block < iconst(self._work.blocks)
        return is_there if is_first is None else is_first & is_there


def _constant(value: float) -> Expr:
    return splat(fconst(value, ACCUMULATOR))


def recurrent_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a layer."""
    attrs, tensors = node.attrs, context.graph.tensors
    batch, steps, _ = tensors[node.inputs[0]].shape
    work = RecurrentWork(
        kind=str(attrs["kind"]),
        blocks=-(-tensors[node.output].shape[2] // LANES),
        steps=steps,
        batch=batch,
        reset_before=bool(attrs["reset_before"]),
    )
    tile = context.search(node, "recurrent", work, candidates, estimate_clocks)
    kernel = context.kernel(node, "recurrent", carries=True)
    _Sequence(kernel, tile, work).emit()
    return kernel.call()


def pack_recurrence(weights: np.ndarray) -> np.ndarray:
    """Pack [gates, unit, from unit] as texels [1, block, from unit * gates, 4 units]."""
    gates, units, _ = weights.shape
    more = -units % LANES
    filled = np.pad(weights, ((0, 0), (0, more), (0, more)))
    blocks = filled.shape[1] // LANES
    parts = filled.reshape(gates, blocks, LANES, blocks * LANES)
    return np.ascontiguousarray(parts.transpose(1, 3, 0, 2)).reshape(1, blocks, -1, LANES)


def candidates(work: RecurrentWork, limits: Limits, costs: Cost) -> Iterator[RecurrentTile]:
    """Yield powers of two of teams, and of members that have something to add up."""
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


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    weights = tensors[node.inputs[1]]
    kind, units = str(node.attrs["kind"]), weights.shape[1]
    kept = RecurrentTile(work_group=(1, 1, 1)).shared_bytes(
        kind, -(-units // LANES), reset_before=bool(node.attrs["reset_before"])
    )
    if kept > _LEAST_LOCAL_BYTES:
        return (
            f"its {units} units are {kept} bytes of local memory, and some GPUs have "
            f"{_LEAST_LOCAL_BYTES}"
        )
    is_constant = weights.value is not None
    return None if is_constant else f"{node.inputs[1]} is computed, expected constant weights"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along.get(node.inputs[0])
    return along if along is not None and along.axis == 0 else None


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Return those of the state; what the inputs add is a product of its own."""
    batch, steps, _ = graph.tensors[node.inputs[0]].shape
    return batch * steps * int(np.prod(graph.tensors[node.inputs[1]].shape))


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    """Return all but the weights are read with their last axis in texels."""
    return None if position == 1 else channels_last(len(tensors[node.inputs[position]].shape))


def _typical(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return what lies between minus one and one, but for rectified states and the last cell."""
    return one_of(run.graph.tensors[node.output].shape)


OPERATORS = (
    Operator(
        name="recurrent",
        kind=Kind.PRODUCT,
        numbers=Numbers.CARRIED,
        rule=recurrent_rule,
        relax=RECURRENT,
        refuses=_refuses,
        wants_layout=_wants_layout,
        makes_layout=channel_of_result,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=lambda graph, node: graph.tensors[node.inputs[1]].shape[-1],
        operations=count_per_input_element(1),  # an activation of each gate
        typical=_typical,
    ),
)
