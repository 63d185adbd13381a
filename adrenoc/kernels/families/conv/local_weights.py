"""Weights that a work-group brings to local memory, as an argument of the kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.kernels.access import Access
from adrenoc.kernels.families.shared.constant_runs import declare_run
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.weights import pack_local


def local_weights(
    kernel: NodeKernel,
    name: str,
    kind: str,
    tile: ConvTile,
    oihw: Callable[[np.ndarray], np.ndarray],
    *,
    texels: bool,
) -> Access:
    """Declare a constant that `oihw` transposes to OIHW: as texels, or in a flat buffer."""
    kind = f"{kind}_local{tile.packed_as}"
    return declare_run(
        kernel, name, kind, lambda w: pack_local(oihw(w), *tile.packing), texels=texels
    )
