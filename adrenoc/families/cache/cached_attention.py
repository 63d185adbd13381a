"""Attention of new tokens over the rows of a cache that are there, which a number in memory says.

A work-group makes one head of one token.  Its threads go over the rows together, as many at a time
as they are: each makes the score of one row; the softmax goes on from where it was before; then
each adds up the values of its own four channels, threads of the same channels taking turns at the
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.families.cache.head_norm import HeadNorm, norm_head
from adrenoc.families.cache.rotation import (
    Rotation,
    head_texel,
    known_position,
    place_of_token,
    rotate,
)
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import sum_lanes
from adrenoc.tvmapi import (
    BufferLoad,
    Expr,
    cast,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    maximum,
    minimum,
    splat,
    tirx,
)

_NONE = -3.0e38
"""A score below all others: of a row that is not seen."""


@dataclass(frozen=True, kw_only=True)
class CachedTile:
    """`threads` share a head of a token: a power of two, at least its blocks of four channels."""

    threads: int

    @property
    def work_group(self) -> tuple[int, int, int]:
        """Threads of a work-group in x, y, z."""
        return self.threads, 1, 1

    def turns(self, blocks: int) -> int:
        """Threads that share the same four channels of a head of so many blocks."""
        return self.threads // blocks

    def shared_bytes(self, blocks: int) -> int:
        """Local memory: the query, powers, two folds, and the mixes that are added up."""
        mixes = self.turns(blocks) * blocks if self.turns(blocks) > 1 else 0
        vectors = blocks + 3 * self.threads + mixes
        return vectors * LANES * FLOAT_BYTES


@dataclass(frozen=True, kw_only=True)
class CachedOperands:
    """Queries [token, first + head * size], keys and values [1, kv head, row, size].

    `window` is how many rows a token sees, itself included, 0 for all; `cap` bounds scores as
    cap * tanh(score / cap), 0 does not.
    """

    q: Access
    keys: Access
    values: Access
    position: Access
    rotation: Rotation | None
    norm: HeadNorm | None
    tokens: int
    heads: int
    kv_heads: int
    head: int
    rows: int
    first: int
    scale: float
    window: int
    cap: float

    @property
    def blocks(self) -> int:
        """Blocks of four numbers that a head has."""
        return self.head // LANES


def cached_attention(
    builder: KernelBuilder, tile: CachedTile, operands: CachedOperands, epilogue: Epilogue
) -> None:
    """Emit out[token, head * size :] = softmax(scale * q keys^T) values over the rows seen."""
    o, width = operands, tile.threads
    member, head, token = builder.threads(
        width, o.heads, o.tokens, work_group=(width, 1, 1), cooperate=True
    )
    team = Team.make_along_x(builder, (width, 1, 1))
    position = known_position(builder, o.position, token, o.rows)
    query = _share_query(builder, o, member, head, token, position)
    weights = builder.allocate_shared(width, dtype=ACCUMULATOR)
    walk = _Walk(builder, tile, operands, team, member, head, position, query, weights)
    first = iconst(0)
    if o.window:
        seen = builder.let(maximum(position - iconst(o.window - 1), iconst(0)), "seen")
        first = builder.let(floordiv(seen, width), "first")
    last = builder.let(floordiv(position, width), "last")
    with builder.loop(last - first + iconst(1), "run", rolled=True) as run:
        walk.visit(builder.let((first + run) * iconst(width), "start"))
    value = walk.finish()
    turn = floordiv(member, o.blocks)
    with builder.when(turn == iconst(0)):
        block = head * iconst(o.blocks) + member
        n, h, w = place_of_token(o.q, token)
        epilogue.write(n, block, h, w, value)


def _share_query(
    builder: KernelBuilder,
    o: CachedOperands,
    member: Expr,
    head: Expr,
    token: Expr,
    position: Expr,
) -> SharedArray:
    """The scaled, rotated query in local memory."""
    query = builder.allocate_shared(o.blocks, dtype=ACCUMULATOR)
    read = head_texel(o.q, token, head * iconst(o.blocks) + iconst(o.first // LANES))
    with builder.when(member < iconst(o.blocks)):
        read = norm_head(builder, o.norm, o.blocks, read)
        value = rotate(builder, o.rotation, position, member, o.blocks, read)
        query[member] = value * splat(fconst(o.scale, ACCUMULATOR))
    builder.barrier()
    return query


class _Walk:
    """The softmax so far: the largest score, the sum of powers, and this thread's channels."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: CachedTile,
        operands: CachedOperands,
        team: Team,
        member: Expr,
        head: Expr,
        position: Expr,
        query: SharedArray,
        weights: SharedArray,
    ) -> None:
        self._builder, self._o, self._team = builder, operands, team
        self._width, self._member, self._position = tile.threads, member, position
        self._query, self._weights = query, weights
        self._turns = tile.turns(operands.blocks)
        group = operands.heads // operands.kv_heads
        self._kv = builder.let(floordiv(head, group), "kv") if group > 1 else head
        self._block = builder.let(floormod(member, operands.blocks), "block")
        self._turn = builder.let(floordiv(member, operands.blocks), "turn")
        self._folds = [builder.allocate_shared(tile.threads, dtype=ACCUMULATOR) for _ in range(2)]
        self._state: Registers = builder.registers(3, dtype=ACCUMULATOR)
        self._state[0] = splat(fconst(_NONE, ACCUMULATOR))
        self._state[1] = splat(fconst(0.0, ACCUMULATOR))
        self._state[2] = splat(fconst(0.0, ACCUMULATOR))

    def visit(self, start: Expr) -> None:
        """Go on with the rows from `start` on, one for each thread."""
        builder, team = self._builder, self._team
        row = builder.let(start + self._member, "row")
        seen = row <= self._position
        if self._o.window:
            seen = seen & (row > self._position - iconst(self._o.window))
        score = builder.registers(1, dtype=ACCUMULATOR)
        score[0] = splat(fconst(_NONE, ACCUMULATOR))
        with builder.when(seen):
            score[0] = splat(self._score(row))
        (largest,) = team.fold(builder, [score[0]], [maximum], held=self._folds[0])
        before = builder.let(self._state[0], "before")
        now = builder.let(maximum(before, largest), "largest")
        faded = builder.let(tirx.exp(lane(before, 0) - lane(now, 0)), "faded")
        power = if_then_else(
            seen, tirx.exp(lane(score[0], 0) - lane(now, 0)), fconst(0.0, ACCUMULATOR)
        )
        power = builder.let(power, "power")
        self._weights[self._member] = splat(power)
        (total,) = team.fold(builder, [splat(power)], [plus], held=self._folds[1])
        self._state[0] = now
        self._state[1] = self._state[1] * splat(faded) + total
        self._state[2] = self._state[2] * splat(faded)
        self._add_values(start)
        builder.barrier()

    def _score(self, row: Expr) -> Expr:
        """The product of the query and one key; it is scaled already."""
        builder = self._builder
        sums = builder.registers(1, dtype=ACCUMULATOR)
        sums.fill(0.0)
        with builder.loop(self._o.blocks, "b", rolled=True) as block:
            key = self._vector(self._o.keys, row, block)
            sums[0] = sums[0] + self._query[block] * key
        total = builder.let(sums[0], "sums")
        summed = sum_lanes(total)
        if not self._o.cap:
            return builder.let(summed, "score")
        cap = fconst(self._o.cap, ACCUMULATOR)
        return builder.let(cap * tirx.tanh(summed / cap), "score")

    def _add_values(self, start: Expr) -> None:
        """Add the values of these rows to this thread's channels, each by its power."""
        builder, turns = self._builder, self._turns
        there = builder.let(
            minimum(self._position - start + iconst(1), iconst(self._width)), "there"
        )
        mine = floordiv(there - self._turn + iconst(turns - 1), turns)
        with (
            builder.when(self._turn < iconst(turns)),
            builder.loop(builder.let(mine, "mine"), "r", rolled=True) as i,
        ):
            number = builder.let(i * iconst(turns) + self._turn, "number")
            value = self._vector(self._o.values, start + number, self._block)
            self._state[2] = self._state[2] + self._weights[number] * value

    def _vector(self, cache: Access, row: Expr, block: Expr) -> Expr:
        """Four numbers of a row, in float."""
        lanes = [
            cast(
                BufferLoad(
                    cache.buffer, [iconst(0), self._kv, row, block * iconst(LANES) + iconst(i)]
                ),
                ACCUMULATOR,
            )
            for i in range(LANES)
        ]
        return self._builder.let(construct(lanes), "v")

    def finish(self) -> Expr:
        """The mix of all rows, for the threads of the first turn."""
        builder, blocks = self._builder, self._o.blocks
        if self._turns == 1:
            return builder.let(self._state[2] / self._state[1], "mixed")
        parts = builder.allocate_shared(self._turns * blocks, dtype=ACCUMULATOR)
        with builder.when(self._turn < iconst(self._turns)):
            parts[self._member] = self._state[2]
        builder.barrier()
        sums = builder.registers(1, dtype=ACCUMULATOR)
        sums[0] = parts[self._block]
        for turn in range(1, self._turns):
            sums[0] = sums[0] + parts[self._block + iconst(turn * blocks)]
        return builder.let(sums[0] / self._state[1], "mixed")
