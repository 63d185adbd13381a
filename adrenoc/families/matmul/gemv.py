"""Products of few vectors by a constant matrix: every weight is read once, and that is the time.

One thread makes a part of the sums of one block of four outputs, for all vectors; a team of
threads shares the block (split K).  The input blocks go round the team, so that neighbours read
neighbouring texels of the weights' row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import widen
from adrenoc.tvmapi import Expr, iconst, lane, minimum, splat

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


def gemv(
    builder: KernelBuilder,
    tile: GemvTile,
    x: Access,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit out[p, :] = x[p, :] . weight for each of at most `MAX_PIXELS` places p.

    Shapes:
        x: roles N, H, W of any small extents, C = K
        weight: `weights.pack_conv` of [O, K, 1, 1]
        out: the same N, H, W, C = O
    """
    places = places_of(out.extents)
    in_blocks, out_blocks = x.extents.blocks, out.extents.blocks
    team, block = team_of_block(builder, tile, out_blocks)
    sums = builder.registers(len(places), dtype=ACCUMULATOR)
    sums.fill(0.0)

    def add(chosen: list[Expr]) -> None:
        for vectors, weights in [_reads(builder, x, weight, places, block, b) for b in chosen]:
            _multiply(sums, vectors, weights)

    visit_inputs(builder, tile, team, in_blocks, add)
    values = team.fold(builder, [sums[p] for p in range(len(places))], [plus] * len(places))
    for p, (n, h, w) in enumerate(places):
        # The members store a place each, where there are several.
        with builder.when(team.only(builder, p)):
            epilogue.write(iconst(n), block, iconst(h), iconst(w), values[p])


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


def _reads(
    builder: KernelBuilder,
    x: Access,
    weight: Access,
    places: list[tuple[int, int, int]],
    block: Expr,
    in_block: Expr,
) -> tuple[list[Expr], list[Expr]]:
    """A texel of each vector, and the weights of its channels: all are asked for, none awaited."""
    in_block = builder.let(in_block, "kb")
    first = builder.let(in_block * iconst(LANES), "k")
    channels, zero = min(LANES, x.extents.c), iconst(0)
    weights = [
        builder.let(widen(weight.texel(zero, zero, block, first + iconst(c))), "w")
        for c in range(channels)
    ]
    vectors = [
        builder.let(widen(x.texel(iconst(n), in_block, iconst(h), iconst(w))), "x")
        for n, h, w in places
    ]
    return vectors, weights


def _multiply(sums: Registers, vectors: list[Expr], weights: list[Expr]) -> None:
    for p, vector in enumerate(vectors):
        total = sums[p]
        for c, column in enumerate(weights):
            total = total + splat(lane(vector, c)) * column
        sums[p] = total
