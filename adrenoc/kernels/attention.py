"""Attention in one kernel: scores, softmax and the mix of values, no score ever in memory.

A work-group makes some query rows of one head and walks over the keys in runs.  Of a run, each
thread first makes the scores of four rows with a few keys; the largest score of a row is found
through local memory, the exponentials lie there for all; then each thread adds, for its block of
four channels, the values that they weigh.  What was added before is scaled down where a larger
score turns up (the online softmax of Milakov and Gimelshein, and of flash attention).

Arithmetic is in float whatever the preset: the kernel waits for texels, and a half image is read
as float for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.walk import ACCUMULATOR, across, widened
from adrenoc.layout import LANES
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

UNROLLED_MAXIMA = 16
"""Threads along x whose largest scores are read without a loop."""

ROWS = LANES
"""Query rows a thread: the lanes of a vector of scores."""


@dataclass(frozen=True, kw_only=True)
class AttentionTile:
    """`work_group` is (blocks of four value channels, rows / 4, 1).

    A thread makes the scores of `key_blocks` times four keys of a run.
    """

    work_group: tuple[int, int, int]
    key_blocks: int = 1

    @property
    def run(self) -> int:
        """Keys between two steps of the softmax."""
        return self.work_group[0] * self.key_blocks * LANES

    def shared_bytes(self, power_bytes: int) -> int:
        """Local memory of a work-group; `power_bytes` is the size of an exponential."""
        x, y, _ = self.work_group
        return LANES * (self.run * y * power_bytes + x * y * 4)


Rows = list[Expr]
"""Four vectors of float: of each row, four keys."""

Rescore = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
"""(n, h, row, block of keys, scores) -> what the softmax gets: scaled, masked."""

Write = Callable[[Expr, Expr, Expr, Expr, Expr], None]
"""Stores (n, h, row, block of channels, value)."""


@dataclass(frozen=True, kw_only=True)
class AttentionOperands:
    """What a kernel reads and writes, by its own coordinates.

    Shapes:
        q: N and H batch, W = rows, C = depth
        k: N and H batch, W = keys, C = depth
        v: N and H batch, W = keys, C = channels
    """

    q: Access
    k: Access
    v: Access
    scale: float
    value_scale: float
    rescore: Rescore | None
    write: Write
    lowest: float | None = None
    """Counted in place of scores below it."""


def attention(
    builder: KernelBuilder, tile: AttentionTile, operands: AttentionOperands, power: str
) -> None:
    """Emit softmax(scale * q k^T, rescored) v; exponentials lie in local memory as `power`."""
    _Attention(builder, tile, operands, power).emit()


class _Attention:
    def __init__(
        self, builder: KernelBuilder, tile: AttentionTile, operands: AttentionOperands, power: str
    ) -> None:
        self._builder, self._tile, self._of = builder, tile, operands
        self._power = power
        self._rows, self._keys = operands.q.extents.w, operands.k.extents.w
        e = operands.q.extents
        _, group, batch = builder.threads(
            operands.v.extents.blocks,
            -(-self._rows // ROWS),
            e.n * e.h,
            work_group=tile.work_group,
            cooperate=True,
        )
        self._x, self._y = builder.local[0], builder.local[1]
        self._wide, self._high, _ = tile.work_group
        self._n = builder.let(floordiv(batch, e.h), "n") if e.n > 1 else iconst(0)
        self._h = builder.let(floormod(batch, e.h), "h") if e.h > 1 else iconst(0)
        self._first_row = builder.let(group * iconst(ROWS), "row")
        # Rows beyond the last one repeat it, and are not stored.
        self._row = [
            builder.let(minimum(self._first_row + iconst(r), iconst(self._rows - 1)), "row")
            for r in range(ROWS)
        ]
        self._powers = builder.shared(tile.run * self._high, dtype=power)
        self._maxima = builder.shared(self._wide * self._high, dtype=ACCUMULATOR)
        self._mixed = builder.registers(ROWS, dtype=ACCUMULATOR)
        self._mixed.fill(0.0)
        self._sum = builder.registers(1, dtype=ACCUMULATOR)
        self._sum.fill(0.0)
        self._largest = builder.registers(1, dtype=ACCUMULATOR)
        self._largest.fill(-math.inf)
        self._scores = builder.registers(tile.key_blocks * LANES, dtype=ACCUMULATOR)

    def emit(self) -> None:
        builder, run = self._builder, self._tile.run
        full, rest = divmod(self._keys, run)
        if full:
            with builder.loop(full, "run") as i:
                self._run(builder.let(i * iconst(run), "key"), run)
        if rest:
            self._run(iconst(full * run), rest)
        total = builder.let(self._sum[0], "total")
        for r in range(ROWS):
            with builder.when(self._stored(r)):
                value = self._mixed[r] / splat(lane(total, r))
                if self._of.value_scale != 1.0:
                    value = value * splat(fconst(self._of.value_scale, ACCUMULATOR))
                self._of.write(self._n, self._h, self._row[r], self._x, value)

    def _stored(self, r: int) -> Expr | None:
        """Whether row `r` of the thread exists; None where it always does."""
        covered = -(-self._rows // (ROWS * self._high)) * ROWS * self._high
        if covered == self._rows:
            return None
        return self._first_row + iconst(r) < iconst(self._rows)

    def _run(self, first: Expr, keys: int) -> None:
        """Everything for `keys` keys from `first` on; fewer than a run are the last ones."""
        rows = self._scored(first, keys)
        self._share_maxima(rows)
        self._builder.barrier()
        shrink = self._raise_maximum()
        self._share_powers(rows)
        self._builder.barrier()
        self._mix(first, keys, shrink)

    # Scores

    def _scored(self, first: Expr, keys: int) -> list[Rows]:
        """The thread's scores, by block of four keys."""
        builder, q, k = self._builder, self._of.q, self._of.k
        blocks = [self._key_block(first, j, keys) for j in range(self._tile.key_blocks)]
        self._scores.fill(0.0)
        at = [
            builder.let(self._clamped(block * iconst(LANES) + iconst(i), keys), "key")
            for block in blocks
            for i in range(LANES)
        ]
        # Of a short last run, most threads have no key: they ask for nothing.
        some = self._x * iconst(LANES) < iconst(keys) if keys <= self._tile.run // 2 else None
        with builder.when(some), builder.loop(q.extents.blocks, "d") as d:
            asked = [self._read(q, d, row) for row in self._row]
            columns = [
                construct([lane(texel, c) for texel in asked])
                for c in range(min(LANES, q.extents.c))
            ]
            texels = [self._read(k, d, key) for key in at]
            for number, texel in enumerate(texels):
                total = self._scores[number]
                for c, column in enumerate(columns):
                    total = total + column * splat(lane(texel, c))
                self._scores[number] = total
        return [self._rescored(block, j, keys) for j, block in enumerate(blocks)]

    def _read(self, access: Access, block: Expr, position: Expr) -> Expr:
        """Four channels of a row or of a key."""
        texel = access.texel(self._n, block, self._h, position)
        return self._builder.let(widened(texel), "t")

    def _key_block(self, first: Expr, j: int, keys: int) -> Expr:
        """The thread's j-th block of four keys, the last one where there are no more."""
        block = floordiv(first, LANES) + self._x + iconst(j * self._wide)
        if keys < self._tile.run:
            block = minimum(block, iconst(-(-self._keys // LANES) - 1))
        return self._builder.let(block, "keys")

    def _clamped(self, key: Expr, keys: int) -> Expr:
        """A key, or the last one where that lies behind it."""
        return minimum(key, iconst(self._keys - 1)) if keys < self._tile.run else key

    def _rescored(self, block: Expr, j: int, keys: int) -> Rows:
        """Block `j` of the scores by row, as the softmax gets them; what is no key counts none."""
        builder = self._builder
        rows = []
        for r in range(ROWS):
            by_key = [lane(self._scores[j * LANES + i], r) for i in range(LANES)]
            value = builder.let(construct(by_key), "s")
            if self._of.scale != 1.0:
                value = builder.let(value * splat(fconst(self._of.scale, ACCUMULATOR)), "s")
            if self._of.rescore is not None:
                value = self._of.rescore(self._n, self._h, self._row[r], block, value)
                if self._of.lowest is not None:
                    value = maximum(value, splat(fconst(self._of.lowest, ACCUMULATOR)))
            if keys < self._tile.run:
                value = self._only_keys(value, j, keys)
            rows.append(builder.let(value, "s"))
        return rows

    def _only_keys(self, value: Expr, j: int, keys: int) -> Expr:
        value = self._builder.let(value, "s")
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
            largest.append(across(self._builder.let(value), maximum))
        self._maxima[self._place(self._x, self._wide)] = construct(largest)

    def _place(self, index: Expr, stride: int) -> Expr:
        """Where the rows of this thread keep number `index` of `stride`."""
        return self._y * iconst(stride) + index

    def _raise_maximum(self) -> Expr:
        """Take the largest score so far; returns the factor of what was summed before."""
        builder, before = self._builder, self._builder.let(self._largest[0], "before")
        loops, single = divmod(self._wide, UNROLLED_MAXIMA)

        def take(index: Expr) -> None:
            held = self._maxima[self._place(index, self._wide)]
            self._largest[0] = maximum(self._largest[0], held)

        if loops:
            with builder.loop(loops, "i") as i:
                for u in range(UNROLLED_MAXIMA):
                    take(i * iconst(UNROLLED_MAXIMA) + iconst(u))
        for u in range(self._wide - single, self._wide):
            take(iconst(u))
        return builder.let(tirx.exp(before - self._largest[0]), "shrink")

    def _share_powers(self, rows: list[Rows]) -> None:
        builder = self._builder
        largest = builder.let(self._largest[0], "largest")
        for j, block in enumerate(rows):
            powers = [
                builder.let(tirx.exp(block[r] - splat(lane(largest, r))), "p") for r in range(ROWS)
            ]
            for i in range(LANES):
                key = (self._x + iconst(j * self._wide)) * iconst(LANES) + iconst(i)
                value = construct([lane(power, i) for power in powers])
                self._powers[key * iconst(self._high) + self._y] = cast(
                    value, f"{self._power}x{LANES}"
                )

    # Values

    def _mix(self, first: Expr, keys: int, shrink: Expr) -> None:
        """Add the run's values, weighed."""
        builder = self._builder
        self._sum[0] = self._sum[0] * shrink
        for r in range(ROWS):
            self._mixed[r] = self._mixed[r] * splat(lane(shrink, r))
        with builder.loop(keys // LANES, "four") as four:
            self._mix_keys(first, four * iconst(LANES), range(LANES))
        if keys % LANES:
            self._mix_keys(first, iconst(keys - keys % LANES), range(keys % LANES))

    def _mix_keys(self, first: Expr, offset: Expr, steps: range) -> None:
        builder = self._builder
        values = [
            self._read(self._of.v, self._x, builder.let(first + offset + iconst(i), "key"))
            for i in steps
        ]
        powers = [
            builder.let(
                widened(self._powers[(offset + iconst(i)) * iconst(self._high) + self._y]), "p"
            )
            for i in steps
        ]
        _add(self._sum, 0, powers)
        for r in range(ROWS):
            terms = [splat(lane(p, r)) * v for p, v in zip(powers, values, strict=True)]
            _add(self._mixed, r, terms)


def _add(total: Registers, index: int, terms: list[Expr]) -> None:
    total[index] = sum(terms, total[index])
