"""What follows from extents and tile of an expansion with its depthwise convolution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from adrenoc.ir.layout import Extents
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.tile_columns import Column, larger, look_up, smaller
from adrenoc.kernels.weights import whole_k_steps

MOST_BLOCKS_A_PART = 8
"""The most input blocks whose products are added up in half precision."""


@dataclass(frozen=True, kw_only=True)
class ExpansionTile:
    """The share of a work-group, and of its threads at a time."""

    rows: int
    columns: int
    """Columns of the output that a work-group makes."""
    pixels: int
    """Wide pixels, neighbours along W, that a thread computes at a time."""
    out_blocks: int
    """Wide blocks that a thread computes of them."""
    bands: int = 1
    """Threads that share the wide blocks of the same pixels."""
    made_rows: int = 1
    made_columns: int = 1
    """Columns of the output that a thread makes at a time."""
    unroll: int = 1
    """Input blocks whose texels a thread asks for at once."""
    work_group: tuple[int, int, int]

    @property
    def group_blocks(self) -> int:
        """Blocks of channels of a work-group."""
        return self.out_blocks * self.bands

    @property
    def threads(self) -> int:
        """The threads of a work-group, all of them along x."""
        return self.work_group[0]

    @property
    def items(self) -> int:
        """Shares of a thread that make the rectangle of one block."""
        return (self.rows // self.made_rows) * (self.columns // self.made_columns)

    @property
    def blocks_at_once(self) -> int:
        """Blocks of the output that the threads make beside each other."""
        blocks: int = larger(1, smaller(self.group_blocks, self.threads // self.items))
        return blocks

    @property
    def made_rounds(self) -> tuple[int, int]:
        """How often the threads begin to make a rectangle, and blocks of it."""
        rectangles = -(-self.items * self.blocks_at_once // self.threads)
        return rectangles, -(-self.group_blocks // self.blocks_at_once)

    @property
    def packing(self) -> tuple[int, int, int]:
        """How `pack_local` orders the weights."""
        return self.out_blocks, self.bands, self.unroll

    def window(self, in_blocks: int) -> int:
        """Input blocks, filled up to whole k-steps."""
        return whole_k_steps(in_blocks, self.unroll)

    def parts(self, window: int, *, half: bool) -> tuple[int, int]:
        """Parts that a sum is added up in, and the k-steps of each."""
        k_steps = window // self.unroll
        if not half:
            return 1, k_steps
        most = max(1, MOST_BLOCKS_A_PART // self.unroll)
        of_part = max(n for n in range(1, most + 1) if k_steps % n == 0)
        return k_steps // of_part, of_part


@dataclass(frozen=True, kw_only=True)
class Span:
    """Rows, or columns, that the work-groups need of the wide tensor."""

    count: int
    """Work-groups along the axis."""
    step: int
    """Rows, or columns, from the first that one work-group reads to the first of the next."""
    read: int
    """Rows, or columns, that a work-group reads, those outside of the image included."""
    computed: int
    """Rows, or columns, that each work-group computes: the most that any of them reads within the
    image."""
    extent: int
    """Rows, or columns, of the image."""
    padding: int
    shifted: bool
    """Whether some work-group computes what it does not read, to stay within the image."""

    @staticmethod
    def from_extents(
        extent: int, out: int, made: Column, kernel: int, stride: int, dilation: int, padding: int
    ) -> Span:
        """Return the span of work-groups that make `made` of `out` rows or columns each."""
        reach = (kernel - 1) * dilation + 1

        def count_needed(made: int) -> tuple[int, ...]:
            return _count_needed(extent, out, made, stride, reach, padding)

        return Span(
            count=-(-out // made),
            step=made * stride,
            read=(made - 1) * stride + reach,
            computed=look_up(made, lambda made: max(1, *count_needed(made))),
            extent=extent,
            padding=padding,
            shifted=look_up(
                made, lambda made: min(count_needed(made)) < max(1, *count_needed(made))
            ),
        )


@lru_cache(maxsize=4096)
def _count_needed(
    extent: int, out: int, made: int, stride: int, reach: int, padding: int
) -> tuple[int, ...]:
    """Rows, or columns, within the image that each work-group along an axis reads."""
    read = (made - 1) * stride + reach
    firsts = [number * made * stride - padding for number in range(-(-out // made))]
    return tuple(min(first + read, extent) - max(first, 0) for first in firsts)


@dataclass(frozen=True, kw_only=True)
class Region:
    """The rectangle of wide pixels that a work-group keeps in local memory."""

    down: Span
    across: Span

    @staticmethod
    def from_geometry(
        geometry: ConvGeometry, source: Extents, out: Extents, rows: Column, columns: Column
    ) -> Region:
        """Return the region that so many rows and columns of the output need."""
        (kh, kw), (sy, sx), (dy, dx) = geometry.kernel, geometry.strides, geometry.dilation
        top, left = geometry.padding
        return Region(
            down=Span.from_extents(source.h, out.h, rows, kh, sy, dy, top),
            across=Span.from_extents(source.w, out.w, columns, kw, sx, dx, left),
        )

    @property
    def pixels(self) -> int:
        """The pixels of the rectangle that a work-group reads, for one block of channels."""
        return self.down.read * self.across.read

    @property
    def has_shift(self) -> bool:
        """Whether some work-group computes pixels that are not in its rectangle."""
        return self.down.shifted | self.across.shifted

    @property
    def held_pixels(self) -> int:
        """Places of one block in local memory, one of them for what is not in the rectangle."""
        return self.pixels + self.has_shift

    @property
    def has_padding(self) -> bool:
        """Whether some places of the rectangle are not computed."""
        spans = (self.down, self.across)
        outside = [(span.computed != span.read) | bool(span.padding) for span in spans]
        found: bool = outside[0] | outside[1] | self.has_shift
        return found

    def runs(self, pixels: int) -> int:
        """Runs of neighbours that make a row of those that are computed."""
        return -(-self.across.computed // pixels)
