"""Threads that share one result: each folds a part, the team folds the parts in local memory.

A long sum by one thread keeps the GPU idle: it has few waves, and each waits for its own reads.
A team is `width` threads of a work-group.  Its members take every `width`-th part, so that they
read neighbouring texels, and then fold four members to one until one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import SharedArray

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
    """`width` threads (a power of two); a work-group holds `count` teams.

    `member` and `index` are the thread's place in its team and the team's in its work-group.
    """

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
        """Teams of one thread, which need not cooperate."""
        return Team(width=1, count=1, member=iconst(0), index=iconst(0))

    def store_condition(self, builder: KernelBuilder, number: int) -> Expr | None:
        """Return whether this thread stores result `number`: one member does; None is always."""
        chosen = self.member == iconst(number % self.width) if self.width > 1 else None
        if chosen is None or builder.inside is None:
            return builder.inside if chosen is None else chosen
        return builder.inside & chosen

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
