"""An image read as one long vector: block after block of its channels, each with all its pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst
from adrenoc.ir.layout import LANES, Extents
from adrenoc.ir.operand import OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.statements import Statements


class FlatAccess(Access):
    """Reads of `image`; number k of its blocks is (k / (H * W), k / W % H, k % W)."""

    def __init__(self, image: Access, statements: Statements) -> None:
        super().__init__(image.spec, image.buffer, statements)
        self._image = image

    @property
    def extents(self) -> Extents:
        """One pixel of all channels, those that fill up the blocks of four too."""
        e = self._image.extents
        return Extents(1, e.blocks * LANES * e.h * e.w, 1, 1)

    def element(self, index: Sequence[Expr]) -> Expr:
        """Refuse: such a tensor is read by blocks alone."""
        raise TypeError("a flattened image is read by blocks")

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels of a pixel."""
        e = self._image.extents
        pixels = e.h * e.w
        pixel = self._statements.let(floormod(block, pixels), "pixel")
        row, column = floordiv(pixel, e.w), floormod(pixel, e.w)
        return self._image.texel(iconst(0), floordiv(block, pixels), row, column)

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Refuse: such a tensor is read alone."""
        raise TypeError("a flattened image is not written")


def flat_order(spec: OperandSpec) -> np.ndarray:
    """Element of the flattened tensor for each lane of `FlatAccess`, -1 where there is none."""
    e, roles = spec.extents, spec.roles
    elements = np.arange(e.c * e.h * e.w).reshape(spec.shape)
    present = [roles.axis(role) for role in "CHW"]
    axes = [axis for axis in present if axis is not None]
    rest = [axis for axis in range(len(spec.shape)) if axis not in axes]
    planes = elements.transpose([*rest, *axes]).reshape(e.c, e.h, e.w)
    padded = np.full((e.blocks * LANES, e.h, e.w), -1)
    padded[: e.c] = planes
    blocks = padded.reshape(e.blocks, LANES, e.h, e.w)
    return blocks.transpose(0, 2, 3, 1).reshape(-1)
