"""Winograd's 3x3 convolution in three kernels: to tiles, multiply, back to pixels.

Tiles of `side` x `side` inputs, `outputs` apart, are transformed to as many planes.  A plane holds
one number of every tile and channel, so the multiplication is one product of matrices a plane:
`conv2d_local` with the plane's own weights.  All planes are one tensor of roles C, H, W: the
channel, the plane, the tile; that needs no more layers of an image array than the input.  Taps that
are `d` apart see every d-th row and column, so a tile is of such: neighbouring tiles begin at
neighbouring pixels, and overlap.

```
tiles[c, i * side + j, t]  = sum over u, v of B^T[i, u] B^T[j, v] x[c, y + u, x + v]
planes[o, p, t]            = sum over c of    weight[p, o, c] tiles[c, p, t]
out[o, y + i, x + j]       = sum over u, v of A^T[i, u] A^T[j, v] planes[o, u * side + v, t]
```

A number of a tile can be `growth` times the largest input.  Where halves are stored, tiles hold it
so many times smaller, and pixels are made so many times larger: what a half can hold stays in its
range on the way, and a power of two costs no digit.

The matrices of Winograd's minimal filtering F(m, 3), made from interpolation points.

A 1-D convolution of m + 2 inputs by 3 weights gives m outputs; as the product of polynomials at
m + 2 points it needs m + 2 multiplications instead of 3 m:

    y = A^T ((G w) * (B^T d))

Applied to rows and columns, F(m x m, 3 x 3) needs (m + 2)^2 multiplications for m^2 outputs.
Points beyond 0, 1, -1 make the numbers in between larger, and so the rounding coarser.

Source: S. Winograd, Arithmetic Complexity of Computations (1980); A. Lavin and S. Gray, Fast
Algorithms for Convolutional Neural Networks (2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product

import numpy as np

from adrenoc.base.tvmapi import Expr, fconst, iconst, select, splat, tirx
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES, Extents
from adrenoc.ir.program import Matrix
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.built_in_conv import (
    constant_candidates,
    conv2d_constants,
    pack_steps,
)
from adrenoc.kernels.families.conv.conv_rules import estimate_clocks, tell_trial
from adrenoc.kernels.families.conv.conv_tile_local import local_candidates
from adrenoc.kernels.families.conv.local_conv import conv2d_local
from adrenoc.kernels.families.shared.context import KernelCall, Pack, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    POINT,
    ConvTile,
    ConvWork,
    Route,
    pointwise_work,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.conv_weights import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.machine import MOST_KNOWN, Machine, Scored, TileTables
from adrenoc.kernels.weights import pack_local
from adrenoc.target.gpu import Limits

TAPS = 3
POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2))


@dataclass(frozen=True, kw_only=True)
class Winograd:
    """F(m, 3): `side` = m + 2 inputs a tile and axis."""

    outputs: int
    input_transform: Matrix
    """B^T, [side, side]."""
    output_transform: Matrix
    """A^T, [outputs, side]."""
    weight_transform: Matrix
    """G, [side, 3]."""

    @property
    def side(self) -> int:
        """Inputs a tile along one axis."""
        return self.outputs + TAPS - 1

    @property
    def growth(self) -> int:
        """Return a power of two: numbers of a transformed tile are up to so many inputs."""
        largest = max(sum(abs(c) for c in row) for row in self.input_transform) ** 2
        return 1 << (math.ceil(largest) - 1).bit_length()

    @property
    def weight_growth(self) -> float:
        """Return how many times the largest weight a transformed weight can be."""
        return float(max(sum(abs(c) for c in row) for row in self.weight_transform)) ** 2


@lru_cache
def winograd(outputs: int) -> Winograd:
    """F(outputs, 3), for 2 to 4 outputs."""
    points = POINTS[: outputs + TAPS - 2]
    inputs, weights = [], []
    for at in points:
        others = [p for p in points if p != at]
        scale = Fraction(1)
        for other in others:
            scale *= at - other
        # The smallest whole factor that leaves both rows without sign changes of their own.
        sign = -1 if scale < 0 else 1
        inputs.append(tuple(sign * c for c in (*_polynomial(others), Fraction(0))))
        weights.append(tuple(sign * at**k / scale for k in range(TAPS)))
    inputs.append(_polynomial(list(points)))
    weights.append((Fraction(0),) * (TAPS - 1) + (Fraction(1),))
    output = [
        (*(p**i for p in points), Fraction(1 if i == outputs - 1 else 0)) for i in range(outputs)
    ]
    return Winograd(
        outputs=outputs,
        input_transform=tuple(inputs),
        output_transform=tuple(output),
        weight_transform=tuple(weights),
    )


def _polynomial(roots: list[Fraction]) -> tuple[Fraction, ...]:
    """Return coefficients of the product of (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [root * c for c in coefficients] + [Fraction(0)]
        coefficients = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return tuple(coefficients)


def two_terms(row: Sequence[Fraction]) -> tuple[int, int, int]:
    """Return a row of the transform as `a + sign * b`: a, b, sign."""
    first, second = sorted((u for u, c in enumerate(row) if c), key=lambda u: row[u], reverse=True)
    return first, second, int(row[second])


def quotient(number: Expr, by: int) -> Expr:
    """Return `number // by` of what is never negative, which TVM does not know of a name.

    Before -> after:
        t0 / 6 + (t0 % 6 >> 31)    t0 / 6
    """
    return tirx.truncdiv(number, iconst(by))


def remainder(number: Expr, by: int) -> Expr:
    """Return what `quotient` leaves.

    Before -> after:
        t0 % 6 + (6 & t0 % 6 >> 31)    t0 % 6
    """
    return tirx.truncmod(number, iconst(by))


def pick(index: Expr, values: Sequence[int]) -> Expr:
    """Return the value at an index that is not known while compiling."""
    return _select_value(index, [iconst(value) for value in values])


def signs_of(index: Expr, values: Sequence[int], size: float, dtype: str) -> Expr:
    """Pick `size` times a sign (1 or -1) at an index that is not known while compiling."""
    return _select_value(index, [fconst(size * value, dtype) for value in values])


def _select_value(index: Expr, values: Sequence[Expr]) -> Expr:
    chosen = values[-1]
    for at in reversed(range(len(values) - 1)):
        chosen = select(index == iconst(at), values[at], chosen)
    return chosen


MOST_ROWS = 4
"""The most rows of a tile that one thread transforms: 4 x 4 vectors beside the texels that it
reads."""


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How an output is cut into tiles, the pixels of each `dilation` (rows, columns) apart."""

    transform: Winograd
    rows: int
    cols: int
    images: int
    dilation: tuple[int, int] = (1, 1)

    @staticmethod
    def cover(transform: Winograd, out: Extents, dilation: tuple[int, int] = (1, 1)) -> Tiling:
        """Return tiles that cover an output."""
        rows, cols = (
            apart * -(-extent // (apart * transform.outputs))
            for extent, apart in zip((out.h, out.w), dilation, strict=True)
        )
        return Tiling(transform=transform, rows=rows, cols=cols, images=out.n, dilation=dilation)

    @property
    def tiles(self) -> int:
        """Return how many tiles cover the outputs of all images."""
        return self.images * self.rows * self.cols

    @property
    def planes(self) -> int:
        """Numbers a tile and channel."""
        return self.transform.side**2


def tiles_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that transforms the input: a thread makes a tile, or its half, of four
    channels.

    Shapes:
        x: roles N, C, H, W
        tiles: roles C, H, W = channels, planes, tiles
    """
    kernel = context.kernel(node, "winograd_tiles")
    x, builder = kernel.input(node.inputs[0]), kernel.builder
    tiles, _ = kernel.output()
    tiling, padding = node.attrs["tiling"], node.attrs["geometry"].padding
    transform = tiling.transform
    side, growth = transform.side, _growth(tiling, tiles)
    parts = row_parts(side)
    tile, block, part = builder.threads(tiling.tiles, x.extents.blocks, len(parts))
    n, row, column = place(builder, tiling, tile)
    down, across = tiling.dilation
    top = builder.let(row - iconst(padding[0]), "top")
    left = builder.let(column - iconst(padding[1]), "left")
    for number, rows in enumerate(parts):
        with builder.when(part == iconst(number) if len(parts) > 1 else None):
            matrix = [transform.input_transform[u] for u in rows]
            by_column = []
            for v in range(side):
                texels = [
                    builder.let(
                        x.padded_texel(n, block, top + iconst(u * down), left + iconst(v * across)),
                        "a",
                    )
                    for u in range(side)
                ]
                by_column.append(combinations(builder, matrix, texels))
            for at, u in enumerate(rows):
                of_row = [column[at] for column in by_column]
                for v, value in enumerate(combinations(builder, transform.input_transform, of_row)):
                    smaller = _times(builder, value, 1 / growth)
                    tiles.write(iconst(0), block, iconst(u * side + v), tile, smaller)
    return kernel.call()


def row_parts(side: int) -> tuple[range, ...]:
    """Rows of a transformed tile, split over so many threads that registers hold their share."""
    if side <= MOST_ROWS:
        return (range(side),)
    return range(side // 2), range(side // 2, side)


def pixels_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that transforms back, with the convolution's epilogue: a thread makes the
    pixels of one tile, four channels.

    Shapes:
        planes: roles C, H, W = channels, planes, tiles
        out: roles N, C, H, W
    """
    kernel = context.kernel(node, "winograd_pixels")
    planes, builder = kernel.input(node.inputs[0]), kernel.builder
    out, epilogue = kernel.output()
    tiling = node.attrs["tiling"]
    transform, e = tiling.transform, out.extents
    side, step, growth = transform.side, transform.outputs, _growth(tiling, planes)
    tile, block, _ = builder.threads(tiling.tiles, e.blocks)
    n, row, column = place(builder, tiling, tile)
    top, left = builder.let(row, "top"), builder.let(column, "left")
    by_column = []
    for v in range(side):
        texels = [
            builder.let(planes.texel(iconst(0), block, iconst(u * side + v), tile), "m")
            for u in range(side)
        ]
        by_column.append(combinations(builder, transform.output_transform, texels))
    rows, columns = (
        [_within(first, i, step, apart, extent) for i in range(step)]
        for first, apart, extent in zip((top, left), tiling.dilation, (e.h, e.w), strict=True)
    )
    for i, (y, in_column) in enumerate(rows):
        with builder.when(in_column):
            pixels = [column[i] for column in by_column]
            for j, value in enumerate(combinations(builder, transform.output_transform, pixels)):
                x, in_row = columns[j]
                larger = _times(builder, value, growth)
                with builder.when(in_row):
                    epilogue.write(n, block, y, x, larger)
    return kernel.call()


def _first_pixel(tile: Expr, step: int, apart: int) -> Expr:
    """Return the first row or column of a tile of `step` of them, each `apart` from the next."""
    if apart == 1:
        return tile * iconst(step)
    return remainder(tile, apart) + quotient(tile, apart) * iconst(step * apart)


def _within(first: Expr, i: int, step: int, apart: int, extent: int) -> tuple[Expr, Expr | None]:
    """Return a tile's i-th row or column, and whether there is one; None where there always is."""
    at = first + iconst(i * apart)
    always = extent % (step * apart) == 0 or (i == 0 and apart == 1)
    return at, None if always else at < iconst(extent)


def _growth(tiling: Tiling, stored: Access) -> int:
    """Return how many times smaller a tensor between the transforms holds its numbers."""
    return tiling.transform.growth if stored.spec.dtype == "float16" else 1


def _times(builder: KernelBuilder, value: Expr, factor: float) -> Expr:
    return value if factor == 1 else value * splat(fconst(factor, builder.compute))


def place(builder: KernelBuilder, tiling: Tiling, tile: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the image of a tile, and the row and column of its first pixel."""
    down, across = tiling.dilation
    step = tiling.transform.outputs
    col = builder.let(remainder(tile, tiling.cols), "tx")
    over = quotient(tile, tiling.cols)
    if tiling.images == 1:
        n, row = iconst(0), builder.let(over, "ty")
    else:
        row = builder.let(remainder(over, tiling.rows), "ty")
        n = builder.let(quotient(over, tiling.rows), "n")
    return n, _first_pixel(row, step, down), _first_pixel(col, step, across)


def combinations(
    builder: KernelBuilder, matrix: Sequence[Sequence[Fraction]], values: Sequence[Expr]
) -> list[Expr]:
    """Return each row of the matrix times the vectors; zeros and ones cost nothing."""
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


def multiply_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that multiplies two matrices for each number of a tile."""
    tiling: Tiling = node.attrs["tiling"]
    x_name, weight_name = node.inputs
    one, machine = pointwise_work(context.graph, node, context.options), context.machine
    work = replace(one, weight_sets=tiling.planes)
    tiles = score_multiply_tiles(work, context.limits, machine)
    tile = context.choose(node, "winograd_multiply", tiles, tiles)
    kernel = context.kernel(node, "winograd_multiply", half=work.half)
    x = kernel.input(x_name)
    transform = tiling.transform
    oihw = partial(transpose_to_oihw, layout=str(node.attrs["kernel_layout"]))
    if tile.route is Route.CONSTANTS:
        tell_trial(kernel, "weights in the constant file", "a copy in local memory")
        weight = kernel.flat(
            weight_name,
            f"winograd{transform.outputs}_steps{tile.out_blocks}x{tile.unroll}",
            partial(_pack, pack=lambda plane: pack_steps(plane, tile)),
            oihw,
            transform=transform.weight_transform,
        )
        return conv2d_constants(kernel, work, tile, x, weight)
    weight = declare_run(
        kernel,
        weight_name,
        f"winograd{transform.outputs}_{tile.packed_as}",
        partial(_pack, pack=lambda plane: pack_local(plane, *tile.packing)),
        oihw,
        transform=transform.weight_transform,
        texels=has_texel_weights(work, machine),
    )
    return conv2d_local(kernel, POINT, tile, x, weight, weights_by_row=True)


def multiply_work(work: ConvWork, tiling: Tiling) -> ConvWork:
    """Return the multiplication of a 3x3 convolution, as a convolution of one tap."""
    out = Extents(1, work.out.c, tiling.planes, tiling.tiles)
    return replace(work, geometry=POINT, out=out, weight_sets=tiling.planes)


@lru_cache(maxsize=MOST_KNOWN)
def score_multiply_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles of the multiplication, each with its estimate."""
    return Scored(
        lambda: multiply_candidates(work, limits, machine),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def multiply_candidates(work: ConvWork, limits: Limits, machine: Machine) -> TileTables[ConvTile]:
    """Return the tiles whose work-groups keep to one row, for each row has its own weights."""
    local = local_candidates(work, limits, machine.cost).where(
        lambda tile: tile.work_group is not None and tile.work_group[1] == 1
    )
    return TileTables(constant_candidates(work, limits, machine), local)


def transform_clocks(work: ConvWork, tiling: Tiling, machine: Machine, *, back: bool) -> float:
    """Return clocks of the transform to tiles, or of the one back; without memory's."""
    cost = machine.cost.winograd_transform
    side, step = tiling.transform.side, tiling.transform.outputs
    blocks, rows, shares = work.in_blocks, side, len(row_parts(side))
    if back:
        blocks, rows, shares = work.out.blocks, step, 1
    texels, stores, live = side * side, rows * rows / shares, rows * side / shares
    # Each row of a matrix adds about half of a column; coordinates come with each access.
    adds = LANES * (live + stores) * side / 2
    slots = adds + cost.texel_slots * (texels + stores)
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    busiest = max(
        machine.wave * (adds / lanes + cost.texel_alu * (texels + stores) / machine.lanes),
        machine.wave * (texels + stores) / machine.texels_of(work.storage_bytes),
    )
    waves = math.ceil(tiling.tiles * blocks * shares / machine.wave)
    registers = (live + side) * (0.5 if work.half else 1.0) + cost.registers
    serial = machine.slots_a_wave * slots + side * machine.cost.pipes.texture_latency_clocks
    return machine.clocks(waves, busiest, serial, machine.resident_waves(registers))


def _pack(transformed: np.ndarray, pack: Pack) -> np.ndarray:
    """Return weights `[O, I, side, side]`, those of each number of a tile packed as one set."""
    places = product(range(transformed.shape[-1]), repeat=2)
    return np.concatenate([pack(transformed[:, :, i : i + 1, j : j + 1]) for i, j in places])
