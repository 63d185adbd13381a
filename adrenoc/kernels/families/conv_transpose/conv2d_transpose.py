"""Transposed convolution by output phase: no zeros are inserted, none are multiplied.

Along an axis of stride s, output position o with pad p reads the taps k = r + s t with
r = (o + p) mod s, and the input at floor((o + p) / s) - t.  So each of the s phases r is an
ordinary small convolution with every s-th tap.  One thread makes all phases along W, which
read the same inputs; the phase along H chooses the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, lane, minimum, splat
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.weights import group_window, pack_conv

MOST_PHASES = 4
"""Most phases along W that one thread makes: each needs accumulators of its own."""


@dataclass(frozen=True, kw_only=True)
class TransposedGeometry:
    """What a transposed convolution does; `kernel` counts the zeros between dilated taps."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Rows cut from the top and columns cut from the left of the full result."""
    groups: int = 1

    @property
    def taps(self) -> tuple[int, int]:
        """Taps of one phase along H and W; the shorter phases are filled up with zeros."""
        return (-(-self.kernel[0] // self.strides[0]), -(-self.kernel[1] // self.strides[1]))


def spread_taps(weight: np.ndarray, dilation: tuple[int, int]) -> np.ndarray:
    """`[I, O/groups, KH, KW]` with the zeros that a dilation puts between the taps."""
    if dilation == (1, 1):
        return weight
    kh, kw = weight.shape[2:]
    spans = ((kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1)
    spread = np.zeros((*weight.shape[:2], *spans), weight.dtype)
    spread[:, :, :: dilation[0], :: dilation[1]] = weight
    return spread


def pack_transposed(weight: np.ndarray, geometry: TransposedGeometry) -> np.ndarray:
    """Pack `[I, O/groups, KH, KW]` as `[SH * SW * TH * TW, O/4, window * 4, 4]`.

    S are the strides, T the taps of a phase; the rest is as in `weights.pack_conv`.
    """
    in_channels, per_out, kh, kw = weight.shape
    groups = geometry.groups
    by_group = weight.reshape(groups, in_channels // groups, per_out, kh, kw)
    oihw = by_group.transpose(0, 2, 1, 3, 4).reshape(groups * per_out, -1, kh, kw)
    (sh, sw), (th, tw) = geometry.strides, geometry.taps
    padded = np.pad(oihw, ((0, 0), (0, 0), (0, th * sh - kh), (0, tw * sw - kw)))
    phases = [padded[:, :, y::sh, x::sw] for y in range(sh) for x in range(sw)]
    return np.concatenate([pack_conv(phase, groups) for phase in phases])


def conv2d_transpose(
    builder: KernelBuilder,
    geometry: TransposedGeometry,
    x: Access,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit the transposed convolution of x with packed weights (`pack_transposed`).

    Shapes:
        x: roles N, C, H, W
        weight: [SH * SW * TH * TW, O/4, window * 4, 4]
        out: roles N, O, OH, OW
    """
    e = out.extents
    tile = _Tile(geometry, e)
    gx, gy, gz = builder.threads(tile.columns, e.h, e.n * e.blocks)
    n, block = (iconst(0), gz) if e.n == 1 else (floordiv(gz, e.blocks), floormod(gz, e.blocks))
    (sh, _), (th, tw) = geometry.strides, geometry.taps
    row = builder.let(gy + iconst(geometry.padding[0]), "row")
    row_phase, row0 = builder.let(floormod(row, sh), "phase"), builder.let(floordiv(row, sh), "y")
    col0, phases = tile.columns_of_thread(builder, gx)
    sums = builder.registers(tile.pixels)
    sums.fill(0.0)
    window, per_in = group_window(e.c, x.extents.c, geometry.groups)
    of_group = floordiv(block * iconst(LANES), e.c // geometry.groups) * iconst(per_in)
    first_in = builder.let(floordiv(of_group, LANES), "ib") if geometry.groups > 1 else iconst(0)
    with builder.loop(th, "ty") as ty, builder.loop(window, "i") as i:
        in_block: Expr = i
        if geometry.groups > 1:  # the window of a last group may end behind the last block
            in_block = builder.let(minimum(first_in + i, iconst(x.extents.blocks - 1)), "in")
        for tx in range(tw):
            read = x.padded_texel(n, in_block, row0 - ty, col0 - iconst(tx))
            pixel = builder.let(read, "a")
            for p, phase in enumerate(phases):
                if tile.is_filler(p, tx):
                    continue
                at = (row_phase * iconst(geometry.strides[1]) + phase) * iconst(th) + ty
                layer = builder.let(at * iconst(tw) + iconst(tx), "tap")
                _add_tap(builder, sums, p, pixel, weight, layer, block, i)
    for p in range(tile.pixels):
        column = builder.let(tile.out_column(gx, p), "x")
        with builder.when(tile.guard_column(column)):
            epilogue.write(n, block, gy, column, sums[p])


def _add_tap(
    builder: KernelBuilder,
    sums: Registers,
    index: int,
    pixel: Expr,
    weight: Access,
    layer: Expr,
    block: Expr,
    window_block: Expr,
) -> None:
    for c in range(LANES):
        col = window_block * iconst(LANES) + iconst(c)
        texel = builder.let(weight.texel(layer, iconst(0), block, col), "k")
        sums[index] = sums[index] + splat(lane(pixel, c)) * texel


class _Tile:
    """The output columns of one thread: all phases of one input column, or a single column."""

    def __init__(self, geometry: TransposedGeometry, extents: Extents) -> None:
        self._geometry = geometry
        self._width = extents.w
        stride, pad = geometry.strides[1], geometry.padding[1]
        self._all = stride <= MOST_PHASES
        self.pixels = stride if self._all else 1
        self._first = pad // stride if self._all else 0
        last = (extents.w - 1 + pad) // stride if self._all else extents.w - 1
        self.columns = last - self._first + 1

    def columns_of_thread(self, builder: KernelBuilder, gx: Expr) -> tuple[Expr, list[Expr]]:
        """Return the input column of tap 0, and the phase of each output column."""
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        if self._all:
            return gx + iconst(self._first), [iconst(p) for p in range(stride)]
        at = builder.let(gx + iconst(pad), "col")
        return builder.let(floordiv(at, stride), "c"), [builder.let(floormod(at, stride), "px")]

    def is_filler(self, phase: int, tap: int) -> bool:
        """Return whether a tap is one of the zeros that fill up a phase."""
        stride = self._geometry.strides[1]
        return self._all and phase + stride * tap >= self._geometry.kernel[1]

    def out_column(self, gx: Expr, index: int) -> Expr:
        """Return where the output column `index` of the thread lies."""
        if not self._all:
            return gx
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        return gx * iconst(stride) + iconst(index + self._first * stride - pad)

    def guard_column(self, column: Expr) -> Expr | None:
        """Return the test that a column needs; None where all columns exist."""
        stride, pad = self._geometry.strides[1], self._geometry.padding[1]
        if not self._all:
            return None
        begin = self._first * stride - pad
        if begin == 0 and self.columns * stride == self._width:
            return None
        return (column >= iconst(0)) & (column < iconst(self._width))
