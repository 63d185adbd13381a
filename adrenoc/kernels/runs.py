"""Long sums by one thread: the sums of bounded runs, added up.

A float that is added to a sum is rounded as the sum is: of n numbers that are much alike the sum
is off by up to n / 2^25 of its size, 1e-3 of an image of 200 x 200.  Added up in runs of m it is
off by m + n / m such roundings, and a run's end costs nothing beside the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.work_group import power_of_two

LONGEST_RUN = 256
"""Additions to one sum that need no runs: off by 1e-5 at worst."""

MANY_PRODUCTS = 6144
"""Products that need no runs either: those take the registers of a second tile."""


class OneRun:
    """Loops as they are: what they do may be done in one go."""

    length = 1
    """Additions to a sum that a run may have; loops within one are left alone."""

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
        with self._builder.loop(steps, hint, rolled=rolled) as i:
            step(i)

    def nest(
        self,
        counts: Sequence[int],
        hints: Sequence[str],
        visit: Callable[[list[Expr]], None],
        bind: Callable[[int, Expr], Expr] = lambda axis, step: step,
    ) -> None:
        """Emit a nest of loops around additions; the innermost too long for a run is split.

        `bind` names what the loop along an axis counts, right within that loop.
        """
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


class Runs(OneRun):
    """Some registers that a loop adds to, from zero on, in runs where the additions are many.

    `[]` are the run's own registers; sums of one run have the registers that were given.
    """

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
        self._part: Registers | None = None
        if additions > LONGEST_RUN if several is None else several:
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
        if self._part is None:
            super().loop(steps, each, hint, step, rolled=rolled)
            return
        builder, a_run = self._builder, max(1, self.length // each)
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
