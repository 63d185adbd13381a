"""Winograd's 3x3 convolution in three kernels: to tiles, multiply, back to pixels.

Tiles of `side` x `side` inputs, `outputs` apart, are transformed to as many planes.  A plane holds
one number of every tile and channel, so the multiplication is one product of matrices a plane:
`conv2d_local` with the plane's own weights.  All planes are one tensor of roles C, H, W: the
channel, the plane, the tile; that needs no more layers of an image array than the input.

```
tiles[c, i * side + j, t]  = sum over u, v of B^T[i, u] B^T[j, v] x[c, y + u, x + v]
planes[o, p, t]            = sum over c of    weight[p, o, c] tiles[c, p, t]
out[o, y + i, x + j]       = sum over u, v of A^T[i, u] A^T[j, v] planes[o, u * side + v, t]
```

A number of a tile can be `growth` times the largest input.  Where halves are stored, tiles hold it
so many times smaller, and pixels are made so many times larger: what a half can hold stays in its
range on the way, and a power of two costs no digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from adrenoc.base.tvmapi import Expr, fconst, iconst, splat
from adrenoc.ir.layout import Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.winograd.winograd_matrices import Winograd
from adrenoc.kernels.families.winograd.winograd_rows import quotient, remainder

MOST_ROWS = 4
"""The most rows of a tile that one thread transforms: 4 x 4 vectors beside the texels that it
reads."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How an output is cut into tiles."""

    transform: Winograd
    rows: int
    cols: int
    images: int

    @staticmethod
    def cover(transform: Winograd, out: Extents) -> Tiling:
        """Tiles that cover an output."""
        step = transform.outputs
        return Tiling(
            transform=transform, rows=-(-out.h // step), cols=-(-out.w // step), images=out.n
        )

    @property
    def tiles(self) -> int:
        """How many tiles cover the outputs of all images."""
        return self.images * self.rows * self.cols

    @property
    def planes(self) -> int:
        """Numbers a tile and channel."""
        return self.transform.side**2


def transform_to_tiles(
    builder: KernelBuilder, tiling: Tiling, padding: tuple[int, int], x: Access, tiles: Access
) -> None:
    """Emit the transform of the input: one thread makes a tile, or its half, of four channels.

    Shapes:
        x: roles N, C, H, W
        tiles: roles C, H, W = channels, planes, tiles
    """
    transform = tiling.transform
    side, step, growth = transform.side, transform.outputs, _growth(tiling, tiles)
    parts = row_parts(side)
    tile, block, part = builder.threads(tiling.tiles, x.extents.blocks, len(parts))
    n, row, col = place(builder, tiling, tile)
    top = builder.let(row * iconst(step) - iconst(padding[0]), "top")
    left = builder.let(col * iconst(step) - iconst(padding[1]), "left")
    for number, rows in enumerate(parts):
        with builder.when(part == iconst(number) if len(parts) > 1 else None):
            matrix = [transform.input_transform[u] for u in rows]
            by_column = []
            for v in range(side):
                texels = [
                    builder.let(x.padded_texel(n, block, top + iconst(u), left + iconst(v)), "a")
                    for u in range(side)
                ]
                by_column.append(combinations(builder, matrix, texels))
            for at, u in enumerate(rows):
                of_row = [column[at] for column in by_column]
                for v, value in enumerate(combinations(builder, transform.input_transform, of_row)):
                    smaller = _times(builder, value, 1 / growth)
                    tiles.write(iconst(0), block, iconst(u * side + v), tile, smaller)


def row_parts(side: int) -> tuple[range, ...]:
    """Rows of a transformed tile, split over so many threads that registers hold their share."""
    if side <= MOST_ROWS:
        return (range(side),)
    return range(side // 2), range(side // 2, side)


def transform_to_pixels(
    builder: KernelBuilder, tiling: Tiling, planes: Access, out: Access, epilogue: Epilogue
) -> None:
    """Emit the transform back: one thread makes the pixels of one tile, four channels.

    Shapes:
        planes: roles C, H, W = channels, planes, tiles
        out: roles N, C, H, W
    """
    transform, e = tiling.transform, out.extents
    side, step, growth = transform.side, transform.outputs, _growth(tiling, planes)
    tile, block, _ = builder.threads(tiling.tiles, e.blocks)
    n, row, col = place(builder, tiling, tile)
    top = builder.let(row * iconst(step), "top")
    left = builder.let(col * iconst(step), "left")
    by_column = []
    for v in range(side):
        texels = [
            builder.let(planes.texel(iconst(0), block, iconst(u * side + v), tile), "m")
            for u in range(side)
        ]
        by_column.append(combinations(builder, transform.output_transform, texels))
    for i in range(step):
        in_column = top + iconst(i) < iconst(e.h) if i and e.h % step else None
        with builder.when(in_column):
            pixels = [column[i] for column in by_column]
            for j, value in enumerate(combinations(builder, transform.output_transform, pixels)):
                in_row = left + iconst(j) < iconst(e.w) if j and e.w % step else None
                larger = _times(builder, value, growth)
                with builder.when(in_row):
                    epilogue.write(n, block, top + iconst(i), left + iconst(j), larger)


def _growth(tiling: Tiling, stored: Access) -> int:
    """Return how many times smaller a tensor between the transforms holds its numbers."""
    return tiling.transform.growth if stored.spec.dtype == "float16" else 1


def _times(builder: KernelBuilder, value: Expr, factor: float) -> Expr:
    return value if factor == 1 else value * splat(fconst(factor, builder.compute))


def place(builder: KernelBuilder, tiling: Tiling, tile: Expr) -> tuple[Expr, Expr, Expr]:
    """Image, row and column of a tile."""
    col = builder.let(remainder(tile, tiling.cols), "tx")
    over = quotient(tile, tiling.cols)
    if tiling.images == 1:
        return iconst(0), builder.let(over, "ty"), col
    row = builder.let(remainder(over, tiling.rows), "ty")
    return builder.let(quotient(over, tiling.rows), "n"), row, col


def combinations(
    builder: KernelBuilder, matrix: Sequence[Sequence[Fraction]], values: Sequence[Expr]
) -> list[Expr]:
    """Each row of the matrix times the vectors; zeros and ones cost nothing."""
    return [builder.let(_combination(builder.compute, row, values), "w") for row in matrix]


def _combination(compute: str, row: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    terms = sorted(
        ((c, v) for c, v in zip(row, values, strict=True) if c), key=lambda term: term[0] < 0
    )
    first, value = terms[0]
    total = value if first == 1 else splat(fconst(float(first), compute)) * value
    for c, value in terms[1:]:
        size = value if abs(c) == 1 else splat(fconst(float(abs(c)), compute)) * value
        total = total + size if c > 0 else total - size
    return total
