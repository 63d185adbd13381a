"""What follows from extents and tile of a convolution with its weights in local memory."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.ir.layout import LANES, Extents
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.weights import whole_k_steps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What follows from the extents and the tile."""

    blocks: int
    """Input blocks of the convolution."""
    window: int
    """Input blocks, filled up by weights of zero to whole k-steps of all splits."""
    taps: int
    """Taps of one kernel row."""
    channels: int
    """Lanes of an input block that hold a channel."""
    channel_groups: int
    """Work-groups along the output blocks of one image."""
    vectors: int
    """Weights of one input block and kernel row that a work-group needs, in vectors of four."""


def plan_of(geometry: ConvGeometry, tile: ConvTile, source: Extents, grid: Extents) -> Plan:
    """Return what follows for a convolution of floats."""
    per_work_group = tile.out_blocks * tile.bands
    return Plan(
        blocks=source.blocks,
        window=whole_k_steps(source.blocks, tile.k_step),
        taps=geometry.kernel[1],
        channels=source.c if source.blocks == 1 else LANES,
        channel_groups=-(-grid.blocks // per_work_group),
        vectors=geometry.kernel[1] * LANES * per_work_group,
    )
