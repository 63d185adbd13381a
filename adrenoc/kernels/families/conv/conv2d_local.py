"""Convolution with its weights in local memory, which a work-group shares (`local_conv.py`)."""

from __future__ import annotations

from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.conv.local_plan import plan_of
from adrenoc.kernels.families.conv.output_phases import Phases
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.sums import adds_in_runs

WIDEST_ROW, WIDEST_ROW_OF_TEXELS = 7, 16
"""Widest kernel row: its taps are unrolled, so that neighbours share their reads.  Rows of texels
may be wider, as of networks that cut images into patches, than rows of an image's numbers or bytes.
"""


def conv2d_local(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: ConvTile,
    x: Access,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
    *,
    weights_by_row: bool = False,
    phases: Phases | None = None,
) -> None:
    """Emit the convolution of x with packed weights (`pack_local`), one group of channels.

    With weights by row, each output row has its own, one set after the other; a work-group is
    then one row high.

    With phases, a position makes a rectangle of output rows and columns, each by weights of its
    own: a transposed convolution.  The weights' output blocks are then those of phase after phase,
    and `geometry` has the taps of one.  Where phases read from different rows on, a thread makes
    blocks of one phase.

    Shapes:
        x: roles N, C, H, W
        out: roles N, O, OH, OW
    """
    grid = out.extents if phases is None else phases.grid(out.extents)
    plan = plan_of(geometry, tile, x.extents, grid)
    kernel = LocalConv(builder, geometry, tile, plan, x, weight, grid)
    products = geometry.kernel[0] * plan.window * plan.taps * plan.channels // tile.split_k
    kernel.long = kernel.parts_by_chunk = adds_in_runs(out, products)
    if phases is not None:
        kernel.start_at(phases, out.extents)
    kernel.accumulate(weights_by_row)
    kernel.write(epilogue, out.extents, phases)
