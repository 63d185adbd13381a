"""Rule for a convolution by Winograd's algorithm in one kernel: its schedules, what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product

from adrenoc.ir.graph import Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.families.shared.constant_runs import declare_run, has_texel_weights
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import transpose_to_oihw
from adrenoc.kernels.families.shared.conv_tile_shape import Route
from adrenoc.kernels.families.shared.conv_weights import BYTES_A_LOAD
from adrenoc.kernels.families.shared.conv_work import ConvWork, conv_work
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.scored import MOST_KNOWN, Scored
from adrenoc.kernels.families.shared.shared_weights import vectors_a_load, vectors_held
from adrenoc.kernels.families.winograd.winograd import Tiling
from adrenoc.kernels.families.winograd.winograd_conv import OUTPUTS, winograd_conv
from adrenoc.kernels.families.winograd.winograd_tile import WinogradTile, pack_planes, plane_texels
from adrenoc.kernels.weights import whole_k_steps
from adrenoc.target.cost.conv_cost import WinogradConvCost, WinogradInstructions
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Limits


def winograd_conv_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a convolution with its epilogue, by Winograd's algorithm."""
    tiling: Tiling = node.attrs["tiling"]
    geometry = node.attrs["geometry"]
    work = conv_work(context.graph, node, geometry, context.options)
    machine = context.machine
    tiles = score_tiles(work, tiling, context.limits, machine, context.options.textures)
    tile = context.choose(node, "winograd_conv", tiles, tiles)
    kernel = context.kernel(node, "winograd_conv", half=work.half)
    x = kernel.input(node.inputs[0])
    layout = str(node.attrs["kernel_layout"])
    kind = f"{tile.out_blocks}x{tile.bands}x{tile.chunk}"
    prepare = partial(transpose_to_oihw, layout=layout)
    transform = tiling.transform.weight_transform
    if tile.route is Route.TEXTURE:
        kind, pack = f"winograd_conv_texture{kind}", partial(plane_texels, tile=tile)
        weight = kernel.pack_constant(node.inputs[1], kind, pack, prepare, transform)
    else:
        weight = declare_run(
            kernel,
            node.inputs[1],
            f"winograd_conv{kind}",
            partial(pack_planes, tile=tile),
            prepare,
            transform=transform,
            texels=_brings_texels(work, tile, machine),
        )
    out, epilogue = kernel.output()
    winograd_conv(kernel.builder, tiling, tile, geometry.padding, x, weight, out, epilogue)
    return kernel.call()


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(
    work: ConvWork, tiling: Tiling, limits: Limits, machine: Machine, textures: bool
) -> Scored[WinogradTile]:
    """Return the tiles of this one kernel, each with its estimate."""
    as_texels = textures and machine.texel_weights
    return Scored(
        lambda: conv_candidates(work, tiling, limits, machine.cost, textures=as_texels),
        lambda tile: conv_clocks(work, tiling, tile, machine, limits),
    )


def whole_clocks(node: Node, work: ConvWork, costs: CostModel) -> float:
    """Return the least estimate of a node that is this one kernel."""
    tiling, textures = node.attrs["tiling"], costs.options.textures
    return score_tiles(work, tiling, costs.limits, costs.machine, textures).least


def conv_candidates(
    work: ConvWork, tiling: Tiling, limits: Limits, costs: Cost, *, textures: bool
) -> Iterator[WinogradTile]:
    """Yield the tiles that suit the extents of a convolution."""
    own = (Route.TEXTURE, Route.BUFFER) if textures else (Route.BUFFER,)
    cost, wave = costs.winograd_conv, costs.pipes.wave_threads
    most = min(cost.most_threads, limits.max_work_group_size)
    for tiles, out_blocks in product(cost.tiles, cost.out_blocks):
        if out_blocks > work.out.blocks or tiles * out_blocks > cost.most_sums:
            continue
        for columns, bands, split_k in product(cost.columns, cost.bands, cost.split_k):
            threads = tiling.planes * columns * bands * split_k
            # Half-empty work-groups, of which the last tiles or blocks would be the smaller part.
            if not wave <= threads <= most or columns * tiles >= 2 * tiling.tiles:
                continue
            if bands * split_k > limits.group_sides[2]:
                continue
            if bands > 1 and bands * out_blocks >= 2 * work.out.blocks:
                continue
            routes = own if columns < cost.few_columns else (Route.LOCAL,)
            for route, chunk, unroll in product(routes, cost.chunks, cost.unrolls):
                tile = WinogradTile(
                    tiles=tiles,
                    out_blocks=out_blocks,
                    work_group=(tiling.planes * columns, 1, bands * split_k),
                    columns=columns,
                    split_k=split_k,
                    chunk=chunk,
                    unroll=unroll,
                    route=route,
                )
                if _suits(work, tiling, tile, cost, limits):
                    yield tile


def _suits(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, cost: WinogradConvCost, limits: Limits
) -> bool:
    """Return whether splits, local memory and threads come out well."""
    if tile.chunk % (tile.split_k * tile.unroll) or tile.chunk > work.in_blocks:
        return False
    if whole_k_steps(work.in_blocks, tile.chunk) > cost.most_padding * work.in_blocks:
        return False
    if tiling.transform.side * tile.group_tiles * tile.chunk > tile.threads:
        return False
    most = min(cost.most_shared_bytes, limits.local_mem_bytes)
    return local_bytes(work, tiling, tile) <= most


def local_bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> int:
    """Local memory of a work-group: tiles and weights, or what meets on the way back."""
    element = 2 if work.half else FLOAT_BYTES
    inputs = tile.chunk * tiling.planes * tile.group_tiles
    weights = tile.chunk * tiling.planes * LANES * tile.group_blocks
    held = tile.route is Route.LOCAL
    weights = vectors_held(weights, tile.threads, half=work.half) if held else 0
    exchanged = tile.split_k * tile.bands * tiling.planes * tile.group_tiles
    return max(inputs + weights, exchanged) * LANES * element


def conv_clocks(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> float:
    """Clocks of the whole convolution on the target."""
    cost, rates = machine.cost.winograd_conv, machine.cost.pipes
    slots_beside, alu_beside = _instructions(work, machine.cost)
    direct, textured = tile.route is not Route.LOCAL, tile.route is Route.TEXTURE
    brought = _brings_texels(work, tile, machine)
    rate = machine.half_rate if work.half else 1.0
    sums = tile.tiles * tile.out_blocks
    chunks = whole_k_steps(work.in_blocks, tile.chunk) // tile.chunk
    blocks = tile.chunk // tile.split_k
    k_steps = blocks // tile.unroll
    loads = 0 if direct else _loads(work, tiling, tile, texels=brought)
    per_load = 1 if textured else vectors_a_load(half=work.half)
    own = blocks * LANES * tile.out_blocks // per_load if direct else 0
    widened = work.storage_bytes == 2 and not work.half
    reads = blocks * (tile.tiles + (0 if direct else LANES * tile.out_blocks))
    ends = tile.out_blocks * math.ceil(2 * tile.group_tiles * tile.bands / tile.threads)

    def sum_clocks(costs: WinogradInstructions, of_texel: float) -> float:
        of_chunk = costs.chunk + costs.k_step * k_steps + costs.flush * sums * blocks
        of_chunk += own * (of_texel if textured else costs.own * (cost.widened if widened else 1))
        return costs.start + chunks * of_chunk + costs.end * ends

    mads = chunks * LANES * LANES * sums * blocks
    ended = tile.out_blocks * tile.tiles + (OUTPUTS + 1) * LANES * tile.split_k * ends
    read = cost.texels_a_row + own * textured + loads * brought
    loaded = loads * (not brought) + own * (not textured)
    busiest = max(
        machine.wave * (mads / rate + sum_clocks(alu_beside, cost.texel_alu)) / machine.lanes,
        machine.wave * chunks * read / machine.texels_of(work.storage_bytes),
        machine.wave * chunks * loaded * BYTES_A_LOAD / rates.bytes_per_clock,
    )
    waits = chunks * (cost.chunk_waits + (k_steps if direct else 0)) + cost.end_waits * ends
    serial = machine.slots_a_wave * (mads + sum_clocks(slots_beside, cost.texel_slots)) + waits * (
        rates.texture_latency_clocks if textured or brought else rates.buffer_latency_clocks
    )
    resident = _resident(work, tiling, tile, machine, limits)
    if not resident:
        return math.inf
    groups = math.ceil(tiling.tiles / tile.group_tiles) * _count_channel_groups(work, tile)
    waves = groups * math.ceil(tile.threads / machine.wave)
    memory = machine.memory_clocks(_bytes(work, tiling, tile))
    return machine.hedge(
        busiest,
        chunks * (LANES + loads + reads) + ended,
        LANES * (2 if work.half else FLOAT_BYTES),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def _instructions(work: ConvWork, costs: Cost) -> tuple[WinogradInstructions, WinogradInstructions]:
    """Return what takes slots, and what of it takes the arithmetic pipe."""
    if work.half:
        return costs.winograd_slots_half, costs.winograd_alu_half
    return costs.winograd_slots_float, costs.winograd_alu_float


def _brings_texels(work: ConvWork, tile: WinogradTile, machine: Machine) -> bool:
    """Return whether weights come to local memory as texels."""
    return tile.route is Route.LOCAL and has_texel_weights(work, machine)


def _loads(work: ConvWork, tiling: Tiling, tile: WinogradTile, *, texels: bool) -> int:
    """Loads of a thread to bring the weights of a chunk to local memory."""
    vectors = tile.chunk * tiling.planes * LANES * tile.group_blocks
    return math.ceil(vectors / vectors_a_load(half=work.half, texels=texels) / tile.threads)


def _count_channel_groups(work: ConvWork, tile: WinogradTile) -> int:
    """Work-groups along the output blocks."""
    return math.ceil(work.out.blocks / tile.group_blocks)


def _resident(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> int:
    """Waves beside each other, by registers and by local memory; 0 if not one work-group fits."""
    shared, own = local_bytes(work, tiling, tile), math.ceil(tile.threads / machine.wave)
    cost = machine.cost.winograd_conv
    by_registers = machine.resident_waves(_registers(work, tiling, tile, cost))
    by_shared = machine.waves_of_groups(tile.threads, shared, limits.local_mem_bytes)
    return min(by_registers, by_shared) if by_registers >= max(own, cost.waves_at_once) else 0


def _registers(work: ConvWork, tiling: Tiling, tile: WinogradTile, cost: WinogradConvCost) -> float:
    """Full registers that a thread needs: while it transforms, or while it multiplies."""
    direct = tile.route is not Route.LOCAL
    sums, blocks = tile.tiles * tile.out_blocks, tile.out_blocks
    # Two texels of halves take the registers of 16 bytes.
    loads = 0 if direct else _loads(work, tiling, tile, texels=False)
    other = cost.half_registers if work.half else cost.float_registers
    other += cost.split_k_registers if tile.split_k > 1 else 0
    held = tile.unroll * tile.tiles + LANES * (blocks * tile.unroll if direct else 1)
    first = sums + cost.texels_a_row
    if work.half:
        raw = blocks if tile.route is Route.BUFFER else 0
        return max(first / 2 + cost.load_registers * loads, (sums + held + 1) / 2 + raw) + other
    return max(first + cost.load_registers * loads, sums + held) + other


def _bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> int:
    """Return what memory has to move: weights of whole work-groups, the input and the output."""
    e = work.out
    weights = (
        tiling.planes
        * work.in_blocks
        * _count_channel_groups(work, tile)
        * tile.group_blocks
        * LANES
    )
    return (weights + e.n * e.h * e.w * (work.in_blocks + e.blocks)) * LANES * work.storage_bytes
