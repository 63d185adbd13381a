"""Products by matrix units: a sub-group makes tiles of 16 rows by 16 columns of a result together.

    step    the threads of a work-group bring texels to local memory, 16 channels of each pixel;
            weights are loaded as tiles from the buffer that they lie in
    sums    tiles of floats, which no thread can look into: at the end they go to local memory,
            where each thread finds the vectors of four that it finishes

The text of such a kernel can be read in two ways (`prelude.cl`), as that of `constant_conv` can:
where a driver has no matrix units, or has failed the runtime's trial, threads make the tiles.

Source: the draft of cl_khr_cooperative_matrix (May 2026), by which llama.cpp reaches the matrix
units of the Adreno 850 (its pull request 32686).
"""

from __future__ import annotations

from itertools import product

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, minimum, tirx
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.conv_tile_local import bytes_of
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import POINT, ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.conv_weights import view_words
from adrenoc.kernels.families.shared.machine import Column, Machine, TileTable, larger, round_up
from adrenoc.kernels.weights import pack_conv
from adrenoc.target.gpu import MATRIX_SIDE, Limits

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


_NUMBERS = ("pixels", "out_blocks")
"""What the search finds of a tile."""


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
    pixels, out_blocks = np.array(rows, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
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
