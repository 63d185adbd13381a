"""What the threads of the same query rows tell each other: a largest score, a sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers, SharedArray

UNROLLED_FOLDS = 4
"""Threads along x whose numbers are read without a loop."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A thread's place in its work-group: block of values, rows, part of the keys."""

    x: Expr
    y: Expr
    part: Expr
    extents: tuple[int, int, int]
    """How many threads there are along each."""

    def number(self, part: Expr) -> Expr:
        """Return the number of the thread's rows in a part."""
        return part * iconst(self.extents[1]) + self.y


class RowFolds:
    """Numbers of each thread in local memory, folded over the threads of the same rows and part.

    `told` may be `reused` for something else between two folds.
    """

    def __init__(
        self, builder: KernelBuilder, place: Place, told: SharedArray, *, reused: bool
    ) -> None:
        self.builder, self.place, self.told = builder, place, told
        self._reused = reused
        self._wide = place.extents[0]

    def wait(self) -> None:
        """Wait until what lies in `told` may be replaced by something else, or the other way."""
        if self._reused:
            self.builder.barrier()

    def tell(self, value: Expr) -> None:
        """Leave the thread's number to the others, who see it behind a barrier."""
        self.told[self._position(self.place.x)] = value

    def fold(self, total: Registers, combine: Callable[[Expr, Expr], Expr]) -> None:
        """Combine with `total` what all of them left."""
        loops, single = divmod(self._wide, UNROLLED_FOLDS)

        def take(index: Expr) -> None:
            total[0] = combine(total[0], self.told[self._position(index)])

        if loops:
            with self.builder.loop(loops, "i") as i:
                for u in range(UNROLLED_FOLDS):
                    take(i * iconst(UNROLLED_FOLDS) + iconst(u))
        for u in range(self._wide - single, self._wide):
            take(iconst(u))

    def _position(self, index: Expr) -> Expr:
        """Return where thread `index` of the same rows and part leaves its number."""
        return self.place.number(self.place.part) * iconst(self._wide) + index
