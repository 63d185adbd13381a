"""Products of few vectors by a constant matrix: every weight is read once, and that is the time.

One thread makes a part of the sums of one block of four outputs, for all vectors; a team of
threads shares the block (split K).  The input blocks go round the team, so that neighbours read
neighbouring texels of the weights' row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, iconst, lane, load_texel, minimum, splat
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue, Finished
from adrenoc.kernels.families.shared.row_product import RowNorm, begin_token, give_gate
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import widen

MAX_PIXELS = 8
"""Vectors that one thread serves: its sums stay in registers."""


@dataclass(frozen=True, kw_only=True)
class GemvTile:
    """`work_group` is (threads that share an output block, output blocks, 1).

    `unroll` is the input blocks whose texels a thread asks for before it waits.
    """

    work_group: tuple[int, int, int]
    unroll: int

    @property
    def splits(self) -> int:
        """Threads that share one output block's sums."""
        return self.work_group[0]


@dataclass(frozen=True, kw_only=True)
class GemvOperands:
    """What the kernel reads: of each vector all numbers, perhaps as a norm leaves them.

    With two matrices, `finish` makes of the second's products what the epilogue reads beside those
    of the first.

    Shapes:
        x: roles N, H, W of any small extents, C = K; with a norm K is a multiple of four
        weights: each `weights.pack_conv` of [O, K, 1, 1]
    """

    x: Access
    weights: tuple[Access, ...]
    norm: RowNorm | None = None
    finish: Finished | None = None


def gemv(
    builder: KernelBuilder, tile: GemvTile, operands: GemvOperands, out: Access, epilogue: Epilogue
) -> None:
    """Emit out[p, :] = x[p, :] . weight for each of at most `MAX_PIXELS` places p.

    Shapes:
        out: the same N, H, W as x, C = O
    """
    places, x, norm = places_of(out.extents), operands.x, operands.norm
    team, block = team_of_block(builder, tile, out.extents.blocks)
    begin_token(x, tile.work_group)
    count, width = len(places), len(operands.weights)
    sums = builder.registers(count * width, dtype=ACCUMULATOR)
    sums.fill(0.0)
    squares = None
    if norm is not None:
        squares = builder.registers(count, dtype=ACCUMULATOR)
        squares.fill(0.0)

    add_products(builder, tile, team, operands, places, block, sums, squares)
    values = [sums[p] for p in range(count * width)]
    if squares is not None:
        values += [squares[p] for p in range(count)]
    values = team.fold(builder, values, [plus] * len(values))
    for p, (n, h, w) in enumerate(places):
        # The members store a place each, where there are several.
        with builder.when(team.store_condition(builder, p)):
            value, *others = values[p : count * width : count]
            if norm is not None:
                scale = norm.scale(builder, values[count * width + p], x.extents.c)
                value, others = value * scale, [other * scale for other in others]
            place = (iconst(n), block, iconst(h), iconst(w))
            given = give_gate(operands.finish, place, others)
            epilogue.write(*place, value, given)


def add_products(
    builder: KernelBuilder,
    tile: GemvTile,
    team: Team,
    operands: GemvOperands,
    places: list[tuple[int, int, int]],
    block: Expr,
    sums: Registers,
    squares: Registers | None = None,
) -> None:
    """Add this member's part of the products of each vector to `sums`, those of one matrix after
    those of another; with a norm its squares to `squares`."""
    count = len(places)

    def add(chosen: list[Expr]) -> None:
        for read, columns in [_reads(builder, operands, places, block, b) for b in chosen]:
            vectors = read
            if squares is not None and columns.gains is not None:
                vectors = _norm(builder, squares, vectors, columns.gains)
            for s in range(len(operands.weights)):
                _multiply(sums, s * count, vectors, columns.weights[s])

    visit_inputs(builder, tile, team, operands.x.extents.blocks, add)


def team_of_block(builder: KernelBuilder, tile: GemvTile, out_blocks: int) -> tuple[Team, Expr]:
    """Start the threads: the team of this one, and the output block that it makes."""
    _, asked, _ = builder.threads(
        tile.splits, out_blocks, work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    block = asked
    if out_blocks % tile.work_group[1]:  # threads beyond the last block repeat it
        block = builder.let(minimum(asked, iconst(out_blocks - 1)), "block")
    return team, block


def visit_inputs(
    builder: KernelBuilder,
    tile: GemvTile,
    team: Team,
    in_blocks: int,
    add: Callable[[list[Expr]], None],
) -> None:
    """Call `add` with the input blocks of this member of the team, some at a time."""
    splits = tile.splits
    rounds, rest = divmod(in_blocks, splits)
    unrolled, single = divmod(rounds, tile.unroll)
    if unrolled:
        with builder.loop(unrolled, "k", rolled=True) as i:
            first = builder.let(i * iconst(tile.unroll * splits) + team.member, "kb")
            add([first + iconst(u * splits) for u in range(tile.unroll)])
    for u in range(single):
        add([iconst((unrolled * tile.unroll + u) * splits) + team.member])
    if rest:
        with builder.when(team.member < iconst(rest)):
            add([iconst(rounds * splits) + team.member])


def places_of(extents: Extents) -> list[tuple[int, int, int]]:
    """(n, h, w) of every vector."""
    return [(n, h, w) for n in range(extents.n) for h in range(extents.h) for w in range(extents.w)]


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Of four inputs: the weights of each matrix, and the gains of a norm."""

    weights: list[list[Expr]]
    gains: Expr | None


def _reads(
    builder: KernelBuilder,
    operands: GemvOperands,
    places: list[tuple[int, int, int]],
    block: Expr,
    in_block: Expr,
) -> tuple[list[Expr], _Columns]:
    """Return a texel of each vector, and the weights of its channels: all are asked for, none
    awaited."""
    x, norm = operands.x, operands.norm
    in_block = builder.let(in_block, "kb")
    first = builder.let(in_block * iconst(LANES), "k")
    channels, zero = min(LANES, x.extents.c), iconst(0)
    weights = [
        [
            builder.let(widen(weight.texel(zero, zero, block, first + iconst(c))), "w")
            for c in range(channels)
        ]
        for weight in operands.weights
    ]
    gains = None
    if norm is not None:
        gains = builder.let(load_texel(norm.gains.buffer, in_block), "gain")
    vectors = [
        builder.let(widen(x.texel(iconst(n), in_block, iconst(h), iconst(w))), "x")
        for n, h, w in places
    ]
    return vectors, _Columns(weights=weights, gains=gains)


def _norm(
    builder: KernelBuilder, squares: Registers, vectors: list[Expr], gains: Expr
) -> list[Expr]:
    """Return the vectors times the gains of a norm, whose squares are added up."""
    for p, vector in enumerate(vectors):
        squares[p] = squares[p] + vector * vector
    return [builder.let(vector * gains, "x") for vector in vectors]


def _multiply(sums: Registers, first: int, vectors: list[Expr], weights: list[Expr]) -> None:
    """Add products of each vector to the sums from number `first` on."""
    for p, vector in enumerate(vectors):
        total = sums[first + p]
        for c, column in enumerate(weights):
            total = total + splat(lane(vector, c)) * column
        sums[first + p] = total
