"""What follows from extents and tile of an expansion with its depthwise convolution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from adrenoc.families.shared.conv_geometry import ConvGeometry
from adrenoc.ir.layout import Extents
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
        return max(1, min(self.group_blocks, self.threads // self.items))

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
        extent: int, out: int, made: int, kernel: int, stride: int, dilation: int, padding: int
    ) -> Span:
        """The span of work-groups that make `made` of `out` rows or columns each."""
        count, step = -(-out // made), made * stride
        read = (made - 1) * stride + (kernel - 1) * dilation + 1
        firsts = [number * step - padding for number in range(count)]
        needed = [min(first + read, extent) - max(first, 0) for first in firsts]
        return Span(
            count=count,
            step=step,
            read=read,
            computed=max(1, *needed),
            extent=extent,
            padding=padding,
            shifted=any(count < max(1, *needed) for count in needed),
        )


@dataclass(frozen=True, kw_only=True)
class Region:
    """The rectangle of wide pixels that a work-group keeps in local memory."""

    down: Span
    across: Span

    @staticmethod
    @lru_cache(maxsize=4096)
    def from_geometry(
        geometry: ConvGeometry, source: Extents, out: Extents, rows: int, columns: int
    ) -> Region:
        """The region that so many rows and columns of the output need."""
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
        return self.down.shifted or self.across.shifted

    @property
    def held_pixels(self) -> int:
        """Places of one block in local memory, one of them for what is not in the rectangle."""
        return self.pixels + self.has_shift

    @property
    def has_padding(self) -> bool:
        """Whether some places of the rectangle are not computed."""
        return (
            (self.down.computed, self.across.computed)
            != (
                self.down.read,
                self.across.read,
            )
            or self.has_shift
            or any(span.padding for span in (self.down, self.across))
        )

    def runs(self, pixels: int) -> int:
        """Runs of neighbours that make a row of those that are computed."""
        return -(-self.across.computed // pixels)
