"""The walk of attention over its keys: scores, softmax and the mix of values, no score in memory.

A work-group makes some query rows of one head, which it brings to local memory, and walks over the
keys in runs.  Of a run, each thread first makes the scores of four rows with a few keys; the
largest score of a row is found through local memory, the exponentials lie there for all; then each
thread adds, for its block of four channels, the values that they weigh.  What was added before is
scaled down where a larger score turns up (the online softmax of Milakov and Gimelshein, and of
flash attention).

Arithmetic is in float whatever the preset: halves would save a fortieth of the time, as groups of
64 threads gain nothing by them.  What a query, a key, a value is, and where a result goes, families
say.

The parts of a softmax can be computed apart, each by its own largest score, and be added once that
of all is known (flash decoding).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from itertools import product

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    maximum,
    minimum,
    select,
    splat,
    tirx,
)
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.walk import ACCUMULATOR, LEAST_FLOAT, Combine, combine_lanes, plus, widen

FOLDED_BYTES = FLOAT_BYTES
"""Bytes of a number that threads hand each other through local memory to fold it."""
ROWS = LANES
"""Query rows of a set: the lanes of a vector of scores."""


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """`work_group` is (blocks of four value channels, rows / rows a thread, parts of the keys).

    A thread makes the scores of `row_sets` times four rows with `key_blocks` times four keys of a
    run.  `unroll` is the blocks of depth, and of four keys, whose texels it asks for before it
    waits.  Threads of several parts walk over runs of their own, and their results are merged at
    the end; they have one set of rows.
    """

    work_group: tuple[int, int, int]
    key_blocks: int = 1
    unroll: int = 1
    row_sets: int = 1

    @property
    def rows(self) -> int:
        """Query rows a thread."""
        return ROWS * self.row_sets

    @property
    def run(self) -> int:
        """Keys between two steps of the softmax."""
        return self.work_group[0] * self.key_blocks * LANES

    @property
    def parts(self) -> int:
        """Parts of the keys, each of which has threads of its own."""
        return self.work_group[2]

    def runs(self, keys: int) -> int:
        """Return runs of a part."""
        return -(-keys // (self.run * self.parts))

    def fills_parts(self, keys: int) -> bool:
        """Return whether each part has a key: one without any has no largest score."""
        return self.runs(keys) * self.run * (self.parts - 1) < keys

    def shared_bytes(self, power_bytes: int, depth_blocks: int, query_bytes: int) -> int:
        """Local memory of a work-group, by the size of an exponential and of a query's number."""
        _, y, parts = self.work_group
        # Exponentials as halves leave no place for what threads tell each other in float.
        told = 0 if power_bytes == FOLDED_BYTES else self.told * FOLDED_BYTES
        queries = depth_blocks * LANES * y * self.row_sets * query_bytes
        powers = self.run * y * parts * self.row_sets * power_bytes
        return LANES * (powers + told + queries)

    @property
    def told(self) -> int:
        """Vectors that threads tell each other at a time: a largest score each, or four sums."""
        x, y, parts = self.work_group
        return x * y * parts * (ROWS if parts > 1 else self.row_sets)


UNROLLED_FOLDS = 4
"""Threads along x whose numbers are read without a loop."""


Rows = list[Expr]
"""Four vectors of float: of each row, four keys."""


class AttentionWalk(ABC):
    """One thread of the kernel."""

    masks_keys = False
    """Whether `place_key`, `rescore` and `value` take keys behind the last one."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: AttentionTile,
        rows: Extents,
        keys: int,
        value_blocks: int,
        power: str,
        query: str,
    ) -> None:
        """`rows` are those of the queries: roles N and H batch, W = rows, C = depth.

        There are `keys` at most; exponentials lie in local memory as `power`, queries as `query`.
        """
        self.builder, self.run = builder, tile.run
        self._tile, self._extents, self._keys = tile, rows, keys
        self._power, self._query = power, query
        # Whether a run of the last part may end behind the last key.
        covered = tile.runs(keys) * tile.run * tile.parts
        self._uneven = tile.parts > 1 and covered > keys and not self.masks_keys
        _, group, batch = builder.threads(
            value_blocks,
            -(-rows.w // tile.rows),
            rows.n * rows.h * tile.parts,
            work_group=tile.work_group,
            cooperate=True,
        )
        self._x, self._y, self.part = builder.local
        self._wide, self._high, self.parts = tile.work_group
        batch = builder.group[2] if tile.parts > 1 else batch
        self.n = builder.let(floordiv(batch, rows.h), "n") if rows.n > 1 else iconst(0)
        self.h = builder.let(floormod(batch, rows.h), "h") if rows.h > 1 else iconst(0)
        self._first_row = builder.let(group * iconst(tile.rows), "row")
        # Rows beyond the last one repeat it, and are not stored.
        self.rows = [
            builder.let(minimum(self._first_row + iconst(r), iconst(rows.w - 1)), "row")
            for r in range(tile.rows)
        ]
        self._sets = range(tile.row_sets)
        beside = self._high * tile.row_sets
        self._powers = builder.allocate_shared(tile.run * self.parts * beside, dtype=power)
        # Where both are floats, what threads tell each other lies where exponentials will.
        self._reused, self._told = power == ACCUMULATOR, self._powers
        if not self._reused:
            self._told = builder.allocate_shared(tile.told, dtype=ACCUMULATOR)
        self._queries = builder.allocate_shared(rows.blocks * LANES * beside, dtype=query)
        self._mixed = builder.registers(tile.rows, dtype=ACCUMULATOR, fill=0.0)
        self._sum = builder.registers(tile.row_sets, dtype=ACCUMULATOR, fill=0.0)
        self._largest = builder.registers(tile.row_sets, dtype=ACCUMULATOR)
        # Not infinite: keys without any score, before those that have one, leave the sums alone.
        self._largest.fill(LEAST_FLOAT)
        self._scores = [
            builder.registers(tile.key_blocks * LANES, dtype=ACCUMULATOR) for _ in self._sets
        ]

    @property
    def group_rows(self) -> tuple[Expr, Expr]:
        """Return the work-group's first row, and the one behind its last, which may not exist."""
        first = self._first_row - self._y * iconst(self._tile.rows)
        return first, first + iconst(self._tile.rows * self._high)

    @property
    def mix_step(self) -> int:
        """Values that are asked for at a time."""
        return LANES * self._tile.unroll

    def emit(self) -> None:
        """Emit everything."""
        self._share_queries()
        self.visit()
        totals = self._total()
        if self.parts > 1:
            self._merge_parts(totals[0])
            return
        for s in self._sets:
            total = self.count_beside(s, totals[s], self._largest[s])
            for r in range(ROWS):
                row = s * ROWS + r
                with self.builder.when(self._row_exists(row)):
                    self.write(row, self._x, self._mixed[row] / splat(lane(total, r)))

    def visit(self) -> None:
        """Go over all keys, or over those of the thread's part."""
        builder, run = self.builder, self._tile.run
        if self.parts > 1:
            runs = self._tile.runs(self._keys)
            with builder.loop(runs, "run") as i:
                start = self.part * iconst(runs) + i
                self.visit_run(builder.let(start * iconst(run), "key"), run)
            return
        full, rest = divmod(self._keys, run)
        if full:
            with builder.loop(full, "run") as i:
                self.visit_run(builder.let(i * iconst(run), "key"), run)
        if rest:
            self.visit_run(iconst(full * run), rest)

    @abstractmethod
    def query(self, block: Expr, r: int) -> Expr:
        """Return four channels of one of the thread's rows."""

    @abstractmethod
    def key(self, block: Expr, key: Expr) -> Expr:
        """Return four channels of a key."""

    @abstractmethod
    def value(self, block: Expr, key: Expr) -> Expr:
        """Return four channels of a key's value."""

    @abstractmethod
    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        """Return what the softmax gets of a row's scores with a block of keys: scaled, masked."""

    def count_beside(self, _s: int, total: Expr, _largest: Expr) -> Expr:
        """Add to a set's sum of exponentials, over those of the largest score, what is no key's."""
        return total

    @abstractmethod
    def write(self, r: int, block: Expr, value: Expr) -> None:
        """Store four channels of one of the thread's rows."""

    def _row_exists(self, r: int) -> Expr | None:
        """Return whether row `r` of the thread exists; None where it always does."""
        of_group = self._tile.rows * self._high
        covered = -(-self._extents.w // of_group) * of_group
        if covered == self._extents.w:
            return None
        return self._first_row + iconst(r) < iconst(self._extents.w)

    def visit_run(self, first: Expr, keys: int) -> None:
        """Everything for `keys` keys from `first` on; fewer than a run are the last ones."""
        rows = self._compute_scores(first, keys)
        self._wait()
        self._share_maxima(rows)
        self.builder.barrier()
        shrink = self._raise_maximum()
        self._wait()
        self._share_powers(rows, shrink)
        self.builder.barrier()
        self._mix(first, keys, shrink)

    # Scores

    def _share_queries(self) -> None:
        """Bring the rows to local memory, turned: of each channel, a vector of the thread's rows.

        The threads of the same rows take a block of channels each.
        """
        builder, blocks = self.builder, self._extents.blocks
        own = self._x + self.part * iconst(self._wide)
        step = self._wide * self.parts
        for first in range(0, blocks, step):
            last = blocks - first < step
            inside = own < iconst(blocks - first) if last else None
            with builder.when(inside):
                block = builder.let(own + iconst(first), "d")
                for s in self._sets:
                    rows = range(s * ROWS, (s + 1) * ROWS)
                    asked = [builder.let(self.query(block, r), "t") for r in rows]
                    for c in range(LANES):
                        column = construct([lane(texel, c) for texel in asked])
                        place = self._query_at(block, c, s)
                        self._queries[place] = cast(column, f"{self._query}x{LANES}")
        builder.barrier()

    def _query_at(self, block: Expr, channel: int, s: int) -> Expr:
        """Return where a channel of a set of the thread's rows lies."""
        rows = (block * iconst(LANES) + iconst(channel)) * iconst(self._high)
        return self._of_set(rows + self._y, s)

    def _of_set(self, at: Expr, s: int) -> Expr:
        """Return where set `s` of what lies at `at` is, where all sets lie beside each other."""
        return at if len(self._sets) == 1 else at * iconst(len(self._sets)) + iconst(s)

    def _compute_scores(self, first: Expr, keys: int) -> list[Rows]:
        """Return the thread's scores, by block of four keys."""
        builder, depth_blocks = self.builder, self._extents.blocks
        blocks = [self._key_block(first, j, keys) for j in range(self._tile.key_blocks)]
        for scores in self._scores:
            scores.fill(0.0)
        at = [
            builder.let(self.place_key(block * iconst(LANES) + iconst(i), keys), "key")
            for block in blocks
            for i in range(LANES)
        ]
        # Of a short last run, most threads have no key: they ask for nothing.
        some = self._x * iconst(LANES) < iconst(keys) if keys <= self._tile.run // 2 else None
        k_steps, rest = divmod(depth_blocks, self._tile.unroll)
        with builder.when(some):
            if k_steps:
                with builder.loop(k_steps, "d") as d:
                    start = d * iconst(self._tile.unroll)
                    self._multiply([start + iconst(u) for u in range(self._tile.unroll)], at)
            for last in range(depth_blocks - rest, depth_blocks):
                self._multiply([iconst(last)], at)
        there = iconst(keys)
        if self._uneven:
            there = builder.let(iconst(self._keys) - first, "there")
        return [self._rescore_block(block, j, keys, there) for j, block in enumerate(blocks)]

    def _multiply(self, depths: list[Expr], keys: list[Expr]) -> None:
        """Add the products of some blocks of depth, all of which are asked for first."""
        builder = self.builder
        depths = [builder.let(depth, "d") for depth in depths]
        texels = [[builder.let(self.key(depth, key), "t") for key in keys] for depth in depths]
        for depth, of_depth in zip(depths, texels, strict=True):
            for c, s in product(range(min(LANES, self._extents.c)), self._sets):
                column = builder.let(widen(self._queries[self._query_at(depth, c, s)]), "q")
                for number, texel in enumerate(of_depth):
                    scores = self._scores[s]
                    scores[number] = scores[number] + column * splat(lane(texel, c))

    def _key_block(self, first: Expr, j: int, keys: int) -> Expr:
        """Return the thread's j-th block of four keys, the last one where there are no more."""
        block = floordiv(first, LANES) + self._x + iconst(j * self._wide)
        if self._ends_within(keys):
            block = minimum(block, iconst(-(-self._keys // LANES) - 1))
        return self.builder.let(block, "keys")

    def place_key(self, key: Expr, keys: int) -> Expr:
        """Return what `key` is asked by: a key, or the last one where that lies behind it."""
        return minimum(key, iconst(self._keys - 1)) if self._ends_within(keys) else key

    def _ends_within(self, keys: int) -> bool:
        """Return whether a run of `keys` keys may have fewer than its threads have scores."""
        return keys < self._tile.run or self._uneven

    def _rescore_block(self, block: Expr, j: int, keys: int, there: Expr) -> Rows:
        """Block `j` of the scores by row, as the softmax gets them; what is no key counts none."""
        builder = self.builder
        rows = []
        for r in range(self._tile.rows):
            scores = self._scores[r // ROWS]
            by_key = [lane(scores[j * LANES + i], r % ROWS) for i in range(LANES)]
            value = builder.let(construct(by_key), "s")
            value = self.rescore(r, block, value)
            if self._ends_within(keys):
                value = self._only_keys(self._hold(value), j, there)
            rows.append(self._hold(value))
        return rows

    def _hold(self, value: Expr) -> Expr:
        """Return a score as the softmax gets it, computed once.

        TVM puts an expression that only has a name into each place that uses it.
        """
        held = self.builder.registers(1, dtype=ACCUMULATOR)
        held[0] = value
        return held[0]

    def _only_keys(self, value: Expr, j: int, there: Expr) -> Expr:
        first = (self._x + iconst(j * self._wide)) * iconst(LANES)
        nothing = fconst(-math.inf, ACCUMULATOR)
        return construct(
            [select(first + iconst(i) < there, lane(value, i), nothing) for i in range(LANES)]
        )

    # The softmax, a run further

    def _share_maxima(self, rows: list[Rows]) -> None:
        """Tell the threads of the same rows the largest score of the thread's keys."""
        largest = []
        for r in range(self._tile.rows):
            value = rows[0][r]
            for block in rows[1:]:
                value = maximum(value, block[r])
            value = value if len(rows) == 1 else self._hold(value)
            largest.append(combine_lanes(value, maximum))
        self._tell([construct(largest[s * ROWS : (s + 1) * ROWS]) for s in self._sets])

    def _raise_maximum(self) -> list[Expr]:
        """Take the largest scores so far; return the factors of what was summed before, by set."""
        before = [self.builder.let(self._largest[s], "before") for s in self._sets]
        self._fold(self._largest, maximum)
        return [
            self.builder.let(tirx.exp(before[s] - self._largest[s]), "shrink") for s in self._sets
        ]

    def _share_powers(self, rows: list[Rows], shrink: list[Expr]) -> None:
        """Tell them the exponentials of the thread's keys, and add these to its part of the sums.

        What is added is what the values are weighed by, so that the weights come to one.
        """
        builder = self.builder
        for s in self._sets:
            largest = builder.let(self._largest[s], "largest")
            own = builder.let(self._sum[s] * shrink[s], "sum")
            for j, block in enumerate(rows):
                powers = []
                for r in range(ROWS):
                    power = tirx.exp(block[s * ROWS + r] - splat(lane(largest, r)))
                    powers.append(builder.let(cast(power, f"{self._power}x{LANES}"), "p"))
                sums = [combine_lanes(builder.let(widen(power), "p"), plus) for power in powers]
                own = own + construct(sums)
                for i in range(LANES):
                    key = (self._x + iconst(j * self._wide)) * iconst(LANES) + iconst(i)
                    value = construct([lane(power, i) for power in powers])
                    self._powers[self._power_at(key, s)] = value
            self._sum[s] = own

    def _power_at(self, key: Expr, s: int) -> Expr:
        """Return where the exponentials of a set of the thread's rows with a key lie."""
        rows = (self.part * iconst(self.run) + key) * iconst(self._high)
        return self._of_set(rows + self._y, s)

    def _merge_parts(self, total: Expr) -> None:
        """Store the sum of what the parts of the keys gave, each scaled to the largest score."""
        builder, told, parts = self.builder, self._told, range(self.parts)
        builder.barrier()  # the sums were read
        count = iconst(self._high * self.parts)
        with builder.when(tirx.EQ(self._x, iconst(0))):
            told[self._rows_of(self.part)] = self._largest[0]
            told[count + self._rows_of(self.part)] = total
        builder.barrier()
        numbers = [self._rows_of(iconst(part)) for part in parts]
        scores = [builder.let(told[number], "largest") for number in numbers]
        whole = builder.let(reduce(maximum, scores), "largest")
        totals = [
            told[count + n] * tirx.exp(s - whole) for n, s in zip(numbers, scores, strict=True)
        ]
        total = builder.let(self.count_beside(0, reduce(plus, totals), whole), "total")
        factor = builder.let(tirx.exp(self._largest[0] - whole) / total, "factor")
        builder.barrier()

        def position(part: Expr, r: int) -> Expr:
            row = (part * iconst(ROWS) + iconst(r)) * iconst(self._high) + self._y
            return row * iconst(self._wide) + self._x

        for r in range(ROWS):
            told[position(self.part, r)] = self._mixed[r] * splat(lane(factor, r))
        builder.barrier()
        for r in range(ROWS):
            inside, exists = tirx.EQ(self.part, iconst(r % self.parts)), self._row_exists(r)
            with builder.when(inside if exists is None else inside & exists):
                shares = [told[position(iconst(part), r)] for part in parts]
                self.write(r, self._x, builder.let(reduce(plus, shares), "merged"))

    def _total(self) -> list[Expr]:
        """Return the sums of the exponentials of all keys, by set."""
        builder = self.builder
        # The largest scores were read before the last barrier, the exponentials were not.
        self._wait()
        self._tell([self._sum[s] for s in self._sets])
        builder.barrier()
        self._sum.fill(0.0)
        self._fold(self._sum, plus)
        return [builder.let(self._sum[s], "total") for s in self._sets]

    # What threads of the same rows and part tell each other

    def _wait(self) -> None:
        """Wait until what lies in `_told` may be replaced by something else, or the other way."""
        if self._reused:
            self.builder.barrier()

    def _rows_of(self, part: Expr) -> Expr:
        """Return the number of the thread's rows in a part."""
        return part * iconst(self._high) + self._y

    def _tell_at(self, index: Expr, s: int) -> Expr:
        """Return where thread `index` leaves its number of a set."""
        return self._of_set(self._rows_of(self.part) * iconst(self._wide) + index, s)

    def _tell(self, values: list[Expr]) -> None:
        """Leave the thread's numbers, by set, to the others, who see them behind a barrier."""
        for s, value in enumerate(values):
            self._told[self._tell_at(self._x, s)] = value

    def _fold(self, total: Registers, combine: Combine) -> None:
        """Combine with `total` what all of them left."""
        loops, single = divmod(self._wide, UNROLLED_FOLDS)

        def take(index: Expr) -> None:
            for s in self._sets:
                total[s] = combine(total[s], self._told[self._tell_at(index, s)])

        if loops:
            with self.builder.loop(loops, "i") as i:
                for u in range(UNROLLED_FOLDS):
                    take(i * iconst(UNROLLED_FOLDS) + iconst(u))
        for u in range(self._wide - single, self._wide):
            take(iconst(u))

    # Values

    def _mix(self, first: Expr, keys: int, shrink: list[Expr]) -> None:
        """Add the run's values, weighed."""
        for r in range(self._tile.rows):
            self._mixed[r] = self._mixed[r] * splat(lane(shrink[r // ROWS], r % ROWS))
        self.mix_values(first, keys)

    def mix_values(self, first: Expr, keys: int) -> None:
        """Add the run's values to what is left of those before."""
        builder, step = self.builder, self.mix_step
        if keys // step:
            with builder.loop(keys // step, "keys", rolled=True) as i:
                self.mix_keys(first, i * iconst(step), range(step))
        if keys % step:
            self.mix_keys(first, iconst(keys - keys % step), range(keys % step))

    def mix_keys(self, first: Expr, offset: Expr, steps: range) -> None:
        """Add some values, all of which are asked for first."""
        builder = self.builder
        at = [first + offset + iconst(i) for i in steps]
        if self._uneven:  # behind the last one the exponentials are zero
            at = [minimum(key, iconst(self._keys - 1)) for key in at]
        values = [builder.let(self.value(self._x, builder.let(key, "key")), "t") for key in at]
        for s in self._sets:
            powers = [
                builder.let(widen(self._powers[self._power_at(offset + iconst(i), s)]), "p")
                for i in steps
            ]
            for r in range(ROWS):
                terms = [splat(lane(p, r)) * v for p, v in zip(powers, values, strict=True)]
                row = s * ROWS + r
                self._mixed[row] = sum(terms, self._mixed[row])
