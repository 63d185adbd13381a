"""The share of a convolution that one thread computes, and the way of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Route(str, Enum):
    """How the weights reach the arithmetic."""

    TEXTURE = "texture"
    BUFFER = "buffer"
    """From a buffer, at an index that is the same for all threads of a work-group."""
    LOCAL = "local"
    """Through local memory (`conv2d_local`)."""


@dataclass(frozen=True, kw_only=True)
class ConvTile:
    """The share of one thread: `pixels` along W times `out_blocks` blocks of four channels.

    `work_group` is in threads; None leaves it to the builder.
    """

    pixels: int
    out_blocks: int
    route: Route = Route.TEXTURE
    work_group: tuple[int, int, int] | None = None
    bands: int = 1
    """Runs of `out_blocks` that a work-group makes (local route)."""
    split_k: int = 1
    """Threads that share the input blocks of one tile (local route)."""
    chunk: int = 1
    """Input blocks of a split whose weights are in local memory at a time (local route)."""
    unroll: int = 1
    """Input blocks whose texels are asked for together (local route)."""

    @property
    def k_step(self) -> int:
        """Input blocks that all splits take in one k-step of their loop (local route)."""
        return self.split_k * self.unroll

    @property
    def packing(self) -> tuple[int, int, int]:
        """What the order of its weights depends on (`weights.pack_local`)."""
        return self.out_blocks, self.bands, self.k_step

    @property
    def packed_as(self) -> str:
        """`packing` as part of a constant's name: its numbers with an x between them."""
        return "x".join(map(str, self.packing))
