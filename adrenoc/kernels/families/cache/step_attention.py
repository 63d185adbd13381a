"""Attention of one new token over a cache, which adds its key and value on the way.

A work-group takes a part of the rows for all query heads that share a head of keys: each row is
read once.  In a run over as many rows as there are threads, `lanes` threads share each row, so
that a wave reads whole cache lines; they agree on the largest score; then each thread adds up the
values of its own four channels.  The new row is no part of a run: the groups that take the first
part begin with it, and write it to the cache.

With several parts, a group leaves its mix, the largest score and the sum of powers for
`join_parts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    load_numbers,
    maximum,
    minimum,
    splat,
    tirx,
)
from adrenoc.importers.relax.own import Kinds
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.cache.new_rows import (
    RowQuanta,
    Texel,
    declare_form,
    head_texel,
    known_position,
    load_row,
    open_texel,
    rotate,
    round_row,
    store_texel,
)
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.walk import ACCUMULATOR, NO_SCORE, Team, plus, sum_lanes

OF_STEP: Kinds = (
    ("tables", "rotated", 2),
    ("gains", "normed", 2),
    ("bias", "biased", 1),
    ("scales", "bits", 2),
)
"""Constants of attention of one token: `gains` of queries and of keys."""


@dataclass(frozen=True, kw_only=True)
class StepTile:
    """`threads`, a power of two, share a part of the rows; `lanes` of them each row."""

    threads: int
    lanes: int

    @property
    def work_group(self) -> tuple[int, int, int]:
        """Threads in x, y, z."""
        return self.threads, 1, 1

    def turns(self, blocks: int) -> int:
        """Return threads that share the same four channels of a head of so many blocks."""
        return self.threads // blocks

    def shared_bytes(self, blocks: int, group: int) -> int:
        """Return local memory: heads as they are made ready, parts of scores, powers, folds."""
        vectors = 2 * (group + 1) * blocks + self.parts(blocks, group)
        vectors += 2 * self.threads * vectors_of(group)
        return vectors * LANES * FLOAT_BYTES

    def parts(self, blocks: int, group: int) -> int:
        """Return vectors of scores that wait to be added up, and later of mixes."""
        mixes = self.turns(blocks) * blocks * group
        return max(self.threads * self.lanes * vectors_of(group), mixes)


def vectors_of(group: int) -> int:
    """Return vectors that hold a number for each query head of a group."""
    return -(-group // LANES)


def pack_numbers(numbers: Sequence[Expr]) -> list[Expr]:
    """Return numbers as vectors of four, zeros behind the last."""
    zero = fconst(0.0, ACCUMULATOR)
    padded = [*numbers, *[zero] * (-len(numbers) % LANES)]
    return [construct(padded[i : i + LANES]) for i in range(0, len(padded), LANES)]


AT_ONCE = 4
"""Values that a thread asks for before it needs the first."""


class StepAttention:
    """One group of threads: what it shares, and what each of its threads holds."""

    def __init__(self, kernel: NodeKernel, tile: StepTile, splits: int) -> None:
        """Inputs: queries, the row's number, keys, values, the new key and the new value; then
        constants (`OF_STEP`).  The node changes keys and values; there are so many parts."""
        node, graph, builder = kernel.node, kernel.context.graph, kernel.builder
        q, position, keys, _, key, value, *others = node.inputs
        self._x = [kernel.input(name) for name in (q, key, value)]
        first = kernel.input(position)
        o = self._form = declare_form(kernel, node, keys, OF_STEP, others)
        self._caches = [builder.output(graph.operand(name)) for name in node.also_writes]
        self._out = builder.output(graph.operand(node.output))
        kernel.arguments += [*node.also_writes, node.output]
        kernel.written = 1 + len(node.also_writes)
        self._builder, self._tile, self._splits = builder, tile, splits
        self._firsts: tuple[int, ...] = tuple(node.attrs["firsts"])
        self._group = int(node.attrs["heads"]) // o.kept
        threads, vectors = tile.threads, vectors_of(self._group)
        self._member, self._kept, self._split = builder.threads(
            threads, o.kept, splits, work_group=tile.work_group, cooperate=True
        )
        self._team = Team.make_along_x(builder, tile.work_group)
        self._position = known_position(builder, first, iconst(0), o.rows)
        self._block = builder.let(floormod(self._member, o.blocks), "block")
        self._turn = builder.let(floordiv(self._member, o.blocks), "turn")
        count = (self._group + 1) * o.blocks
        self._raw = builder.allocate_shared(count, dtype=ACCUMULATOR)
        self._ready = builder.allocate_shared(count, dtype=ACCUMULATOR)
        self._share_heads(count)
        self._powers = builder.allocate_shared(threads * vectors, dtype=ACCUMULATOR)
        self._folds = builder.allocate_shared(threads * vectors, dtype=ACCUMULATOR)
        self._parts = builder.allocate_shared(tile.parts(o.blocks, self._group), dtype=ACCUMULATOR)
        self._largest = builder.registers(vectors, dtype=ACCUMULATOR)
        self._totals = builder.registers(vectors, dtype=ACCUMULATOR)
        self._mix = builder.registers(self._group, dtype=ACCUMULATOR)

    def emit(self) -> None:
        """Emit the mix of the rows of each part."""
        self._begin()
        builder, o, threads = self._builder, self._form, self._tile.threads
        first: Expr = iconst(0)
        if o.window:
            first = maximum(self._position - iconst(o.window - 1), iconst(0))
        first = builder.let(first, "seen")
        count = self._position - first
        share = builder.let(floordiv(count + iconst(self._splits - 1), self._splits), "share")
        start = builder.let(first + self._split * share, "start")
        end = builder.let(minimum(start + share, self._position), "end")
        runs = floordiv(maximum(end - start, iconst(0)) + iconst(threads - 1), threads)
        queries = self._hold_queries()
        with builder.loop(builder.let(runs, "runs"), "run", rolled=True) as run:
            self._visit(queries, builder.let(start + run * iconst(threads), "at"), end)
        self._write_part()

    # The heads of its queries, and of the new key

    def _share_heads(self, count: int) -> None:
        """Make ready the blocks of the query heads of a group, then those of the key's head.  Read
        all, wait, then make each ready: half of what a rotation reads is another's."""
        builder = self._builder
        for item, inside in self._items(count):
            with builder.when(inside):
                self._raw[item] = self._read(item)
        builder.barrier()
        for item, inside in self._items(count):
            with builder.when(inside):
                self._make_ready(item)
        builder.barrier()

    def _items(self, count: int) -> list[tuple[Expr, Expr | None]]:
        """Return the blocks that are this thread's, each with whether there is one."""
        threads = self._tile.threads
        found: list[tuple[Expr, Expr | None]] = []
        for first in range(0, count, threads):
            item = self._builder.let(self._member + iconst(first), "item")
            found.append((item, item < iconst(count) if first + threads > count else None))
        return found

    def _read(self, item: Expr) -> Expr:
        """Return four numbers of a query head of the group, or of the key's, which comes last."""
        builder, o = self._builder, self._form
        of_queries = self._group * o.blocks
        queries = self._kept * iconst(of_queries) + iconst(self._firsts[0] // LANES)
        keys = self._kept * iconst(o.blocks) + iconst(self._firsts[1] // LANES)
        is_query = item < iconst(of_queries)
        x, k, _ = self._x
        if x is k:
            at = if_then_else(is_query, queries + item, keys + item - iconst(of_queries))
            return head_texel(x, iconst(0), iconst(0))(builder.let(at, "at"))
        # Each is read inside of its own heads, whichever is wanted.
        of_query = builder.let(minimum(item, iconst(of_queries - 1)), "at")
        of_key = builder.let(maximum(item - iconst(of_queries), iconst(0)), "at")
        first = builder.let(head_texel(x, iconst(0), queries)(of_query), "q")
        return if_then_else(is_query, first, head_texel(k, iconst(0), keys)(of_key))

    def _make_ready(self, item: Expr) -> None:
        builder, o = self._builder, self._form
        first = builder.let(item - floormod(item, o.blocks), "head")
        is_query = item < iconst(self._group * o.blocks)
        scale = fconst(o.scale, ACCUMULATOR)
        factor = if_then_else(is_query, scale, fconst(1.0, ACCUMULATOR))
        read = self._norm(first, is_query)
        block = builder.let(floormod(item, o.blocks), "b")
        value = rotate(builder, o.rotation, self._position, block, o.blocks, read)
        value = value * splat(builder.let(factor, "factor"))
        quanta = o.quanta[0]
        if quanta is not None:  # a query meets keys as they are kept
            at = builder.let(self._kept * iconst(o.blocks) + block, "channel")
            value = builder.let(value, "value")
            rounded = quanta.round(value, at)
            value = if_then_else(is_query, value * quanta.scale(at), rounded)
        self._ready[item] = value

    def _norm(self, first: Expr, is_query: Expr) -> Texel:
        """Reads a head from local memory as its norm leaves it."""
        builder, o, raw = self._builder, self._form, self._raw
        of_query, of_key = o.norms
        if of_query is None or of_key is None:
            return lambda block: raw[first + block]
        squares = builder.registers(1, dtype=ACCUMULATOR, fill=0.0)
        with builder.loop(o.blocks, "b", rolled=True) as i:
            squares[0] = squares[0] + raw[first + i] * raw[first + i]
        total = builder.let(squares[0], "squares")
        length = builder.let(of_query.scale(total, o.head), "length")

        def read(block: Expr) -> Expr:
            gain = builder.let(of_query.gain(block), "gain")
            other = builder.let(of_key.gain(block), "gain")
            return raw[first + block] * length * if_then_else(is_query, gain, other)

        return read

    def _begin(self) -> None:
        """Begin with the new row in the first part, which writes it to the cache."""
        builder, o = self._builder, self._form
        begins = self._split < iconst(1)
        none = splat(fconst(NO_SCORE, ACCUMULATOR))
        zero = splat(fconst(0.0, ACCUMULATOR))
        for number, score in enumerate(self._score_new()):
            self._largest[number] = if_then_else(begins, score, none)
            self._totals[number] = zero
        for number in range(self._group):
            self._mix[number] = zero
        with builder.when(begins & (self._member < iconst(o.blocks))):
            first = self._kept * iconst(o.blocks) + iconst(self._firsts[2] // LANES)
            read = head_texel(self._x[2], iconst(0), first)
            at = self._kept * iconst(o.blocks) + self._member
            value = builder.let(read(self._member), "value")
            value = round_row(builder, o.quanta[1], value, at)
            key = builder.let(self._ready[self._member + iconst(self._group * o.blocks)], "key")
            place = (self._kept, o.place_row(self._position))
            for cache, quanta, made in zip(self._caches, o.quanta, (key, value), strict=True):
                store_texel(builder, quanta, cache, place, self._member, made)
            for number in range(self._group):
                self._mix[number] = value
        with builder.when(begins & (self._member < iconst(1))):
            for number in range(vectors_of(self._group)):
                self._totals[number] = splat(fconst(1.0, ACCUMULATOR))

    def _score_new(self) -> list[Expr]:
        """Return the scores of the new key, known to all threads."""
        builder, o = self._builder, self._form
        scores = builder.registers(vectors_of(self._group), dtype=ACCUMULATOR, fill=0.0)
        with builder.when(self._member < iconst(o.blocks)):
            key = builder.let(self._ready[self._member + iconst(self._group * o.blocks)], "key")
            products = [
                builder.let(self._ready[self._member + iconst(g * o.blocks)] * key, "product")
                for g in range(self._group)
            ]
            for number, vector in enumerate(pack_numbers([sum_lanes(p) for p in products])):
                scores[number] = vector
        count = vectors_of(self._group)
        folded = self._team.fold(
            builder, [scores[i] for i in range(count)], [plus] * count, held=self._folds
        )
        return [
            builder.let(self._limit_score(vector, number, iconst(0)), "score")
            for number, vector in enumerate(folded)
        ]

    def _limit_score(self, score: Expr, number: int, before: Expr) -> Expr:
        """Return a vector of scores, bounded, with the bias of a row so far `before`."""
        if self._form.cap:
            cap = splat(fconst(self._form.cap, ACCUMULATOR))
            score = cap * tirx.tanh(score / cap)
        if self._form.bias is None:
            return score
        group, rows = self._group, iconst(self._form.rows)
        added = []
        for g in range(number * LANES, min(number * LANES + LANES, group)):
            at = (self._kept * iconst(group) + iconst(g)) * rows + before
            added.append(load_numbers(self._form.bias.buffer, at, 0, 1, aligned=False))
        return score + pack_numbers(added)[0]

    # The rows before it

    def _hold_queries(self) -> list[list[Expr]]:
        """Return for each query head the blocks that this thread multiplies keys by."""
        builder, o, lanes = self._builder, self._form, self._tile.lanes
        mine = builder.let(floormod(self._member, lanes), "lane")
        return [
            [
                builder.let(self._ready[mine + iconst(g * o.blocks + j * lanes)], "q")
                for j in range(o.blocks // lanes)
            ]
            for g in range(self._group)
        ]

    def _visit(self, queries: list[list[Expr]], at: Expr, end: Expr) -> None:
        builder, count = self._builder, vectors_of(self._group)
        self._add_up_scores(queries, at, end)
        builder.barrier()
        seen = at + self._member < end
        before: Expr = iconst(0)
        if self._form.bias is not None:
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
        for g in range(self._group):
            self._mix[g] = self._mix[g] * splat(lane(faded[g // LANES], g % LANES))
        self._add_values(at, end)
        builder.barrier()

    def _add_up_scores(self, queries: list[list[Expr]], at: Expr, end: Expr) -> None:
        """Leave, for each row of the run, the parts of its scores that each lane has."""
        builder, o, tile = self._builder, self._form, self._tile
        mine = floormod(self._member, tile.lanes)
        row_of = floordiv(self._member, tile.lanes)
        beside = tile.threads // tile.lanes
        with builder.loop(tile.lanes, "pass", rolled=True) as i:
            row = builder.let(minimum(at + i * iconst(beside) + row_of, end - iconst(1)), "row")
            keys = [
                self._texel(self._caches[0], o.quanta[0], row, mine + iconst(j * tile.lanes))
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
        builder, o, threads = self._builder, self._form, self._tile.threads
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
            values = [self._texel(self._caches[1], o.quanta[1], row, self._block) for row in rows]
            for number, value in zip(numbers, values, strict=True):
                for g in range(self._group):
                    at_power = number + iconst(g // LANES * threads)
                    power = lane(builder.let_once(self._powers[at_power], "power"), g % LANES)
                    self._mix[g] = self._mix[g] + splat(power) * value

    def _texel(self, cache: Access, quanta: RowQuanta | None, row: Expr, block: Expr) -> Expr:
        """Return four numbers of a row as the cache keeps them, in float."""
        o = self._form
        at = (self._kept * iconst(o.held) + o.place_row(row)) * iconst(o.blocks) + block
        return self._builder.let(load_row(cache, quanta, at), "texel")

    # The end

    def _write_part(self) -> None:
        """Add up what the threads have of the group's rows, and store it."""
        builder, o, count = self._builder, self._form, vectors_of(self._group)
        builder.barrier()  # what was folded before is read
        totals = self._team.fold(
            builder, [self._totals[i] for i in range(count)], [plus] * count, held=self._folds
        )
        turns = self._tile.turns(o.blocks)
        places = turns * o.blocks
        with builder.when(self._turn < iconst(turns)):
            for g in range(self._group):
                self._parts[self._member + iconst(g * places)] = self._mix[g]
        builder.barrier()
        values = []
        for g in range(self._group):
            total = self._parts[self._block + iconst(g * places)]
            for turn in range(1, turns):
                total = total + self._parts[self._block + iconst(g * places + turn * o.blocks)]
            at = self._kept * iconst(o.blocks) + self._block
            values.append(builder.let(open_texel(o.quanta[1], total, at), "mix"))
        largest = [builder.let(self._largest[i], "largest") for i in range(count)]
        zero, nothing = iconst(0), fconst(0.0, ACCUMULATOR)
        is_mine = self._member < iconst(o.blocks)
        for g, mix in enumerate(values):
            query = builder.let(self._kept * iconst(self._group) + iconst(g), "query")
            with builder.when(is_mine):
                self._out.write(self._split, self._block, zero, query, mix)
            vector, number = divmod(g, LANES)
            scores = (lane(largest[vector], number), lane(totals[vector], number))
            with builder.when(is_mine & (self._block < iconst(1))):
                told = construct([*scores, nothing, nothing])
                self._out.write(self._split, iconst(o.blocks), zero, query, told)
