"""Attention in one kernel: scores, softmax and the mix of values, of tensors as they lie."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import Expr, bytes_of, fconst, floordiv, iconst, maximum, simplify, splat
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, Layout, Memory, OperandSpec, channel_at
from adrenoc.kernels.access import Access
from adrenoc.kernels.expression import Evaluator, Texel, fill_vector
from adrenoc.kernels.families.attention.attention_walk import (
    ROWS,
    AttentionTile,
    AttentionWalk,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.operator import (
    SOFTMAX_OPERATIONS,
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    one_of,
)
from adrenoc.kernels.fused_bodies import ComputedAccess
from adrenoc.kernels.walk import ACCUMULATOR, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

_LEAST_TOTAL = 1e-30
"""Far below the exponential of the largest score, which is one: what nothing is divided by."""


class _Attention(AttentionWalk):
    """Reads what the bodies of `parts` make of the node's inputs, in their own coordinates.

    Shapes:
        q: N and H batch, W = rows, C = depth
        k: N and H batch, W = keys, C = depth
        v: N and H batch, W = keys, C = channels
    """

    def __init__(self, kernel: NodeKernel, tile: AttentionTile, power: str, query: str) -> None:
        node = self._node = kernel.node
        for name in node.inputs:
            kernel.input(name)
        self._accesses = kernel.accesses
        self._out, self._epilogue = kernel.output()
        shapes = [tuple(node.attrs[name]) for name in "qkv"]
        self._q, self._k, self._v = (
            ComputedAccess(kernel.builder, node.parts[name], kernel.accesses, _spec(shape))
            for name, shape in zip("qkv", shapes, strict=True)
        )
        rows, values = self._q.extents, self._v.extents.blocks
        super().__init__(kernel.builder, tile, rows, self._k.extents.w, values, power, query)
        self._scores_spec = _spec((*shapes[0][:-1], shapes[1][-2]))
        self._mix_spec = _spec((*shapes[0][:-1], shapes[2][-1]))

    def query(self, block: Expr, r: int) -> Expr:
        return widen(self._q.texel(self.n, block, self.h, self.rows[r]))

    def key(self, block: Expr, key: Expr) -> Expr:
        return widen(self._k.texel(self.n, block, self.h, key))

    def value(self, block: Expr, key: Expr) -> Expr:
        return widen(self._v.texel(self.n, block, self.h, key))

    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        """Scale a row's scores, and evaluate the body of a score that is more than scaled."""
        scale, body = float(self._node.attrs["scale"]), self._node.parts.get("score")
        if scale != 1.0:
            value = self.builder.let(value * splat(fconst(scale, ACCUMULATOR)), "s")
        if body is None:
            return value
        reads: dict[Any, Access | Texel] = {}
        for buffer, name in body.sources.items():
            reads[buffer] = (lambda: value) if name == Node.RESULT else self._accesses[name]
        evaluator = Evaluator(self.builder, body, reads)
        e, row = self._scores_spec.extents, self.rows[r]
        for var, extent in ((self.n, e.n), (self.h, e.h), (row, e.w), (block, e.blocks)):
            evaluator.know(var, extent)
        evaluator.know_channels(e.c)
        index = _index(self._scores_spec, self.n, self.h, row, block * iconst(LANES))
        return fill_vector(evaluator.texel(index, len(index) - 1))

    def count_beside(self, s: int, total: Expr, largest: Expr) -> Expr:
        """Let rows without any score come out as zeros where the node is guarded."""
        if not self._node.attrs.get("guarded"):
            return super().count_beside(s, total, largest)
        return maximum(total, splat(fconst(_LEAST_TOTAL, ACCUMULATOR)))

    def write(self, r: int, block: Expr, value: Expr) -> None:
        """Store at the place in the output that the attribute `out` states."""
        scale, spec = float(self._node.attrs["value_scale"]), self._mix_spec
        if scale != 1.0:
            value = value * splat(fconst(scale, ACCUMULATOR))
        source = _index(spec, self.n, self.h, self.rows[r], block * iconst(LANES))
        index: list[Expr] = []
        for parts in self._node.attrs["out"]:
            at = iconst(0)
            for axis in parts:
                at = at * iconst(spec.shape[axis]) + source[axis]
            index.append(at)
        n, c, h, w = (simplify(part) for part in self._out.position(index))
        self._epilogue.write(n, simplify(floordiv(c, LANES)), h, w, value)


_ROLES = {2: "WC", 3: "HWC", 4: "NHWC"}


@dataclass(frozen=True, kw_only=True)
class AttentionWork:
    """Extents: heads (with the batch), rows, keys, blocks of depth and of value channels."""

    heads: int
    rows: int
    keys: int
    depth_blocks: int
    value_blocks: int
    storage_bytes: int
    power_bytes: int
    query_bytes: int
    """Bytes of an exponential, and of a query's number, in local memory."""


def attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """`attrs`: shapes of `q`, `k` and `v`, `scale`, and `out`, the axes that each axis is from.

    `parts` holds the bodies of q, k and v, and of the score where it is more than scaled.
    """
    power = "float16" if context.options.compute_dtype == "float16" else "float32"
    # Halves lose nothing of rows that are made of halves, and would lie in halves by themselves.
    sources = node.parts["q"].sources.values()
    stored = {context.graph.operand(name).dtype for name in sources}
    query = power if stored <= {"float16"} else "float32"
    shapes = [tuple(node.attrs[name]) for name in "qkv"]
    work = AttentionWork(
        heads=math.prod(shapes[0][:-2]),
        rows=shapes[0][-2],
        keys=shapes[1][-2],
        depth_blocks=-(-shapes[0][-1] // LANES),
        value_blocks=-(-shapes[2][-1] // LANES),
        storage_bytes=bytes_of(context.options.storage_dtype),
        power_bytes=bytes_of(power),
        query_bytes=bytes_of(query),
    )
    estimate = partial(estimate_clocks, limits=context.limits)
    tile = context.search(node, "attention", work, candidates, estimate)
    kernel = context.kernel(node, "attention")
    _Attention(kernel, tile, power, query).emit()
    return kernel.call()


def _spec(shape: tuple[int, ...]) -> OperandSpec:
    """Return a tensor that no memory holds: batch axes, rows, channels."""
    return OperandSpec(
        shape=shape, dtype="float32", memory=Memory.PLAIN, layout=Layout(_ROLES[len(shape)])
    )


def _index(spec: OperandSpec, n: Expr, h: Expr, w: Expr, c: Expr) -> list[Expr]:
    by_role = {"N": n, "H": h, "W": w, "C": c}
    return [by_role[role] for role in spec.roles.roles]


def candidates(work: AttentionWork, limits: Limits, costs: Cost) -> Iterator[AttentionTile]:
    """Yield groups of few to many rows, as local memory allows; runs no longer than the keys need.

    Those that do not part the keys come first: of equals the first is taken.
    """
    cost = costs.attention
    key_blocks_of = range(1, cost.most_key_blocks + 1)
    for sets, parts, key_blocks in product(cost.row_sets, cost.parts, key_blocks_of):
        if key_blocks > 1 and work.value_blocks * LANES * (key_blocks - 1) >= work.keys:
            continue
        if sets > 1 and (parts > 1 or work.rows <= ROWS):
            continue
        for high in cost.heights:
            group = (work.value_blocks, high, parts)
            tile = AttentionTile(work_group=group, key_blocks=key_blocks, row_sets=sets)
            threads = math.prod(tile.work_group)
            if threads > limits.max_work_group_size:
                break
            if high > 1 and high >= 2 * -(-work.rows // tile.rows):
                break
            if high * parts > 1 and threads > cost.most_threads:
                break
            fits = _shared_bytes(work, tile) <= limits.local_mem_bytes
            if fits and tile.fills_parts(work.keys):
                yield from (replace(tile, unroll=unroll) for unroll in cost.unrolls)


def _shared_bytes(work: AttentionWork, tile: AttentionTile) -> int:
    return tile.shared_bytes(work.power_bytes, work.depth_blocks, work.query_bytes)


def estimate_clocks(
    work: AttentionWork, tile: AttentionTile, machine: Machine, limits: Limits
) -> float:
    """Return clocks of the whole operator."""
    cost, rates = machine.cost.attention, machine.cost.pipes
    wide, high, parts = tile.work_group
    sets = tile.row_sets
    runs = tile.runs(work.keys)
    keys = runs * tile.run if parts > 1 else work.keys
    key_reads = runs * work.depth_blocks * LANES * tile.key_blocks
    texels = key_reads + keys
    queries = sets * runs * work.depth_blocks * LANES
    powers = sets * keys
    mads = sets * LANES * LANES * (key_reads + keys)
    local = queries + powers + sets * runs * (wide + LANES * tile.key_blocks)
    if parts > 1:
        local += ROWS + 2 * parts + parts * math.ceil(ROWS / parts)
    members = wide * high * parts
    threads = machine.threads_of(members)
    widened = LANES * (
        (queries if work.query_bytes == 2 else 0) + (powers if work.power_bytes == 2 else 0)
    )
    exponentials = sets * runs * LANES * LANES * tile.key_blocks * cost.exponential_slots
    slots = mads + texels * cost.texel_slots + local + widened + exponentials
    slots += sets * runs * cost.run_slots
    merges = 1 if parts > 1 else 0
    slots += merges * cost.run_slots
    waves_a_group = math.ceil(members / threads)
    groups = work.heads * math.ceil(work.rows / (tile.rows * high))
    texture = texels / machine.texels_of(work.storage_bytes)
    busiest = threads * max(slots / machine.lanes, texture)
    waits = work.depth_blocks + tile.run / LANES
    serial = runs * (waits / tile.unroll + cost.run_waits) * rates.texture_latency_clocks
    serial += merges * cost.run_waits * rates.texture_latency_clocks
    serial += threads / rates.threads_a_slot * slots
    registers = cost.registers + cost.key_block_registers * tile.key_blocks * sets
    registers += cost.row_set_registers * (sets - 1)
    # A work-group of more than one small wave gets half of the registers, and spills the rest.
    held = machine.registers / 2 if threads == machine.wave else rates.most_registers
    if registers > held:
        serial *= rates.spilled
    # Waves of half the threads take half the registers.
    by_registers = machine.resident_waves(registers * threads / machine.wave)
    by_memory = machine.waves_of_groups(
        members, _shared_bytes(work, tile), limits.local_mem_bytes, wave=threads
    )
    resident = max(1, min(by_registers, by_memory))
    return machine.hedge(
        busiest,
        threads / machine.wave * local,
        LANES * max(work.query_bytes, work.power_bytes),
        lambda busy: machine.clocks(groups * waves_a_group, busy, serial, resident),
    )


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    # An epilogue's operands come after those of the operator, and have no say.
    channel = dict(enumerate(node.attrs["channels"])).get(position)
    rank = len(tensors[node.inputs[position]].shape)
    return None if channel is None else channel_at(channel, rank)


def _multiply_adds(_graph: Graph, node: Node) -> int:
    (*heads, rows, depth), (*_, keys, _), (*_, channels) = (node.attrs[name] for name in "qkv")
    return math.prod(heads) * rows * keys * (depth + channels)


def _operations(_graph: Graph, node: Node) -> int:
    """Return those of the softmax: a score for each query and key."""
    return SOFTMAX_OPERATIONS * math.prod(node.attrs["q"][:-1]) * int(node.attrs["v"][-2])


def _terms(_graph: Graph, node: Node) -> int:
    """Return the values, one of each key."""
    return int(node.attrs["v"][-2])


def _typical(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return a mean of values: no larger than the largest."""
    sources = tuple(node.parts["v"].sources.values())
    largest = max(float(np.abs(run.numbers(name)).max()) for name in sources)
    shape = run.graph.tensors[node.output].shape
    return one_of(shape) * largest * abs(float(node.attrs["value_scale"]))


OPERATORS = (
    Operator(
        name="attention",
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=attention_rule,
        wants_layout=_wants_layout,
        makes_layout=channel_of_result,
        reads_often=True,
        needs_channel_only=True,
        multiply_adds=_multiply_adds,
        terms=_terms,
        operations=_operations,
        typical=_typical,
    ),
)
