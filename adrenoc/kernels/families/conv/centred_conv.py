"""A product by a constant matrix that takes in the layer norm of what it reads.

    norm(x) . W = (x . V - mean(x) sum(V)) / deviation(x) + c        V = gains W, c = offsets . W

where sum(V) has a number for each column of V, as V is stored: so what is taken off is right to
the last bits of the sums in float, 2^-24 of them, of which a mean of m deviations costs m.  Halves
that come from sums of their own have lost 2^-11 of them by then, so only numbers that happen to be
exact in halves are worse off, from some thousand deviations on; pixels of one number are not.
"""

from __future__ import annotations

from adrenoc.base.tvmapi import iconst
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.conv.local_plan import plan_of
from adrenoc.kernels.families.conv.row_statistics import RowStatistics
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile

POINT = ConvGeometry(kernel=(1, 1))
PIXELS_AT_ONCE = 8
"""Sums that a thread norms beside each other."""
FIRST_PART = 1000
"""Number of the first of these lots, behind those of the epilogue."""


def centred_conv(
    builder: KernelBuilder,
    tile: ConvTile,
    x: Access,
    weight: Access,
    columns: Access,
    epsilon: float,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit the product of normed x with packed weights (`pack_local`), one group of channels.

    Shapes:
        x: roles N, C, H, W
        columns: [1, 2, O/4, 4]: sums of the weights' columns, offsets
        out: roles N, O, H, W
    """
    kernel = _CentredConv(builder, tile, x, weight, columns, epsilon, out)
    kernel.accumulate(weights_by_row=False)
    kernel.statistics.take()
    kernel.write(epilogue, out.extents)


class _CentredConv(LocalConv):
    """The sums of products of x as it is, normed once they are complete."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: ConvTile,
        x: Access,
        weight: Access,
        columns: Access,
        epsilon: float,
        out: Access,
    ) -> None:
        plan = plan_of(POINT, tile, x.extents, out.extents)
        super().__init__(builder, POINT, tile, plan, x, weight, out.extents)
        self._columns = columns
        self.statistics = RowStatistics(self, epsilon)
        self.vectors_after = self.statistics.vectors

    def complete_sums(self) -> None:
        """Take off what the means made of the sums, and divide by the deviations."""
        builder, tile, zero = self.b, self.tile, iconst(0)
        for b in range(tile.out_blocks):
            for start in range(0, tile.pixels, PIXELS_AT_ONCE):
                with builder.apart(FIRST_PART + b * tile.pixels + start):
                    block = self.first_out + iconst(b)
                    sums, offset = (
                        builder.let(self._columns.texel(zero, zero, iconst(row), block), "column")
                        for row in range(2)
                    )
                    for pixel in range(start, min(start + PIXELS_AT_ONCE, tile.pixels)):
                        mean, scale = self.statistics.read(pixel)
                        at = b * tile.pixels + pixel
                        self.sums[at] = (self.sums[at] - mean * sums) * scale + offset
