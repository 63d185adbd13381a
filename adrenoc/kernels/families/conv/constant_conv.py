"""A convolution by weights in the constant file: they cost no read of a thread, and no register.

Instructions of an Adreno take numbers that all threads of a wave share from its constant file, as
they take those of a register. A wave may copy numbers of a buffer there while it works, to a slot
of its own: those of one k-step, while its texels are on their way. The file is small, and what a
slot takes bounds how many waves run beside each other.

    file     | slot of wave 0 | slot of wave 1 | ...
    slot     [input block of the k-step, tap of the row, input channel, output block, 4]

The text of such a kernel can be read in two ways (`prelude.cl`): where a driver has no such
built-ins, or has failed the runtime's trial of them, a work-group copies each k-step to local
memory.

Source: what LiteRT's engine gives drivers of the 6xx, 7xx and 8xx (docs/measurements).
"""

from __future__ import annotations

from itertools import product

import numpy as np

from adrenoc.base.tvmapi import Buffer, Expr, floordiv, floormod, iconst, lane, splat, tirx
from adrenoc.ir.layout import LANES
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
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile, ConvWork, Route
from adrenoc.kernels.families.shared.conv_weights import HALVES_A_LOAD, pack_uniform
from adrenoc.kernels.families.shared.integers import WORD_BYTES
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
from adrenoc.target.gpu import FILE_VECTOR_BYTES, ConstantFile, Limits


def conv2d_constants(
    kernel: NodeKernel, geometry: ConvGeometry, tile: ConvTile, x: Access, weight: Access
) -> KernelCall:
    """Make the kernel that convolves x with packed weights, in halves.

    Shapes:
        x: roles N, C, H, W
        weight: `pack_steps`, flat
    """
    file = kernel.context.machine.constant_file
    if file is None:
        raise ValueError(f"{kernel.node.name}: the target has no constant file")
    # As many bytes as the constant file has, which stand for it.
    place = kernel.zeros("constant_place", file.bytes // WORD_BYTES)
    builder, (out, epilogue) = kernel.builder, kernel.output()
    source, (kh, kw) = x.extents, geometry.kernel
    thread = _start_thread(builder, tile, out)
    left, row0, col0 = first_reads(builder, geometry, tile, thread)
    channels = source.c if source.blocks == 1 else LANES
    steps = source.blocks // tile.unroll
    sums, runs = start_sums(builder, tile, out, kh * kw * source.blocks * channels)
    vectors = step_vectors(kw, tile)
    weights = _SlotWeights(builder, tile, weight.buffer, place.buffer, file, vectors)
    first = builder.let(thread.group * iconst(kh * steps * vectors), "wb")

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


def _start_thread(builder: KernelBuilder, tile: ConvTile, out: Access) -> Thread:
    """Start the threads, and name what one of them makes; all of a work-group copy weights."""
    e = out.extents
    columns, groups = -(-e.w // tile.pixels), -(-e.blocks // tile.out_blocks)
    gx, gy, gz = builder.threads(
        columns, e.h, e.n * groups, work_group=tile.work_group, cooperate=True
    )
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
    if file is not None and suits and work.weight_sets == 1 and kw <= cost.widest_row:
        e = work.out
        for pixels in cost.pixels:
            if pixels > 1 and pixels > e.w // 2:
                break
            if e.w * e.h < cost.fewest_pixels:
                continue
            groups = list(groups_of_a_wave(-(-e.w // pixels), e.h, 1, limits, machine.cost))
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
    overhead = cost.step_slots + cost.texel_slots * texels + work.texel_work * texels
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
    registers = (sums + tile.pixels + texels) / 2 + cost.other_registers
    resident = smaller(machine.resident_waves(registers), slots_a_processor(vectors, machine))
    memory = machine.memory_clocks(bytes_of(work, tile))
    clocks = machine.clocks(waves, busiest, serial, resident)
    return machine.overlap_with_memory(clocks, memory, resident)


def count_waves(work: ConvWork, tile: ConvTile, machine: Machine) -> Column:
    """Return waves of the whole kernel."""
    e, (gx, gy, gz) = work.out, tile.work_group or (1, 1, 1)
    groups = round_up(round_up(e.w / tile.pixels) / gx) * round_up(e.h / gy)
    per_image = round_up(e.blocks / tile.out_blocks)
    return groups * round_up(e.n * per_image / gz) * round_up(gx * gy * gz / machine.wave)


def slots_a_processor(vectors: Column, machine: Machine) -> Column:
    """Return waves of one micro shader processor that find a slot of so many vectors."""
    file = machine.constant_file
    if file is None:
        return machine.most_waves
    sharing = max(1, file.waves // machine.most_waves)
    return larger(1, look_up(vectors, file.slots) // sharing)
