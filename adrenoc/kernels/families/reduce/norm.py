"""Layer, group, instance and root-mean-square norms: one kernel, two passes over the data.

One thread, or a team, makes one set of elements that share their statistics.  The first pass sums
the elements and their squares, less the set's first element: so the variance does not come out
of the difference of two large numbers.  The second pass stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, fconst, floordiv, floormod, iconst, lane, larger, splat, tirx
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.shared.rows import RowTile, row_threads
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.team import ACCUMULATOR, Team
from adrenoc.kernels.walk import (
    Counts,
    Position,
    Region,
    combine_lanes,
    each_texel,
    only_channels,
    region_along,
    visits,
    widen,
)


@dataclass(frozen=True, kw_only=True)
class NormGeometry:
    """What shares its statistics: all elements along `roles`, in one of `groups` equal parts.

    The axis of `group_role` is the one that the groups divide; where that is C, a group must be
    whole blocks of four channels.  Without `centred` the mean is taken as zero, as the
    root-mean-square norm does.
    """

    roles: str
    epsilon: float
    groups: int = 1
    group_role: str = "C"
    centred: bool = True


@dataclass(frozen=True, kw_only=True)
class Affine:
    """A packed factor or offset (`weights.pack_blocked`) and the roles along which it differs.

    `blocks` is how many blocks of four channels each of its batches holds.
    """

    access: Access
    roles: str
    blocks: int

    def texel(self, at: Position) -> Expr:
        """Four channels in the accumulator's dtype."""
        zero = iconst(0)
        layer = at.block if "C" in self.roles else zero
        if "N" in self.roles:
            layer = at.n * iconst(self.blocks) + layer
        row = at.h if "H" in self.roles else zero
        col = at.w if "W" in self.roles else zero
        value = widen(self.access.texel(layer, zero, row, col))
        return value if "C" in self.roles else splat(lane(value, 0))


def norm(
    builder: KernelBuilder,
    tile: RowTile,
    geometry: NormGeometry,
    x: Access,
    factor: Affine | None,
    offset: Affine | None,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit (x - mean) / sqrt(variance + epsilon) * factor + offset.

    Shapes:
        x: any, with roles
        factor, offset: [N * C/4, H, W, 4], extents of one where they do not differ
        out: as x, with the same roles
    """
    region, team = _set_of_thread(builder, tile, geometry, x)
    shift, scale = _statistics(builder, geometry, x, region, team)

    def write(position: Position, lanes: int) -> None:
        value = (widen(x.texel(*position)) - shift) * scale
        if factor is not None:
            value = value * factor.texel(position)
        if offset is not None:
            value = value + offset.texel(position)
        epilogue.write(*position, value)

    with builder.when(builder.inside):
        each_texel(builder, region, write, team)


def sets_of(geometry: NormGeometry, extents: Extents) -> tuple[int, int, int]:
    """How many sets of elements share their statistics, in x, y, z."""
    e, roles = extents, geometry.roles
    blocks = 1 if "C" in roles else e.blocks
    return (
        1 if "W" in roles else e.w,
        1 if "H" in roles else e.h,
        (1 if "N" in roles else e.n) * blocks * geometry.groups,
    )


def _set_of_thread(
    builder: KernelBuilder, tile: RowTile, geometry: NormGeometry, x: Access
) -> tuple[Region, Team]:
    """The elements of one thread or team."""
    e, roles, groups = x.extents, geometry.roles, geometry.groups
    blocks = 1 if "C" in roles else e.blocks
    w, h, z, team = row_threads(builder, sets_of(geometry, e), tile)
    which, z = (iconst(0), z) if groups == 1 else (floormod(z, groups), floordiv(z, groups))
    n, block = (z, iconst(0)) if blocks == 1 else (floordiv(z, blocks), floormod(z, blocks))
    region = region_along(e, roles, Position(n, block, h, w))
    if groups == 1:
        return region, team
    divided = "NCHW".index(geometry.group_role)
    start, counts = list(region.start), list(region.counts)
    counts[divided] //= groups
    start[divided] = builder.let(which * iconst(counts[divided]), "first")
    # Groups of whole blocks leave no partly empty block; groups along another axis keep it.
    tail = 0 if geometry.group_role == "C" else region.tail
    return Region(start=Position(*start), counts=Counts(*counts), tail=tail), team


def _statistics(
    builder: KernelBuilder, geometry: NormGeometry, x: Access, region: Region, team: Team
) -> tuple[Expr, Expr]:
    """The mean and the reciprocal deviation, in all lanes."""
    mixed = "C" in geometry.roles
    counts = region.counts
    count = counts.n * counts.h * counts.w * (region.channels if mixed else 1)
    total = splat(fconst(count, ACCUMULATOR))
    sums = builder.registers(2, dtype=ACCUMULATOR)
    sums.fill(0.0)
    used = range(2) if geometry.centred else (1,)
    runs = Runs(builder, sums, range(2), visits(region, team))
    origin = splat(fconst(0.0, ACCUMULATOR))
    if geometry.centred:
        first = builder.let(widen(x.texel(*region.start)), "first")
        origin = builder.let(splat(lane(first, 0)), "origin") if mixed else first

    def add(position: Position, lanes: int) -> None:
        value = builder.let(widen(x.texel(*position)) - origin, "x")
        value = builder.let(only_channels(value, lanes, 0.0), "x") if lanes < LANES else value
        if geometry.centred:
            runs[0] = runs[0] + value
        runs[1] = runs[1] + value * value

    each_texel(builder, region, add, team, runs)
    folded = team.fold(builder, [sums[i] for i in used], [_add] * len(used))
    for i, value in zip(used, folded, strict=True):
        sums[i] = value
    if mixed:
        for i in used:
            sums[i] = splat(combine_lanes(builder.let(sums[i]), _add))
    epsilon = splat(fconst(geometry.epsilon, ACCUMULATOR))
    if not geometry.centred:
        return origin, builder.let(_rsqrt(sums[1] / total + epsilon), "scale")
    mean = builder.let(sums[0] / total, "mean")
    variance = larger(sums[1] / total - mean * mean, splat(fconst(0.0, ACCUMULATOR)))
    scale = builder.let(_rsqrt(variance + epsilon), "scale")
    return builder.let(mean + origin, "shift"), scale


def _add(a: Expr, b: Expr) -> Expr:
    return a + b


def _rsqrt(value: Expr) -> Expr:
    return splat(fconst(1.0, ACCUMULATOR)) / tirx.sqrt(value)
