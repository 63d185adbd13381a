"""Caches of keys and values: what adds rows to one, and attention over the rows that are there.

Which rows are there, a number in memory says.  Rows of queries are all heads that share a head of
keys, of one token after the other, so that a work-group reads each key once for all of them.  It
goes over the rows that its last token sees, and over none that lie before its first one's window;
within a run, what a token does not see gets the lowest score.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_numbers,
    maximum,
    minimum,
    select,
    splat,
    tirx,
)
from adrenoc.importers.relax.own import (
    APPEND_ROWS,
    CACHED_ATTENTION,
    KEYS,
    OF_ATTENTION,
    ROW,
    VALUES,
    Kinds,
    head_of,
    name_constants,
)
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.builder import groups_within, power_of_two, power_of_two_within
from adrenoc.kernels.families.attention.attention import AttentionWork, candidates, estimate_clocks
from adrenoc.kernels.families.attention.attention_walk import (
    ROWS,
    AttentionTile,
    AttentionWalk,
)
from adrenoc.kernels.families.cache.new_rows import (
    append_rows_rule,
    declare_form,
    head_texel,
    known_position,
    load_row,
    norm_head,
    open_texel,
    place_of_token,
    rotate,
    tokens_of,
)
from adrenoc.kernels.families.cache.step_attention import StepAttention, StepTile
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.operator import (
    SOFTMAX_OPERATIONS,
    Batch,
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    channels_last_at,
    count_per_input_element,
    one_of,
    size_of,
)
from adrenoc.kernels.families.shared.row_product import OF_SCORES, declare_numbers, weigh_parts
from adrenoc.kernels.walk import ACCUMULATOR, NO_SCORE, plus
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits


class _Cached(AttentionWalk):
    masks_keys = True

    def __init__(self, kernel: NodeKernel, tile: AttentionTile, numbers: str) -> None:
        node, graph = kernel.node, kernel.context.graph
        q, position, keys, values, *others = node.inputs
        self._q, self._k, self._v, self._first_token = (
            kernel.input(name) for name in (q, keys, values, position)
        )
        f = self._form = declare_form(kernel, node, keys, OF_ATTENTION, others)
        self._first_block = int(node.attrs["first"]) // LANES
        _, self._epilogue = kernel.output()
        builder, group = kernel.builder, int(node.attrs["heads"]) // f.kept
        rows = Extents(1, f.head, f.kept, tokens_of(graph.tensors[q].shape) * group)
        super().__init__(builder, tile, rows, f.rows, f.blocks, numbers, numbers)
        tokens = [floordiv(row, group) for row in self.rows]
        self._tokens = [builder.let(token, "token") for token in tokens]
        self._heads = [
            builder.let(self.h * iconst(group) + floormod(row, group), "head") for row in self.rows
        ]
        self._positions = [self._position_of(token) for token in self._tokens]
        first, behind = self.group_rows
        last = floordiv(minimum(behind, iconst(rows.w)) - iconst(1), group)
        self._first = self._position_of(floordiv(first, group))
        self._last = self._position_of(last)

    def _position_of(self, token: Expr) -> Expr:
        return known_position(self.builder, self._first_token, token, self._form.rows)

    def visit(self) -> None:
        builder, run, first = self.builder, self.run, iconst(0)
        if self._form.window:
            seen = maximum(self._first - iconst(self._form.window - 1), iconst(0))
            first = builder.let(floordiv(seen, run), "first")
        runs = builder.let(floordiv(self._last, run) - first + iconst(1), "runs")
        if self.parts > 1:  # of as many runs each, for they meet at barriers
            runs = builder.let(floordiv(runs + iconst(self.parts - 1), self.parts), "runs")
            first = builder.let(first + self.part * runs, "first")
        with builder.loop(runs, "run", rolled=True) as i:
            self.visit_run(builder.let((first + i) * iconst(run), "key"), run)

    def query(self, block: Expr, r: int) -> Expr:
        builder, o = self.builder, self._form
        start = self._heads[r] * iconst(o.blocks) + iconst(self._first_block)
        read = norm_head(builder, o.norms[0], o.blocks, head_texel(self._q, self._tokens[r], start))
        value = rotate(builder, o.rotation, self._positions[r], block, o.blocks, read)
        value = value * splat(fconst(o.scale, ACCUMULATOR))
        return open_texel(o.quanta[0], value, self.h * iconst(o.blocks) + block)

    def place_key(self, key: Expr, keys: int) -> Expr:
        """Return the first texel of a row that is there: behind the last, of the last."""
        row = self._form.place_row(minimum(key, self._last))
        return (self.h * iconst(self._form.held) + row) * iconst(self._form.blocks)

    def key(self, block: Expr, key: Expr) -> Expr:
        return load_row(self._k, self._form.quanta[0], key + block)

    def value(self, block: Expr, key: Expr) -> Expr:
        return load_row(self._v, self._form.quanta[1], self.place_key(key, self.run) + block)

    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        o, position = self._form, self._positions[r]
        if o.cap:
            cap = splat(fconst(o.cap, ACCUMULATOR))
            value = self.builder.let(cap * tirx.tanh(value / cap), "s")
        scores = []
        if o.bias is not None:
            value = self.builder.let(value, "s")
        for i in range(LANES):
            key = block * iconst(LANES) + iconst(i)
            score = lane(value, i)
            if o.bias is not None:
                at = self._heads[r] * iconst(o.rows) + maximum(position - key, iconst(0))
                score = score + load_numbers(o.bias.buffer, at, 0, 1, aligned=False)
            seen = key <= position
            if o.window:
                seen = seen & (key > position - iconst(o.window))
            scores.append(select(seen, score, fconst(NO_SCORE, ACCUMULATOR)))
        return construct(scores)

    def mix_values(self, first: Expr, keys: int) -> None:
        builder, step = self.builder, self.mix_step
        there = minimum(self._last - first + iconst(1), iconst(keys))
        steps = builder.let(floordiv(there + iconst(step - 1), step), "steps")
        with builder.loop(steps, "keys", rolled=True) as i:
            self.mix_keys(first, i * iconst(step), range(step))

    def count_beside(self, s: int, total: Expr, largest: Expr) -> Expr:
        sinks = self._form.sinks
        if sinks is None:
            return total
        heads = self._heads[s * ROWS : (s + 1) * ROWS]
        held = [load_numbers(sinks.buffer, head, 0, 1, aligned=False) for head in heads]
        return self.builder.let(total + tirx.exp(construct(held) - largest), "total")

    def write(self, r: int, block: Expr, value: Expr) -> None:
        value = open_texel(self._form.quanta[1], value, self.h * iconst(self._form.blocks) + block)
        n, h, w = place_of_token(self._q, self._tokens[r])
        self._epilogue.write(n, self._heads[r] * iconst(self._form.blocks) + block, h, w, value)


def cached_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Inputs: queries, the first one's row, keys, values; perhaps constants (`OF_ATTENTION`).  The
    estimate takes half of the rows to be there."""
    q, _, keys, *_ = node.inputs
    spec = context.graph.operand(keys)
    _, kept, there, width = spec.shape
    blocks = head_of(width, int(node.attrs["bits"])) // LANES
    # Exponentials and queries lie in local memory.
    numbers = "float16" if context.options.compute_dtype == "float16" else "float32"
    work = AttentionWork(
        heads=kept,
        rows=tokens_of(context.graph.tensors[q].shape) * (int(node.attrs["heads"]) // kept),
        keys=-(-there // 2),
        depth_blocks=blocks,
        value_blocks=blocks,
        storage_bytes=bytes_of(spec.dtype),
        power_bytes=bytes_of(numbers),
        query_bytes=bytes_of(numbers),
    )
    estimate = partial(estimate_clocks, limits=context.limits)
    tile = context.search(node, "cached_attention", work, candidates, estimate)
    kernel = context.kernel(node, "cached_attention")
    _Cached(kernel, tile, numbers).emit()
    return kernel.call()


_WIDEST = 2
"""Counts of lanes that are tried, the largest."""

STEP, JOIN = "step_attention", "join_parts"

OF_JOIN: Kinds = (("sinks", "sunk", 1),)
"""Constants of what joins its parts."""


@dataclass(frozen=True, kw_only=True)
class CachedWork:
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
    """Return how many parts of the rows to take: a GPU needs several groups a processor."""
    cost = machine.cost.cached
    wanted = math.ceil(machine.processors * cost.groups / kept)
    return max(1, min(power_of_two(wanted), power_of_two(max(rows // cost.least_rows, 1))))


def parts_shape(splits: int, queries: int, head: int) -> tuple[int, ...]:
    """Return the shape of what the parts leave."""
    return (splits, queries, head + OF_SCORES)


def step_attention_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of attention of one token, which changes keys and values."""
    work = work_of(context.graph, node, node.inputs[2])
    estimate = partial(estimate_step_clocks, limits=context.limits)
    tile = context.search(node, STEP, work, step_candidates, estimate)
    kernel = context.kernel(node, STEP)
    StepAttention(kernel, tile, work.splits).emit()
    return kernel.call()


def join_parts_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that mixes all rows of their parts, perhaps with sinks: scores of no row.  A
    work-group makes a head, and several threads each four numbers, from parts of their own.  One
    thread for each four took an H200 21 us for 64 parts, since it waited for one after the
    other."""
    kernel = context.kernel(node, JOIN)
    parts, builder = kernel.input(node.inputs[0]), kernel.builder
    held = name_constants(OF_JOIN, node.attrs, node.inputs[1:])["sinks"]
    sinks = declare_numbers(kernel, held[0], "sinks") if held else None
    _, epilogue = kernel.output()
    most_threads = groups_within(context.machine.cost.cached.threads, context.limits)[-1]
    e, zero = parts.extents, iconst(0)
    blocks = e.blocks - 1
    turns = min(power_of_two_within(max(most_threads // blocks, 1)), e.n)
    own, threads = e.n // turns, turns * blocks
    member, query = builder.threads(threads, e.w, work_group=(threads, 1, 1), cooperate=True)[:2]
    block = builder.let(floormod(member, blocks), "block")
    turn = builder.let(floordiv(member, blocks), "turn")
    mixes = builder.allocate_shared(threads, dtype=ACCUMULATOR)
    told = builder.allocate_shared(turns, dtype=ACCUMULATOR)
    splits = [turn * iconst(own) + iconst(u) for u in range(own)]
    scores = [builder.let(parts.texel(n, iconst(blocks), zero, query), "scores") for n in splits]
    texels = [builder.let(parts.texel(n, block, zero, query), "part") for n in splits]
    largest, powers, total = weigh_parts(builder, scores)
    mixes[member] = reduce(plus, (splat(p) * t for p, t in zip(powers, texels, strict=True)))
    with builder.when(block < iconst(1)):
        nothing = fconst(0.0, ACCUMULATOR)
        told[turn] = construct([largest, total, nothing, nothing])
    builder.barrier()
    with builder.when(turn < iconst(1)):
        scores = [builder.let(told[iconst(t)], "scores") for t in range(turns)]
        largest, powers, total = weigh_parts(builder, scores)
        if sinks is not None:
            sink = load_numbers(sinks.buffer, query, 0, 1, aligned=False)
            total = total + tirx.exp(sink - largest)
        of_turns = (mixes[block + iconst(t * blocks)] for t in range(turns))
        mixed = reduce(plus, (splat(p) * m for p, m in zip(powers, of_turns, strict=True)))
        made = builder.let(mixed / splat(total), "mixed")
        epilogue.write(zero, query * iconst(blocks) + block, zero, zero, made)
    return kernel.call()


def work_of(graph: Graph, node: Node, keys: str) -> CachedWork:
    """Return the extents of a node."""
    _, kept, rows, width = graph.tensors[keys].shape
    bits = int(node.attrs["bits"])
    dtype = np.dtype(graph.operand(keys).dtype)
    return CachedWork(
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


def step_candidates(work: CachedWork, limits: Limits, costs: Cost) -> Iterator[StepTile]:
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


def estimate_step_clocks(
    work: CachedWork, tile: StepTile, machine: Machine, limits: Limits
) -> float:
    """Return clocks as a mean over caches that are filled by some shares."""
    filled = [math.ceil(work.rows / part) for part in machine.cost.cached.filled_parts]
    return sum(_clocks_of(work, tile, rows, machine, limits) for rows in filled) / len(filled)


def _clocks_of(
    work: CachedWork, tile: StepTile, filled: int, machine: Machine, limits: Limits
) -> float:
    """Return clocks with so many rows there: scores, agreeing on them, values."""
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
            tile.threads, tile.shared_bytes(work.blocks, work.group), limits.local_mem_bytes
        )
        or 1,
    )
    busiest = runs * min(machine.wave, tile.threads) * alu
    serial = runs * (
        cost.folds * cost.fold_clocks + 2 * tile.lanes * rates.buffer_latency_clocks + busiest
    )
    # A thread addresses half of the registers: queries that fill those alone lie in memory.
    if work.group * (work.blocks // tile.lanes) > machine.registers / 2:
        serial *= rates.spilled
    pipes = machine.clocks(waves, busiest, serial, beside)
    numbers = 2 * work.kept * filled * work.blocks * LANES
    memory = machine.memory_clocks(math.ceil(numbers * work.element_bytes))
    return machine.overlap_with_memory(pipes, memory, beside)


def _refuses_heads(
    node: Node, tensors: Mapping[str, Tensor], cache: str, x: str, others: Sequence[str]
) -> str | None:
    """Refuse for both kernels: heads, and halves of what is rotated, are whole texels."""
    batch, _, _, width = tensors[cache].shape
    head = head_of(width, int(node.attrs["bits"]))
    shape = tensors[x].shape
    if batch != 1 or shape[0] != 1:
        return f"a batch of {max(batch, shape[0])}, expected 1"
    if len(shape) >= len(tensors[cache].shape):
        return f"{x} has the rank {len(shape)}, expected the axes batch, token and channel"
    rotated, apart = int(node.attrs["rotated"]), not node.attrs["interleaved"]
    whole = LANES * (1 + apart)
    if head % LANES or int(node.attrs["first"]) % LANES or rotated % whole:
        return f"heads of {head} with {rotated} rotated, expected whole texels of both"
    if any(tensors[name].value is None for name in others):
        return "its cosines, sines, gains or scales are computed, expected constants"
    return None


def _refuses_rows(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    cache, x, _, *others = node.inputs
    return _refuses_heads(node, tensors, cache, x, others)


def _follows_no_batch(_batch: Batch, _node: Node) -> None:
    """The batch is one: a bundle keeps one cache."""


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Count them with all rows there."""
    _, _, rows, width = graph.tensors[node.inputs[2]].shape
    head = head_of(width, int(node.attrs["bits"]))
    tokens = tokens_of(graph.tensors[node.inputs[0]].shape)
    return 2 * tokens * int(node.attrs["heads"]) * rows * head


def _softmax_operations(graph: Graph, node: Node) -> int:
    rows = graph.tensors[node.inputs[2]].shape[2]
    tokens = tokens_of(graph.tensors[node.inputs[0]].shape)
    return SOFTMAX_OPERATIONS * tokens * int(node.attrs["heads"]) * rows


def _largest(run: TypicalRun, name: str) -> float:
    return float(np.abs(run.numbers(name)).max())


def _typical_rows(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return rows as large as the new ones, which the old were once; of few bits, the largest."""
    bits = int(node.attrs["bits"])
    largest = (1 << (bits - 1)) - 1.0 if bits else _largest(run, node.inputs[1])
    return one_of(run.graph.tensors[node.output].shape) * largest


def _typical_mix(run: TypicalRun, node: Node, _data: np.ndarray) -> np.ndarray:
    """Return a mean of values: no larger than the largest."""
    _, _, _, values, *others = node.inputs
    largest = _largest(run, values)
    for scales in name_constants(OF_ATTENTION, node.attrs, others)["scales"][1:]:
        largest *= _largest(run, scales)
    return one_of(run.graph.tensors[node.output].shape) * largest


OPERATORS = (
    Operator(
        name="append_rows",
        kind=Kind.MAP,
        numbers=Numbers.PICKED,
        rule=append_rows_rule,
        relax=APPEND_ROWS,
        refuses=_refuses_rows,
        wants_layout=channels_last_at(1),
        whole_numbers=frozenset((0, 2)),
        writes_into=0,
        follows_batch=_follows_no_batch,
        operations=lambda graph, node: 2 * size_of(graph, node.inputs[1]),
        typical=_typical_rows,
    ),
    Operator(
        name="cached_attention",
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=cached_attention_rule,
        relax=CACHED_ATTENTION,
        refuses=lambda node, tensors: _refuses_heads(
            node, tensors, node.inputs[2], node.inputs[0], node.inputs[4:]
        ),
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        whole_numbers=frozenset((ROW, KEYS, VALUES)),
        follows_batch=_follows_no_batch,
        multiply_adds=_multiply_adds,
        terms=lambda graph, node: graph.tensors[node.inputs[2]].shape[2],
        operations=_softmax_operations,
        typical=_typical_mix,
    ),
    Operator(
        name=STEP,
        kind=Kind.ATTENTION,
        numbers=Numbers.WEIGHTED,
        rule=step_attention_rule,
        multiply_adds=_multiply_adds,
        operations=_softmax_operations,
    ),
    Operator(
        name=JOIN,
        kind=Kind.MAP,
        rule=join_parts_rule,
        numbers=Numbers.AVERAGED,
        operations=count_per_input_element(2),
    ),
)
