"""A convolution as a cost model sees it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.kernels.conv2d import ConvGeometry
from adrenoc.layout import Extents


@dataclass(frozen=True, kw_only=True)
class ConvWork:
    """One convolution: its extents and precisions."""

    geometry: ConvGeometry
    out: Extents
    in_blocks: int
    """Input blocks that one output block reads."""
    channels: int
    """Lanes of an input block that hold anything."""
    storage_bytes: int
    """Of one element in memory: 2 or 4."""
    half: bool
    """Whether arithmetic is in half precision."""
    weight_sets: int = 1
    """Output rows that have weights of their own, or 1 for all alike (Winograd's planes)."""
    texel_work: int = 0
    """Scalar instructions that make an activation texel of what is read (a prologue)."""
    block_texels: int = 0
    """Further texels that a thread reads of each input block: what the prologue reads beside."""
