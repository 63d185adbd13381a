"""Threads that share work: rows of which each makes a result, and sums that a work-group deals out.

Where rows are few and long, a team of threads shares each; where neighbouring rows lie beside
each other along W, neighbouring threads take neighbouring rows, so that they read neighbouring
texels.

Sums that are dealt out are made by some neighbours each, and all are added up before any is folded,
so that threads wait for each other once, or twice where many share a sum, however many sums there
are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial

from adrenoc.base.tvmapi import Expr, bytes_of, fconst, floordiv, floormod, iconst, minimum, splat
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
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, Position, Team
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

MOST_FOLDED = 8
"""How many partial sums one thread folds between two barriers."""
_FOLD_TEXELS = 8
"""Texels that a thread reads in the time of a fold."""
_ROUND_TEXELS = 2
"""Texels that a thread reads in the time that it takes to begin another sum."""


@dataclass(frozen=True, kw_only=True)
class Deal:
    """`blocks` sums, each of so many `parts`, which `width` of all `threads` deal out in turn."""

    blocks: int
    parts: int
    width: int
    threads: int

    @property
    def rounds(self) -> int:
        """Return how many sums a thread has a share in."""
        return math.ceil(self.blocks * self.width / self.threads)

    @property
    def steps(self) -> int:
        """Parts that a thread adds to one sum after the other."""
        return self.rounds * math.ceil(self.parts / self.width)

    @cached_property
    def folds(self) -> tuple[int, ...]:
        """Return how many partial sums of a block each fold leaves."""
        if self.width == 1:
            return ()
        fewest = math.ceil(self.width / MOST_FOLDED)
        left = next(n for n in range(fewest, self.width + 1) if self.width % n == 0)
        return (1,) if left == 1 else (left, 1)

    @property
    def vectors(self) -> int:
        """Vectors of local memory that hold the partial sums."""
        return self.blocks * self.width if self.width > 1 else 0


_WIDTHS = sorted({a * b for a in range(1, MOST_FOLDED + 1) for b in range(1, MOST_FOLDED + 1)})
"""How many threads may share a sum: what two folds add up."""


def deal_out(blocks: int, parts: int, threads: int, texels: Callable[[int], int]) -> Deal:
    """Return how so many threads share the sums soonest, where a part takes one of so many that
    share a sum as long as so many texels.  Partial sums take no more vectors than the work-group
    has threads."""
    deals = [
        Deal(blocks=blocks, parts=parts, width=width, threads=threads)
        for width in _WIDTHS
        if width == 1 or (width <= parts and blocks * width <= threads)
    ]
    return min(deals, key=lambda deal: count_texels(deal, texels(deal.width)))


def count_texels(deal: Deal, of_part: int) -> int:
    """Return in the time of how many texels a thread has done its share of all sums."""
    begun = deal.rounds * _ROUND_TEXELS + len(deal.folds) * _FOLD_TEXELS
    return deal.steps * of_part + begun


def add_up(
    builder: KernelBuilder,
    member: Expr,
    deal: Deal,
    add: Callable[[Expr, Expr, Registers], None],
    store: Callable[[Expr, Expr], None],
    parts: SharedArray | None = None,
) -> None:
    """Emit all sums by thread `member` of a work-group, all of whose threads come here.  `add` adds
    the parts of a block that fall to one of its threads, by the thread's place among these, to a
    register that is zero; `store` takes a block and its sum.  `parts`, block by block, give their
    places to the partial sums, where `add` reads each part in the thread that has it."""
    held, pitch = parts, deal.width if parts is None else deal.parts
    if held is None and deal.vectors:
        held = builder.allocate_shared(deal.vectors, dtype=ACCUMULATOR)
    sums = builder.registers(1, dtype=ACCUMULATOR)

    def each(count: int, width: int, visit: Callable[[Expr, Expr, Expr], None]) -> None:
        """Visit items, `width` of a block, with their block and their place in it."""
        with builder.loop(math.ceil(count / deal.threads), "round", rolled=True) as turn:
            item = builder.let(turn * iconst(deal.threads) + member, "item")
            with builder.when(item < iconst(count) if count % deal.threads else None):
                if width == 1:
                    visit(item, item, iconst(0))
                else:
                    block = builder.let(floordiv(item, width), "block")
                    visit(item, block, builder.let(floormod(item, width), "place"))

    def begin(item: Expr, block: Expr, place: Expr) -> None:
        sums.fill(0.0)
        add(block, place, sums)
        if held is None or deal.width == 1:
            store(block, sums[0])
        else:
            held[item if pitch == deal.width else block * iconst(pitch) + place] = sums[0]

    each(deal.blocks * deal.width, deal.width, begin)
    if held is None or deal.width == 1:
        return
    width = deal.width
    for left in deal.folds:
        builder.barrier()

        def fold(_: Expr, block: Expr, place: Expr, left: int = left, width: int = width) -> None:
            first = builder.let(block * iconst(pitch) + place, "first")
            total = held[first]
            for at in range(left, width, left):
                total = total + held[first + iconst(at)]
            if left == 1:
                store(block, total)
            else:
                held[first] = total

        each(deal.blocks * left, left, fold)
        width = left


class GroupMeans:
    """The means of an image over its pixels, in parts: of each block one of each work-group.

    Each thread adds up what it stores (`Epilogue.total`) and leaves that to its work-group.  The
    mean of the parts is that of the image.

    Shapes:
        out: N = 1, the image's C, H and W the rows and columns of work-groups
    """

    def __init__(
        self,
        builder: KernelBuilder,
        epilogue: Epilogue,
        out: Access,
        *,
        pixels: int,
        blocks: int,
        parts: int,
    ) -> None:
        """The image has so many `pixels`; of each of a work-group's `blocks`, `parts` are left."""
        self._builder, self._out = builder, out
        self._share = out.extents.h * out.extents.w / pixels
        self._blocks, self._parts = blocks, parts
        self._held = builder.allocate_shared(blocks * parts, dtype=ACCUMULATOR)
        self.total = epilogue.total = builder.registers(1, dtype=ACCUMULATOR)

    def leave(self, block: Expr, part: Expr) -> None:
        """Leave the thread's sum as a part of a block, counted from the work-group's first."""
        self._held[block * iconst(self._parts) + part] = self.total[0]

    def store(self, member: Expr, threads: int, first_block: Expr) -> None:
        """Store the work-group's means; all its threads come here, this one is `member`."""
        builder, blocks = self._builder, self._out.extents.blocks
        deal = deal_out(self._blocks, self._parts, threads, lambda _: 1)
        share, at = splat(fconst(self._share, ACCUMULATOR)), builder.group

        def add(block: Expr, place: Expr, sums: Registers) -> None:
            first = builder.let(block * iconst(self._parts) + place, "part")
            for at in range(0, self._parts, deal.width):
                last = at + deal.width > self._parts
                with builder.when(place < iconst(self._parts - at) if last else None):
                    sums[0] = sums[0] + self._held[first + iconst(at)]

        def store(block: Expr, total: Expr) -> None:
            block = builder.let(first_block + block, "of_image")
            beyond = block < iconst(blocks) if blocks % self._blocks else None
            with builder.when(beyond), builder.computing(ACCUMULATOR):
                self._out.write(iconst(0), block, at[1], at[0], total * share)

        builder.barrier()
        add_up(builder, member, deal, add, store, self._held)


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
    Teams beyond the last row repeat one that exists: `builder.inside` says who stores."""
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
    """`rows` results in x, y, z of `length` texels each, which are read `passes` times.  `folds` is
    how often a team has to agree on a value, and `along_w` whether rows lie along W."""

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
