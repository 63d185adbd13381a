"""Threads for kernels that make a result of each of many rows: alone, or a team for a row.

Where rows are few and long, a team of threads shares each; where neighbouring rows lie beside
each other along W, neighbouring threads take neighbouring rows, so that they read neighbouring
texels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, minimum
from adrenoc.ir.layout import Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.team import Team
from adrenoc.kernels.walk import Position


class Members(str, Enum):
    """How the threads of a work-group are dealt out."""

    ALONE = "alone"
    """Each thread has a row of its own."""

    ALONG_X = "x"
    """The members of a team are neighbours: they share a row that lies along W."""

    ALONG_Y = "y"
    """Neighbours have neighbouring rows along W; the members of a team are apart."""


@dataclass(frozen=True, kw_only=True)
class RowTile:
    """`work_group` holds one team or several; a team has the threads along its axis."""

    work_group: tuple[int, int, int]
    members: Members = Members.ALONE

    @property
    def team(self) -> int:
        """Threads that share a row."""
        if self.members is Members.ALONE:
            return 1
        return self.work_group[0 if self.members is Members.ALONG_X else 1]


def rows_along(extents: Extents, role: str) -> tuple[int, int, int]:
    """Return how many rows along a role there are, in x, y, z."""
    e = extents
    blocks = 1 if role == "C" else e.blocks
    return (
        1 if role == "W" else e.w,
        1 if role == "H" else e.h,
        (1 if role == "N" else e.n) * blocks,
    )


def start_of_row(
    builder: KernelBuilder, tile: RowTile, x: Access, role: str
) -> tuple[Position, Team]:
    """Return the first texel of the thread's row along a role, and those that share the row."""
    blocks = 1 if role == "C" else x.extents.blocks
    w, h, z, team = row_threads(builder, rows_along(x.extents, role), tile)
    if blocks == 1:
        return Position(z, iconst(0), h, w), team
    return Position(floordiv(z, blocks), floormod(z, blocks), h, w), team


def row_threads(
    builder: KernelBuilder, rows: tuple[int, int, int], tile: RowTile
) -> tuple[Expr, Expr, Expr, Team]:
    """Return a thread or a team for each of the rows in x, y, z; returns its place and its team.

    Teams beyond the last row repeat one that exists: `builder.inside` says who stores.
    """
    wide, high, deep = rows
    if tile.members is Members.ALONE:
        return *builder.threads(wide, high, deep, work_group=tile.work_group), Team.alone()
    if tile.members is Members.ALONG_Y:
        x, _, rest = builder.threads(
            wide, tile.team, high * deep, work_group=tile.work_group, cooperate=True
        )
        team = Team.make_along_y(builder, tile.work_group)
        x = _existing(builder, x, wide, tile.work_group[0])
        return x, *_split(builder, rest, high), team
    _, number, _ = builder.threads(
        tile.team, wide * high * deep, work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    number = _existing(builder, number, wide * high * deep, tile.work_group[1])
    x, rest = _split(builder, number, wide)
    return x, *_split(builder, rest, high), team


def _existing(builder: KernelBuilder, row: Expr, count: int, a_group: int) -> Expr:
    """Return a row's number, or the last row's where there are more threads than rows."""
    return builder.let(minimum(row, iconst(count - 1)), "line") if count % a_group else row


def _split(builder: KernelBuilder, number: Expr, extent: int) -> tuple[Expr, Expr]:
    """(number % extent, number // extent)."""
    if extent == 1:
        return iconst(0), number
    return builder.let(floormod(number, extent)), builder.let(floordiv(number, extent))
