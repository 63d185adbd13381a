"""Rule for a convolution by Winograd's algorithm in one kernel: its schedules, what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

from adrenoc.families.shared.context import KernelCall, RuleContext
from adrenoc.families.shared.conv_geometry import as_oihw
from adrenoc.families.shared.conv_tile_shape import Route
from adrenoc.families.shared.conv_weights import HALVES_A_LOAD
from adrenoc.families.shared.conv_work import ConvWork, conv_work
from adrenoc.families.shared.machine import (
    BUFFER_LATENCY_CLOCKS,
    BYTES_PER_CLOCK,
    LOCAL_READ_CLOCKS,
    TEXTURE_LATENCY_CLOCKS,
    WAVE,
    Machine,
)
from adrenoc.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.families.winograd.winograd import Tiling
from adrenoc.families.winograd.winograd_conv import OUTPUTS, winograd_conv
from adrenoc.families.winograd.winograd_tile import WinogradTile, pack_planes, plane_texels
from adrenoc.ir.graph import Node
from adrenoc.ir.layout import LANES
from adrenoc.kernels.weights import whole_turns
from adrenoc.target.gpu import Limits

MOST_THREADS = 256
MOST_SHARED_BYTES = 16384
"""Of a work-group: so much of a GPU that two of them run beside each other."""
MOST_SUMS = 16
"""Of a thread, in vectors."""
FEW_COLUMNS = 4
"""Below, each weight is read by so few threads that local memory only delays it."""
MOST_PADDING = 1.15
"""Input blocks with those that fill up the last chunk, for each that is there."""


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """Instructions beside the multiply-adds, with or without empty slots."""

    start: float
    chunk: float
    turn: float
    """Of the loop over the input blocks of a chunk."""
    own: float
    """A load of weights that are not shared; others count with the chunk."""
    flush: float
    """Each sum of an input block."""
    end: float
    """Each output block."""


# Fitted to the machine code of 120 schedules of 3x3 convolutions of 64 to 512 channels: empty slots
# included within 5 % median, 15 % at the 95th percentile.
_SLOTS = {
    True: _Costs(start=450, chunk=105, turn=42, own=10.6, flush=4.2, end=330),
    False: _Costs(start=100, chunk=80, turn=42, own=13, flush=3.2, end=450),
}
_ALU = {
    True: _Costs(start=320, chunk=56, turn=9, own=7, flush=1.7, end=270),
    False: _Costs(start=60, chunk=43, turn=16, own=8.2, flush=2.0, end=370),
}
"""By whether in halves: what takes slots, and what of it takes the arithmetic pipe."""
WIDENED = 1.6
"""What a load of halves takes that become floats, for each of floats."""
TEXEL_SLOTS, TEXEL_ALU = 4.0, 4.0
"""What a texel of weights takes in the place of such a load, whatever it holds: a coordinate of its
own as a float beside two that it shares."""
CHUNK_WAITS, END_WAITS = 4.7, 4.5
"""How often a thread waits for a chunk, most of it at barriers, and for an output block."""
OTHER_REGISTERS = {True: 6.5, False: 5.0}
SLICE_REGISTERS, LOAD_REGISTERS = 1.5, 1.5
"""Full registers that coordinates, loop counters and pointers take, by whether in halves; more of
them where slices are added; and a load with its address."""
TEXELS_A_ROW = 8
"""That a thread reads for a row of a transformed tile."""
LOAD_BYTES = 16
WAVES_AT_ONCE = 2
"""Waves start in pairs: a kernel with barriers gets half of the registers, and spills the rest."""


def winograd_conv_rule(context: RuleContext, node: Node) -> KernelCall:
    """The convolution with its epilogue."""
    tiling: Tiling = node.attrs["tiling"]
    geometry = node.attrs["geometry"]
    work = conv_work(context.graph, node, geometry, context.options)
    machine = Machine.of(context.performance)
    tiles = scored(work, tiling, context.limits, machine, context.options.textures)
    tile = context.choose(node, "winograd_conv", tiles, tiles)
    kernel = context.kernel(node, "winograd_conv", half=work.half)
    x = kernel.input(node.inputs[0])
    layout = str(node.attrs["kernel_layout"])
    kind = f"{tile.out_blocks}x{tile.bands}x{tile.chunk}"
    in_texture = tile.route is Route.TEXTURE
    weight = (kernel.packed if in_texture else kernel.flat)(
        node.inputs[1],
        f"winograd_conv{'_texture' if in_texture else ''}{kind}",
        partial(plane_texels if in_texture else pack_planes, tile=tile),
        partial(as_oihw, layout=layout),
        compute=tiling.transform.transform_weights,
    )
    out, epilogue = kernel.output()
    winograd_conv(kernel.builder, tiling, tile, geometry.padding, x, weight, out, epilogue)
    return kernel.call()


@lru_cache(maxsize=MOST_KNOWN)
def scored(
    work: ConvWork, tiling: Tiling, limits: Limits, machine: Machine, textures: bool
) -> Scored[WinogradTile]:
    """The tiles of this one kernel, each with its estimate."""
    as_texels = textures and machine.texel_weights
    return Scored(
        lambda: conv_candidates(work, tiling, limits, textures=as_texels),
        lambda tile: conv_clocks(work, tiling, tile, machine, limits),
    )


def conv_candidates(
    work: ConvWork, tiling: Tiling, limits: Limits, *, textures: bool
) -> Iterator[WinogradTile]:
    """The tiles that suit the extents."""
    own = (Route.TEXTURE, Route.BUFFER) if textures else (Route.BUFFER,)
    most = min(MOST_THREADS, limits.max_work_group_size)
    for tiles, out_blocks in product(range(1, 9), (1, 2, 3)):
        if out_blocks > work.out.blocks or tiles * out_blocks > MOST_SUMS:
            continue
        for columns, bands, slices in product((1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4)):
            threads = tiling.planes * columns * bands * slices
            # Half-empty work-groups, of which the last tiles or blocks would be the smaller part.
            if not WAVE <= threads <= most or columns * tiles >= 2 * tiling.tiles:
                continue
            if bands > 1 and bands * out_blocks >= 2 * work.out.blocks:
                continue
            routes = own if columns < FEW_COLUMNS else (Route.LOCAL,)
            for route, chunk, unroll in product(routes, (2, 4, 8, 16), (1, 2)):
                tile = WinogradTile(
                    tiles=tiles,
                    out_blocks=out_blocks,
                    work_group=(tiling.planes * columns, 1, bands * slices),
                    columns=columns,
                    slices=slices,
                    chunk=chunk,
                    unroll=unroll,
                    route=route,
                )
                if _suits(work, tiling, tile):
                    yield tile


def _suits(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> bool:
    """Whether slices, local memory and threads come out well."""
    if tile.chunk % (tile.slices * tile.unroll) or tile.chunk > work.in_blocks:
        return False
    if whole_turns(work.in_blocks, tile.chunk) > MOST_PADDING * work.in_blocks:
        return False
    if tiling.transform.side * tile.group_tiles * tile.chunk > tile.threads:
        return False
    return _shared_bytes(work, tiling, tile) <= MOST_SHARED_BYTES


def _shared_bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> int:
    element = 2 if work.half else 4
    inputs = tile.chunk * tiling.planes * tile.group_tiles
    weights = tile.chunk * tiling.planes * LANES * tile.group_blocks
    weights *= tile.route is Route.LOCAL
    exchanged = tile.slices * tile.bands * tiling.planes * tile.group_tiles
    return max(inputs + weights, exchanged) * LANES * element


def conv_clocks(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> float:
    """Clocks of the whole convolution on the target."""
    direct, textured = tile.route is not Route.LOCAL, tile.route is Route.TEXTURE
    rate = machine.half_rate if work.half else 1.0
    sums = tile.tiles * tile.out_blocks
    chunks = whole_turns(work.in_blocks, tile.chunk) // tile.chunk
    blocks = tile.chunk // tile.slices
    turns = blocks // tile.unroll
    loads = 0 if direct else _loads(work, tiling, tile)
    own = blocks * LANES * tile.out_blocks // (1 if textured else _per_load(work)) if direct else 0
    widened = work.storage_bytes == 2 and not work.half
    reads = blocks * (tile.tiles + (0 if direct else LANES * tile.out_blocks))
    ends = tile.out_blocks * math.ceil(2 * tile.group_tiles * tile.bands / tile.threads)

    def beside(costs: _Costs, of_texel: float) -> float:
        of_chunk = costs.chunk + costs.turn * turns + costs.flush * sums * blocks
        of_chunk += own * (of_texel if textured else costs.own * (WIDENED if widened else 1))
        return costs.start + chunks * of_chunk + costs.end * ends

    mads = chunks * LANES * LANES * sums * blocks
    ended = tile.out_blocks * tile.tiles + (OUTPUTS + 1) * LANES * tile.slices * ends
    busiest = max(
        WAVE * (mads / rate + beside(_ALU[work.half], TEXEL_ALU)) / machine.lanes,
        WAVE * chunks * (TEXELS_A_ROW + own * textured) / machine.texels_of(work.storage_bytes),
        LOCAL_READ_CLOCKS * (chunks * (LANES + loads + reads) + ended),
        WAVE * chunks * (loads + own * (not textured)) * LOAD_BYTES / BYTES_PER_CLOCK,
    )
    waits = chunks * (CHUNK_WAITS + (turns if direct else 0)) + END_WAITS * ends
    serial = 2 * (mads + beside(_SLOTS[work.half], TEXEL_SLOTS)) + waits * (
        TEXTURE_LATENCY_CLOCKS if textured else BUFFER_LATENCY_CLOCKS
    )
    resident = _resident(work, tiling, tile, machine, limits)
    if not resident:
        return math.inf
    groups = math.ceil(tiling.tiles / tile.group_tiles) * _supers(work, tile)
    here = math.ceil(groups * math.ceil(tile.threads / WAVE) / machine.processors)
    pipes = max(here * busiest, math.ceil(here / resident) * serial)
    memory = machine.memory_clocks(_bytes(work, tiling, tile))
    return machine.with_memory(pipes, memory, resident)


def _per_load(work: ConvWork) -> int:
    """Weights that a load gives, in vectors of four."""
    return HALVES_A_LOAD // LANES if work.half else 1


def _loads(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> int:
    """Loads of a thread to bring the weights of a chunk to local memory."""
    vectors = tile.chunk * tiling.planes * LANES * tile.group_blocks
    return math.ceil(vectors / _per_load(work) / tile.threads)


def _supers(work: ConvWork, tile: WinogradTile) -> int:
    """Work-groups along the output blocks."""
    return math.ceil(work.out.blocks / tile.group_blocks)


def _resident(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> int:
    """Waves beside each other, by registers and by local memory; 0 if not one work-group fits."""
    shared, own = _shared_bytes(work, tiling, tile), math.ceil(tile.threads / WAVE)
    by_registers = machine.resident_waves(_registers(work, tiling, tile))
    by_shared = machine.waves_of_groups(tile.threads, shared, limits.local_mem_bytes)
    return min(by_registers, by_shared) if by_registers >= max(own, WAVES_AT_ONCE) else 0


def _registers(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> float:
    """Full registers that a thread needs: while it transforms, or while it multiplies."""
    direct = tile.route is not Route.LOCAL
    sums, blocks = tile.tiles * tile.out_blocks, tile.out_blocks
    loads = 0 if direct else _loads(work, tiling, tile)
    other = OTHER_REGISTERS[work.half] + (SLICE_REGISTERS if tile.slices > 1 else 0)
    held = tile.unroll * tile.tiles + LANES * (blocks * tile.unroll if direct else 1)
    first = sums + TEXELS_A_ROW
    if work.half:
        raw = blocks if tile.route is Route.BUFFER else 0
        return max(first / 2 + LOAD_REGISTERS * loads, (sums + held + 1) / 2 + raw) + other
    return max(first + LOAD_REGISTERS * loads, sums + held) + other


def _bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> int:
    """What memory has to move: weights of whole work-groups, the input and the output."""
    e = work.out
    weights = tiling.planes * work.in_blocks * _supers(work, tile) * tile.group_blocks * LANES
    return (weights + e.n * e.h * e.w * (work.in_blocks + e.blocks)) * LANES * work.storage_bytes
