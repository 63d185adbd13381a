"""Attention of one new token over a cache, which adds its key and value on the way.

A work-group takes a part of the rows for all query heads that share a head of keys: each row is
read once.  In a run over as many rows as there are threads, `lanes` threads share each row, so
that a wave reads whole cache lines; they agree on the largest score; then each thread adds up the
values of its own four channels.  The new row is no part of a run: the groups that take the first
part begin with it, and write it to the cache.

With several parts, a group leaves its mix, the largest score and the sum of powers for
`join_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    load_numbers,
    load_texel,
    maximum,
    minimum,
    splat,
    tirx,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.cache.append_rows import place_row
from adrenoc.kernels.families.cache.new_heads import share_heads
from adrenoc.kernels.families.cache.quanta import (
    Quanta,
    load_quanta,
    open_texel,
    round_row,
    store_texel,
)
from adrenoc.kernels.families.cache.rotation import head_texel, known_position
from adrenoc.kernels.families.cache.step_operands import (
    StepOperands,
    StepTile,
    pack_numbers,
    vectors_of,
)
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import NO_SCORE, sum_lanes

AT_ONCE = 4
"""Values that a thread asks for before it needs the first."""


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """What a thread has of the part of its group: `values` are of its block, one a query head."""

    split: Expr
    kept: Expr
    block: Expr
    is_mine: Expr
    """Whether this thread is the one to store the block."""
    values: list[Expr]
    largest: list[Expr]
    totals: list[Expr]


def step_attention(builder: KernelBuilder, tile: StepTile, operands: StepOperands) -> Mixed:
    """Emit the mix of the rows of each part, in each thread; the caller stores it."""
    o = operands
    member, kept, split = builder.threads(
        tile.threads, o.kept, o.splits, work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    step = _Step(builder, tile, o, team, member, kept, split)
    step.begin()
    step.visit_rows()
    return step.finish()


class _Step:
    """One group of threads: what it shares, and what each of its threads holds."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: StepTile,
        operands: StepOperands,
        team: Team,
        member: Expr,
        kept: Expr,
        split: Expr,
    ) -> None:
        self._builder, self._tile, self._o, self._team = builder, tile, operands, team
        self._member, self._kept, self._split = member, kept, split
        o, threads, vectors = operands, tile.threads, vectors_of(operands.group)
        self._position = known_position(builder, o.position, iconst(0), o.rows)
        self._block = builder.let(floormod(member, o.blocks), "block")
        self._turn = builder.let(floordiv(member, o.blocks), "turn")
        self._ready = share_heads(builder, tile, o, member, kept, self._position)
        self._powers = builder.allocate_shared(threads * vectors, dtype=ACCUMULATOR)
        self._folds = builder.allocate_shared(threads * vectors, dtype=ACCUMULATOR)
        self._parts = builder.allocate_shared(tile.parts(o.blocks, o.group), dtype=ACCUMULATOR)
        self._largest = builder.registers(vectors, dtype=ACCUMULATOR)
        self._totals = builder.registers(vectors, dtype=ACCUMULATOR)
        self._mix = builder.registers(o.group, dtype=ACCUMULATOR)

    def begin(self) -> None:
        """Begin with the new row in the first part, which writes it to the cache."""
        builder, o = self._builder, self._o
        begins = self._split < iconst(1)
        none = splat(fconst(NO_SCORE, ACCUMULATOR))
        zero = splat(fconst(0.0, ACCUMULATOR))
        for number, score in enumerate(self._score_new()):
            self._largest[number] = if_then_else(begins, score, none)
            self._totals[number] = zero
        for number in range(o.group):
            self._mix[number] = zero
        with builder.when(begins & (self._member < iconst(o.blocks))):
            first = self._kept * iconst(o.blocks) + iconst(o.firsts[2] // LANES)
            read = head_texel(o.heads[2], iconst(0), first)
            at = self._kept * iconst(o.blocks) + self._member
            value = builder.let(read(self._member), "value")
            value = round_row(builder, o.quanta[1], value, at)
            key = builder.let(self._ready[self._member + iconst(o.group * o.blocks)], "key")
            place = (self._kept, place_row(self._position, o))
            for cache, quanta, made in zip((o.keys, o.values), o.quanta, (key, value), strict=True):
                store_texel(builder, quanta, cache, place, self._member, made)
            for number in range(o.group):
                self._mix[number] = value
        with builder.when(begins & (self._member < iconst(1))):
            for number in range(vectors_of(o.group)):
                self._totals[number] = splat(fconst(1.0, ACCUMULATOR))

    def _score_new(self) -> list[Expr]:
        """Return the scores of the new key, known to all threads."""
        builder, o = self._builder, self._o
        scores = builder.registers(vectors_of(o.group), dtype=ACCUMULATOR)
        scores.fill(0.0)
        with builder.when(self._member < iconst(o.blocks)):
            key = builder.let(self._ready[self._member + iconst(o.group * o.blocks)], "key")
            products = [
                builder.let(self._ready[self._member + iconst(g * o.blocks)] * key, "product")
                for g in range(o.group)
            ]
            for number, vector in enumerate(pack_numbers([sum_lanes(p) for p in products])):
                scores[number] = vector
        count = vectors_of(o.group)
        folded = self._team.fold(
            builder, [scores[i] for i in range(count)], [plus] * count, held=self._folds
        )
        return [
            builder.let(self._limit_score(vector, number, iconst(0)), "score")
            for number, vector in enumerate(folded)
        ]

    def _limit_score(self, score: Expr, number: int, before: Expr) -> Expr:
        """Return a vector of scores, bounded and with what is added to those of a row so far
        `before`."""
        if self._o.cap:
            cap = splat(fconst(self._o.cap, ACCUMULATOR))
            score = cap * tirx.tanh(score / cap)
        if self._o.bias is None:
            return score
        group, rows = self._o.group, iconst(self._o.rows)
        added = []
        for g in range(number * LANES, min(number * LANES + LANES, group)):
            at = (self._kept * iconst(group) + iconst(g)) * rows + before
            added.append(load_numbers(self._o.bias.buffer, at, 0, 1, aligned=False))
        return score + pack_numbers(added)[0]

    # The rows before it

    def visit_rows(self) -> None:
        """Go over the rows of this part, as many at a time as there are threads."""
        builder, o, threads = self._builder, self._o, self._tile.threads
        first: Expr = iconst(0)
        if o.window:
            first = maximum(self._position - iconst(o.window - 1), iconst(0))
        first = builder.let(first, "seen")
        count = self._position - first
        share = builder.let(floordiv(count + iconst(o.splits - 1), o.splits), "share")
        start = builder.let(first + self._split * share, "start")
        end = builder.let(minimum(start + share, self._position), "end")
        runs = floordiv(maximum(end - start, iconst(0)) + iconst(threads - 1), threads)
        queries = self._hold_queries()
        with builder.loop(builder.let(runs, "runs"), "run", rolled=True) as run:
            self._visit(queries, builder.let(start + run * iconst(threads), "at"), end)

    def _hold_queries(self) -> list[list[Expr]]:
        """By query head, the blocks that this thread multiplies keys by."""
        builder, o, lanes = self._builder, self._o, self._tile.lanes
        mine = builder.let(floormod(self._member, lanes), "lane")
        return [
            [
                builder.let(self._ready[mine + iconst(g * o.blocks + j * lanes)], "q")
                for j in range(o.blocks // lanes)
            ]
            for g in range(o.group)
        ]

    def _visit(self, queries: list[list[Expr]], at: Expr, end: Expr) -> None:
        builder, count = self._builder, vectors_of(self._o.group)
        self._add_up_scores(queries, at, end)
        builder.barrier()
        seen = at + self._member < end
        before: Expr = iconst(0)
        if self._o.bias is not None:
            before = maximum(self._position - at - self._member, iconst(0))
            before = builder.let(before, "before")
        none = splat(fconst(NO_SCORE, ACCUMULATOR))
        # Held: TVM puts an expression that only has a name into each place that uses it.
        held = builder.registers(count, dtype=ACCUMULATOR)
        for number in range(count):
            held[number] = if_then_else(seen, self._score(number, before), none)
        scores = [held[number] for number in range(count)]
        largest = self._team.fold(builder, scores, [maximum] * count, held=self._folds)
        faded = []
        for number, score in enumerate(scores):
            now = builder.let(maximum(self._largest[number], largest[number]), "largest")
            fade = builder.let(tirx.exp(self._largest[number] - now), "faded")
            power = builder.let(tirx.exp(score - now), "power")  # of what is not seen it is zero
            self._powers[self._member + iconst(number * self._tile.threads)] = power
            self._totals[number] = self._totals[number] * fade + power
            self._largest[number] = now
            faded.append(fade)
        builder.barrier()
        for g in range(self._o.group):
            self._mix[g] = self._mix[g] * splat(lane(faded[g // LANES], g % LANES))
        self._add_values(at, end)
        builder.barrier()

    def _add_up_scores(self, queries: list[list[Expr]], at: Expr, end: Expr) -> None:
        """Leave, for each row of the run, the parts of its scores that each lane has."""
        builder, o, tile = self._builder, self._o, self._tile
        mine = floormod(self._member, tile.lanes)
        row_of = floordiv(self._member, tile.lanes)
        beside = tile.threads // tile.lanes
        with builder.loop(tile.lanes, "pass", rolled=True) as i:
            row = builder.let(minimum(at + i * iconst(beside) + row_of, end - iconst(1)), "row")
            keys = [
                self._texel(o.keys, o.quanta[0], row, mine + iconst(j * tile.lanes))
                for j in range(o.blocks // tile.lanes)
            ]
            sums = []
            for held in queries:
                total = held[0] * keys[0]
                for query, key in zip(held[1:], keys[1:], strict=True):
                    total = total + query * key
                sums.append(sum_lanes(builder.let(total, "products")))
            place = builder.let(i * iconst(tile.threads) + self._member, "place")
            for number, vector in enumerate(pack_numbers(sums)):
                self._parts[place + iconst(number * tile.threads * tile.lanes)] = vector

    def _score(self, number: int, before: Expr) -> Expr:
        """Return the scores of this thread's own row of the run, so many `before` the new one."""
        builder, tile = self._builder, self._tile
        first = self._member * iconst(tile.lanes) + iconst(number * tile.threads * tile.lanes)
        total = self._parts[builder.let(first, "first")]
        for i in range(1, tile.lanes):
            total = total + self._parts[first + iconst(i)]
        return self._limit_score(builder.let(total, "score"), number, before)

    def _add_values(self, at: Expr, end: Expr) -> None:
        """Add the values of this run to this thread's channels, each by its powers."""
        builder, o, threads = self._builder, self._o, self._tile.threads
        turns = self._tile.turns(o.blocks)
        there = builder.let(minimum(end - at, iconst(threads)), "there")
        # Rows beyond the last have no power: all of a step are asked for before one is needed.
        at_once = AT_ONCE if threads % (turns * AT_ONCE) == 0 else 1
        step = turns * at_once
        first = iconst(0) if at_once > 1 else self._turn
        mine = builder.let(floordiv(there - first + iconst(step - 1), step), "mine")
        with builder.when(self._turn < iconst(turns)), builder.loop(mine, "r", rolled=True) as i:
            begun = builder.let(i * iconst(step) + self._turn, "begun")
            numbers = [begun + iconst(u * turns) for u in range(at_once)]
            rows = [minimum(at + number, end - iconst(1)) for number in numbers]
            values = [self._texel(o.values, o.quanta[1], row, self._block) for row in rows]
            for number, value in zip(numbers, values, strict=True):
                for g in range(o.group):
                    at_power = number + iconst(g // LANES * threads)
                    power = lane(builder.let_once(self._powers[at_power], "power"), g % LANES)
                    self._mix[g] = self._mix[g] + splat(power) * value

    def _texel(self, cache: Access, quanta: Quanta | None, row: Expr, block: Expr) -> Expr:
        """Four numbers of a row as the cache keeps them, in float."""
        o = self._o
        row = place_row(row, o)
        at = (self._kept * iconst(o.held) + row) * iconst(o.blocks) + block
        if quanta is not None:
            return self._builder.let(load_quanta(quanta, cache, at), "texel")
        return self._builder.let(load_texel(cache.buffer, at), "texel")

    # The end

    def finish(self) -> Mixed:
        """Add up what the threads have."""
        builder, o, count = self._builder, self._o, vectors_of(self._o.group)
        builder.barrier()  # what was folded before is read
        totals = self._team.fold(
            builder, [self._totals[i] for i in range(count)], [plus] * count, held=self._folds
        )
        turns = self._tile.turns(o.blocks)
        places = turns * o.blocks
        with builder.when(self._turn < iconst(turns)):
            for g in range(o.group):
                self._parts[self._member + iconst(g * places)] = self._mix[g]
        builder.barrier()
        values = []
        for g in range(o.group):
            total = self._parts[self._block + iconst(g * places)]
            for turn in range(1, turns):
                total = total + self._parts[self._block + iconst(g * places + turn * o.blocks)]
            at = self._kept * iconst(o.blocks) + self._block
            values.append(builder.let(open_texel(o.quanta[1], total, at), "mix"))
        return Mixed(
            split=self._split,
            kept=self._kept,
            block=self._block,
            is_mine=self._member < iconst(o.blocks),
            values=values,
            largest=[builder.let(self._largest[i], "largest") for i in range(count)],
            totals=totals,
        )
