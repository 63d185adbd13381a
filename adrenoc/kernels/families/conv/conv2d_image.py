"""Convolution of an image that lies row-major in a buffer, as a model is given it.

As `conv2d_local`, which would need a copy of the image in texels first.
"""

from __future__ import annotations

from adrenoc.base.tvmapi import Expr
from adrenoc.kernels.access import Access, PlainAccess
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.conv.image_rows import ImageRows, Normalise
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.conv.local_plan import plan_of
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.image_row_plan import RowPlan


def conv2d_image(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: ConvTile,
    x: PlainAccess,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
    rows: RowPlan,
    normalise: Normalise | None = None,
) -> None:
    """Emit the convolution of x, or of what normalises it, with packed weights (`pack_local`).

    Shapes:
        x: roles N, C, H, W; at most four channels
        out: roles N, O, OH, OW
    """
    plan = plan_of(geometry, tile, x.extents, out.extents)
    kernel = _ImageConv(builder, geometry, tile, plan, x, weight, out.extents)
    left = kernel.left * geometry.strides[1]
    kernel.rows = ImageRows(builder, x, rows, kernel.n, left, normalise)
    kernel.accumulate(weights_by_row=False)
    kernel.write(epilogue, out.extents)


class _ImageConv(LocalConv):
    """One kernel while it is written: rows of numbers where `LocalConv` has texels."""

    rows: ImageRows

    def row(self, in_block: Expr, row: Expr) -> dict[int, Expr]:
        return self.rows.texels(row)

    def reads(self, row: Expr) -> Expr:
        return self.rows.is_inside(row)
