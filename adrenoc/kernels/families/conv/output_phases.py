"""Transposed convolutions as convolutions: one for each pixel of a rectangle of the output.

Before -> after:
    y = conv2d_transpose(x, w of 4 x 4, strides 2)     y[f::2, g::2] = conv2d(x, w of 2 x 2) of
                                                       phase (f, g), all in one kernel
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst
from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.builder import KernelBuilder


@dataclass(frozen=True, kw_only=True)
class Phases:
    """What a transposed convolution is made of: a convolution for each pixel of a rectangle.

    Output row `s * q + f`, of `s` rows and phase `f`, is one of `taps` input rows from row
    `q + start(f)` on, by every s-th row of the weights.
    """

    strides: tuple[int, int]
    """Rows and columns of the rectangle."""
    padding: tuple[int, int] = (0, 0)
    """Rows cut from the top and columns cut from the left of the full result."""
    taps: tuple[int, int] = (1, 1)
    """Taps of one phase along H and W; the shorter phases are filled up with zeros."""

    def alike(self, axis: int) -> bool:
        """Return whether all phases read the same rows or columns."""
        return self.padding[axis] % self.strides[axis] == 0

    def start(self, axis: int, phase: int) -> int:
        """Return where the first input row or column of a phase lies, from the position on."""
        return (phase + self.padding[axis]) // self.strides[axis] - self.taps[axis] + 1

    def first_tap(self, axis: int, phase: int) -> int:
        """Return the weights' row or column that the last input row or column is multiplied by."""
        return (phase + self.padding[axis]) % self.strides[axis]

    def grid(self, out: Extents) -> Extents:
        """Return the positions that threads make, with the channels of all phases one after the
        other."""
        (sh, sw), h, w = self.strides, out.h, out.w
        return Extents(out.n, out.blocks * LANES * sh * sw, -(-h // sh), -(-w // sw))

    def starts(self, builder: KernelBuilder, phase: Expr) -> tuple[Expr, Expr]:
        """`start` of both axes where the number of the phase is known to the thread alone."""
        found: list[Expr] = []
        own = (floordiv(phase, self.strides[1]), floormod(phase, self.strides[1]))
        for axis, stride in enumerate(self.strides):
            if self.alike(axis):
                found.append(iconst(self.start(axis, 0)))
                continue
            moved = floordiv(own[axis] + iconst(self.padding[axis]), stride)
            found.append(builder.let(moved - iconst(self.taps[axis] - 1), "start"))
        return found[0], found[1]

    def pixel(
        self, builder: KernelBuilder, out: Extents, block: Expr, row: Expr, col: Expr
    ) -> tuple[tuple[Expr, Expr, Expr], Expr | None]:
        """Block, row and column of the output that a block of all phases is, at a position.

        And whether the output has that pixel; None: it has all.
        """
        sh, sw = self.strides
        phase = builder.let(floordiv(block, out.blocks), "phase")
        block = builder.let(floormod(block, out.blocks), "of_phase")
        row = builder.let(row * iconst(sh) + floordiv(phase, sw), "oy")
        col = builder.let(col * iconst(sw) + floormod(phase, sw), "ox")
        inside = [
            at < iconst(extent)
            for at, extent, stride in ((row, out.h, sh), (col, out.w, sw))
            if extent % stride
        ]
        if len(inside) == 2:
            return (block, row, col), inside[0] & inside[1]
        return (block, row, col), inside[0] if inside else None
