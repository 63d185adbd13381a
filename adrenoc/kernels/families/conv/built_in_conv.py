"""Convolutions by built-ins of newer drivers: weights in the constant file, matrix units.

The text of such a kernel can be read in two ways (`prelude.cl`): where a driver has no such
built-ins, or has failed the runtime's trial of them, a work-group copies each k-step of weights to
local memory, and threads make the tiles.

Weights in the constant file cost no read of a thread, and no register.  Instructions of an Adreno
take numbers that all threads of a wave share from its constant file, as they take those of a
register.  A wave may copy numbers of a buffer there while it works, to a slot of its own: those of
one k-step, while its texels are on their way.  The file is small, and what a slot takes bounds how
many waves run beside each other.

    file     | slot of wave 0 | slot of wave 1 | ...
    slot     [input block of the k-step, tap of the row, input channel, output block, 4]

Source: what LiteRT's engine gives drivers of the 6xx, 7xx and 8xx (docs/measurements).

By matrix units a sub-group makes tiles of 16 rows by 16 columns of a product together.

    step    the threads of a work-group bring texels to local memory, 16 channels of each pixel;
            weights are loaded as tiles from the buffer that they lie in
    sums    tiles of floats, which no thread can look into: at the end they go to local memory,
            where each thread finds the vectors of four that it finishes

Source: the draft of cl_khr_cooperative_matrix (May 2026), by which llama.cpp reaches the matrix
units of the Adreno 850 (its pull request 32686).
"""

from itertools import product

import numpy as np

from adrenoc.base.tvmapi import Buffer, Expr, floordiv, floormod, iconst, lane, minimum, splat, tirx
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.conv2d import (
    Thread,
    first_reads,
    groups_of_a_wave,
    start_sums,
    store_inside,
)
from adrenoc.kernels.families.conv.conv_tile_local import bytes_of
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import (
    POINT,
    ConvTile,
    ConvWork,
    Route,
)
from adrenoc.kernels.families.shared.conv_weights import (
    HALVES_A_LOAD,
    WORD_BYTES,
    pack_uniform,
    view_words,
)
from adrenoc.kernels.families.shared.machine import (
    Column,
    Machine,
    TileTable,
    larger,
    look_up,
    round_up,
    smaller,
)
from adrenoc.kernels.walk import LONG_SUM, add_products
from adrenoc.kernels.weights import pack_conv
from adrenoc.target.gpu import FILE_VECTOR_BYTES, MATRIX_SIDE, ConstantFile, Limits


def conv2d_constants(
    kernel: NodeKernel, work: ConvWork, tile: ConvTile, x: Access, weight: Access
) -> KernelCall:
    """Make the kernel that convolves x with packed weights, in halves.

    Shapes:
        x: roles N, C, H, W
        weight: `pack_steps`, flat; of several sets, each row of x is multiplied by its own
    """
    file = kernel.context.machine.constant_file
    if file is None:
        raise ValueError(f"{kernel.node.name}: the target has no constant file")
    # As many bytes as the constant file has, which stand for it.
    place = kernel.zeros("constant_place", file.bytes // WORD_BYTES)
    builder, (out, epilogue) = kernel.builder, kernel.output()
    geometry = work.geometry
    source, (kh, kw) = x.extents, geometry.kernel
    thread = _start_thread(builder, work, tile, out)
    left, row0, col0 = first_reads(builder, geometry, tile, thread)
    channels = source.c if source.blocks == 1 else LANES
    steps = source.blocks // tile.unroll
    sums, runs = start_sums(builder, tile, out, kh * kw * source.blocks * channels)
    vectors = step_vectors(kw, tile)
    weights = _SlotWeights(builder, tile, weight.buffer, place.buffer, file, vectors)
    band = thread.group
    if work.weight_sets > 1:
        band = thread.row * iconst(-(-out.extents.blocks // tile.out_blocks)) + band
    first = builder.let(band * iconst(kh * steps * vectors), "wb")

    def multiply(ky: Expr, step: Expr) -> None:
        row = builder.let(row0 + ky * iconst(geometry.dilation[0]), "y")
        texels: dict[tuple[int, int], Expr] = {}
        for u, offset in product(range(tile.unroll), geometry.columns(tile.pixels)):
            block = builder.let(step * iconst(tile.unroll) + iconst(u), "in")
            texel = x.padded_texel(thread.n, block, row, col0 + iconst(offset))
            texels[u, offset] = builder.let(texel, "a")
        weights.copy(builder.let(first + (ky * iconst(steps) + step) * iconst(vectors), "w"))
        taps = list(product(range(tile.unroll), range(kw)))
        for b, p in product(range(tile.out_blocks), range(tile.pixels)):
            terms = [
                splat(lane(texels[u, p * geometry.strides[1] + tap * geometry.dilation[1]], c))
                * weights.vector(((u * kw + tap) * LANES + c) * tile.out_blocks + b)
                for u, tap in taps
                for c in range(channels)
            ]
            at = b * tile.pixels + p
            runs[at] = add_products(builder, runs[at], terms)

    terms_a_step = tile.unroll * kw * channels
    with builder.loop(kh, "ky", rolled=True) as ky:
        runs.loop(steps, terms_a_step, "i", lambda i: multiply(ky, i), rolled=True)
    with builder.when(builder.inside):
        store_inside(builder, tile, epilogue, thread, left, sums)
    return kernel.call()


def _spread(work: ConvWork, columns: Column, rows: int) -> tuple[Column, int]:
    """Return threads along x and y, of an image of so many `columns` of threads.

    Those of a 1x1 convolution go on with the next row along x, so that no wave ends with one.  Taps
    of several rows are better read by work-groups that have several.
    """
    joined = work.geometry.kernel == (1, 1) and work.weight_sets == 1
    return (columns * rows, 1) if joined else (columns, rows)


def _start_thread(builder: KernelBuilder, work: ConvWork, tile: ConvTile, out: Access) -> Thread:
    """Start the threads, and name what one of them makes; all of a work-group copy weights."""
    e = out.extents
    columns, groups = -(-e.w // tile.pixels), -(-e.blocks // tile.out_blocks)
    wide, high = _spread(work, columns, e.h)
    gx, gy, gz = builder.threads(
        wide, high, e.n * groups, work_group=tile.work_group, cooperate=True
    )
    if high < e.h:
        gx, gy = builder.let(floormod(gx, columns), "gx"), builder.let(floordiv(gx, columns), "gy")
    n, group = (iconst(0), gz) if e.n == 1 else (floordiv(gz, groups), floormod(gz, groups))
    first_out = builder.let(group * iconst(tile.out_blocks), "ob")
    return Thread(n, gy, gx, group, first_out, iconst(0), 0)


class _SlotWeights:
    """The weights of a k-step in the slot of a wave, as `prelude.cl` spells it."""

    def __init__(
        self,
        builder: KernelBuilder,
        tile: ConvTile,
        buffer: Buffer,
        place: Buffer,
        file: ConstantFile,
        vectors: int,
    ) -> None:
        self._builder, self._vectors = builder, vectors
        self._pointers = place.data, buffer.data
        wide, high, _ = tile.work_group or (1, 1, 1)
        x, y, _ = builder.local
        self._thread, self._threads = y * iconst(wide) + x, wide * high
        self._shared = builder.allocate_shared(vectors * HALVES_A_LOAD // LANES)
        self._emit("START_CONSTANTS", vectors, file.slots(vectors), file.waves)

    def copy(self, first: Expr) -> None:
        """Copy the k-step whose vectors of eight halves begin at `first`, and wait for it."""
        self._emit("COPY_CONSTANTS", first, self._vectors)
        for at in range(0, self._vectors, self._threads):
            mine = self._thread + iconst(at)
            self._emit("SHARE_CONSTANT", first, self._vectors, self._shared.pointer, mine)
        self._emit("AWAIT_CONSTANTS")

    def vector(self, at: int) -> Expr:
        """Return vector of four number `at` of the k-step.  It is no load, and so has no name."""
        name, shared = "CONSTANT", self._shared.pointer
        return tirx.call_pure_extern(f"float16x{LANES}", name, shared, at)

    def _emit(self, name: str, *arguments: Expr | int) -> None:
        call = tirx.call_extern("int32", name, *self._pointers, *arguments)
        self._builder.emit(tirx.Evaluate(call))


def step_vectors(taps: int, tile: ConvTile) -> Column:
    """Return vectors of eight halves that a k-step of so many taps a row takes in a slot."""
    return tile.unroll * taps * tile.out_blocks * (LANES * LANES // HALVES_A_LOAD)


def pack_steps(weight: np.ndarray, tile: ConvTile) -> np.ndarray:
    """Pack `[O, I, KH, KW]` in the order in which waves copy it, flat."""
    kh, kw = weight.shape[2:]
    parts = pack_uniform(weight, tile.out_blocks).view(np.uint32)
    in_blocks = -(-weight.shape[1] // LANES)
    words = tile.out_blocks * LANES * LANES // 2
    steps = parts.reshape(-1, kh, kw, in_blocks // tile.unroll, tile.unroll, words)
    return np.ascontiguousarray(steps.transpose(0, 1, 3, 4, 2, 5)).reshape(-1)


_NUMBERS = ("pixels", "out_blocks", "unroll", "x", "y", "z")
"""What the search finds of a tile."""


def constant_candidates(work: ConvWork, limits: Limits, machine: Machine) -> TileTable[ConvTile]:
    """Return the tiles that suit the extents; none where there is no constant file for them."""
    file, cost = machine.constant_file, machine.cost.conv_constants
    rows: list[tuple[int, ...]] = []
    kw = work.geometry.kernel[1]
    suits = work.half and work.geometry.groups == 1 and not work.centred and work.image is None
    if file is not None and suits and kw <= cost.widest_row:
        e = work.out
        for pixels in cost.pixels:
            if pixels > 1 and pixels > e.w // 2:
                break
            if e.w * e.h < cost.fewest_pixels * work.weight_sets:
                continue
            # Rows with weights of their own share no work-group.
            rows_alike = e.h if work.weight_sets == 1 else 1
            wide, high = _spread(work, -(-e.w // pixels), rows_alike)
            groups = list(groups_of_a_wave(wide, high, 1, limits, machine.cost, cost.sides))
            for out_blocks, unroll in product(cost.out_blocks, cost.unrolls):
                if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                    continue
                if work.in_blocks % unroll or unroll * kw > max(kw, cost.most_taps):
                    continue
                tile = ConvTile(pixels=pixels, out_blocks=out_blocks, unroll=unroll)
                vectors = step_vectors(kw, tile)
                if file.slots(vectors) < cost.fewest_slots:
                    continue
                if vectors * FILE_VECTOR_BYTES > limits.local_mem_bytes:
                    continue
                rows += [(pixels, out_blocks, unroll, *group) for group in groups]
    pixels, out_blocks, unroll, x, y, z = (
        np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    )
    actions = {
        "pixels": pixels,
        "out_blocks": out_blocks,
        "unroll": unroll,
        "route": Route.CONSTANTS,
        "work_group": (x, y, z),
    }
    return TileTable(ConvTile, actions, len(rows))


def constant_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return clocks of the whole convolution on the target."""
    kh, kw = work.geometry.kernel
    cost, rates = machine.cost.conv_constants, machine.cost.pipes
    sums = tile.pixels * tile.out_blocks
    steps = kh * round_up(work.in_blocks / tile.unroll)
    columns = look_up(tile.pixels, lambda pixels: len(work.geometry.columns(pixels)))
    texels = tile.unroll * columns * (1 + work.block_texels)
    products = work.in_blocks * kh * kw * work.channels
    # What a k-step adds up in halves is added to the total: as a float where that is long.
    adding = sums * LANES * (2 if products > LONG_SUM else 1 / machine.half_rate)
    mads = sums * LANES * tile.unroll * kw * work.channels
    texel_slots = cost.texel_slots + (cost.row_texel_slots if kw > 1 else 0) + work.texel_work
    overhead = cost.step_slots + texel_slots * texels
    alu = machine.wave * (mads / machine.half_rate + adding + overhead) / machine.lanes
    texture = machine.wave * texels / machine.texels_of(work.storage_bytes)
    vectors = step_vectors(kw, tile)
    copied = vectors * FILE_VECTOR_BYTES / rates.bytes_per_clock
    ends = machine.wave * cost.end_slots * sums / machine.lanes
    busiest = steps * larger(larger(alu, texture), copied) + ends
    waves = count_waves(work, tile, machine)
    wait = larger(rates.texture_latency_clocks, cost.copy_clocks)
    slots = steps * (mads + adding + texels + overhead) + cost.start_slots + cost.end_slots * sums
    serial = steps * wait + machine.slots_a_wave * slots
    # A long total stands in floats; what a k-step adds to it in halves is there at once where it
    # is of several taps, else one vector after the other.
    totals = sums if products > LONG_SUM else sums / 2
    at_once = sums if kw > 1 and products > LONG_SUM else 0
    registers = totals + (at_once + tile.pixels + texels) / 2 + cost.other_registers
    resident = smaller(machine.resident_waves(registers), slots_a_processor(vectors, machine))
    memory = machine.memory_clocks(bytes_of(work, tile))
    clocks = machine.clocks(waves, busiest, serial, resident)
    return machine.overlap_with_memory(clocks, memory, resident)


def count_waves(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return waves of the whole kernel."""
    e, (gx, gy, gz) = work.out, tile.work_group or (1, 1, 1)
    wide, high = _spread(work, round_up(e.w / tile.pixels), e.h)
    groups = round_up(wide / gx) * round_up(high / gy)
    per_image = round_up(e.blocks / tile.out_blocks)
    return groups * round_up(e.n * per_image / gz) * round_up(gx * gy * gz / machine.wave)


def slots_a_processor(vectors: Column, machine: Machine) -> Column:
    """Return waves of one micro shader processor that find a slot of so many vectors."""
    file = machine.constant_file
    if file is None:
        return machine.most_waves
    sharing = max(1, file.waves // machine.most_waves)
    return larger(1, look_up(vectors, file.slots) // sharing)


HALF_BYTES = FLOAT_BYTES // 2


def conv2d_matrices(kernel: NodeKernel, tile: ConvTile, x: Access, weight: Access) -> KernelCall:
    """Make the 1x1 convolution of x with packed weights, in halves; the sums are floats.

    `tile.pixels` and four times `tile.out_blocks` are multiples of `MATRIX_SIDE`.

    Shapes:
        x: roles N, C, H, W
        weight: `pack_tiles`, flat
    """
    builder, (out, epilogue) = kernel.builder, kernel.output()
    e, side, blocks = out.extents, MATRIX_SIDE, MATRIX_SIDE // LANES
    threads, _, _ = tile.work_group or (1, 1, 1)
    columns = tile.out_blocks * LANES
    bands, runs = -(-e.blocks // tile.out_blocks), -(-(e.h * e.w) // tile.pixels)
    builder.threads(runs * threads, 1, e.n * bands, work_group=tile.work_group, cooperate=True)
    thread, (run, _, band) = builder.local[0], builder.group
    n, group = (iconst(0), band) if e.n == 1 else (floordiv(band, bands), floormod(band, bands))
    first = builder.let(run * iconst(tile.pixels), "q")
    steps = -(-x.extents.blocks // blocks)
    rows, cols = tile.pixels // side, columns // side

    def emit(name: str, *arguments: Expr | int) -> None:
        """Emit a statement that `prelude.cl` spells."""
        builder.emit(tirx.Evaluate(tirx.call_extern("int32", name, *arguments)))

    emit("START_MATRICES", thread, threads)
    for k in range(rows * cols):
        emit("NEW_SUM", k, threads)
    left = builder.allocate_shared(tile.pixels * blocks, dtype="float16")
    with builder.loop(steps, "i", rolled=True) as step:
        texels = _read_texels(builder, tile, x, n, first, step * iconst(blocks), blocks, thread)
        builder.barrier()
        for place, texel in texels:
            left[place] = texel
        builder.barrier()
        run_of_step = (group * iconst(steps) + step) * iconst(side * columns)
        of_step = builder.let(run_of_step, "w")
        for j in range(cols):
            emit("LOAD_RIGHT", j, weight.buffer.data, of_step + iconst(j * side), columns)
        for i in range(rows):
            emit("LOAD_LEFT", i, left.pointer, i * side * side, side)
        for i, j in product(range(rows), range(cols)):
            emit("ADD_PRODUCT", i * cols + j, i, j)
    sums = builder.allocate_shared(tile.pixels * tile.out_blocks, dtype="float32")
    for i, j in product(range(rows), range(cols)):
        emit("STORE_SUM", i * cols + j, sums.pointer, (i * columns + j) * side, columns)
    builder.barrier()
    for start in range(0, tile.pixels * tile.out_blocks, threads):
        pixel, own = _part(builder, thread, start, tile.pixels)
        q = builder.let(first + pixel, "q")
        block = builder.let(group * iconst(tile.out_blocks) + own, "ob")
        row, column = floordiv(q, e.w), floormod(q, e.w)
        with builder.when((q < iconst(e.h * e.w)) & (block < iconst(e.blocks))):
            value = builder.let(sums[pixel * iconst(tile.out_blocks) + own], "sum")
            epilogue.write(n, block, row, column, value)
    return kernel.call()


def _part(builder: KernelBuilder, thread: Expr, start: int, pixels: int) -> tuple[Expr, Expr]:
    """Return the pixel and the block of a thread's vector of those from `start` on."""
    number = thread + iconst(start)
    pixel = builder.let(floormod(number, pixels), "p")
    return pixel, builder.let(floordiv(number, pixels), "b")


def _read_texels(
    builder: KernelBuilder,
    tile: ConvTile,
    x: Access,
    n: Expr,
    first: Expr,
    first_block: Expr,
    blocks: int,
    thread: Expr,
) -> list[tuple[Expr, Expr]]:
    """Return where each texel of a step that a thread reads goes, and the texel.

    Neighbours read neighbouring pixels. Behind the last block it is the last one, by weights that
    are zero; behind the last pixel are zeros.
    """
    threads, _, _ = tile.work_group or (1, 1, 1)
    found = []
    for start in range(0, tile.pixels * blocks, threads):
        pixel, at = _part(builder, thread, start, tile.pixels)
        block: Expr = first_block + at
        if x.extents.blocks % blocks:
            block = minimum(block, iconst(x.extents.blocks - 1))
        q, block = builder.let(first + pixel, "q"), builder.let(block, "in")
        row, column = floordiv(q, x.extents.w), floormod(q, x.extents.w)
        texel = x.padded_texel(n, block, row, column)
        found.append((pixel * iconst(blocks) + at, builder.let(texel, "a")))
    return found


def pack_tiles(weight: np.ndarray, tile: ConvTile) -> np.ndarray:
    """Pack `[O, I, 1, 1]` as `[band, step, term, column]`, flat; what fills up is zero."""
    texels = pack_conv(weight, 1)[0]  # [block, column of weights, 4]
    (blocks, terms, _), side = texels.shape, MATRIX_SIDE
    bands, steps = -(-blocks // tile.out_blocks), -(-terms // side)
    whole = np.zeros((bands * tile.out_blocks, steps * side, LANES), weight.dtype)
    whole[:blocks, :terms] = texels
    parted = whole.reshape(bands, tile.out_blocks, steps, side, LANES).transpose(0, 2, 3, 1, 4)
    return view_words(np.ascontiguousarray(parted).reshape(-1))


def matrix_candidates(work: ConvWork, limits: Limits, machine: Machine) -> TileTable[ConvTile]:
    """Return the tiles that suit the extents; none where there are no matrix units for them."""
    side, cost, threads = MATRIX_SIDE, machine.cost.conv_matrices, machine.wave
    suits = work.half and work.image is None and not work.centred and work.weight_sets == 1
    suits = suits and work.geometry == POINT
    rows: list[tuple[int, ...]] = []
    if machine.matrix_units and suits and limits.refuse_group((threads, 1, 1)) is None:
        for high, wide in product(cost.tiles_high, cost.tiles_wide):
            pixels, out_blocks = high * side, wide * side // LANES
            shared = pixels * side * HALF_BYTES + pixels * out_blocks * LANES * FLOAT_BYTES
            is_whole = pixels * (side // LANES) % threads == 0 == pixels * out_blocks % threads
            if is_whole and shared <= limits.local_mem_bytes:
                rows.append((pixels, out_blocks))
    pixels, out_blocks = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    actions = {
        "pixels": pixels,
        "out_blocks": out_blocks,
        "route": Route.MATRICES,
        "work_group": (np.full(len(rows), threads), 1, 1),
    }
    return TileTable(ConvTile, actions, len(rows))


def matrix_clocks(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return clocks of the whole product on the target."""
    e, side, cost = work.out, MATRIX_SIDE, machine.cost.conv_matrices
    steps = round_up(work.in_blocks * LANES / side)
    products = tile.pixels * tile.out_blocks * LANES * side
    texels = tile.pixels * side / LANES
    units = products / (machine.lanes * machine.half_rate * cost.rate)
    alu = (cost.step_slots * machine.wave + cost.texel_slots * texels) / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    copied = tile.out_blocks * LANES * side * HALF_BYTES / machine.cost.pipes.bytes_per_clock
    ends = cost.end_slots * tile.pixels * tile.out_blocks / machine.lanes
    busiest = steps * larger(larger(units, alu), larger(texture, copied)) + ends
    serial = steps * cost.waits * machine.cost.pipes.texture_latency_clocks + busiest
    waves = round_up(e.h * e.w / tile.pixels) * e.n * round_up(e.blocks / tile.out_blocks)
    resident = machine.resident_waves(cost.registers)
    clocks = machine.clocks(waves, busiest, serial, resident)
    memory = machine.memory_clocks(bytes_of(work, tile))
    return cost.doubt * machine.overlap_with_memory(clocks, memory, resident)
