"""The share of a thread in `winograd_conv`, and the order of its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.ir.layout import LANES
from adrenoc.kernels.families.shared.conv_tile_shape import Route
from adrenoc.kernels.weights import blocks, fill_channels, whole_k_steps


@dataclass(frozen=True, kw_only=True)
class WinogradTile:
    """The share of one thread and of one work-group."""

    tiles: int
    """Tiles of one plane that a thread multiplies; they lie `columns` apart."""
    out_blocks: int
    """Output blocks that a thread makes of each of its tiles."""
    work_group: tuple[int, int, int]
    """Threads in x, y, z: planes times columns, 1, bands times splits."""
    columns: int
    """Threads beside each other that share their weights."""
    split_k: int
    """Threads that share the input blocks of one sum."""
    chunk: int
    """Input blocks in local memory at a time."""
    unroll: int = 1
    """Input blocks whose operands are asked for together."""
    route: Route = Route.LOCAL
    """How the weights reach the arithmetic: through local memory, or each thread loads its own,
    which costs nothing where few columns share them and leaves local memory to the inputs."""

    @property
    def bands(self) -> int:
        """Runs of `out_blocks` that a work-group makes."""
        return self.work_group[2] // self.split_k

    @property
    def threads(self) -> int:
        """The threads of a work-group."""
        return self.work_group[0] * self.work_group[2]

    @property
    def group_tiles(self) -> int:
        """Tiles of a work-group."""
        return self.columns * self.tiles

    @property
    def group_blocks(self) -> int:
        """Output blocks of a work-group."""
        return self.bands * self.out_blocks


def pack_planes(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    """Pack `[O, I, side, side]` for `winograd_conv`, flat.

    The order is [work-group, input block, plane, band, channel, output block, 4].  Output
    blocks are padded to whole work-groups, input blocks to whole chunks.
    """
    return _pack_weights(transformed, tile).reshape(-1)


def plane_texels(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    """Pack `[O, I, side, side]` for `winograd_conv` as texels `[work-groups, input blocks, n, 4]`.

    The n texels of a row are in the order of `pack_planes`: plane, band, channel, output block."""
    packed = _pack_weights(transformed, tile)
    return packed.reshape(*packed.shape[:2], -1, LANES)


def _pack_weights(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    out_channels, in_channels, side, _ = transformed.shape
    channel_groups = -(-blocks(out_channels) // tile.group_blocks)
    window = whole_k_steps(blocks(in_channels), tile.chunk)
    planes = transformed.reshape(out_channels, in_channels, -1)
    padded = fill_channels(planes, channel_groups * tile.group_blocks * LANES, window * LANES)
    split = padded.reshape(
        channel_groups, tile.bands, tile.out_blocks, LANES, window, LANES, side * side
    )
    return np.ascontiguousarray(split.transpose(0, 4, 6, 1, 5, 2, 3))
