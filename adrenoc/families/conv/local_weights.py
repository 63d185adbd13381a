"""Weights that a work-group brings to local memory, as an argument of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from adrenoc.families.shared.context import NodeKernel
from adrenoc.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.access import Access
from adrenoc.kernels.weights import pack_local, pack_local_texels


def local_weights(
    kernel: NodeKernel,
    name: str,
    kind: str,
    tile: ConvTile,
    oihw: Callable[[np.ndarray], np.ndarray],
    *,
    texels: bool,
) -> Access:
    """Declare a constant that `oihw` transposes to OIHW: as texels, or in a flat buffer.

    Texels come through the cache that has the activations too, by coordinates in place of
    addresses, and what waits for them waits half as long as for a buffer.
    """
    kind = f"{kind}_local{tile.packed_as}"
    if not texels:
        return kernel.flat(name, kind, lambda w: pack_local(oihw(w), *tile.packing))
    most_rows = kernel.context.limits.image2d_max_height_texels
    pack = partial(pack_local_texels, most_rows=most_rows)
    return kernel.pack_constant(name, f"{kind}_texels", lambda w: pack(oihw(w), *tile.packing))
