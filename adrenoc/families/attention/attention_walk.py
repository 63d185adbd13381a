"""The walk of attention over its keys: scores, softmax and the mix of values, no score in memory.

A work-group makes some query rows of one head, which it brings to local memory, and walks over the
keys in runs.  Of a run, each thread first makes the scores of four rows with a few keys; the
largest score of a row is found through local memory, the exponentials lie there for all; then each
thread adds, for its block of four channels, the values that they weigh.  What was added before is
scaled down where a larger score turns up (the online softmax of Milakov and Gimelshein, and of
flash attention).

Arithmetic is in float whatever the preset: the kernel waits for texels, and a half image is read
as float for nothing.  What a query, a key, a value is, and where a result goes, families say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.families.attention.attention_tile import ROWS, AttentionTile
from adrenoc.ir.layout import LANES
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR, plus
from adrenoc.kernels.walk import combine_lanes, widen
from adrenoc.tvmapi import (
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

UNROLLED_FOLDS = 4
"""Threads along x whose numbers are read without a loop."""

Rows = list[Expr]
"""Four vectors of float: of each row, four keys."""


@dataclass(frozen=True, kw_only=True)
class AttentionSizes:
    """Of one head: rows, keys at most, channels of both, blocks of value channels; the batch."""

    rows: int
    keys: int
    depth: int
    value_blocks: int
    n: int
    h: int

    @property
    def depth_blocks(self) -> int:
        """Blocks of four channels of a query."""
        return -(-self.depth // LANES)


class AttentionWalk(ABC):
    """One thread of the kernel."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: AttentionTile,
        sizes: AttentionSizes,
        power: str,
        query: str,
    ) -> None:
        self.builder, self.run = builder, tile.run
        self._tile, self._sizes = tile, sizes
        self._power, self._query = power, query
        self._keys = sizes.keys
        _, group, batch = builder.threads(
            sizes.value_blocks,
            -(-self._sizes.rows // ROWS),
            sizes.n * sizes.h,
            work_group=tile.work_group,
            cooperate=True,
        )
        self._x, self._y = builder.local[0], builder.local[1]
        self._wide, self._high, _ = tile.work_group
        several = sizes.n > 1, sizes.h > 1
        self.n = builder.let(floordiv(batch, sizes.h), "n") if several[0] else iconst(0)
        self.h = builder.let(floormod(batch, sizes.h), "h") if several[1] else iconst(0)
        self._first_row = builder.let(group * iconst(ROWS), "row")
        # Rows beyond the last one repeat it, and are not stored.
        self.rows = [
            builder.let(minimum(self._first_row + iconst(r), iconst(self._sizes.rows - 1)), "row")
            for r in range(ROWS)
        ]
        self._powers = builder.allocate_shared(tile.run * self._high, dtype=power)
        # Where both are floats, what threads tell each other lies where exponentials will.
        self._reused = power == ACCUMULATOR
        self._folded = self._powers
        if not self._reused:
            self._folded = builder.allocate_shared(self._wide * self._high, dtype=ACCUMULATOR)
        queries = sizes.depth_blocks * LANES * self._high
        self._queries = builder.allocate_shared(queries, dtype=query)
        self._mixed = builder.registers(ROWS, dtype=ACCUMULATOR)
        self._mixed.fill(0.0)
        self._sum = builder.registers(1, dtype=ACCUMULATOR)
        self._sum.fill(0.0)
        self._largest = builder.registers(1, dtype=ACCUMULATOR)
        self._largest.fill(-math.inf)
        self._scores = builder.registers(tile.key_blocks * LANES, dtype=ACCUMULATOR)

    @property
    def group_rows(self) -> tuple[Expr, Expr]:
        """The work-group's first row, and the one behind its last, which may not exist."""
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
        total = self.total()
        for r in range(ROWS):
            with self.builder.when(self._row_exists(r)):
                self.write(r, self._x, self._mixed[r] / splat(lane(total, r)))

    def visit(self) -> None:
        """Go over all keys."""
        builder, run = self.builder, self._tile.run
        full, rest = divmod(self._keys, run)
        if full:
            with builder.loop(full, "run") as i:
                self.visit_run(builder.let(i * iconst(run), "key"), run)
        if rest:
            self.visit_run(iconst(full * run), rest)

    @abstractmethod
    def query(self, block: Expr, r: int) -> Expr:
        """Four channels of one of the thread's rows."""

    @abstractmethod
    def key(self, block: Expr, key: Expr) -> Expr:
        """Four channels of a key."""

    @abstractmethod
    def value(self, block: Expr, key: Expr) -> Expr:
        """Four channels of a key's value."""

    @abstractmethod
    def rescore(self, r: int, block: Expr, value: Expr) -> Expr:
        """What the softmax gets of a row's scores with a block of keys: scaled, masked."""

    @abstractmethod
    def write(self, r: int, block: Expr, value: Expr) -> None:
        """Store four channels of one of the thread's rows."""

    def _row_exists(self, r: int) -> Expr | None:
        """Whether row `r` of the thread exists; None where it always does."""
        covered = -(-self._sizes.rows // (ROWS * self._high)) * ROWS * self._high
        if covered == self._sizes.rows:
            return None
        return self._first_row + iconst(r) < iconst(self._sizes.rows)

    def visit_run(self, first: Expr, keys: int) -> None:
        """Everything for `keys` keys from `first` on; fewer than a run are the last ones."""
        rows = self._compute_scores(first, keys)
        self._end_folds()
        self._share_maxima(rows)
        self.builder.barrier()
        shrink = self._raise_maximum()
        self._end_folds()
        self._share_powers(rows, shrink)
        self.builder.barrier()
        self._mix(first, keys, shrink)

    # Scores

    def _share_queries(self) -> None:
        """Bring the rows to local memory, turned: of each channel, a vector of the thread's rows.

        The threads of the same rows take a block of channels each.
        """
        builder, blocks = self.builder, self._sizes.depth_blocks
        for first in range(0, blocks, self._wide):
            last = blocks - first < self._wide
            inside = self._x < iconst(blocks - first) if last else None
            with builder.when(inside):
                block = builder.let(self._x + iconst(first), "d")
                asked = [builder.let(self.query(block, r), "t") for r in range(ROWS)]
                for c in range(LANES):
                    column = construct([lane(texel, c) for texel in asked])
                    place = self._query_at(block, c)
                    self._queries[place] = cast(column, f"{self._query}x{LANES}")
        builder.barrier()

    def _query_at(self, block: Expr, channel: int) -> Expr:
        """Where a channel of the thread's rows lies."""
        return (block * iconst(LANES) + iconst(channel)) * iconst(self._high) + self._y

    def _compute_scores(self, first: Expr, keys: int) -> list[Rows]:
        """The thread's scores, by block of four keys."""
        builder, depth_blocks = self.builder, self._sizes.depth_blocks
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
                    first = d * iconst(self._tile.unroll)
                    self._multiply([first + iconst(u) for u in range(self._tile.unroll)], at)
            for last in range(depth_blocks - rest, depth_blocks):
                self._multiply([iconst(last)], at)
        return [self._rescore_block(block, j, keys) for j, block in enumerate(blocks)]

    def _multiply(self, depths: list[Expr], keys: list[Expr]) -> None:
        """Add the products of some blocks of depth, all of which are asked for first."""
        builder = self.builder
        depths = [builder.let(depth, "d") for depth in depths]
        texels = [[builder.let(self.key(depth, key), "t") for key in keys] for depth in depths]
        for depth, of_depth in zip(depths, texels, strict=True):
            for c in range(min(LANES, self._sizes.depth)):
                column = builder.let(widen(self._queries[self._query_at(depth, c)]), "q")
                for number, texel in enumerate(of_depth):
                    self._scores[number] = self._scores[number] + column * splat(lane(texel, c))

    def _key_block(self, first: Expr, j: int, keys: int) -> Expr:
        """The thread's j-th block of four keys, the last one where there are no more."""
        block = floordiv(first, LANES) + self._x + iconst(j * self._wide)
        if keys < self._tile.run:
            block = minimum(block, iconst(-(-self._keys // LANES) - 1))
        return self.builder.let(block, "keys")

    def place_key(self, key: Expr, keys: int) -> Expr:
        """What `key` is asked by: a key, or the last one where that lies behind it."""
        return minimum(key, iconst(self._keys - 1)) if keys < self._tile.run else key

    def _rescore_block(self, block: Expr, j: int, keys: int) -> Rows:
        """Block `j` of the scores by row, as the softmax gets them; what is no key counts none."""
        builder = self.builder
        rows = []
        for r in range(ROWS):
            by_key = [lane(self._scores[j * LANES + i], r) for i in range(LANES)]
            value = builder.let(construct(by_key), "s")
            value = self.rescore(r, block, value)
            if keys < self._tile.run:
                value = self._only_keys(value, j, keys)
            rows.append(builder.let(value, "s"))
        return rows

    def _only_keys(self, value: Expr, j: int, keys: int) -> Expr:
        value = self.builder.let(value, "s")
        first = (self._x + iconst(j * self._wide)) * iconst(LANES)
        nothing = fconst(-math.inf, ACCUMULATOR)
        return construct(
            [
                select(first + iconst(i) < iconst(keys), lane(value, i), nothing)
                for i in range(LANES)
            ]
        )

    # The softmax, a run further

    def _share_maxima(self, rows: list[Rows]) -> None:
        """Tell the threads of the same rows the largest score of the thread's keys."""
        largest = []
        for r in range(ROWS):
            value = rows[0][r]
            for block in rows[1:]:
                value = maximum(value, block[r])
            largest.append(combine_lanes(self.builder.let(value), maximum))
        self._folded[self._place(self._x, self._wide)] = construct(largest)

    def _place(self, index: Expr, stride: int) -> Expr:
        """Where the rows of this thread keep number `index` of `stride`."""
        return self._y * iconst(stride) + index

    def _raise_maximum(self) -> Expr:
        """Take the largest score so far; returns the factor of what was summed before."""
        before = self.builder.let(self._largest[0], "before")
        self._fold_shared(self._largest, maximum)
        return self.builder.let(tirx.exp(before - self._largest[0]), "shrink")

    def _fold_shared(self, total: Registers, combine: Callable[[Expr, Expr], Expr]) -> None:
        """Combine with `total` what the threads of the same rows left in local memory."""
        loops, single = divmod(self._wide, UNROLLED_FOLDS)

        def take(index: Expr) -> None:
            total[0] = combine(total[0], self._folded[self._place(index, self._wide)])

        if loops:
            with self.builder.loop(loops, "i") as i:
                for u in range(UNROLLED_FOLDS):
                    take(i * iconst(UNROLLED_FOLDS) + iconst(u))
        for u in range(self._wide - single, self._wide):
            take(iconst(u))

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
                self._powers[key * iconst(self._high) + self._y] = value
        self._sum[0] = own

    def _end_folds(self) -> None:
        """Wait until what lies in `folded` may be replaced by exponentials, or the other way."""
        if self._reused:
            self.builder.barrier()

    @property
    def largest(self) -> Expr:
        """The largest score of each row."""
        return self._largest[0]

    def total(self) -> Expr:
        """The sums of the exponentials of all keys."""
        builder = self.builder
        # The largest scores were read before the last barrier, the exponentials were not.
        self._end_folds()
        self._folded[self._place(self._x, self._wide)] = self._sum[0]
        builder.barrier()
        self._sum.fill(0.0)
        self._fold_shared(self._sum, plus)
        return builder.let(self._sum[0], "total")

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
            with builder.loop(keys // step, "keys") as i:
                self.mix_keys(first, i * iconst(step), range(step))
        if keys % step:
            self.mix_keys(first, iconst(keys - keys % step), range(keys % step))

    def mix_keys(self, first: Expr, offset: Expr, steps: range) -> None:
        """Add some values, all of which are asked for first."""
        builder = self.builder
        values = [
            builder.let(self.value(self._x, builder.let(first + offset + iconst(i), "key")), "t")
            for i in steps
        ]
        powers = [
            builder.let(
                widen(self._powers[(offset + iconst(i)) * iconst(self._high) + self._y]), "p"
            )
            for i in steps
        ]
        for r in range(ROWS):
            terms = [splat(lane(p, r)) * v for p, v in zip(powers, values, strict=True)]
            self._mixed[r] = sum(terms, self._mixed[r])
