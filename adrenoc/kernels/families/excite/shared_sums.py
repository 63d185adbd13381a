"""Sums that the threads of one work-group make together: each block's by some neighbours.

All are added up before any is folded, so that threads wait for each other once, or twice where many
share a sum, however many sums there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR

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
        """How many sums a thread has a share in."""
        return math.ceil(self.blocks * self.width / self.threads)

    @property
    def steps(self) -> int:
        """Parts that a thread adds to one sum after the other."""
        return self.rounds * math.ceil(self.parts / self.width)

    @cached_property
    def folds(self) -> tuple[int, ...]:
        """How many partial sums of a block each fold leaves."""
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
) -> None:
    """Emit all sums by thread `member` of a work-group, all of whose threads come here.

    `add` adds the parts of a block that fall to one of its threads, by the thread's place among
    these, to a register that is zero; `store` takes a block and its sum.
    """
    held = builder.allocate_shared(deal.vectors, dtype=ACCUMULATOR) if deal.vectors else None
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
        if held is None:
            store(block, sums[0])
        else:
            held[item] = sums[0]

    each(deal.blocks * deal.width, deal.width, begin)
    if held is None:
        return
    width = deal.width
    for left in deal.folds:
        builder.barrier()

        def fold(_: Expr, block: Expr, place: Expr, left: int = left, width: int = width) -> None:
            first = builder.let(block * iconst(deal.width) + place, "first")
            total = held[first]
            for at in range(left, width, left):
                total = total + held[first + iconst(at)]
            if left == 1:
                store(block, total)
            else:
                held[first] = total

        each(deal.blocks * left, left, fold)
        width = left
