"""What follows from extents and tile of an expansion with its depthwise convolution.

Quotients and remainders of small numbers are a multiplication and a shift.  An Adreno has no
division: compilers make some thirty instructions of one by a constant, as many of the remainder,
and more where they cannot rule out that a number is negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce

from adrenoc.base.tvmapi import Expr, floordiv, iconst, select
from adrenoc.ir.layout import Extents
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.machine import Column, larger, look_up, smaller
from adrenoc.kernels.statements import Statements
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
        """Return the threads of a work-group, all of them along x."""
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
        """Return how often the threads begin to make a rectangle, and blocks of it."""
        rectangles = -(-self.items * self.blocks_at_once // self.threads)
        return rectangles, -(-self.group_blocks // self.blocks_at_once)

    @property
    def packing(self) -> tuple[int, int, int]:
        """Return how `pack_local` orders the weights."""
        return self.out_blocks, self.bands, self.unroll

    def window(self, in_blocks: int) -> int:
        """Return input blocks, filled up to whole k-steps."""
        return whole_k_steps(in_blocks, self.unroll)

    def parts(self, window: int, *, half: bool) -> tuple[int, int]:
        """Return parts that a sum is added up in, and the k-steps of each."""
        k_steps = window // self.unroll
        if not half:
            return 1, k_steps
        most = max(1, MOST_BLOCKS_A_PART // self.unroll)
        of_part = max(n for n in range(1, most + 1) if k_steps % n == 0)
        return k_steps // of_part, of_part


@dataclass(frozen=True, kw_only=True)
class AxisSpan:
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
    ) -> AxisSpan:
        """Return the span of work-groups that make `made` of `out` rows or columns each."""
        reach = (kernel - 1) * dilation + 1

        def count_needed(made: int) -> tuple[int, ...]:
            return _count_needed(extent, out, made, stride, reach, padding)

        return AxisSpan(
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
    """Return rows, or columns, within the image that each work-group along an axis reads."""
    read = (made - 1) * stride + reach
    firsts = [number * made * stride - padding for number in range(-(-out // made))]
    return tuple(min(first + read, extent) - max(first, 0) for first in firsts)


@dataclass(frozen=True, kw_only=True)
class HaloRegion:
    """The rectangle of wide pixels that a work-group keeps in local memory."""

    down: AxisSpan
    across: AxisSpan

    @staticmethod
    def from_geometry(
        geometry: ConvGeometry, source: Extents, out: Extents, rows: Column, columns: Column
    ) -> HaloRegion:
        """Return the region that so many rows and columns of the output need."""
        (kh, kw), (sy, sx), (dy, dx) = geometry.kernel, geometry.strides, geometry.dilation
        top, left = geometry.padding
        return HaloRegion(
            down=AxisSpan.from_extents(source.h, out.h, rows, kh, sy, dy, top),
            across=AxisSpan.from_extents(source.w, out.w, columns, kw, sx, dx, left),
        )

    @property
    def pixels(self) -> int:
        """Return the pixels of the rectangle that a work-group reads, for one block of channels."""
        return self.down.read * self.across.read

    @property
    def has_shift(self) -> bool:
        """Return whether some work-group computes pixels that are not in its rectangle."""
        return self.down.shifted | self.across.shifted

    @property
    def held_pixels(self) -> int:
        """Places of one block in local memory, one of them for what is not in the rectangle."""
        return self.pixels + self.has_shift

    @property
    def has_padding(self) -> bool:
        """Return whether some places of the rectangle are not computed."""
        spans = (self.down, self.across)
        outside = [(span.computed != span.read) | bool(span.padding) for span in spans]
        found: bool = outside[0] | outside[1] | self.has_shift
        return found

    def runs(self, pixels: int) -> int:
        """Return runs of neighbours that make a row of those that are computed."""
        return -(-self.across.computed // pixels)


def places_of(
    builder: KernelBuilder, region: HaloRegion, first: Expr, row: Expr, col: Expr, pixels: int
) -> list[Expr]:
    """Return the places of so many pixels from (row, col) of the rectangle on, in a block.  `first`
    is the place of its pixel (0, 0).  What is not in the rectangle goes to a place that nobody
    reads: to leave it out takes branches."""
    at = row * iconst(region.across.read) + col
    if not region.has_shift:
        to = builder.share(first + at, "to")
        return [to + iconst(p) for p in range(pixels)]
    at = builder.share(at, "at")
    places = []
    for p in range(pixels):
        place = select(
            _is_inside(region, row, col + iconst(p)), at + iconst(p), iconst(region.pixels)
        )
        places.append(builder.share(first + place, "to"))
    return places


def _is_inside(region: HaloRegion, row: Expr, col: Expr) -> Expr:
    """Return whether a pixel lies in the rectangle, where some may not."""
    tests = []
    for span, at in ((region.down, row), (region.across, col)):
        if span.shifted:
            tests += [at >= iconst(0), at < iconst(span.read)]
    return reduce(lambda a, b: a & b, tests)


BITS = 31
"""The bits of a number that is not negative."""


def divide_by_constant(
    builder: Statements, value: Expr, divisor: int, most: int, hints: tuple[str, str]
) -> tuple[Expr, Expr]:
    """Return quotient and remainder of a named value in 0 to `most`; `hints` are for their names.
    Numbers too large for that are divided."""
    if most < divisor:
        return iconst(0), value
    if divisor == 1:
        return value, iconst(0)
    found = reciprocal(divisor, most)
    if found is None:
        quotient = floordiv(value, divisor)
    else:
        quotient = (value * iconst(found[0])) >> iconst(found[1])
    quotient = builder.share(quotient, hints[0])
    return quotient, builder.share(value - quotient * iconst(divisor), hints[1])


def reciprocal(divisor: int, most: int) -> tuple[int, int] | None:
    """Return (factor, shift): `n * factor >> shift` is `n // divisor` for 0 <= n <= most.  The
    factor is above 2^shift / divisor by `over / divisor`; as long as n times `over` is below
    2^shift the quotient is not, even of the largest remainder.  None: no product of 31 bits
    does."""
    for shift in range(BITS):
        factor = -(-(1 << shift) // divisor)
        over = factor * divisor - (1 << shift)
        if most * factor >= 1 << BITS:
            break
        if most * over < 1 << shift:
            return factor, shift
    return None
