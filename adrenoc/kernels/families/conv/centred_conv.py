"""A product by a constant matrix that takes in the layer norm of what it reads.

    norm(x) . W = (x . V - mean(x) sum(V)) / deviation(x) + c        V = gains W, c = offsets . W

where sum(V) has a number for each column of V, as V is stored: so what is taken off is right to
the last bits of the sums in float, 2^-24 of them, of which a mean of m deviations costs m.  Halves
that come from sums of their own have lost 2^-11 of them by then, so only numbers that happen to be
exact in halves are worse off, from some thousand deviations on; pixels of one number are not.

The threads of a work-group share the texels of its pixels for their means and deviations: where
there are more threads than pixels, several have a part of each, so that no number is read twice in
a work-group.  A thread adds up what differs from the first number that it reads, and the squares of
that: so a variance does not come out of the difference of two large numbers.  Parts are joined by
their means.

```
each thread: mean, variance of its part of a pixel        barrier
one thread a pixel: mean, 1 / deviation of the whole      barrier
```

All of that lies where the weights did, behind what adds up splits.
"""

from __future__ import annotations

from typing import NamedTuple

from adrenoc.base.tvmapi import (
    Expr,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    select,
    splat,
    tirx,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import POINT, ConvTile
from adrenoc.kernels.families.shared.machine import (
    Column,
    larger,
    look_up,
    round_down,
    round_up,
)
from adrenoc.kernels.walk import ACCUMULATOR, sum_lanes

TEXELS_AT_ONCE = 4
"""Texels of a pixel that a thread asks for before it waits; more of them take registers that the
sums of the product have."""

ALIKE = 2.0**-40
"""Variance over the square of the mean below which all numbers of a pixel are the same: of 2^16
halves of which one is another, it is more.  Their mean off them is zero, which sums of products
would miss by their rounding, over no deviation."""


class Shares(NamedTuple):
    """How the threads of a work-group share its pixels."""

    pixels: Column
    """Pixels of the work-group."""
    members: Column
    """Threads that share a pixel, each the same number of input blocks."""
    rounds: Column
    """Pixels that a thread takes one after the other."""

    @staticmethod
    def from_tile(tile: ConvTile, blocks: int) -> Shares:
        """Return what follows from the tile, or the tiles, for pixels of so many blocks."""
        wx, wy, deep = tile.work_group or (1, 1, 1)
        pixels, threads = wx * wy * tile.pixels, wx * wy * deep

        def divide(most: int) -> int:
            return next(m for m in range(most, 0, -1) if blocks % m == 0)

        members = look_up(larger(round_down(threads / pixels), 1), divide)
        return Shares(pixels, members, round_up(pixels * members / threads))


def vectors_of_statistics(tile: ConvTile, blocks: int, split_sums: Column) -> Column:
    """Return vectors of local memory that statistics and the sums of splits take."""
    wx, wy, deep = tile.work_group or (1, 1, 1)
    shares = Shares.from_tile(tile, blocks)
    parts = wx * wy * deep * (shares.members > 1)
    return larger(parts, split_sums) + shares.pixels


def _fill(first: Expr, second: Expr) -> Expr:
    """Return two numbers as a vector."""
    zero = fconst(0.0, ACCUMULATOR)
    return construct([first, second, zero, zero])


PIXELS_AT_ONCE = 8
"""Sums that a thread norms beside each other."""
FIRST_PART = 1000
"""Number of the first of these lots, behind those of the epilogue."""


class CentredConv(LocalConv):
    """The sums of products of x as it is, by packed weights (`pack_local`), normed once complete.

    Shapes:
        columns: [1, 2, O/4, 4]: sums of the weights' columns, offsets
    """

    def __init__(
        self,
        kernel: NodeKernel,
        tile: ConvTile,
        x: Access,
        weight: Access,
        columns: Access,
        epsilon: float,
    ) -> None:
        super().__init__(kernel, POINT, tile, x, weight)
        self._columns, self._epsilon = columns, epsilon
        self._shares = Shares.from_tile(tile, self.blocks)
        self.vectors_after = vectors_of_statistics(tile, self.blocks, self.split_sums)
        self._statistics_at = self.vectors_after - self._shares.pixels

    def write(self) -> None:
        """Take the statistics, then store."""
        self._take_statistics()
        super().write()

    def complete_sums(self) -> None:
        """Take off what the means made of the sums, and divide by the deviations."""
        builder, tile, zero = self.b, self.tile, iconst(0)
        for b in range(tile.out_blocks):
            for start in range(0, tile.pixels, PIXELS_AT_ONCE):
                with builder.apart(FIRST_PART + b * tile.pixels + start):
                    block = self.first_out + iconst(b)
                    sums, offset = (
                        builder.let(self._columns.texel(zero, zero, iconst(row), block), "column")
                        for row in range(2)
                    )
                    for pixel in range(start, min(start + PIXELS_AT_ONCE, tile.pixels)):
                        mean, scale = self._read_statistics(pixel)
                        at = b * tile.pixels + pixel
                        self.sums[at] = (self.sums[at] - mean * sums) * scale + offset

    # The statistics of its pixels, taken once its products are made

    def _take_statistics(self) -> None:
        """Leave each pixel's statistics in local memory; every thread has to come here."""
        builder, shares = self.b, self._shares
        if self.last:  # else there was one after the last chunk
            builder.barrier()
        if shares.members == 1:
            for done in range(0, shares.pixels, self.threads):
                pixel = builder.let(self.thread + iconst(done), "pixel")
                with builder.when(self._limit_to(shares.pixels - done)):
                    self._hold(pixel, *self._take_part(pixel, iconst(0)))
        else:
            pixel = builder.let(floormod(self.thread, shares.pixels), "pixel")
            member = builder.let(floordiv(self.thread, shares.pixels), "member")
            with builder.when(self._limit_to(shares.pixels * shares.members)):
                self.shared[self.thread] = _fill(*self._take_part(pixel, member))
            builder.barrier()
            with builder.when(self._limit_to(shares.pixels)):
                self._hold(self.thread, *self._join_parts())
        builder.barrier()

    def _read_statistics(self, pixel: int) -> tuple[Expr, Expr]:
        """Return mean and reciprocal deviation of one of the thread's pixels, in all lanes."""
        builder = self.b
        width, _, _ = self.tile.work_group or (1, 1, 1)
        x, y, _ = builder.local
        place = (y * iconst(width) + x) * iconst(self.tile.pixels)
        held = builder.let(self.shared[place + iconst(self._statistics_at + pixel)], "norm")
        return splat(lane(held, 0)), splat(lane(held, 1))

    def _limit_to(self, threads: int) -> Expr | None:
        """Return whether the thread is one of the first so many; None where all are."""
        return self.thread < iconst(threads) if threads < self.threads else None

    def _take_part(self, pixel: Expr, member: Expr) -> tuple[Expr, Expr]:
        """Return mean and variance of one member's part of a pixel."""
        builder = self.b
        wx, wy, _ = self.tile.work_group or (1, 1, 1)
        width = wx * self.tile.pixels
        column, row = pixel, builder.group[1] * iconst(wy)
        if wy > 1:
            column, row = floormod(pixel, width), row + floordiv(pixel, width)
        column = builder.let(builder.group[0] * iconst(width) + column, "column")
        row = builder.let(row, "line")
        blocks = self.blocks // self._shares.members
        start = builder.let(member * iconst(blocks), "start")
        sums = builder.registers(3, dtype=ACCUMULATOR, fill=0)
        at_once = next(n for n in range(TEXELS_AT_ONCE, 0, -1) if blocks % n == 0)

        def add(first: Expr, *, begins: bool) -> None:
            texels = [
                builder.let(self.pixel(first + iconst(u), row, column), "x") for u in range(at_once)
            ]
            if begins:
                sums[2] = splat(lane(texels[0], 0))
            for texel in texels:
                off = builder.let(texel - sums[2], "off")
                sums[0] = sums[0] + off
                sums[1] = sums[1] + off * off

        add(start, begins=True)
        if blocks > at_once:
            with builder.loop(blocks // at_once - 1, "part", rolled=True) as i:
                add(start + (i + iconst(1)) * iconst(at_once), begins=False)
        share = fconst(1 / (blocks * LANES), ACCUMULATOR)
        mean = builder.let(sum_lanes(sums[0]) * share, "mean")
        return mean + lane(sums[2], 0), sum_lanes(sums[1]) * share - mean * mean

    def _join_parts(self) -> tuple[Expr, Expr]:
        """Return mean and variance of a pixel, of those of its parts, which are equally long."""
        builder, shares = self.b, self._shares
        parts = [
            builder.let(self.shared[self.thread + iconst(m * shares.pixels)], "part")
            for m in range(shares.members)
        ]
        share = fconst(1 / shares.members, ACCUMULATOR)
        mean = builder.let(sum((lane(p, 0) for p in parts[1:]), lane(parts[0], 0)) * share, "mean")
        variance = fconst(0.0, ACCUMULATOR)
        for part in parts:
            off = builder.let(lane(part, 0) - mean, "off")
            variance = variance + (lane(part, 1) + off * off)
        return mean, variance * share

    def _hold(self, pixel: Expr, mean: Expr, variance: Expr) -> None:
        """Keep what a pixel's numbers are normed by."""
        builder = self.b
        mean, variance = builder.let(mean, "mean"), builder.let(variance, "variance")
        root = tirx.sqrt(variance + fconst(self._epsilon, ACCUMULATOR))
        differ = variance > mean * mean * fconst(ALIKE, ACCUMULATOR)
        scale = select(differ, fconst(1.0, ACCUMULATOR) / root, fconst(0.0, ACCUMULATOR))
        self.shared[pixel + iconst(self._statistics_at)] = _fill(mean, scale)
