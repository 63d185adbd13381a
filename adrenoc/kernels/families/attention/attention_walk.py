"""The walk of attention over its keys: scores, softmax and the mix of values, no score in memory.

A work-group makes some query rows of one head, which it brings to local memory, and walks over the
keys in runs.  Of a run, each thread first makes the scores of four rows with a few keys; the
largest score of a row is found through local memory, the exponentials lie there for all; then each
thread adds, for its block of four channels, the values that they weigh.  What was added before is
scaled down where a larger score turns up (the online softmax of Milakov and Gimelshein, and of
flash attention).

Arithmetic is in float whatever the preset: the kernel waits for texels, and a half image is read
as float for nothing.  What a query, a key, a value is, and where a result goes, families say.

The parts of a softmax can be computed apart, each by its own largest score, and be added once that
of all is known (flash decoding).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce

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
"""Query rows a thread: the lanes of a vector of scores."""


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """`work_group` is (blocks of four value channels, rows / 4, parts of the keys).

    A thread makes the scores of `key_blocks` times four keys of a run.  `unroll` is the blocks of
    depth, and of four keys, whose texels it asks for before it waits.  Threads of several parts
    walk over runs of their own, and their results are merged at the end.
    """

    work_group: tuple[int, int, int]
    key_blocks: int = 1
    unroll: int = 1

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
        queries = depth_blocks * LANES * y * query_bytes
        return LANES * (self.run * y * parts * power_bytes + told + queries)

    @property
    def told(self) -> int:
        """Vectors that threads tell each other at a time: a largest score each, or four sums."""
        x, y, parts = self.work_group
        return x * y * parts * (ROWS if parts > 1 else 1)


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
            -(-rows.w // ROWS),
            rows.n * rows.h * tile.parts,
            work_group=tile.work_group,
            cooperate=True,
        )
        self._x, self._y, self.part = builder.local
        self._wide, self._high, self.parts = tile.work_group
        batch = builder.group[2] if tile.parts > 1 else batch
        self.n = builder.let(floordiv(batch, rows.h), "n") if rows.n > 1 else iconst(0)
        self.h = builder.let(floormod(batch, rows.h), "h") if rows.h > 1 else iconst(0)
        self._first_row = builder.let(group * iconst(ROWS), "row")
        # Rows beyond the last one repeat it, and are not stored.
        self.rows = [
            builder.let(minimum(self._first_row + iconst(r), iconst(rows.w - 1)), "row")
            for r in range(ROWS)
        ]
        self._powers = builder.allocate_shared(tile.run * self._high * self.parts, dtype=power)
        # Where both are floats, what threads tell each other lies where exponentials will.
        self._reused, self._told = power == ACCUMULATOR, self._powers
        if not self._reused:
            self._told = builder.allocate_shared(tile.told, dtype=ACCUMULATOR)
        self._queries = builder.allocate_shared(rows.blocks * LANES * self._high, dtype=query)
        self._mixed = builder.registers(ROWS, dtype=ACCUMULATOR, fill=0.0)
        self._sum = builder.registers(1, dtype=ACCUMULATOR, fill=0.0)
        self._largest = builder.registers(1, dtype=ACCUMULATOR)
        # Not infinite: keys without any score, before those that have one, leave the sums alone.
        self._largest.fill(LEAST_FLOAT)
        self._scores = builder.registers(tile.key_blocks * LANES, dtype=ACCUMULATOR)

    @property
    def group_rows(self) -> tuple[Expr, Expr]:
        """Return the work-group's first row, and the one behind its last, which may not exist."""
        first = self._first_row - self._y * iconst(ROWS)
        return first, first + iconst(ROWS * self._high)

    @property
    def mix_step(self) -> int:
        """Values that are asked for at a time."""
        return LANES * self._tile.unroll

    def emit(self) -> None:
        """Emit everything."""
        self._share_queries()
        self.visit()
        total = self._total()
        if self.parts > 1:
            self._merge_parts(total)
            return
        total = self.count_beside(total, self._largest[0])
        for r in range(ROWS):
            with self.builder.when(self._row_exists(r)):
                self.write(r, self._x, self._mixed[r] / splat(lane(total, r)))

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

    def count_beside(self, total: Expr, _largest: Expr) -> Expr:
        """Add to the sum of exponentials, over those of the largest score, what is no key's."""
        return total

    @abstractmethod
    def write(self, r: int, block: Expr, value: Expr) -> None:
        """Store four channels of one of the thread's rows."""

    def _row_exists(self, r: int) -> Expr | None:
        """Return whether row `r` of the thread exists; None where it always does."""
        covered = -(-self._extents.w // (ROWS * self._high)) * ROWS * self._high
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
                asked = [builder.let(self.query(block, r), "t") for r in range(ROWS)]
                for c in range(LANES):
                    column = construct([lane(texel, c) for texel in asked])
                    place = self._query_at(block, c)
                    self._queries[place] = cast(column, f"{self._query}x{LANES}")
        builder.barrier()

    def _query_at(self, block: Expr, channel: int) -> Expr:
        """Return where a channel of the thread's rows lies."""
        return (block * iconst(LANES) + iconst(channel)) * iconst(self._high) + self._y

    def _compute_scores(self, first: Expr, keys: int) -> list[Rows]:
        """Return the thread's scores, by block of four keys."""
        builder, depth_blocks = self.builder, self._extents.blocks
        blocks = [self._key_block(first, j, keys) for j in range(self._tile.key_blocks)]
        self._scores.fill(0.0)
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
            for c in range(min(LANES, self._extents.c)):
                column = builder.let(widen(self._queries[self._query_at(depth, c)]), "q")
                for number, texel in enumerate(of_depth):
                    self._scores[number] = self._scores[number] + column * splat(lane(texel, c))

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
        for r in range(ROWS):
            by_key = [lane(self._scores[j * LANES + i], r) for i in range(LANES)]
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
        for r in range(ROWS):
            value = rows[0][r]
            for block in rows[1:]:
                value = maximum(value, block[r])
            value = value if len(rows) == 1 else self._hold(value)
            largest.append(combine_lanes(value, maximum))
        self._tell(construct(largest))

    def _raise_maximum(self) -> Expr:
        """Take the largest score so far; returns the factor of what was summed before."""
        before = self.builder.let(self._largest[0], "before")
        self._fold(self._largest, maximum)
        return self.builder.let(tirx.exp(before - self._largest[0]), "shrink")

    def _share_powers(self, rows: list[Rows], shrink: Expr) -> None:
        """Tell them the exponentials of the thread's keys, and add these to its part of the sums.

        What is added is what the values are weighed by, so that the weights come to one.
        """
        builder = self.builder
        largest = builder.let(self._largest[0], "largest")
        own = builder.let(self._sum[0] * shrink, "sum")
        for j, block in enumerate(rows):
            powers = []
            for r in range(ROWS):
                power = tirx.exp(block[r] - splat(lane(largest, r)))
                powers.append(builder.let(cast(power, f"{self._power}x{LANES}"), "p"))
            sums = [combine_lanes(builder.let(widen(power), "p"), plus) for power in powers]
            own = own + construct(sums)
            for i in range(LANES):
                key = (self._x + iconst(j * self._wide)) * iconst(LANES) + iconst(i)
                value = construct([lane(power, i) for power in powers])
                self._powers[self._power_at(key)] = value
        self._sum[0] = own

    def _power_at(self, key: Expr) -> Expr:
        """Return where the exponentials of the thread's rows with a key of its run lie."""
        return (self.part * iconst(self.run) + key) * iconst(self._high) + self._y

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
        total = builder.let(self.count_beside(reduce(plus, totals), whole), "total")
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

    def _total(self) -> Expr:
        """Return the sums of the exponentials of all keys."""
        builder = self.builder
        # The largest scores were read before the last barrier, the exponentials were not.
        self._wait()
        self._tell(self._sum[0])
        builder.barrier()
        self._sum.fill(0.0)
        self._fold(self._sum, plus)
        return builder.let(self._sum[0], "total")

    # What threads of the same rows and part tell each other

    def _wait(self) -> None:
        """Wait until what lies in `_told` may be replaced by something else, or the other way."""
        if self._reused:
            self.builder.barrier()

    def _rows_of(self, part: Expr) -> Expr:
        """Return the number of the thread's rows in a part."""
        return part * iconst(self._high) + self._y

    def _tell_at(self, index: Expr) -> Expr:
        """Return where thread `index` leaves its number."""
        return self._rows_of(self.part) * iconst(self._wide) + index

    def _tell(self, value: Expr) -> None:
        """Leave the thread's number to the others, who see it behind a barrier."""
        self._told[self._tell_at(self._x)] = value

    def _fold(self, total: Registers, combine: Combine) -> None:
        """Combine with `total` what all of them left."""
        loops, single = divmod(self._wide, UNROLLED_FOLDS)

        def take(index: Expr) -> None:
            total[0] = combine(total[0], self._told[self._tell_at(index)])

        if loops:
            with self.builder.loop(loops, "i") as i:
                for u in range(UNROLLED_FOLDS):
                    take(i * iconst(UNROLLED_FOLDS) + iconst(u))
        for u in range(self._wide - single, self._wide):
            take(iconst(u))

    # Values

    def _mix(self, first: Expr, keys: int, shrink: Expr) -> None:
        """Add the run's values, weighed."""
        for r in range(ROWS):
            self._mixed[r] = self._mixed[r] * splat(lane(shrink, r))
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
        powers = [
            builder.let(widen(self._powers[self._power_at(offset + iconst(i))]), "p") for i in steps
        ]
        for r in range(ROWS):
            terms = [splat(lane(p, r)) * v for p, v in zip(powers, values, strict=True)]
            self._mixed[r] = sum(terms, self._mixed[r])
