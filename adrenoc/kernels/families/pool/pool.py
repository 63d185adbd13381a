"""Pooling over windows of rows and columns: one thread makes one texel of the result.

No tap is tested.  An average reads zeros from the sampler's border and divides by the number of
taps that lie inside, which each axis gives in closed form.  A maximum moves the taps that lie
outside to the nearest tap inside, which repeats an element that counts anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    fconst,
    floordiv,
    floormod,
    iconst,
    larger,
    maximum,
    minimum,
    splat,
)
from adrenoc.ir.layout import Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.maps.map import texel_of_thread
from adrenoc.kernels.runs import OneRun, Runs
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import widen

UNROLLED_TAPS = 3
"""Widest window row whose taps are written out."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The taps along one axis: output position o reads `o * stride - pad + k * dilation`."""

    taps: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1

    def count_taps_inside(self, position: int, extent: int) -> int:
        """How many taps of an output position lie within 0..extent-1."""
        first = position * self.stride - self.pad
        begin = max(0, -(first // self.dilation))
        end = min(self.taps - 1, (extent - 1 - first) // self.dilation)
        return max(0, end - begin + 1)

    def always_inside(self, outputs: int, extent: int) -> bool:
        """Whether no output position has a tap outside."""
        last = (outputs - 1) * self.stride - self.pad + (self.taps - 1) * self.dilation
        return self.pad == 0 and last < extent

    def never_empty(self, outputs: int, extent: int) -> bool:
        """Whether every output position has a tap inside."""
        return all(self.count_taps_inside(position, extent) for position in range(outputs))


@dataclass(frozen=True, kw_only=True)
class PoolGeometry:
    """The windows along H and W; `count_padding` divides an average by all taps."""

    rows: Window
    columns: Window
    count_padding: bool = False

    def covers(self, extents: Extents) -> bool:
        """Whether one window, without padding, is all of a tensor."""
        axes = ((self.rows, extents.h), (self.columns, extents.w))
        return all(w.taps == extent and w.pad == 0 and w.dilation == 1 for w, extent in axes)


def max_pool(
    builder: KernelBuilder, geometry: PoolGeometry, x: Access, out: Access, epilogue: Epilogue
) -> None:
    """Emit the maximum over each window; every window must have a tap inside.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
    """
    n, block, h, w = texel_of_thread(builder, out.spec)
    rows = _Taps(builder, geometry.rows, h, out.extents.h, x.extents.h)
    columns = _Taps(builder, geometry.columns, w, out.extents.w, x.extents.w)
    largest = builder.registers(1)
    largest.fill(-math.inf)

    def visit(ky: Expr, kx: Expr) -> None:
        texel = x.texel(n, block, rows.locate_nearest(ky), columns.locate_nearest(kx))
        largest[0] = larger(largest[0], texel)

    _each_tap(geometry, visit, OneRun(builder))
    epilogue.write(n, block, h, w, largest[0])


def avg_pool(
    builder: KernelBuilder, geometry: PoolGeometry, x: Access, out: Access, epilogue: Epilogue
) -> None:
    """Emit the average over each window.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
    """
    n, block, h, w = texel_of_thread(builder, out.spec)
    rows = _Taps(builder, geometry.rows, h, out.extents.h, x.extents.h)
    columns = _Taps(builder, geometry.columns, w, out.extents.w, x.extents.w)
    total = builder.registers(1, dtype=ACCUMULATOR)
    total.fill(0.0)
    runs = Runs(builder, total, [0], geometry.rows.taps * geometry.columns.taps)
    bare = rows.always_inside and columns.always_inside
    read = x.texel if bare else x.padded_texel

    def visit(ky: Expr, kx: Expr) -> None:
        texel = read(n, block, rows.locate(ky), columns.locate(kx))
        runs[0] = runs[0] + widen(texel)

    _each_tap(geometry, visit, runs)
    if geometry.count_padding or bare:
        count = geometry.rows.taps * geometry.columns.taps
        value = total[0] / splat(fconst(count, ACCUMULATOR))
    else:
        inside = cast(rows.count() * columns.count(), ACCUMULATOR)
        value = total[0] / splat(builder.let(inside, "count"))
    epilogue.write(n, block, h, w, value)


def adaptive_avg_pool(builder: KernelBuilder, x: Access, out: Access, epilogue: Epilogue) -> None:
    """Emit averages over windows of unequal size: output o of O covers oE/O to (o+1)E/O of E.

    The bounds are rounded outwards, so windows may overlap.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
    """
    n, block, h, w = texel_of_thread(builder, out.spec)
    top, bottom = _share(builder, h, out.extents.h, x.extents.h)
    left, right = _share(builder, w, out.extents.w, x.extents.w)
    total = builder.registers(1, dtype=ACCUMULATOR)
    total.fill(0.0)
    rows = _widest_share(out.extents.h, x.extents.h)
    columns = _widest_share(out.extents.w, x.extents.w)
    runs = Runs(builder, total, [0], rows * columns)

    def visit(ky: Expr, kx: Expr) -> None:
        row, column = builder.let(top + ky, "y"), builder.let(left + kx, "x")
        with builder.when((row < bottom) & (column < right)):
            runs[0] = runs[0] + widen(x.texel(n, block, row, column))

    runs.nest((rows, columns), ("ky", "kx"), lambda at: visit(*at))
    count = cast((bottom - top) * (right - left), ACCUMULATOR)
    value = total[0] / splat(builder.let(count, "count"))
    epilogue.write(n, block, h, w, value)


def _share(builder: KernelBuilder, position: Expr, outputs: int, extent: int) -> tuple[Expr, Expr]:
    """The first place of an output position's share of an axis, and the place behind its last."""
    first = floordiv(position * iconst(extent), outputs)
    end = floordiv((position + iconst(1)) * iconst(extent) + iconst(outputs - 1), outputs)
    return builder.let(first, "first"), builder.let(end, "end")


def _widest_share(outputs: int, extent: int) -> int:
    return max(-(-(o + 1) * extent // outputs) - o * extent // outputs for o in range(outputs))


def _each_tap(geometry: PoolGeometry, visit: Callable[[Expr, Expr], None], runs: OneRun) -> None:
    rows, columns = geometry.rows.taps, geometry.columns.taps
    if columns > UNROLLED_TAPS:
        runs.nest((rows, columns), ("ky", "kx"), lambda at: visit(*at))
        return

    def row(ky: Expr) -> None:
        for kx in range(columns):
            visit(ky, iconst(kx))

    runs.loop(rows, columns, "ky", row)


class _Taps:
    """Where the taps of one output position lie along one axis."""

    def __init__(
        self, builder: KernelBuilder, window: Window, position: Expr, outputs: int, extent: int
    ) -> None:
        self._window = window
        self._extent = extent
        self.always_inside = window.always_inside(outputs, extent)
        self._first = builder.let(position * iconst(window.stride) - iconst(window.pad), "first")
        self._low, self._high = self._bounds(builder)

    def _bounds(self, builder: KernelBuilder) -> tuple[Expr, Expr]:
        """The first and the last place inside at which a dilated row of taps can lie."""
        step, last = self._window.dilation, iconst(self._extent - 1)
        if step == 1:
            return iconst(0), last
        low = maximum(self._first, floormod(self._first, step))
        return builder.let(low, "low"), builder.let(last - floormod(last - self._first, step))

    def locate(self, tap: Expr) -> Expr:
        """Where a tap lies, outside or not."""
        return self._first + tap * iconst(self._window.dilation)

    def locate_nearest(self, tap: Expr) -> Expr:
        """Where a tap lies, or the nearest tap inside."""
        if self.always_inside:
            return self.locate(tap)
        return maximum(minimum(self.locate(tap), self._high), self._low)

    def count(self) -> Expr:
        """How many taps lie inside."""
        window = self._window
        low = maximum(self._first, self._low)
        end = self._first + iconst((window.taps - 1) * window.dilation)
        return floordiv(minimum(end, self._high) - low, window.dilation) + iconst(1)
