"""Visit the texels of a tensor along some of its roles, and combine what they hold.

Reductions, softmax and norms are loops over some roles around an accumulator.  Their one
difficulty is the last block of channels, whose padding lanes must not count: the walk visits it
apart from the others, so that no test is left inside the loops.

Sums are of three kinds.  Products in halves: a total in halves is rounded with each number that is
added to it.  Of n products of no common sign, of which b are added to each other first, the total
is off by about

    U sqrt(b / 2 + n / (2 b))        U = 2.0e-4, the mean square rounding of a half

of its size: 0.06% of 64 products by four, 0.16% of 512; and where the products have one sign it
may overflow on its way to a small sum.  A total in float is off by U sqrt(b / 2) and holds
anything, for a conversion and an addition a step: 12 to 40% of a product of two activations
(`scripts/estimate_networks`, 197 x 64 x 197 on Adreno 660 and 750).

Teams: a long sum by one thread keeps the GPU idle: it has few waves, and each waits for its own
reads. A team is `width` threads of a work-group.  Its members take every `width`-th part, so that
they read neighbouring texels, and then fold four members to one until one is left.

Runs: a float that is added to a sum is rounded as the sum is: of n numbers that are much alike the
sum is off by up to n / 2^25 of its size, 1e-3 of an image of 200 x 200.  Added up in runs of m it
is off by m + n / m such roundings, and a run's end costs nothing beside the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, power_of_two
from adrenoc.kernels.statements import Registers, SharedArray

LEAST_FLOAT = -3.4028234663852886e38
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


class TexelCounts(NamedTuple):
    """How many texels a walk visits along each coordinate."""

    n: int
    blocks: int
    h: int
    w: int


Visit = Callable[[Position, int], None]
"""Emits what happens at a texel, of which the first so many lanes are channels."""


@dataclass(frozen=True, kw_only=True)
class TexelRange:
    """The texels from `start` on; `tail` is the channels in the last block, 0 for all four."""

    start: Position
    counts: TexelCounts
    tail: int = 0

    @property
    def channels(self) -> int:
        """Return the channels along the walk's blocks."""
        return self.counts.blocks * LANES - (LANES - self.tail if self.tail else 0)


def region_along(extents: Extents, roles: str, start: Position) -> TexelRange:
    """Return all texels along `roles` (letters of NCHW) of a tensor of these extents."""
    counts = TexelCounts(
        n=extents.n if "N" in roles else 1,
        blocks=extents.blocks if "C" in roles else 1,
        h=extents.h if "H" in roles else 1,
        w=extents.w if "W" in roles else 1,
    )
    return TexelRange(start=start, counts=counts, tail=extents.c % LANES if "C" in roles else 0)


def each_texel(
    builder: KernelBuilder, region: TexelRange, visit: Visit, team: Team, runs: OneRun | None = None
) -> None:
    """Emit loops that visit a region's texels, the last block apart if it is partly empty.  Each
    texel is visited by one member of the team.  `runs` holds the sums that the visits add to; None
    where there are none."""
    start, counts = region.start, region.counts
    full = counts.blocks - 1 if region.tail else counts.blocks
    loops = _loops if team.width == 1 else partial(_shared_loop, team)
    runs = runs or OneRun(builder)
    if full:
        loops(builder, start, counts._replace(blocks=full), LANES, visit, runs)
    if region.tail:
        last = start._replace(block=_plus(start.block, iconst(full)))
        loops(builder, last, counts._replace(blocks=1), region.tail, visit, runs)


def visits(region: TexelRange, team: Team) -> int:
    """Return the most texels of a region that one member of the team visits."""
    return math.ceil(math.prod(region.counts) / team.width)


def _loops(
    builder: KernelBuilder,
    start: Position,
    counts: TexelCounts,
    lanes: int,
    visit: Visit,
    runs: OneRun,
) -> None:
    def bind(axis: int, step: Expr) -> Expr:
        first = start[axis]
        return first if counts[axis] == 1 else builder.let(_plus(first, step), AXES[axis])

    runs.nest(counts, AXES, lambda at: visit(Position(*at), lanes), bind)


def _shared_loop(
    team: Team,
    builder: KernelBuilder,
    start: Position,
    counts: TexelCounts,
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


def _position(
    builder: KernelBuilder, start: Position, counts: TexelCounts, number: Expr
) -> Position:
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


ACCUMULATOR = "float32"
"""Sums over many elements are taken in float32, whatever the kernel computes in."""

Combine = Callable[[Expr, Expr], Expr]


def plus(a: Expr, b: Expr) -> Expr:
    """Combine two parts of a sum."""
    return a + b


FOLDED_AT_ONCE = 4
"""How many members' values one member folds between two barriers."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """`width` threads (a power of two); a work-group holds `count` teams.  `member` and `index` are
    the thread's place in its team and the team's in its work-group."""

    width: int
    count: int
    member: Expr
    index: Expr

    @staticmethod
    def make_along_x(builder: KernelBuilder, work_group: tuple[int, int, int]) -> Team:
        """Return the teams along x of a builder whose threads cooperate in this work-group."""
        x, y, z = work_group
        local_x, local_y, local_z = builder.local
        index = local_z * iconst(y) + local_y if z > 1 else local_y
        return Team(width=x, count=y * z, member=local_x, index=index)

    @staticmethod
    def make_along_y(builder: KernelBuilder, work_group: tuple[int, int, int]) -> Team:
        """Return the teams along y: neighbours along x belong to different ones."""
        x, y, _ = work_group
        return Team(width=y, count=x, member=builder.local[1], index=builder.local[0])

    @staticmethod
    def alone() -> Team:
        """Return teams of one thread, which need not cooperate."""
        return Team(width=1, count=1, member=iconst(0), index=iconst(0))

    def store_condition(self, builder: KernelBuilder, number: int) -> Expr | None:
        """Return whether this thread stores result `number`: one member does; None is always."""
        chosen = self.member == iconst(number % self.width) if self.width > 1 else None
        if chosen is None or builder.inside is None:
            return builder.inside if chosen is None else chosen
        return builder.inside & chosen

    def deal_out(
        self,
        builder: KernelBuilder,
        count: int,
        at_once: int,
        hint: str,
        visit: Callable[[list[Expr]], None],
    ) -> None:
        """Call `visit` with the numbers of this member's parts of `count`, some at a time."""
        width = self.width
        rounds, rest = divmod(count, width)
        unrolled, single = divmod(rounds, at_once)
        if unrolled:
            with builder.loop(unrolled, "k", rolled=True) as i:
                first = builder.let(i * iconst(at_once * width) + self.member, hint)
                visit([first + iconst(u * width) for u in range(at_once)])
        for u in range(single):
            visit([iconst((unrolled * at_once + u) * width) + self.member])
        if rest:
            with builder.when(self.member < iconst(rest)):
                visit([iconst(rounds * width) + self.member])

    def fold(
        self,
        builder: KernelBuilder,
        values: Sequence[Expr],
        combine: Sequence[Combine],
        *,
        dtype: str = ACCUMULATOR,
        held: SharedArray | None = None,
    ) -> list[Expr]:
        """Return the values of all members combined, each by its own `combine`, known to all
        members.

        Values are vectors of four of `dtype`.  Every thread of the work-group
        must come here: there are barriers inside.  Within a loop, which cannot declare local
        memory, it is given: `width * count` vectors for each value, with a barrier between what
        reads a result and the next fold there.
        """
        if self.width == 1:
            return list(values)
        places = self.width * self.count
        if held is None:
            held = builder.allocate_shared(places * len(values), dtype=dtype)
        mine = builder.let(self.index * iconst(self.width) + self.member, "mine")
        for number, value in enumerate(values):
            held[mine + iconst(number * places)] = value
        left = self.width
        while left > 1:
            builder.barrier()
            at_once = min(FOLDED_AT_ONCE, left)
            left //= at_once
            with builder.when(self.member < iconst(left)):
                for number, fold in enumerate(combine):
                    at = mine + iconst(number * places)
                    total = held[at]
                    for step in range(1, at_once):
                        total = fold(total, held[at + iconst(step * left)])
                    held[at] = total
        builder.barrier()
        first = self.index * iconst(self.width)
        return [
            builder.let(held[first + iconst(number * places)], "folded")
            for number in range(len(values))
        ]


LONG_SUM = 256
"""Products beyond which their total is in float: 0.12% of error."""


def total_dtype(builder: KernelBuilder, products: int) -> str:
    """Return the dtype of a total of so many products."""
    return ACCUMULATOR if products > LONG_SUM else builder.compute


def add_products(builder: KernelBuilder, total: Expr, products: list[Expr]) -> Expr:
    """Return the products of one step added to a total, in halves to each other first."""
    if builder.compute != "float16":
        return sum(products, total)
    step = sum(products[1:], products[0])
    return total + (cast(step, f"{ACCUMULATOR}x{LANES}") if _is_wide(total) else step)


def adds_in_runs(out: Access, products: int) -> bool:
    """Return whether sums of so many products go in runs: their result has a float's bits."""
    return products > MANY_PRODUCTS and out.spec.dtype == ACCUMULATOR


def _is_wide(total: Expr) -> bool:
    return bool(dtype_of(total) == f"{ACCUMULATOR}x{LANES}")


LONGEST_RUN = 256
"""Additions to one sum that need no runs: off by 1e-5 at worst."""

MANY_PRODUCTS = 6144
"""Products that need no runs either: those take the registers of a second tile."""


class OneRun:
    """Loops as they are: what they do may be done in one go."""

    length = 1
    """Additions to a sum that a run may have; loops within one are left alone."""
    several = False
    """Whether there are more runs than one."""

    def __init__(self, builder: KernelBuilder) -> None:
        self._builder = builder

    @contextmanager
    def run(self) -> Iterator[None]:
        """Begin a run: what is added inside the block is added up by itself, then to the total."""
        yield

    def loop(
        self,
        steps: int,
        each: int,
        hint: str,
        step: Callable[[Expr], None],
        *,
        rolled: bool = False,
    ) -> None:
        """Emit a loop over `steps`, each of so many additions, in runs of at most `length`."""
        builder = self._builder
        if not self.several:
            with builder.loop(steps, hint, rolled=rolled) as i:
                step(i)
            return
        a_run = max(1, self.length // each)
        full, rest = divmod(steps, a_run)
        if full:
            with (
                builder.loop(full, "run", rolled=rolled) as r,
                self.run(),
                builder.loop(a_run, hint, rolled=rolled) as i,
            ):
                step(builder.let(r * iconst(a_run) + i, hint))
        if rest:
            with self.run(), builder.loop(rest, hint, rolled=rolled) as i:
                step(builder.let(iconst(full * a_run) + i, hint) if full else i)

    def nest(
        self,
        counts: Sequence[int],
        hints: Sequence[str],
        visit: Callable[[list[Expr]], None],
        bind: Callable[[int, Expr], Expr] = lambda axis, step: step,
    ) -> None:
        """Emit a nest of loops around additions; the innermost too long for a run is split.  `bind`
        names what the loop along an axis counts, right within that loop."""
        split = len(counts) - 1
        while split and math.prod(counts[split:]) <= self.length:
            split -= 1
        at: list[Expr] = []

        def nest_axis(axis: int) -> None:
            if axis == len(counts):
                visit(at)
                return

            def step(i: Expr) -> None:
                at.append(bind(axis, i))
                nest_axis(axis + 1)
                at.pop()

            if axis == split:
                self.loop(counts[axis], math.prod(counts[axis + 1 :]), hints[axis], step)
            else:
                with self._builder.loop(counts[axis], hints[axis]) as i:
                    step(i)

        nest_axis(0)


class RunSums(OneRun):
    """Some registers that a loop adds to, from zero on, in runs where the additions are many.  `[]`
    are the run's own registers; sums of one run have the registers that were given."""

    def __init__(
        self,
        builder: KernelBuilder,
        sums: Registers,
        which: Sequence[int],
        additions: int,
        *,
        several: bool | None = None,
    ) -> None:
        """`which` registers of `sums` get so many numbers each, in one run or in `several`."""
        super().__init__(builder)
        self._sums, self._which = sums, which
        self.length = max(LONGEST_RUN, power_of_two(math.isqrt(additions)))
        self.several = additions > LONGEST_RUN if several is None else several
        self._part: Registers | None = None
        if self.several:
            self._part = builder.registers(len(which), dtype=sums.dtype)

    def __getitem__(self, index: int) -> Expr:
        return self._sums[self._which[index]] if self._part is None else self._part[index]

    def __setitem__(self, index: int, value: Expr) -> None:
        if self._part is None:
            self._sums[self._which[index]] = value
        else:
            self._part[index] = value

    @contextmanager
    def run(self) -> Iterator[None]:
        """Begin a run: what is added inside the block is added up by itself, then to the total."""
        if self._part is None:
            yield
            return
        self._part.fill(0.0)
        yield
        for index, of_sums in enumerate(self._which):
            self._sums[of_sums] = self._sums[of_sums] + self._part[index]
