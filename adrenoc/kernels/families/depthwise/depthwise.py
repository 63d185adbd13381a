"""Depthwise convolution: a rectangle of pixels a thread, so that its taps share their reads.

Nothing is summed over channels, so an activation texel feeds no more multiply-adds than the
kernel has taps, and the texture pipe is what the kernel waits for.  A thread that makes `rows` x
`pixels` reads each texel of the rectangle below them once.  The taps come through local memory,
an eighth of a texture read each.

Arithmetic is in float whatever the preset, and so are the taps: the kernel waits for memory, and
what a folded batch norm makes of the taps may cancel (`scripts/bench_kernels`: the same time).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, minimum
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.shared.constant_runs import load_run
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import widen
from adrenoc.kernels.weights import pack_depthwise

UNROLLED_ROWS = 3
"""Kernel rows whose loop compilers unroll; of more, reads ahead would take all registers."""


@dataclass(frozen=True, kw_only=True)
class DepthwiseTile:
    """The share of one thread: `rows` x `pixels` of one block of four channels."""

    rows: int
    pixels: int
    work_group: tuple[int, int, int]


def depthwise(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: DepthwiseTile,
    x: Access,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
    *,
    sums_of: type[TapSums] | None = None,
    tap_dtype: str | None = None,
    finished: Callable[[Expr, Expr], Expr] | None = None,
    shares: bool = True,
) -> None:
    """Emit a depthwise convolution with packed weights (`pack_taps`), which threads share or not.

    `sums_of` multiplies and adds (None: floats) taps of `tap_dtype` (None: that of the arithmetic);
    `finished` makes floats of a sum and its block.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
    """
    e, taps = out.extents, geometry.kernel[0] * geometry.kernel[1]
    gx, gy, gz = builder.threads(
        -(-e.w // tile.pixels),
        -(-e.h // tile.rows),
        e.n * e.blocks,
        work_group=tile.work_group,
        cooperate=True,
    )
    run = RunTaps(builder=builder, run=weight, kind=tap_dtype or builder.compute)
    shared = _bring(run, taps, e.blocks, e.n, tile.work_group) if shares else run
    # Threads beyond the last block read it too, for a buffer has an end.
    if e.n * e.blocks % tile.work_group[2]:
        gz = builder.let(minimum(gz, iconst(e.n * e.blocks - 1)), "z")
    n, block = (iconst(0), gz) if e.n == 1 else (floordiv(gz, e.blocks), floormod(gz, e.blocks))
    top = builder.let(gy * iconst(tile.rows), "y")
    left = builder.let(gx * iconst(tile.pixels), "x")
    row0 = builder.let(top * iconst(geometry.strides[0]) - iconst(geometry.padding[0]), "row")
    col0 = builder.let(left * iconst(geometry.strides[1]) - iconst(geometry.padding[1]), "col")
    first_tap = builder.let((builder.local[2] if shares else block) * iconst(taps), "wi")
    taps_of = (sums_of or TapSums)(
        builder=builder,
        geometry=geometry,
        rows=tile.rows,
        pixels=tile.pixels,
        x=x,
        shared=shared,
        rolled=rolls(geometry, tap_dtype),
    )
    sums = taps_of.rectangle(n, block, row0, col0, first_tap)
    with builder.when(builder.inside):
        for r, p in product(range(tile.rows), range(tile.pixels)):
            in_column = top + iconst(r) < iconst(e.h) if r and e.h % tile.rows else None
            in_row = left + iconst(p) < iconst(e.w) if p and e.w % tile.pixels else None
            with builder.when(in_column), builder.when(in_row):
                total = sums[r * tile.pixels + p]
                value = total if finished is None else finished(total, block)
                epilogue.write(n, block, top + iconst(r), left + iconst(p), value)


def rolls(geometry: ConvGeometry, tap_dtype: str | None) -> bool:
    """Return whether a loop over kernel rows stays one: the addresses of bytes take registers,
    too."""
    return tap_dtype is not None or geometry.kernel[0] > UNROLLED_ROWS


class Pixels(Protocol):
    """What taps are multiplied by: a tensor, or a part of one that local memory holds."""

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels, or zeros where (h, w) lies outside."""


@dataclass(frozen=True, kw_only=True)
class SharedPixels:
    """Pixels of one block that local memory holds, row by row; `base` is that of (0, 0)."""

    builder: KernelBuilder
    shared: SharedArray
    columns: int
    base: Expr

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels, in float: all that is read lies there."""
        return widen(self.builder.let(self.shared[self.base + h * iconst(self.columns) + w], "v"))


class Taps(Protocol):
    """Taps one after the other."""

    def __getitem__(self, index: Expr) -> Expr:
        """One of them."""


@dataclass(frozen=True, kw_only=True)
class RunTaps:
    """The packed weights where they lie, for a target without local memory."""

    builder: KernelBuilder
    run: Access
    kind: str

    def __getitem__(self, index: Expr) -> Expr:
        return load_run(self.builder, self.run, index, 0, self.kind)


@dataclass(frozen=True, kw_only=True)
class TapSums:
    """What taps make of rectangles of `rows` x `pixels` of one block."""

    builder: KernelBuilder
    geometry: ConvGeometry
    rows: int
    pixels: int
    x: Pixels
    shared: Taps
    rolled: bool = False
    """Whether compilers are asked to keep the loop over kernel rows."""

    def zeros(self) -> Registers:
        """Return the sums before the first product."""
        sums = self.builder.registers(self.rows * self.pixels)
        sums.fill(0.0)
        return sums

    def pixel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels of the input."""
        return self.x.padded_texel(n, block, h, w)

    def product(self, pixel: Expr, tap: Expr, total: Expr) -> Expr:
        """`total` and what a tap adds to it."""
        return pixel * tap + total

    def rectangle(self, n: Expr, block: Expr, row0: Expr, col0: Expr, first_tap: Expr) -> Registers:
        """Return the sums, row by row; the input that they need begins at (row0, col0)."""
        builder, geometry = self.builder, self.geometry
        sums = self.zeros()
        if self.rows == 1:
            # A loop keeps the compiler from reading all rows at once, which takes registers.
            with builder.loop(geometry.kernel[0], "ky", rolled=self.rolled) as ky:
                row = builder.let(row0 + ky * iconst(geometry.dilation[0]), "r")
                taps_of_row = builder.let(first_tap + ky * iconst(geometry.kernel[1]), "wr")
                self._add(sums, n, block, row, col0, [(0, taps_of_row)])
        else:
            for read, uses in _rows_read(geometry, self.rows).items():
                of_rows = [(r, first_tap + iconst(y * geometry.kernel[1])) for r, y in uses]
                self._add(sums, n, block, row0 + iconst(read), col0, of_rows)
        return sums

    def _add(
        self,
        sums: Registers,
        n: Expr,
        block: Expr,
        row: Expr,
        col0: Expr,
        uses: list[tuple[int, Expr]],
    ) -> None:
        """One row of the input; `uses` are output rows, each with the place of its first tap."""
        builder, geometry, pixels = self.builder, self.geometry, range(self.pixels)
        columns: dict[int, Expr] = {}
        for kx in range(geometry.kernel[1]):
            offsets = [p * geometry.strides[1] + kx * geometry.dilation[1] for p in pixels]
            for offset in offsets:
                if offset not in columns:
                    texel = self.pixel(n, block, row, col0 + iconst(offset))
                    columns[offset] = builder.let(texel, "a")
            for r, first_tap in uses:
                tap = builder.let(self.shared[first_tap + iconst(kx)], "k")
                for p, offset in zip(pixels, offsets, strict=True):
                    at = r * self.pixels + p
                    sums[at] = self.product(columns[offset], tap, sums[at])


def rows_read(geometry: ConvGeometry, rows: int) -> int:
    """Rows of the input that so many rows of the output read."""
    return len(_rows_read(geometry, rows))


def _rows_read(geometry: ConvGeometry, rows: int) -> dict[int, list[tuple[int, int]]]:
    """Input row, counted from the first -> the (output row, kernel row) pairs that need it."""
    uses: dict[int, list[tuple[int, int]]] = {}
    for r in range(rows):
        for ky in range(geometry.kernel[0]):
            row = r * geometry.strides[0] + ky * geometry.dilation[0]
            uses.setdefault(row, []).append((r, ky))
    return dict(sorted(uses.items()))


def _bring(run: RunTaps, taps: int, blocks: int, images: int, group: tuple[int, int, int]) -> Taps:
    """Return the taps of the work-group's blocks, in local memory."""
    builder, weight, kind = run.builder, run.run, run.kind
    wx, wy, wz = group
    shared = builder.allocate_shared(wz * taps, dtype=kind)
    lx, ly, lz = builder.local
    across = builder.let(lx + ly * iconst(wx), "t")
    # Each layer of threads brings the taps of its own block: images may begin within a group.
    own = builder.group[2] * iconst(wz) + lz
    block = own if images == 1 else floormod(own, blocks)
    first = builder.let(block * iconst(taps) + across, "load")
    for done in range(0, taps, wx * wy):
        last = taps - done < wx * wy
        with builder.when(across < iconst(taps - done) if last else None):
            tap = builder.let(load_run(builder, weight, first, done, kind), "k")
            shared[lz * iconst(taps) + across + iconst(done)] = tap
    builder.barrier()
    return shared


def pack_taps(weight: np.ndarray, most_blocks: int) -> np.ndarray:
    """Pack `[C, 1, KH, KW]` as [block, tap, 4], flat.

    Blocks are padded to a multiple of `most_blocks`, for whole work-groups read them.
    """
    texels = pack_depthwise(weight)[0]
    taps, blocks, _ = texels.shape
    padded = np.zeros((-(-blocks // most_blocks) * most_blocks, taps, LANES), weight.dtype)
    padded[:blocks] = texels.transpose(1, 0, 2)
    return padded.reshape(-1)
