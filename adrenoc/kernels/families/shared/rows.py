"""Threads for kernels that make a result of each of many rows: alone, or a team for a row.

Where rows are few and long, a team of threads shares each; where neighbouring rows lie beside
each other along W, neighbouring threads take neighbouring rows, so that they read neighbouring
texels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from adrenoc.base.tvmapi import Expr, bytes_of, floordiv, floormod, iconst, minimum
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import (
    KernelBuilder,
    pick_work_group,
    power_of_two,
    power_of_two_within,
)
from adrenoc.kernels.families.shared.context import RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.walk import ACCUMULATOR, Position, Team
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


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
    """Return (number % extent, number // extent)."""
    if extent == 1:
        return iconst(0), number
    return builder.let(floormod(number, extent)), builder.let(floordiv(number, extent))


@dataclass(frozen=True, kw_only=True)
class RowWork:
    """`rows` results in x, y, z of `length` texels each, which are read `passes` times.

    `folds` is how often a team has to agree on a value, and `along_w` whether rows lie along W.
    """

    rows: tuple[int, int, int]
    length: int
    passes: int
    folds: int
    along_w: bool
    passes_alone: int | None = None
    """How often a thread without a team reads them, where that is another number."""
    vectors: int | None = None
    """What a thread of a team has in local memory, where that is not one for each fold."""

    @staticmethod
    def from_extents(
        extents: Extents, role: str, *, passes: int, folds: int, passes_alone: int | None = None
    ) -> RowWork:
        """Count the rows of a tensor that lie along the axis of one role, and their length."""
        e = extents
        return RowWork(
            rows=rows_along(e, role),
            length={"N": e.n, "C": e.blocks, "H": e.h, "W": e.w, "1": 1}[role],
            passes=passes,
            folds=folds,
            along_w=role == "W",
            passes_alone=passes_alone,
        )


def pick_row_tile(context: RuleContext, node: Node, family: str, work: RowWork) -> RowTile:
    """Return the schedule with the least estimate, or what the tuning log says."""
    storage_bytes = bytes_of(context.options.storage_dtype)
    estimate = partial(estimate_clocks, storage_bytes=storage_bytes)
    return context.search(node, family, work, candidates, estimate)


def candidates(work: RowWork, limits: Limits, costs: Cost) -> Iterator[RowTile]:
    """Yield one thread a row, and teams no larger than the row."""
    yield RowTile(work_group=pick_work_group(work.rows, limits))
    (wide, high, deep), cost = work.rows, costs.rows
    held_bytes = (work.vectors or work.folds) * LANES * bytes_of(ACCUMULATOR)
    by_memory = power_of_two_within(max(limits.local_mem_bytes // held_bytes, 1))
    most = min(cost.most_threads, limits.max_work_group_size, by_memory)
    for team in cost.teams:
        if team > min(work.length, most):
            break
        if not work.along_w and wide >= cost.narrow:
            beside = min(cost.rows_beside, power_of_two(wide), most // team)
            yield RowTile(work_group=(beside, team, 1), members=Members.ALONG_Y)
        threads = min(cost.threads, by_memory)
        teams = min(max(threads // team, 1), power_of_two(wide * high * deep))
        yield RowTile(work_group=(team, teams, 1), members=Members.ALONG_X)


def estimate_clocks(work: RowWork, tile: RowTile, machine: Machine, storage_bytes: int) -> float:
    """Return clocks of the kernel, from the texels that one thread reads one after the other."""
    cost, rates = machine.cost.rows, machine.cost.pipes
    passes = work.passes if tile.team > 1 else work.passes_alone or work.passes
    texels = math.ceil(work.length / tile.team) * passes
    group = math.prod(tile.work_group)
    threads = machine.threads_of(group)
    groups = math.ceil(math.prod(work.rows) * tile.team / group)
    waves = groups * math.ceil(group / threads)
    slots = texels * cost.texel_slots
    folds = work.folds * math.ceil(math.log(tile.team, LANES)) if tile.team > 1 else 0
    # Members of a team beside each other read rows apart where rows do not lie along W.
    apart = tile.members is Members.ALONG_X and not work.along_w and work.rows[0] > 1
    texture = texels / machine.texels_of(storage_bytes) * (cost.apart if apart else 1.0)
    busiest = threads * max(slots / machine.lanes, texture) + folds * cost.fold_clocks / 2
    at_once = 1 if tile.team == 1 else cost.at_once
    serial = texels / at_once * rates.texture_latency_clocks
    serial += threads / rates.threads_a_slot * slots + folds * cost.fold_clocks
    return machine.clocks(waves, busiest, serial, machine.resident_waves(cost.registers))
