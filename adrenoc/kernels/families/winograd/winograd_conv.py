"""Winograd's 3x3 convolution, F(2 x 2), in one kernel: no plane of a tile ever leaves the GPU.

Each thread of a work-group multiplies one plane of `tiles` tiles by the weights of `out_blocks`
output blocks.  Before, the threads transform the inputs of some blocks together, and leave the
planes in local memory, where those of all output blocks of the work-group read them; after, the
planes of the sums meet there.

```
for chunk of input blocks:
    each thread: a row of a transformed tile -> shared        weights -> shared
    barrier
    for input blocks of chunk:
        sums[tile, block] += shared plane of tile * shared weights of plane and block
    barrier
for block: sums -> shared, barrier; each thread: a row of pixels of a tile
```

What three kernels (`winograd`) would move through memory twice, the tiles and the planes, four
times the activations each, stays in local memory.  A row of a transformed tile is made of two rows
of inputs, and a row of pixels of three rows of planes: so is the work split evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_vector,
    minimum,
    splat,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import Route
from adrenoc.kernels.families.shared.conv_weights import (
    bring_weights,
    is_texels,
    unpack_texels,
    vectors_a_load,
    vectors_held,
)
from adrenoc.kernels.families.winograd.winograd import (
    combinations,
    pick,
    place,
    quotient,
    remainder,
    signs_of,
    two_terms,
)
from adrenoc.kernels.statements import all_of
from adrenoc.kernels.walk import ACCUMULATOR, widen
from adrenoc.kernels.weights import blocks, fill_channels, whole_k_steps


@dataclass(frozen=True, kw_only=True)
class WinogradTile:
    """The share of one thread and of one work-group."""

    tiles: int
    """Tiles of one plane that a thread multiplies; they lie `columns` apart."""
    out_blocks: int
    """Output blocks that a thread makes of each of its tiles."""
    work_group: tuple[int, int, int]
    """Threads in x, y, z: planes times columns, 1, bands times splits."""
    columns: int
    """Threads beside each other that share their weights."""
    split_k: int
    """Threads that share the input blocks of one sum."""
    chunk: int
    """Input blocks in local memory at a time."""
    unroll: int = 1
    """Input blocks whose operands are asked for together."""
    route: Route = Route.LOCAL
    """How the weights reach the arithmetic: through local memory, or each thread loads its own,
    which costs nothing where few columns share them and leaves local memory to the inputs."""

    @property
    def bands(self) -> int:
        """Runs of `out_blocks` that a work-group makes."""
        return self.work_group[2] // self.split_k

    @property
    def threads(self) -> int:
        """Return the threads of a work-group."""
        return self.work_group[0] * self.work_group[2]

    @property
    def group_tiles(self) -> int:
        """Tiles of a work-group."""
        return self.columns * self.tiles

    @property
    def group_blocks(self) -> int:
        """Output blocks of a work-group."""
        return self.bands * self.out_blocks


def pack_planes(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    """Pack `[O, I, side, side]` for `winograd_conv`, flat.  The order is [work-group, input block,
    plane, band, channel, output block, 4].  Output blocks are padded to whole work-groups, input
    blocks to whole chunks."""
    return _pack_weights(transformed, tile).reshape(-1)


def plane_texels(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    """Pack `[O, I, side, side]` for `winograd_conv` as texels `[work-groups, input blocks, n, 4]`.
    The n texels of a row are in the order of `pack_planes`: plane, band, channel, output block."""
    packed = _pack_weights(transformed, tile)
    return packed.reshape(*packed.shape[:2], -1, LANES)


def _pack_weights(transformed: np.ndarray, tile: WinogradTile) -> np.ndarray:
    out_channels, in_channels, side, _ = transformed.shape
    channel_groups = -(-blocks(out_channels) // tile.group_blocks)
    window = whole_k_steps(blocks(in_channels), tile.chunk)
    planes = transformed.reshape(out_channels, in_channels, -1)
    padded = fill_channels(planes, channel_groups * tile.group_blocks * LANES, window * LANES)
    split = padded.reshape(
        channel_groups, tile.bands, tile.out_blocks, LANES, window, LANES, side * side
    )
    return np.ascontiguousarray(split.transpose(0, 4, 6, 1, 5, 2, 3))


OUTPUTS = 2
"""Pixels of a tile along an axis; a row of a larger tile is made of more than two."""


class WinogradConv:
    """The kernel while it is written, by packed, transformed weights (`pack_planes`)."""

    def __init__(self, kernel: NodeKernel, tile: WinogradTile, x: Access, weight: Access) -> None:
        node = kernel.node
        self.out, self.epilogue = kernel.output()
        builder = self.b = kernel.builder
        tiling = self.tiling = node.attrs["tiling"]
        self.tile, self.padding = tile, node.attrs["geometry"].padding
        self.x, self.weight, out = x, weight, self.out
        self.planes, self.side = tiling.planes, tiling.transform.side
        # Halves hold tiles as much smaller as the transform makes them larger, as in `winograd`.
        self.growth = tiling.transform.growth if builder.compute == "float16" else 1
        self.window = whole_k_steps(x.extents.blocks, tile.chunk)
        self.channel_groups = -(-out.extents.blocks // tile.group_blocks)
        self.vectors = self.planes * LANES * tile.group_blocks
        half = builder.compute == "float16"
        texels = is_texels(weight)
        self.per_load = vectors_a_load(half=half, texels=texels)
        wx, _, deep = tile.work_group
        builder.threads(
            -(-tiling.tiles // tile.group_tiles) * wx,
            1,
            self.channel_groups * deep,
            work_group=tile.work_group,
            cooperate=True,
        )
        lx, _, lz = builder.local
        self.thread = builder.share(lx + lz * iconst(wx), "t")
        self.column = builder.share(floormod(lx, tile.columns), "column")
        self.plane = builder.share(floordiv(lx, tile.columns), "plane")
        self.band = builder.share(floormod(lz, tile.bands), "band")
        self.split = builder.share(floordiv(lz, tile.bands), "slice")
        own = self.plane * iconst(tile.group_tiles) + self.column
        # Floats leave no register to hold it: reads would wait for each other.
        self.own_tiles = builder.share(own, "own") if self.growth > 1 else own
        column = (self.plane * iconst(tile.bands) + self.band) * iconst(LANES * tile.out_blocks)
        self.texel_column = builder.share(column, "wx") if tile.route is Route.TEXTURE else column
        self.first_tile = builder.share(builder.group[0] * iconst(tile.group_tiles), "first")
        self.sums = builder.registers(tile.tiles * tile.out_blocks, fill=0)
        self.loads = tile.chunk * self.vectors // self.per_load
        inputs = tile.chunk * self.planes * tile.group_tiles
        exchanged = tile.split_k * tile.bands * self.planes * tile.group_tiles
        size = inputs
        if tile.route is Route.LOCAL:
            size += vectors_held(tile.chunk * self.vectors, tile.threads, half=half, texels=texels)
        self.shared = builder.allocate_shared(max(size, exchanged))
        self.weights_at = inputs

    # The loop over input blocks

    def emit(self) -> None:
        """Emit all multiply-adds, plane by plane, then the way back."""
        builder, tile = self.b, self.tile
        chunks = self.window // tile.chunk
        rows = self._rows()
        base = builder.share(
            builder.group[2] * iconst(self.window * self.vectors // self.per_load), "wb"
        )
        of_split = tile.chunk // tile.split_k
        with builder.loop(chunks, "chunk", rolled=True) as c:
            reads = [self._read(row, c * iconst(tile.chunk)) for row in rows]
            if tile.route is Route.LOCAL:
                bring_weights(
                    builder,
                    self.weight,
                    base + c * iconst(self.loads),
                    self.loads,
                    self.thread,
                    tile.threads,
                    self.shared,
                    at=self.weights_at,
                )
            for row, texels in zip(rows, reads, strict=True):
                self._transform(row, texels)
            builder.barrier()
            with builder.loop(of_split // tile.unroll, "i", rolled=True) as i:
                mine = i * iconst(tile.unroll)
                if tile.split_k > 1:
                    mine = mine + self.split * iconst(of_split)
                for u in range(tile.unroll):
                    block = mine + iconst(u) if u else mine
                    self._multiply(block, self._weights(block, c, base))
            builder.barrier()
        self._write()

    def _rows(self) -> list[_Row]:
        """Return the rows of transformed tiles that this thread makes in each chunk."""
        builder, tile, side = self.b, self.tile, self.side
        transform = self.tiling.transform.input_transform
        first, second, sign = zip(*map(two_terms, transform), strict=True)
        items = side * tile.group_tiles * tile.chunk
        rows = []
        for done in range(0, items, tile.threads):
            # The last threads make the last row once more.
            item = self.thread + iconst(done)
            if done + tile.threads > items:
                item = minimum(item, iconst(items - 1))
            item = builder.share(item, "item")
            at = builder.share(remainder(item, tile.group_tiles), "at")
            rest = builder.share(quotient(item, tile.group_tiles), "rest")
            u = builder.share(remainder(rest, side), "u")
            block = builder.share(quotient(rest, side), "of")
            number = builder.share(
                minimum(self.first_tile + at, iconst(self.tiling.tiles - 1)), "tile"
            )
            n, row, col = place(builder, self.tiling, number)
            top = builder.share(row - iconst(self.padding[0]), "top")
            to = (block * iconst(self.planes) + u * iconst(side)) * iconst(tile.group_tiles) + at
            rows.append(
                _Row(
                    n=n,
                    block=block,
                    first=builder.share(top + pick(u, first), "ya"),
                    second=builder.share(top + pick(u, second), "yb"),
                    left=builder.share(col - iconst(self.padding[1]), "left"),
                    sign=builder.share(signs_of(u, sign, 1 / self.growth, builder.compute), "sign"),
                    to=builder.share(to, "to"),
                )
            )
        return rows

    def _read(self, row: _Row, start: Expr) -> list[tuple[Expr, Expr]]:
        """Return the texels of two rows of inputs, column by column."""
        builder = self.b
        block = start + row.block
        if self.window != self.x.extents.blocks:
            block = minimum(block, iconst(self.x.extents.blocks - 1))
        block = builder.let(block, "ib")
        texels = [
            [
                builder.let(self.x.padded_texel(row.n, block, y, row.left + iconst(v)), "a")
                for v in range(self.side)
            ]
            for y in (row.first, row.second)
        ]
        return list(zip(*texels, strict=True))

    def _transform(self, row: _Row, texels: Sequence[tuple[Expr, Expr]]) -> None:
        """A row of a transformed tile, to local memory."""
        builder, tile = self.b, self.tile
        transform = self.tiling.transform.input_transform
        smaller = splat(fconst(1 / self.growth, builder.compute))
        summed = [
            builder.let(splat(row.sign) * b + (a if self.growth == 1 else a * smaller), "d")
            for a, b in texels
        ]
        for v, value in enumerate(combinations(builder, transform, summed)):
            self.shared[row.to + iconst(v * tile.group_tiles)] = value

    def _weights(self, block: Expr, chunk: Expr, base: Expr) -> Callable[[int], Expr]:
        """Return what gives the weights of an input block of a chunk; `base` is the first load."""
        builder, tile = self.b, self.tile
        mine = LANES * tile.out_blocks
        if tile.route is Route.TEXTURE:
            row = builder.let(chunk * iconst(tile.chunk) + block, "row")
            texels = [
                builder.let(self.weight.texel(builder.group[2], iconst(0), row, at), "k")
                for at in (self.texel_column + iconst(n) for n in range(mine))
            ]
            return lambda number: texels[number]
        plane = (block * iconst(self.planes) + self.plane) * iconst(tile.bands) + self.band
        if tile.route is Route.LOCAL:
            at = builder.let(iconst(self.weights_at) + plane * iconst(mine), "wi")
            return lambda number: builder.let(self.shared[at + iconst(number)], "k")
        loads = mine // self.per_load
        first = base + chunk * iconst(self.loads)
        at = builder.let(first + plane * iconst(loads), "wi")
        words = [load_vector(self.weight.buffer, at, n, builder.compute) for n in range(loads)]
        loaded = [
            texel for word in words for texel in unpack_texels(builder, builder.let(word, "w"))
        ]
        return lambda number: loaded[number]

    def _multiply(self, block: Expr, weights: Callable[[int], Expr]) -> None:
        """One input block of the chunk: a plane of each tile by the plane's weights.  A total in
        halves is rounded with each number that is added to it, so the products of a block are added
        up first."""
        builder, tile, sums = self.b, self.tile, self.sums
        at = builder.let(block * iconst(self.planes * tile.group_tiles) + self.own_tiles, "vi")
        pixels = [
            builder.let(self.shared[at + iconst(j * tile.columns)], "v") for j in range(tile.tiles)
        ]
        held = builder.registers(1)
        for b in range(tile.out_blocks):
            ks = [weights(c * tile.out_blocks + b) for c in range(LANES)]
            if builder.compute == ACCUMULATOR:
                for c, k in enumerate(ks):
                    for j, pixel in enumerate(pixels):
                        to = b * tile.tiles + j
                        sums[to] = splat(lane(pixel, c)) * k + sums[to]
                continue
            for j, pixel in enumerate(pixels):
                to = b * tile.tiles + j
                held[0] = splat(lane(pixel, 0)) * ks[0]
                for c in range(1, LANES):
                    held[0] = splat(lane(pixel, c)) * ks[c] + held[0]
                sums[to] = sums[to] + held[0]

    # The way back

    def _write(self) -> None:
        """Planes of one output block after the other meet in local memory."""
        builder, tile = self.b, self.tile
        items = OUTPUTS * tile.group_tiles * tile.bands
        lz = self.split * iconst(tile.bands) + self.band
        to = (lz * iconst(self.planes) + self.plane) * iconst(tile.group_tiles) + self.column
        to = builder.share(to, "to")
        for b in range(tile.out_blocks):
            if b:
                builder.barrier()
            for j in range(tile.tiles):
                self.shared[to + iconst(j * tile.columns)] = self.sums[b * tile.tiles + j]
            builder.barrier()
            for done in range(0, items, tile.threads):
                item = self.thread + iconst(done)
                inside = item < iconst(items) if done + tile.threads > items else None
                with builder.when(inside):
                    self._pixels(builder.let(item, "item"), b)

    def _pixels(self, item: Expr, b: int) -> None:
        """A row of the pixels of a tile and block."""
        builder, tile, e = self.b, self.tile, self.out.extents
        transform = self.tiling.transform.output_transform
        at = builder.share(remainder(item, tile.group_tiles), "at")
        rest = builder.share(quotient(item, tile.group_tiles), "rest")
        i = builder.share(remainder(rest, OUTPUTS), "row")
        band = builder.share(quotient(rest, OUTPUTS), "of")
        number = builder.let(self.first_tile + at, "tile")
        block = builder.let(
            self.b.group[2] * iconst(tile.group_blocks)
            + band * iconst(tile.out_blocks)
            + iconst(b),
            "block",
        )
        n, row, col = place(builder, self.tiling, number)
        y = builder.let(row + i, "y")
        left = builder.let(col, "left")
        with builder.when(self._test_inside(number, block, y)), builder.computing(ACCUMULATOR):
            # The rows of the transform are 1 1 1 0 and 0 1 -1 1.
            signs = [int(row[2]) for row in transform]
            sign = builder.share(signs_of(i, signs, 1, ACCUMULATOR), "sign")
            larger = splat(fconst(self.growth, ACCUMULATOR))
            by_column = []
            for v in range(self.side):
                outer, one, two = (
                    self._sum(band, u, v, at)
                    for u in (i * iconst(self.side - 1), iconst(1), iconst(2))
                )
                by_column.append(builder.let(splat(sign) * two + (outer + one), "m"))
            for j, value in enumerate(combinations(builder, transform, by_column)):
                in_row = left + iconst(j) < iconst(e.w) if j and e.w % OUTPUTS else None
                pixel = value if self.growth == 1 else value * larger
                with builder.when(in_row):
                    self.epilogue.write(n, block, y, left + iconst(j), pixel)

    def _test_inside(self, tile: Expr, block: Expr, y: Expr) -> Expr | None:
        """Return whether such pixels exist; None where all do."""
        e, tiles = self.out.extents, self.tiling.tiles
        return all_of(
            tile < iconst(tiles) if tiles % self.tile.group_tiles else None,
            block < iconst(e.blocks) if e.blocks % self.tile.group_blocks else None,
            y < iconst(e.h) if e.h % OUTPUTS else None,
        )

    def _sum(self, band: Expr, u: Expr, v: int, at: Expr) -> Expr:
        """Return the sum of one plane of a tile, of all splits."""
        tile = self.tile
        plane = band * iconst(self.planes) + u * iconst(self.side) + iconst(v)
        first = plane * iconst(tile.group_tiles) + at
        of_split = tile.bands * self.planes * tile.group_tiles
        parts = [
            widen(self.b.let(self.shared[first + iconst(s * of_split)], "s"))
            for s in range(tile.split_k)
        ]
        return self.b.let(sum(parts[1:], parts[0]), "s")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row of a transformed tile, of one input block of a chunk: `first + sign * second`."""

    n: Expr
    block: Expr
    first: Expr
    second: Expr
    left: Expr
    sign: Expr
    to: Expr
    """Where it goes in local memory."""
