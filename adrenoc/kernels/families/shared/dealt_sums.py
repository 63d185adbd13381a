"""Sums that the threads of a work-group deal out among themselves, and means made of such sums.

Sums are made by some neighbours each, and all are added up before any is folded, so that threads
wait for each other once, or twice where many share a sum, however many sums there are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from adrenoc.base.tvmapi import Expr, fconst, floordiv, floormod, iconst, splat
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR

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
    share a sum as long as so many texels.

    Partial sums take no more vectors than the work-group has threads.
    """
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
    """Emit all sums by thread `member` of a work-group, all of whose threads come here.

    `add` adds the parts of a block that fall to one of its threads, by the thread's place among
    these, to a register that is zero; `store` takes a block and its sum.  `parts`, block by block,
    give their places to the partial sums, where `add` reads each part in the thread that has it.
    """
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
