"""Visit the texels of a tensor along some of its roles, and combine what they hold.

Reductions, softmax and norms are loops over some roles around an accumulator.  Their one
difficulty is the last block of channels, whose padding lanes must not count: the walk visits it
apart from the others, so that no test is left inside the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    dtype_of,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
)
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.runs import OneRun
from adrenoc.kernels.team import ACCUMULATOR, Team

LEAST_FLOAT = -3.4028234663852886e38
"""The least number of float32 that is finite."""
NO_SCORE = -3.0e38
"""Below all scores of attention: of a row that is not seen."""
UNROLLED = 4
"""Texels that a member of a team asks for before it waits."""
AXES = "nbhw"
"""Names of loops along the coordinates."""
MOST_UNROLLED = 16
"""Texels of a member up to which a compiler may ask for all at once: more of them spill."""


class Position(NamedTuple):
    """One texel: batch, block of four channels, row, column; all int32."""

    n: Expr
    block: Expr
    h: Expr
    w: Expr


class Counts(NamedTuple):
    """How many texels a walk visits along each coordinate."""

    n: int
    blocks: int
    h: int
    w: int


Visit = Callable[[Position, int], None]
"""Emits what happens at a texel, of which the first so many lanes are channels."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """The texels from `start` on; `tail` is the channels in the last block, 0 for all four."""

    start: Position
    counts: Counts
    tail: int = 0

    @property
    def channels(self) -> int:
        """The channels along the walk's blocks."""
        return self.counts.blocks * LANES - (LANES - self.tail if self.tail else 0)


def region_along(extents: Extents, roles: str, start: Position) -> Region:
    """All texels along `roles` (letters of NCHW) of a tensor of these extents."""
    counts = Counts(
        n=extents.n if "N" in roles else 1,
        blocks=extents.blocks if "C" in roles else 1,
        h=extents.h if "H" in roles else 1,
        w=extents.w if "W" in roles else 1,
    )
    return Region(start=start, counts=counts, tail=extents.c % LANES if "C" in roles else 0)


def each_texel(
    builder: KernelBuilder, region: Region, visit: Visit, team: Team, runs: OneRun | None = None
) -> None:
    """Emit loops that visit a region's texels, the last block apart if it is partly empty.

    Each texel is visited by one member of the team.  `runs` holds the sums that the visits add to;
    None where there are none.
    """
    start, counts = region.start, region.counts
    full = counts.blocks - 1 if region.tail else counts.blocks
    loops = _loops if team.width == 1 else partial(_shared_loop, team)
    runs = runs or OneRun(builder)
    if full:
        loops(builder, start, counts._replace(blocks=full), LANES, visit, runs)
    if region.tail:
        last = start._replace(block=_plus(start.block, iconst(full)))
        loops(builder, last, counts._replace(blocks=1), region.tail, visit, runs)


def visits(region: Region, team: Team) -> int:
    """Return the most texels of a region that one member of the team visits."""
    return math.ceil(math.prod(region.counts) / team.width)


def _loops(
    builder: KernelBuilder, start: Position, counts: Counts, lanes: int, visit: Visit, runs: OneRun
) -> None:
    def bind(axis: int, step: Expr) -> Expr:
        first = start[axis]
        return first if counts[axis] == 1 else builder.let(_plus(first, step), AXES[axis])

    runs.nest(counts, AXES, lambda at: visit(Position(*at), lanes), bind)


def _shared_loop(
    team: Team,
    builder: KernelBuilder,
    start: Position,
    counts: Counts,
    lanes: int,
    visit: Visit,
    runs: OneRun,
) -> None:
    """One loop over the texels, counted along W first, each member in steps of the team."""
    rounds, rest = divmod(math.prod(counts), team.width)

    def visit_number(number: Expr) -> None:
        visit(_position(builder, start, counts, builder.let(number, "i")), lanes)

    def visit_some(t: Expr) -> None:
        first = builder.let(t * iconst(UNROLLED * team.width) + team.member, "i")
        for u in range(UNROLLED):
            visit_number(first + iconst(u * team.width))

    if rounds >= UNROLLED:
        long = rounds > MOST_UNROLLED
        runs.loop(rounds // UNROLLED, UNROLLED, "t", visit_some, rolled=long)
    for u in range(rounds - rounds % UNROLLED, rounds):
        with runs.run():
            visit_number(team.member + iconst(u * team.width))
    if rest:
        with runs.run(), builder.when(team.member < iconst(rest)):
            visit_number(team.member + iconst(rounds * team.width))


def _position(builder: KernelBuilder, start: Position, counts: Counts, number: Expr) -> Position:
    """Return where texel `number` of a region is."""
    steps: dict[str, Expr] = {}
    wide = [role for role, count in zip("whbn", reversed(counts), strict=True) if count > 1]
    for role, count in zip("whbn", reversed(counts), strict=True):
        if count == 1:
            continue
        last = role == wide[-1]
        steps[role] = builder.let(number if last else floormod(number, count), role)
        number = number if last else builder.let(floordiv(number, count), "i")
    at = [
        builder.let(_plus(first, steps[role]), role) if role in steps else first
        for role, first in zip("nbhw", start, strict=True)
    ]
    return Position(*at)


def _plus(a: Expr, b: Expr) -> Expr:
    """Return the sum; the constant zero adds nothing."""
    value = getattr(a, "value", None)
    return b if value is not None and int(value) == 0 else a + b


def only_channels(value: Expr, lanes: int, fill: float) -> Expr:
    """Return a texel whose lanes beyond the first `lanes` hold `fill`."""
    if lanes == LANES:
        return value
    filler = fconst(fill, dtype_of(value).partition("x")[0])
    return construct([lane(value, i) if i < lanes else filler for i in range(LANES)])


def combine_lanes(value: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Return the four lanes of a texel combined into one scalar."""
    return reduce(combine, (lane(value, i) for i in range(LANES)))


def sum_lanes(value: Expr) -> Expr:
    """Return the sum of four numbers, in pairs: two additions wait for no other."""
    return lane(value, 0) + lane(value, 1) + (lane(value, 2) + lane(value, 3))


def widen(value: Expr) -> Expr:
    """Return a texel in the accumulator's dtype."""
    return cast(value, f"{ACCUMULATOR}x{LANES}")
