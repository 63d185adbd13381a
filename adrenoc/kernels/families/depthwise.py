"""Depthwise convolution: a rectangle of pixels a thread, so that its taps share their reads.

Nothing is summed over channels, so an activation texel feeds no more multiply-adds than the
kernel has taps, and the texture pipe is what the kernel waits for.  A thread that makes `rows` x
`pixels` reads each texel of the rectangle below them once.  The taps come through local memory,
an eighth of a texture read each.

Arithmetic is in float whatever the preset, and so are the taps: the kernel waits for memory, and
what a folded batch norm makes of the taps may cancel (`scripts/estimate_networks`: the same time).

Of bytes, by the GPU's dot products: nothing is summed over channels, so three of four products of a
dot product are of zeros.  It still takes one instruction for a multiply-add, as floats do, and
spares what floats need before it: to take four bytes of a word apart, to convert and to shift them.

```
sum.x += dot((tap.x, 0, 0, 0), word)    sum.y += dot((0, tap.y, 0, 0), word)    ...
```
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Protocol

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    cast,
    dot_products,
    floordiv,
    floormod,
    iconst,
    load_vector,
    minimum,
    vector_dtype,
)
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access, BytesAccess
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvWork, Oihw
from adrenoc.kernels.families.shared.conv_weights import (
    WORD_BYTES,
    declare_run,
    has_texel_weights,
    load_run,
    split_bias,
    suits_dot,
)
from adrenoc.kernels.families.shared.machine import (
    MOST_KNOWN,
    Column,
    Machine,
    Scored,
    TileTable,
    choose,
    larger,
    look_up,
    round_up,
)
from adrenoc.kernels.families.shared.rows import GroupMeans
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, widen
from adrenoc.kernels.weights import pack_depthwise
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

UNROLLED_ROWS = 3
"""Kernel rows whose loop compilers unroll; of more, reads ahead would take all registers."""


@dataclass(frozen=True, kw_only=True)
class DepthwiseTile:
    """The share of one thread: `rows` x `pixels` of one block of four channels."""

    rows: int
    pixels: int
    work_group: tuple[int, int, int]


def depthwise(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: DepthwiseTile,
    x: Access,
    weight: Access,
    out: Access,
    epilogue: Epilogue,
    *,
    sums_of: type[TapSums] | None = None,
    tap_dtype: str | None = None,
    finished: Callable[[Expr, Expr], Expr] | None = None,
    shares: bool = True,
    means: Access | None = None,
) -> None:
    """Emit a depthwise convolution with packed weights (`pack_taps`), which threads share or not.

    `sums_of` multiplies and adds (None: floats) taps of `tap_dtype` (None: that of the arithmetic);
    `finished` makes floats of a sum and its block.

    Shapes:
        x: roles N, C, H, W
        out: roles N, C, OH, OW
        means: the parts of the result's mean (`GroupMeans`)
    """
    e, taps = out.extents, geometry.kernel[0] * geometry.kernel[1]
    gx, gy, gz = builder.threads(
        -(-e.w // tile.pixels),
        -(-e.h // tile.rows),
        e.n * e.blocks,
        work_group=tile.work_group,
        cooperate=True,
    )
    run = RunTaps(builder=builder, run=weight, kind=tap_dtype or builder.compute)
    shared = _bring(run, taps, e.blocks, e.n, tile.work_group) if shares else run
    # Threads beyond the last block read it too, for a buffer has an end.
    if e.n * e.blocks % tile.work_group[2]:
        gz = builder.let(minimum(gz, iconst(e.n * e.blocks - 1)), "z")
    n, block = (iconst(0), gz) if e.n == 1 else (floordiv(gz, e.blocks), floormod(gz, e.blocks))
    top = builder.let(gy * iconst(tile.rows), "y")
    left = builder.let(gx * iconst(tile.pixels), "x")
    row0 = builder.let(top * iconst(geometry.strides[0]) - iconst(geometry.padding[0]), "row")
    col0 = builder.let(left * iconst(geometry.strides[1]) - iconst(geometry.padding[1]), "col")
    first_tap = builder.let((builder.local[2] if shares else block) * iconst(taps), "wi")
    taps_of = (sums_of or TapSums)(
        builder=builder,
        geometry=geometry,
        rows=tile.rows,
        pixels=tile.pixels,
        x=x,
        shared=shared,
        rolled=tap_dtype is not None or geometry.kernel[0] > UNROLLED_ROWS,
    )
    sums = taps_of.rectangle(n, block, row0, col0, first_tap)
    wx, wy, wz = tile.work_group
    averages = None
    if means is not None:
        averages = GroupMeans(builder, epilogue, means, pixels=e.h * e.w, blocks=wz, parts=wx * wy)
        averages.total.fill(0.0)
    with builder.when(builder.inside):
        for r, p in product(range(tile.rows), range(tile.pixels)):
            in_column = top + iconst(r) < iconst(e.h) if r and e.h % tile.rows else None
            in_row = left + iconst(p) < iconst(e.w) if p and e.w % tile.pixels else None
            with builder.when(in_column), builder.when(in_row):
                total = sums[r * tile.pixels + p]
                value = total if finished is None else finished(total, block)
                epilogue.write(n, block, top + iconst(r), left + iconst(p), value)
    if averages is not None:
        lx, ly, lz = builder.local
        part = builder.let(lx + ly * iconst(wx), "part")
        averages.leave(lz, part)
        member = builder.let(part + lz * iconst(wx * wy), "member")
        averages.store(member, wx * wy * wz, builder.group[2] * iconst(wz))


class Pixels(Protocol):
    """What taps are multiplied by: a tensor, or a part of one that local memory holds."""

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels, or zeros where (h, w) lies outside."""


@dataclass(frozen=True, kw_only=True)
class SharedPixels:
    """Pixels of one block that local memory holds, row by row; `base` is that of (0, 0)."""

    builder: KernelBuilder
    shared: SharedArray
    columns: int
    base: Expr

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels, in float: all that is read lies there."""
        return widen(self.builder.let(self.shared[self.base + h * iconst(self.columns) + w], "v"))


class Taps(Protocol):
    """Taps one after the other."""

    def __getitem__(self, index: Expr) -> Expr:
        """Return one of them."""


@dataclass(frozen=True, kw_only=True)
class RunTaps:
    """The packed weights where they lie, for a target without local memory."""

    builder: KernelBuilder
    run: Access
    kind: str

    def __getitem__(self, index: Expr) -> Expr:
        return load_run(self.builder, self.run, index, 0, self.kind)


@dataclass(frozen=True, kw_only=True)
class TapSums:
    """What taps make of rectangles of `rows` x `pixels` of one block."""

    builder: KernelBuilder
    geometry: ConvGeometry
    rows: int
    pixels: int
    x: Pixels
    shared: Taps
    rolled: bool = False
    """Whether compilers are asked to keep the loop over kernel rows."""
    once: bool = False
    """Whether a tap that several rows of a rectangle need is read once."""

    def zeros(self) -> Registers:
        """Return the sums before the first product."""
        sums = self.builder.registers(self.rows * self.pixels)
        sums.fill(0.0)
        return sums

    def pixel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Return four channels of the input."""
        return self.x.padded_texel(n, block, h, w)

    def product(self, pixel: Expr, tap: Expr, total: Expr) -> Expr:
        """Return `total` and what a tap adds to it."""
        return pixel * cast(tap, vector_dtype(self.builder.compute)) + total

    def rectangle(self, n: Expr, block: Expr, row0: Expr, col0: Expr, first_tap: Expr) -> Registers:
        """Return the sums, row by row; the input that they need begins at (row0, col0)."""
        builder, geometry = self.builder, self.geometry
        sums = self.zeros()
        if self.rows == 1:
            # A loop keeps the compiler from reading all rows at once, which takes registers.
            with builder.loop(geometry.kernel[0], "ky", rolled=self.rolled) as ky:
                row = builder.let(row0 + ky * iconst(geometry.dilation[0]), "r")
                taps_of_row = builder.let(first_tap + ky * iconst(geometry.kernel[1]), "wr")
                self._add(sums, n, block, row, col0, [(0, taps_of_row, {})])
        else:
            known: list[dict[int, Expr]] = [{} for _ in range(geometry.kernel[0])]
            for read, uses in _rows_read(geometry, self.rows).items():
                of_rows = [
                    (r, first_tap + iconst(y * geometry.kernel[1]), known[y] if self.once else {})
                    for r, y in uses
                ]
                self._add(sums, n, block, row0 + iconst(read), col0, of_rows)
        return sums

    def _add(
        self,
        sums: Registers,
        n: Expr,
        block: Expr,
        row: Expr,
        col0: Expr,
        uses: list[tuple[int, Expr, dict[int, Expr]]],
    ) -> None:
        """One row of the input; `uses` are output rows, each with the place of its first tap, and
        the taps that are known by column."""
        builder, geometry, pixels = self.builder, self.geometry, range(self.pixels)
        columns: dict[int, Expr] = {}
        for kx in range(geometry.kernel[1]):
            offsets = [p * geometry.strides[1] + kx * geometry.dilation[1] for p in pixels]
            for offset in offsets:
                if offset not in columns:
                    texel = self.pixel(n, block, row, col0 + iconst(offset))
                    columns[offset] = builder.let(texel, "a")
            for r, first_tap, known in uses:
                if kx not in known:
                    known[kx] = builder.let(self.shared[first_tap + iconst(kx)], "k")
                for p, offset in zip(pixels, offsets, strict=True):
                    at = r * self.pixels + p
                    sums[at] = self.product(columns[offset], known[kx], sums[at])


def rows_read(geometry: ConvGeometry, rows: int) -> int:
    """Return rows of the input that so many rows of the output read."""
    return len(_rows_read(geometry, rows))


def _rows_read(geometry: ConvGeometry, rows: int) -> dict[int, list[tuple[int, int]]]:
    """Input row, counted from the first -> the (output row, kernel row) pairs that need it."""
    uses: dict[int, list[tuple[int, int]]] = {}
    for r in range(rows):
        for ky in range(geometry.kernel[0]):
            row = r * geometry.strides[0] + ky * geometry.dilation[0]
            uses.setdefault(row, []).append((r, ky))
    return dict(sorted(uses.items()))


def _bring(run: RunTaps, taps: int, blocks: int, images: int, group: tuple[int, int, int]) -> Taps:
    """Return the taps of the work-group's blocks, in local memory."""
    builder, weight, kind = run.builder, run.run, run.kind
    wx, wy, wz = group
    shared = builder.allocate_shared(wz * taps, dtype=kind)
    lx, ly, lz = builder.local
    across = builder.let(lx + ly * iconst(wx), "t")
    # Each layer of threads brings the taps of its own block: images may begin within a group.
    own = builder.group[2] * iconst(wz) + lz
    block = own if images == 1 else floormod(own, blocks)
    first = builder.let(block * iconst(taps) + across, "load")
    for done in range(0, taps, wx * wy):
        last = taps - done < wx * wy
        with builder.when(across < iconst(taps - done) if last else None):
            tap = builder.let(load_run(builder, weight, first, done, kind), "k")
            shared[lz * iconst(taps) + across + iconst(done)] = tap
    builder.barrier()
    return shared


def pack_taps(weight: np.ndarray, most_blocks: int) -> np.ndarray:
    """Pack `[C, 1, KH, KW]` as [block, tap, 4], flat.  Blocks are padded to a multiple of
    `most_blocks`, for whole work-groups read them."""
    texels = pack_depthwise(weight)[0]
    taps, blocks, _ = texels.shape
    padded = np.zeros((-(-blocks // most_blocks) * most_blocks, taps, LANES), weight.dtype)
    padded[:blocks] = texels.transpose(1, 0, 2)
    return padded.reshape(-1)


def depthwise_dot(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: DepthwiseTile,
    x: BytesAccess,
    weight: Access,
    rest: Access,
    out: Access,
    epilogue: Epilogue,
    *,
    shares: bool = True,
) -> None:
    """Emit a depthwise convolution of bytes with packed weights (`pack_tap_words`).

    Shapes:
        x: roles N, C, H, W
        rest: `IntegerBias.rest`
        out: roles N, C, OH, OW
    """

    def finish_sums(total: Expr, block: Expr) -> Expr:
        return cast(total + load_vector(rest.buffer, block, 0, "int32"), "float32x4")

    depthwise(
        builder,
        geometry,
        tile,
        x,
        weight,
        out,
        epilogue,
        sums_of=_DotSums,
        tap_dtype="uint32",
        finished=finish_sums,
        shares=shares,
    )


class _DotSums(TapSums):
    """Sums of integers, of words of four bytes."""

    def zeros(self) -> Registers:
        sums = self.builder.registers(self.rows * self.pixels, dtype="int32")
        sums.fill(0)
        return sums

    def pixel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        if not isinstance(self.x, BytesAccess):
            raise ValueError("the input does not lie in bytes")
        return self.x.padded_word(n, block, h, w)

    def product(self, pixel: Expr, tap: Expr, total: Expr) -> Expr:
        return dot_products(tap, pixel, total)


def pack_tap_words(weight: np.ndarray, most_blocks: int) -> np.ndarray:
    """Pack whole numbers `[C, 1, KH, KW]` as [block, tap, 4] 32-bit words, flat.  The word of each
    channel has its weight in the byte where a word of pixels has that channel."""
    taps = pack_taps(weight, most_blocks).astype(np.int8).reshape(-1, LANES)
    words = np.zeros((*taps.shape, LANES), np.int8)
    channels = np.arange(LANES)
    words[:, channels, channels] = taps
    return words.reshape(-1).view(np.uint32)


def depthwise_rule(
    context: RuleContext, node: Node, work: ConvWork, oihw: Callable[[np.ndarray], np.ndarray]
) -> KernelCall:
    """Return a convolution of each channel by itself, with weights that `oihw` orders.  In float
    whatever the preset: see `adrenoc/kernels/families/depthwise.py`."""
    machine = context.machine
    if suits_dot(context, node, oihw):
        return _dot_rule(context, node, work, oihw, machine)
    tiles = score_tiles(work, context.limits, machine)
    family = "depthwise_mean" if work.mean_parts else "depthwise_conv2d"
    tile = context.choose(node, family, tiles, tiles)
    kernel = context.kernel(node, family)
    x = kernel.input(node.inputs[0])
    wz = tile.work_group[2]
    pack = partial(_pack, oihw=oihw, blocks=wz)
    texels = has_texel_weights(work, machine)
    weight = declare_run(
        kernel, node.inputs[1], f"depthwise{wz}", pack, dtype=ACCUMULATOR, texels=texels
    )
    out, epilogue = kernel.output()
    means = kernel.other_output(node.also_writes[0]) if work.mean_parts else None
    shares = bool(context.limits.local_mem_bytes)
    depthwise(
        kernel.builder, work.geometry, tile, x, weight, out, epilogue, shares=shares, means=means
    )
    return kernel.call()


def _dot_rule(
    context: RuleContext, node: Node, work: ConvWork, oihw: Oihw, machine: Machine
) -> KernelCall:
    """Return the same of bytes, which dot products take as they are."""
    family = "depthwise_dot"
    words = replace(work, storage_bytes=1, words=context.limits.dot_instructions)
    tiles = score_tiles(words, context.limits, machine)
    tile = context.choose(node, family, tiles, tiles)
    context.byte_costs.add(tiles(tile), score_tiles(work, context.limits, machine).least)
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, family)
    x = kernel.input(node.inputs[0])
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{node.inputs[0]} does not lie in bytes")
    low, wz = x.spec.low, tile.work_group[2]
    weight = kernel.flat(
        node.inputs[1], f"{family}{wz}", lambda w: pack_tap_words(w, wz), oihw, "float32"
    )
    rest = bias.operand(kernel, family, low, oihw)
    out, epilogue = kernel.output()
    shares = bool(context.limits.local_mem_bytes)
    depthwise_dot(
        kernel.builder, work.geometry, tile, x, weight, rest, out, epilogue, shares=shares
    )
    return kernel.call()


def _pack(weight: np.ndarray, oihw: Callable[[np.ndarray], np.ndarray], blocks: int) -> np.ndarray:
    return pack_taps(oihw(weight), blocks)


def blocks_held(vectors: int, limits: Limits) -> int:
    """Return blocks of channels of which a work-group can have so many vectors at once: their taps.
    Those of local memory bound it; where there is none, threads read them where they lie."""
    if not limits.local_mem_bytes:
        return limits.max_work_group_size
    return limits.local_mem_bytes // (vectors * LANES * bytes_of(ACCUMULATOR))


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: ConvWork, limits: Limits, machine: Machine) -> Scored[DepthwiseTile]:
    """Return the tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )


def candidates(work: ConvWork, limits: Limits, costs: Cost) -> TileTable[DepthwiseTile]:
    """Return the tiles that suit the extents."""
    shapes = list(_shapes(work, limits, costs))
    names = ("rows", "pixels", "width", "height", "depth")
    rows, pixels, *group = np.array(shapes, dtype=np.int64).reshape(-1, len(names)).T
    actions = {"rows": rows, "pixels": pixels, "work_group": tuple(group)}
    return TileTable(DepthwiseTile, actions, len(shapes))


def _shapes(
    work: ConvWork, limits: Limits, costs: Cost
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield rows and pixels of a thread, and the three sides of its work-group."""
    e, (kh, kw), cost = work.out, work.geometry.kernel, costs.depthwise
    whole = work.mean_parts == (1, 1)  # images
    most = cost.most_averaging_threads if whole else costs.pipes.wave_threads
    most = min(most, limits.max_work_group_size)
    held, deepest = blocks_held(kh * kw, limits), limits.group_sides[2]
    for rows in cost.rows:
        for pixels in cost.pixels:
            smallest = rows * pixels == 1
            many = rows * pixels * kh * kw > cost.most_multiplies
            if (rows > e.h or pixels > e.w or many) and not smallest:
                continue
            columns, lines = -(-e.w // pixels), -(-e.h // rows)
            widths = {columns} if whole else {min(columns, width) for width in cost.widths}
            heights = {lines} if whole else {min(lines, height) for height in cost.heights}
            for wx, wy in product(widths, heights):
                groups = -(-lines // wy), -(-columns // wx)
                if work.mean_parts:
                    held = blocks_held(kh * kw + wx * wy, limits)
                if wx * wy <= most and held > 0 and work.mean_parts in (None, groups):
                    deep = min(most // (wx * wy), e.n * e.blocks, held, deepest)
                    yield rows, pixels, wx, wy, deep


def estimate_clocks(work: ConvWork, tile: DepthwiseTile, machine: Machine) -> Column:
    """Clocks of the whole convolution on the target; of a tile of columns, an array of them."""
    e, geometry, (kh, kw) = work.out, work.geometry, work.geometry.kernel
    cost, rates = machine.cost.depthwise, machine.cost.pipes
    wx, wy, wz = tile.work_group
    pixels = tile.rows * tile.pixels
    rows = look_up(tile.rows, lambda rows: rows_read(geometry, rows))
    columns = look_up(tile.pixels, lambda pixels: len(geometry.columns(pixels)))
    texels = rows * columns
    taps = tile.rows * kh * kw
    mads = pixels * kh * kw * LANES * max(1, work.words)
    of_read = cost.word_slots if work.words else cost.texel_slots
    other = cost.start_slots + of_read * texels + cost.store_slots * pixels
    reads = machine.texels_of(work.storage_bytes)
    if work.words:
        reads = rates.bytes_per_clock / WORD_BYTES
    texel_taps = has_texel_weights(work, machine)
    brought = round_up(kh * kw / (wx * wy)) * texel_taps
    latency = rates.buffer_latency_clocks if work.words else rates.texture_latency_clocks
    first_wait = latency if texel_taps else rates.buffer_latency_clocks
    busiest = larger(
        machine.wave * (mads + other) / machine.lanes,
        machine.wave * (texels / reads + brought / machine.texels_of(bytes_of(ACCUMULATOR))),
    )
    groups = round_up(e.w / tile.pixels / wx) * round_up(e.h / tile.rows / wy)
    groups = groups * round_up(e.n * e.blocks / wz)
    waves = groups * round_up(wx * wy * wz / machine.wave)
    # Compilers read ahead: most texels wait beside the sums and some of the taps.
    read = kh * kw * (1 if work.words else cost.taps_ahead)
    vectors = registers = cost.texels_ahead * texels + pixels + read
    shared = taps
    if work.mean_parts:
        other, shared = other + cost.averaging_slots, taps + 2 + cost.averaging_reads
    serial = machine.slots_a_wave * (mads + taps + other) + first_wait + rows * latency
    if work.words or kh > UNROLLED_ROWS:  # threads of one row read it in a loop
        in_loop = tile.rows == 1
        of_row = columns + pixels + kw
        vectors = choose(in_loop, of_row, vectors)
        registers = choose(in_loop, of_row + 1, registers)
        looped = machine.slots_a_wave * (mads + taps + other + cost.row_slots * kh)
        looped = looped + (cost.start_waits + kh) * first_wait
        serial = choose(in_loop, looped, serial)
    spills = vectors + cost.other_registers > machine.registers / 2
    serial = choose(spills, serial * rates.spilled, serial)
    resident = machine.resident_waves(registers)
    memory = machine.memory_clocks(_bytes(work))
    return machine.hedge(
        busiest,
        shared,
        LANES * bytes_of(ACCUMULATOR),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def _bytes(work: ConvWork) -> int:
    """Return what memory has to move: the input, the output and the taps."""
    e, geometry = work.out, work.geometry
    pixels = e.n * e.h * e.w * (1 + math.prod(geometry.strides)) * work.storage_bytes
    return (pixels + math.prod(geometry.kernel) * bytes_of(ACCUMULATOR)) * e.blocks * LANES
