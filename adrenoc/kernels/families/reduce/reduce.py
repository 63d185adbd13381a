"""Reductions over any axes: one thread, or a team, makes one texel of the result.

Where the channel is kept, a texel of the result folds whole texels, lane by lane.  Where the
channel is folded too, each of its four elements has an accumulator of four lanes, which are
combined at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    larger,
    minimum,
    smaller,
    splat,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.shared.rows import RowTile, row_threads
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR, Team
from adrenoc.kernels.walk import (
    Position,
    combine_lanes,
    each_texel,
    only_channels,
    region_along,
    visits,
    widen,
)

Combine = Callable[[Expr, Expr], Expr]


def _add(a: Expr, b: Expr) -> Expr:
    return a + b


def _multiply(a: Expr, b: Expr) -> Expr:
    return a * b


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How elements are folded: begin with `neutral`, `combine` each; a mean divides by the count.

    A fold that is a `sum` is made in runs where it is long.
    """

    neutral: float
    combine: Combine
    sum: bool = False
    mean: bool = False


REDUCTIONS = {
    "sum": Reduction(neutral=0.0, combine=_add, sum=True),
    "mean": Reduction(neutral=0.0, combine=_add, sum=True, mean=True),
    "max": Reduction(neutral=-math.inf, combine=larger),
    "min": Reduction(neutral=math.inf, combine=smaller),
    "prod": Reduction(neutral=1.0, combine=_multiply),
}


def reduce_axes(
    builder: KernelBuilder,
    tile: RowTile,
    reduction: Reduction,
    axes: Sequence[int],
    keepdims: bool,
    x: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit the fold of x over its logical `axes`.

    Shapes:
        x: any, with roles
        out: x without `axes`, or with extents of one there; x's roles, where C is kept
    """
    roles = "".join(r for a, r in enumerate(x.spec.roles.roles) if a in axes and r != "1")
    count = math.prod(x.spec.shape[a] for a in axes)
    e = out.extents
    w, h, z, team = row_threads(builder, (e.w, e.h, e.n * e.blocks), tile)
    n, block = (iconst(0), z) if e.n == 1 else (floordiv(z, e.blocks), floormod(z, e.blocks))
    folds = _Folds(builder, reduction, x, roles, team)
    if "C" in roles:
        value = folds.elements(out, axes, keepdims, Position(n, block, h, w))
    else:
        index = out.index(n, iconst(0), h, w)
        from_n, _, from_h, from_w = x.position(_source_index(index, axes, keepdims))
        value = folds.texel(Position(from_n, block, from_h, from_w))
    if reduction.mean:
        value = value / splat(fconst(count, ACCUMULATOR))
    with builder.when(team.store_condition(builder, 0)):
        epilogue.write(n, block, h, w, value)


class _Folds:
    def __init__(
        self, builder: KernelBuilder, reduction: Reduction, x: Access, roles: str, team: Team
    ) -> None:
        self._builder, self._reduction, self._x, self._roles = builder, reduction, x, roles
        self._team = team

    def texel(self, start: Position) -> Expr:
        """Four channels, folded lane by lane."""
        folded = self._registers(1)
        self._fold(start, folded, 0)
        return self._fold_in_team(folded, 1)[0]

    def _fold_in_team(self, folded: Registers, count: int) -> list[Expr]:
        values = [folded[i] for i in range(count)]
        return self._team.fold(self._builder, values, [self._reduction.combine] * count)

    def elements(self, out: Access, axes: Sequence[int], keepdims: bool, at: Position) -> Expr:
        """Four elements of the result, each folded over all lanes of its texels."""
        channels = out.extents.c
        lanes = min(LANES, channels)
        folded = self._registers(lanes)
        for i in range(lanes):
            channel = at.block * iconst(LANES) + iconst(i)
            if channels % LANES:  # what does not exist repeats the last channel
                channel = minimum(channel, iconst(channels - 1))
            index = out.index(at.n, self._builder.let(channel, "c"), at.h, at.w)
            n, _, h, w = self._x.position(_source_index(index, axes, keepdims))
            self._fold(Position(n, iconst(0), h, w), folded, i)
        combine = self._reduction.combine
        zero = fconst(0.0, ACCUMULATOR)
        values = self._fold_in_team(folded, lanes)
        sums = [combine_lanes(self._builder.let(value), combine) for value in values]
        return construct([*sums, *[zero] * (LANES - lanes)])

    def _registers(self, count: int) -> Registers:
        folded = self._builder.registers(count, dtype=ACCUMULATOR)
        folded.fill(self._reduction.neutral)
        return folded

    def _fold(self, start: Position, folded: Registers, index: int) -> None:
        region = region_along(self._x.extents, self._roles, start)
        combine, neutral = self._reduction.combine, self._reduction.neutral
        additions = visits(region, self._team) if self._reduction.sum else 0
        runs = Runs(self._builder, folded, [index], additions)

        def visit(position: Position, lanes: int) -> None:
            texel = self._builder.let(widen(self._x.texel(*position)), "x")
            runs[0] = combine(runs[0], only_channels(texel, lanes, neutral))

        each_texel(self._builder, region, visit, self._team, runs)


def _source_index(index: Sequence[Expr], axes: Sequence[int], keepdims: bool) -> list[Expr]:
    """The first logical index of the source that an index of the result folds."""
    rest = list(index)
    if keepdims:
        return [iconst(0) if a in axes else i for a, i in enumerate(rest)]
    rank = len(index) + len(axes)
    return [iconst(0) if a in axes else rest.pop(0) for a in range(rank)]
