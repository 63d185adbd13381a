"""Convolution: dense, grouped, dilated, strided; also 1x1, and so every matmul by a constant.

One thread makes `pixels` neighbours along W of `out_blocks` blocks of four output channels.  An
activation texel feeds 16 multiply-adds an output block, a weight texel four a pixel; both come
through the texture cache.  Zero padding is the sampler's border: no test inside the loops.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, lane, minimum, splat
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, power_of_two, power_of_two_within
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.conv_weights import (
    BYTES_A_LOAD,
    TextureWeights,
    UniformWeights,
)
from adrenoc.kernels.families.shared.machine import (
    Column,
    Machine,
    TileTable,
    choose,
    is_one,
    larger,
    round_up,
    smaller,
)
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.statements import Registers, all_of
from adrenoc.kernels.walk import RunSums, add_products, adds_in_runs, total_dtype
from adrenoc.kernels.weights import group_window
from adrenoc.target.conv_cost import ConvTextureCost
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

UNROLLED_TAPS = 3
"""Widest kernel row whose taps are unrolled, so that neighbouring pixels share their reads."""


def conv2d(
    kernel: NodeKernel, geometry: ConvGeometry, tile: ConvTile, x: Access, weight: Access
) -> KernelCall:
    """Make the kernel that convolves x with packed weights.

    Shapes:
        x: roles N, C, H, W
        weight: `weights.pack_conv` for the texture route, `conv_weights.pack_uniform` else
    """
    builder, (out, epilogue) = kernel.builder, kernel.output()
    source, (kh, kw) = x.extents, geometry.kernel
    thread = _start_thread(builder, geometry, tile, x, out)
    window = thread.window
    weights: TextureWeights | UniformWeights
    if tile.route is Route.TEXTURE:
        weights = TextureWeights(builder, weight, thread.first_out, tile.out_blocks)
    else:
        run, lanes, blocks = weight.buffer, window * LANES, tile.out_blocks
        weights = UniformWeights(builder, run, thread.group, kh * kw, lanes, blocks)
    left, row0, col0 = first_reads(builder, geometry, tile, thread)
    channels = source.c if window == 1 and geometry.groups == 1 else LANES
    sums, runs = start_sums(builder, tile, out, kh * kw * window * channels)
    unrolled = range(kw) if kw <= UNROLLED_TAPS else None

    def multiply(ky: Expr, i: Expr) -> None:
        row = builder.let(row0 + ky * iconst(geometry.dilation[0]), "y")
        in_block = thread.first_in + i
        if geometry.groups > 1:
            # The window of a last group may end behind the last block.  Its weights are zero
            # there, but what lies behind the last block need not be a number.
            in_block = builder.let(minimum(in_block, iconst(source.blocks - 1)), "in")
        step = _Step(builder, x, weights, runs, tile, thread.n, in_block, i, channels)
        if unrolled is not None:
            for tap in unrolled:
                step.tap(ky * iconst(kw) + iconst(tap), row, col0, geometry, tap)
        else:
            with builder.loop(kw, "kx") as kx:
                col = builder.let(col0 + kx * iconst(geometry.dilation[1]), "c")
                step.forget()
                step.tap(ky * iconst(kw) + kx, row, col, geometry, 0)

    # Loops that compilers unroll once more ask for texels early, in registers of other threads.
    with builder.loop(kh, "ky", rolled=True) as ky:
        runs.loop(window, kw * channels, "i", lambda i: multiply(ky, i), rolled=True)
    store_inside(builder, tile, epilogue, thread, left, sums)
    return kernel.call()


class Thread(NamedTuple):
    """What a thread makes: pixels from a row and a column on, of blocks of one image.

    `group` counts the runs of `tile.out_blocks` output blocks, of which `first_out` is the first;
    it reads `window` input blocks from `first_in` on.
    """

    n: Expr
    row: Expr
    column: Expr
    group: Expr
    first_out: Expr
    first_in: Expr
    window: int


def _start_thread(
    builder: KernelBuilder, geometry: ConvGeometry, tile: ConvTile, x: Access, out: Access
) -> Thread:
    """Start the threads, and name what one of them makes."""
    e = out.extents
    per_image = -(-e.blocks // tile.out_blocks)
    columns = -(-e.w // tile.pixels)
    if columns * e.h == 1:  # a vector: neighbouring threads make neighbouring blocks
        gz, gx, gy = builder.threads(e.n * per_image, 1, 1, work_group=tile.work_group)
    else:
        gx, gy, gz = builder.threads(columns, e.h, e.n * per_image, work_group=tile.work_group)
    n, group = (iconst(0), gz) if e.n == 1 else (floordiv(gz, per_image), floormod(gz, per_image))
    first_out = builder.let(group * iconst(tile.out_blocks), "ob")
    window, per_in = group_window(e.c, x.extents.c, geometry.groups)
    first_in: Expr = iconst(0)
    if geometry.groups > 1:
        of_group = floordiv(first_out * iconst(LANES), e.c // geometry.groups) * iconst(per_in)
        first_in = builder.let(floordiv(of_group, LANES), "ib")
    return Thread(n, gy, gx, group, first_out, first_in, window)


def first_reads(
    builder: KernelBuilder, geometry: ConvGeometry, tile: ConvTile, thread: Thread
) -> tuple[Expr, Expr, Expr]:
    """Return a thread's first column, and the first row and column that it reads."""
    (sy, sx), (top, edge) = geometry.strides, geometry.padding
    left = builder.let(thread.column * iconst(tile.pixels), "x")
    row = builder.let(thread.row * iconst(sy) - iconst(top), "row")
    return left, row, builder.let(left * iconst(sx) - iconst(edge), "col")


def start_sums(
    builder: KernelBuilder, tile: ConvTile, out: Access, products: int
) -> tuple[Registers, RunSums]:
    """Return the sums of a thread, of so many products each, and what adds to them."""
    count, several = tile.pixels * tile.out_blocks, adds_in_runs(out, products)
    sums = builder.registers(count, dtype=total_dtype(builder, products), fill=0.0)
    return sums, RunSums(builder, sums, range(count), products, several=several)


def store_inside(
    builder: KernelBuilder,
    tile: ConvTile,
    epilogue: Epilogue,
    thread: Thread,
    left: Expr,
    sums: Registers,
) -> None:
    """Store what lies inside of the output."""
    e, first_out = epilogue.out.extents, thread.first_out
    for blocks, pixels in epilogue.parts(tile.out_blocks, tile.pixels):
        for p, b in product(pixels, blocks):
            block = first_out + iconst(b) if tile.out_blocks > 1 else first_out
            inside = all_of(
                left + iconst(p) < iconst(e.w) if e.w % tile.pixels and p else None,
                block < iconst(e.blocks) if e.blocks % tile.out_blocks and b else None,
            )
            with builder.when(inside):
                at = b * tile.pixels + p
                epilogue.write(thread.n, block, thread.row, left + iconst(p), sums[at])


class _Step:
    """One input block of one kernel row: the reads that its taps share."""

    def __init__(
        self,
        builder: KernelBuilder,
        x: Access,
        weights: TextureWeights | UniformWeights,
        sums: RunSums,
        tile: ConvTile,
        n: Expr,
        in_block: Expr,
        window_block: Expr,
        channels: int,
    ) -> None:
        self._builder, self._x, self._weights, self._sums = builder, x, weights, sums
        self._tile, self._n, self._in_block = tile, n, in_block
        self._window_block, self._channels = window_block, channels
        self._columns: dict[int, Expr] = {}

    def forget(self) -> None:
        """Drop what was read: the columns are counted from elsewhere now."""
        self._columns.clear()

    def tap(self, tap: Expr, row: Expr, col0: Expr, geometry: ConvGeometry, kx: int) -> None:
        """Multiply and add one tap for the whole tile."""
        pixels = [
            self._column(row, col0, p * geometry.strides[1] + kx * geometry.dilation[1])
            for p in range(self._tile.pixels)
        ]
        # All reads first: one wait then covers them all.
        columns = [self._window_block * iconst(LANES) + iconst(c) for c in range(self._channels)]
        weights = [self._weights.row(tap, column) for column in columns]
        for b in range(self._tile.out_blocks):
            for p, pixel in enumerate(pixels):
                at = b * self._tile.pixels + p
                products = [
                    splat(lane(pixel, c)) * of_blocks[b] for c, of_blocks in enumerate(weights)
                ]
                self._sums[at] = add_products(self._builder, self._sums[at], products)

    def _column(self, row: Expr, col0: Expr, offset: int) -> Expr:
        if offset not in self._columns:
            texel = self._x.padded_texel(self._n, self._in_block, row, col0 + iconst(offset))
            self._columns[offset] = self._builder.let(texel, "a")
        return self._columns[offset]


_ROUTES = (Route.TEXTURE, Route.BUFFER)
_NUMBERS = ("pixels", "out_blocks", "x", "y", "z", "route")
"""What the search finds of a tile; its route by the place among `_ROUTES`."""


def texture_candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTable[ConvTile]:
    """Return the tiles that suit the extents."""
    rows = list(_rows(work, limits, costs))
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    pixels, out_blocks, x, y, z, route = columns
    actions = {
        "pixels": pixels,
        "out_blocks": out_blocks,
        "route": np.array(_ROUTES, dtype=object)[route],
        "work_group": (x, y, z),
    }
    return TileTable(ConvTile, actions, len(rows))


def _rows(
    work: ConvWork, limits: Limits, costs: Cost
) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Yield pixels, output blocks, work-group and route (a place of `_ROUTES`) of each."""
    e, cost = work.out, costs.conv_texture
    for pixels in cost.pixels:
        if pixels > 1 and pixels > e.w // 2:
            break
        columns = -(-e.w // pixels)
        flat = list(groups_of_a_wave(columns, e.h, 1, limits, costs))
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            if work.geometry.groups > 1 and out_blocks > 1:
                break
            per_image = -(-e.blocks // out_blocks)
            if e.blocks % out_blocks == 0:
                for group in groups_of_a_wave(columns, e.h, e.n * per_image, limits, costs):
                    yield pixels, out_blocks, *group, 0
            per_load = 2 if work.half else 1
            if work.geometry.groups == 1 and out_blocks % per_load == 0:
                for x, y, _ in flat:
                    yield pixels, out_blocks, x, y, 1, 1


def groups_of_a_wave(
    x: int, y: int, z: int, limits: Limits, costs: Cost, sides: Sequence[int] = ()
) -> Iterator[tuple[int, int, int]]:
    """Yield work-groups of at most a wave, of `sides` if there are any.

    Neighbours in x read neighbouring texels, so groups are not narrow where the image is wide.
    """
    cost = costs.conv_texture
    most = min(costs.pipes.wave_threads, limits.max_work_group_size)
    deepest = power_of_two_within(limits.group_sides[2])
    if x * y == 1:
        yield min(power_of_two(z), most), 1, 1
        return
    for gx in _sizes(x, cost, sides):
        if gx < min(x, cost.narrowest_group, most):
            continue
        for gy in _sizes(y, cost, sides):
            if gx * gy > most:
                break
            yield gx, gy, min(power_of_two(z), most // (gx * gy), deepest)


def texture_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return clocks of the whole convolution on the target."""
    e, geometry = work.out, work.geometry
    cost, rates = machine.cost.conv_texture, machine.cost.pipes
    kh, kw = geometry.kernel
    texels, loads = _reads(work, tile)
    sums = tile.pixels * tile.out_blocks
    mads = sums * LANES * (work.channels + (1 if work.half else 0))  # halves: `kernels/walk.py`
    steps = kh * kw * work.in_blocks
    lanes = machine.lanes * (machine.half_rate if work.half else 1.0)
    # Beside the multiply-adds: a coordinate for each read, unpacking, and the loop.
    unpack = cost.half_load_slots if work.half else cost.float_load_slots
    overhead = cost.texel_slots * texels + unpack * loads + cost.loop_slots
    overhead += work.texel_work * _activations(work, tile)
    alu = mads / lanes + overhead / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    buffer = loads * BYTES_A_LOAD / rates.bytes_per_clock
    busiest = machine.wave * (
        steps * larger(larger(alu, texture), buffer) + cost.end_alu * sums / machine.lanes
    )
    gx, gy, gz = tile.work_group or (1, 1, 1)
    columns, per_image = round_up(e.w / tile.pixels), round_up(e.blocks / tile.out_blocks)
    groups = choose(
        columns * e.h == 1,
        round_up(e.n * per_image / gx),
        round_up(columns / gx) * round_up(e.h / gy) * round_up(e.n * per_image / gz),
    )
    waves = groups * round_up(gx * gy * gz / machine.wave)
    # The weights of each tap are waited for, whatever else is under way.
    in_texture = is_one(tile.route, Route.TEXTURE)
    latency = choose(in_texture, rates.texture_latency_clocks, rates.buffer_latency_clocks)
    slots = steps * (mads + texels + overhead) + cost.start_slots + cost.end_slots * sums
    serial = steps * latency + machine.slots_a_wave * slots
    resident = machine.resident_waves(_registers(work, tile, cost))
    return machine.clocks(waves, busiest, serial, resident)


def _activations(work: ConvWork, tile: ConvTile) -> Column:
    """Return activation texels that one thread reads for one tap and input block."""
    kw, stride = work.geometry.kernel[1], work.geometry.strides[1]
    if kw <= UNROLLED_TAPS and work.geometry.dilation[1] == 1:
        return smaller(1.0 * tile.pixels, ((tile.pixels - 1) * stride + kw) / kw)
    return 1.0 * tile.pixels


def _reads(work: ConvWork, tile: ConvTile) -> tuple[Column, Column]:
    """Return texels and 16-byte loads that one thread reads for one tap and input block."""
    activation = _activations(work, tile) + work.block_texels
    weights = work.channels * tile.out_blocks
    in_texture, loads = is_one(tile.route, Route.TEXTURE), weights * (0.5 if work.half else 1.0)
    return activation + choose(in_texture, weights, 0), choose(in_texture, 0.0, loads)


def _registers(work: ConvWork, tile: ConvTile, cost: ConvTextureCost) -> Column:
    """Return full registers of four that a thread needs."""
    kw = work.geometry.kernel[1]
    columns = tile.pixels + work.block_texels + (kw - 1 if kw <= UNROLLED_TAPS else 0)
    vectors = tile.pixels * tile.out_blocks + columns + LANES * tile.out_blocks
    return round_up(vectors * (0.5 if work.half else 1.0)) + cost.address_registers


def _sizes(extent: int, cost: ConvTextureCost, sides: Sequence[int]) -> list[int]:
    """Return sides up to the extent, and the extent itself where it is small."""
    sizes = [side for side in sides or cost.sides if side < 2 * extent]
    return sorted({*sizes, extent} if extent <= cost.most_whole else sizes)
