"""Where each element of a tensor lies in a texture: pure arithmetic, no TVM.

Every tensor that the GPU holds in blocks of four channels has the physical shape
`[layers, rows, cols, 4]`: one RGBA texel per (layer, row, col) of an image2d_array, or four
adjacent elements of a buffer.  A `Layout` says which logical axis plays which role (batch N,
channel C, height H, width W) and which layer, row and column a texel lies at.

Since a layout names roles and not positions, an NHWC tensor and its NCHW transpose are the
same bits: transposes between the two cost nothing and need no kernel.

Padding lanes (channels of the last block beyond C) always hold zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

FLOAT_BYTES = 4
LANES = 4
"""Channels a texel: RGBA."""

MAX_BLOCKED_AXES = 4
"""Axes of extent above one that the roles N, C, H, W can carry."""


class TexelOrder(str, Enum):
    """How (n, c/4, h, w) becomes (layer, row, col)."""

    PLANES = "planes"
    """layer = n * C/4 + c/4, row = h, col = w.  The clamp border of each layer is zero padding."""

    ROWS = "rows"
    """layer = n, row = h * W + w, col = c/4.  For many channels and few pixels."""


class Extents(NamedTuple):
    """The extents of the roles, 1 where no axis plays the role."""

    n: int
    c: int
    h: int
    w: int

    @property
    def blocks(self) -> int:
        """Blocks of four channels, the last one padded."""
        return -(-self.c // LANES)


@dataclass(frozen=True)
class Layout:
    """Roles of the logical axes, one letter an axis, and the order of texels in an image.

    Letters are N, C, H, W, each at most once, or 1 for an axis of extent one.  Examples:
    `NCHW` for a convolution's activation in ONNX, `NHWC` in TFLite, `NWC` for tokens,
    `1NHWC` for a rank 5 tensor whose first extent is one.
    """

    roles: str
    order: TexelOrder = TexelOrder.PLANES

    def __post_init__(self) -> None:
        letters = [r for r in self.roles if r != "1"]
        if len(set(letters)) != len(letters) or set(letters) - set("NCHW"):
            raise ValueError(f"roles {self.roles!r}: want each of N, C, H, W at most once, or 1")

    def __str__(self) -> str:
        suffix = "" if self.order is TexelOrder.PLANES else f"/{self.order.value}"
        return f"{self.roles}4c{suffix}"

    def axis(self, role: str) -> int | None:
        """Return the logical axis that plays `role`, or None."""
        found = self.roles.find(role)
        return None if found < 0 else found

    def extents(self, shape: Sequence[int]) -> Extents:
        """Return the extents of N, C, H, W of a tensor of this logical shape."""
        by_role = dict(zip(self.roles, shape, strict=True))
        return Extents(*(by_role.get(role, 1) for role in "NCHW"))

    def texture_shape(
        self, shape: Sequence[int], blocks: int | None = None
    ) -> tuple[int, int, int, int]:
        """Physical `(layers, rows, cols, 4)` of a tensor of this logical shape.

        `blocks` are those of its channels where they are not as many as its own.
        """
        e = self.extents(shape)
        blocks = e.blocks if blocks is None else blocks
        if self.order is TexelOrder.PLANES:
            return (e.n * blocks, e.h, e.w, LANES)
        return (e.n, e.h * e.w, blocks, LANES)

    def permute(self, axes: Sequence[int]) -> Layout:
        """Return the layout of the same bits after `permute_dims(axes)`."""
        return Layout("".join(self.roles[a] for a in axes), self.order)

    def reorder(self, order: TexelOrder) -> Layout:
        """Return the layout with the same roles, whose (n, c/4, h, w) become an image in another
        way."""
        return Layout(self.roles, order)


def agree(a: Layout, b: Layout, shape: Sequence[int]) -> bool:
    """Return whether two layouts of one shape give every axis of extent above one the same role."""
    return all(extent == 1 or x == y for x, y, extent in zip(a.roles, b.roles, shape, strict=True))


_DEFAULT_ROLES = {0: "", 1: "C", 2: "WC", 3: "NWC", 4: "NCHW"}


def default_layout(shape: Sequence[int]) -> Layout | None:
    """Return the layout of a tensor that no neighbour has an opinion on; None where none can hold
    it.

    Up to four axes of extent above one are carried; of a rank above four the last such axis
    becomes the channel.
    """
    rank = len(shape)
    if rank in _DEFAULT_ROLES:
        return Layout(_DEFAULT_ROLES[rank])
    wide = [axis for axis, extent in enumerate(shape) if extent != 1]
    if len(wide) > MAX_BLOCKED_AXES:
        return None
    roles = ["1"] * rank
    for axis, role in zip(reversed(wide), "CWHN", strict=False):
        roles[axis] = role
    return Layout("".join(roles))


def channels_last(rank: int) -> Layout | None:
    """Return the layout of a matrix product's operand: the last axis is the channel, rows run along
    W."""
    roles = {1: "C", 2: "WC", 3: "NWC", 4: "NHWC"}.get(rank)
    return None if roles is None else Layout(roles)


def rows_along_w(shape: Sequence[int]) -> Layout | None:
    """Return the layout of vectors that one matrix multiplies: the last axis is the channel, and
    the last other one of several runs along W, where a thread makes some beside each other.

    Tokens that come first, as [197, 1, 768], are then those of [1, 197, 768].
    """
    wide = [axis for axis, extent in enumerate(shape[:-1]) if extent != 1]
    if len(shape) < len("NWC") or not wide or wide[-1] == len(shape) - 2:
        return channels_last(len(shape))
    roles = ["1"] * (len(shape) - 1)
    for axis, role in zip(reversed(wide), "WHN", strict=False):
        roles[axis] = role
    return Layout("".join([*roles, "C"]))


def channel_at(channel: int, rank: int) -> Layout:
    """Return the layout whose channel is this axis, rows along the last of the others."""
    letters = "WN" if rank == 3 else "WHN"  # as `channels_last` has them
    roles = dict(zip((a for a in reversed(range(rank)) if a != channel), letters, strict=False))
    return Layout("".join(roles.get(axis, "C") for axis in range(rank)))


def bytes_of(physical: Sequence[int], bits: int) -> int:
    """Bytes of a tensor of this physical shape with elements of `bits` bits."""
    return math.prod(physical) * bits // 8
