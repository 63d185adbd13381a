"""Rule for a convolution by Winograd's algorithm in one kernel: its schedules, what they cost."""

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.families.conv.conv_rules import conv_clocks
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvWork,
    Route,
    conv_work,
    pointwise_work,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.conv_weights import (
    BYTES_A_LOAD,
    declare_run,
    has_texel_weights,
    vectors_a_load,
    vectors_held,
)
from adrenoc.kernels.families.shared.machine import (
    MOST_KNOWN,
    Column,
    CostModel,
    Machine,
    Scored,
    TileTable,
    choose,
    is_one,
    larger,
    round_up,
    smaller,
)
from adrenoc.kernels.families.shared.operator import (
    ChannelSums,
    Kind,
    Numbers,
    Operator,
    count_per_input_element,
    size_of,
)
from adrenoc.kernels.families.winograd.winograd import (
    Tiling,
    multiply_rule,
    pixels_rule,
    tiles_rule,
)
from adrenoc.kernels.families.winograd.winograd_conv import (
    OUTPUTS,
    WinogradConv,
    WinogradTile,
    pack_planes,
    plane_texels,
)
from adrenoc.kernels.weights import whole_k_steps
from adrenoc.target.conv_cost import WinogradConvCost, WinogradInstructions
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

MULTIPLY, PIXELS, TILES = "winograd_multiply", "winograd_pixels", "winograd_tiles"

WHOLE = "winograd_conv"
"""All three in one kernel."""


_NUMBERS = ("tiles", "out_blocks", "columns", "bands", "split_k", "chunk", "unroll")
"""What the search finds of a tile, beside its route."""


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
    WinogradConv(kernel, tile, x, weight).emit()
    return kernel.call()


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(
    work: ConvWork, tiling: Tiling, limits: Limits, machine: Machine, textures: bool
) -> Scored[WinogradTile]:
    """Return the tiles of this one kernel, each with its estimate."""
    as_texels = textures and machine.texel_weights
    return Scored(
        lambda: conv_candidates(work, tiling, limits, machine.cost, textures=as_texels),
        lambda tile: tile_clocks(work, tiling, tile, machine, limits),
    )


def whole_clocks(node: Node, work: ConvWork, costs: CostModel) -> float:
    """Return the least estimate of a node that is this one kernel."""
    tiling, textures = node.attrs["tiling"], costs.options.textures
    return score_tiles(work, tiling, costs.limits, costs.machine, textures).least


def conv_candidates(
    work: ConvWork, tiling: Tiling, limits: Limits, costs: Cost, *, textures: bool
) -> TileTable[WinogradTile]:
    """Return the tiles that suit the extents of a convolution."""
    rows = list(_search(work, tiling, limits, costs, textures=textures))
    columns = np.array([row[:-1] for row in rows], dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    numbers: dict[str, Any] = dict(zip(_NUMBERS, columns, strict=True))
    bands = numbers.pop("bands")
    actions = {
        **numbers,
        "work_group": (tiling.planes * numbers["columns"], 1, bands * numbers["split_k"]),
        "route": np.array([row[-1] for row in rows], dtype=object),
    }
    table = TileTable(WinogradTile, actions, len(rows))
    most = min(costs.winograd_conv.most_shared_bytes, limits.local_mem_bytes)
    return table.where(lambda tile: local_bytes(work, tiling, tile) <= most)


def _search(
    work: ConvWork, tiling: Tiling, limits: Limits, costs: Cost, *, textures: bool
) -> Iterator[tuple[Any, ...]]:
    """Yield the numbers and the route of tiles that may suit."""
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
                if chunk % (split_k * unroll) or chunk > work.in_blocks:
                    continue
                if whole_k_steps(work.in_blocks, chunk) > cost.most_padding * work.in_blocks:
                    continue
                if tiling.transform.side * columns * tiles * chunk <= threads:
                    yield tiles, out_blocks, columns, bands, split_k, chunk, unroll, route


def local_bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> Column:
    """Return local memory of a work-group: tiles and weights, or what meets on the way back."""
    element = 2 if work.half else FLOAT_BYTES
    inputs = tile.chunk * tiling.planes * tile.group_tiles
    weights = tile.chunk * tiling.planes * LANES * tile.group_blocks
    weights = vectors_held(weights, tile.threads, half=work.half)
    weights = choose(is_one(tile.route, Route.LOCAL), weights, 0)
    exchanged = tile.split_k * tile.bands * tiling.planes * tile.group_tiles
    return larger(inputs + weights, exchanged) * LANES * element


def tile_clocks(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> Column:
    """Clocks of the whole convolution on the target; infinite where not one work-group fits."""
    cost, rates = machine.cost.winograd_conv, machine.cost.pipes
    # What takes slots, and what of it takes the arithmetic pipe.
    c, half = machine.cost, work.half
    slots_beside = c.winograd_slots_half if half else c.winograd_slots_float
    alu_beside = c.winograd_alu_half if half else c.winograd_alu_float
    held, textured = is_one(tile.route, Route.LOCAL), is_one(tile.route, Route.TEXTURE)
    direct = held ^ True
    brought = _brings_texels(work, tile, machine)
    rate = machine.half_rate if work.half else 1.0
    sums = tile.tiles * tile.out_blocks
    chunks = whole_k_steps(work.in_blocks, tile.chunk) // tile.chunk
    blocks = tile.chunk // tile.split_k
    k_steps = blocks // tile.unroll
    loads = held * _loads(work, tiling, tile, texels=has_texel_weights(work, machine))
    per_load = choose(textured, 1, vectors_a_load(half=work.half))
    own = direct * (blocks * LANES * tile.out_blocks // per_load)
    widened = work.storage_bytes == 2 and not work.half
    reads = blocks * (tile.tiles + held * (LANES * tile.out_blocks))
    ends = tile.out_blocks * round_up(2 * tile.group_tiles * tile.bands / tile.threads)

    def sum_clocks(costs: WinogradInstructions, of_texel: float) -> Column:
        of_chunk = costs.chunk + costs.k_step * k_steps + costs.flush * sums * blocks
        of_own = costs.own * (cost.widened if widened else 1)
        of_chunk = of_chunk + own * choose(textured, of_texel, of_own)
        return costs.start + chunks * of_chunk + costs.end * ends

    mads = chunks * LANES * LANES * sums * blocks
    ended = tile.out_blocks * tile.tiles + (OUTPUTS + 1) * LANES * tile.split_k * ends
    read = cost.texels_a_row + own * textured + loads * brought
    loaded = loads * (brought ^ True) + own * (textured ^ True)
    busiest = larger(
        larger(
            machine.wave * (mads / rate + sum_clocks(alu_beside, cost.texel_alu)) / machine.lanes,
            machine.wave * chunks * read / machine.texels_of(work.storage_bytes),
        ),
        machine.wave * chunks * loaded * BYTES_A_LOAD / rates.bytes_per_clock,
    )
    waits = chunks * (cost.chunk_waits + direct * k_steps) + cost.end_waits * ends
    latency = choose(textured | brought, rates.texture_latency_clocks, rates.buffer_latency_clocks)
    serial = machine.slots_a_wave * (mads + sum_clocks(slots_beside, cost.texel_slots))
    serial = serial + waits * latency
    fit = _resident(work, tiling, tile, machine, limits)
    resident = larger(fit, 1)
    groups = round_up(tiling.tiles / tile.group_tiles) * _count_channel_groups(work, tile)
    waves = groups * round_up(tile.threads / machine.wave)
    memory = machine.memory_clocks(_bytes(work, tiling, tile))
    clocks = machine.hedge(
        busiest,
        chunks * (LANES + loads + reads) + ended,
        LANES * (2 if work.half else FLOAT_BYTES),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )
    return choose(fit > 0, clocks, math.inf)


def _brings_texels(work: ConvWork, tile: WinogradTile, machine: Machine) -> Column:
    """Return whether weights come to local memory as texels."""
    return is_one(tile.route, Route.LOCAL) & has_texel_weights(work, machine)


def _loads(work: ConvWork, tiling: Tiling, tile: WinogradTile, *, texels: bool) -> Column:
    """Return loads of a thread to bring the weights of a chunk to local memory."""
    vectors = tile.chunk * tiling.planes * LANES * tile.group_blocks
    return round_up(vectors / vectors_a_load(half=work.half, texels=texels) / tile.threads)


def _count_channel_groups(work: ConvWork, tile: WinogradTile) -> Column:
    """Return work-groups along the output blocks."""
    return round_up(work.out.blocks / tile.group_blocks)


def _resident(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, machine: Machine, limits: Limits
) -> Column:
    """Waves beside each other, by registers and by local memory; 0 if not one work-group fits."""
    shared, own = local_bytes(work, tiling, tile), round_up(tile.threads / machine.wave)
    cost = machine.cost.winograd_conv
    by_registers = machine.resident_waves(_registers(work, tiling, tile, cost))
    by_shared = machine.waves_of_groups(tile.threads, shared, limits.local_mem_bytes)
    fits = by_registers >= larger(own, cost.waves_at_once)
    return choose(fits, smaller(by_registers, by_shared), 0)


def _registers(
    work: ConvWork, tiling: Tiling, tile: WinogradTile, cost: WinogradConvCost
) -> Column:
    """Return full registers that a thread needs: while it transforms, or while it multiplies."""
    held_weights = is_one(tile.route, Route.LOCAL)
    sums, blocks = tile.tiles * tile.out_blocks, tile.out_blocks
    # Two texels of halves take the registers of 16 bytes.
    loads = held_weights * _loads(work, tiling, tile, texels=False)
    other = cost.half_registers if work.half else cost.float_registers
    other = other + choose(tile.split_k > 1, cost.split_k_registers, 0)
    held = tile.unroll * tile.tiles + LANES * choose(held_weights, 1, blocks * tile.unroll)
    first = sums + cost.texels_a_row
    if work.half:
        raw = is_one(tile.route, Route.BUFFER) * blocks
        multiplying = (sums + held + 1) / 2 + raw
        return larger(first / 2 + cost.load_registers * loads, multiplying) + other
    return larger(first + cost.load_registers * loads, sums + held) + other


def _bytes(work: ConvWork, tiling: Tiling, tile: WinogradTile) -> Column:
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


def _count_tile_products(graph: Graph, node: Node) -> int:
    """Count the products of a convolution whose tiles no memory holds."""
    tiling = node.attrs["tiling"]
    source, out = graph.operand(node.inputs[0]).extents.c, graph.operand(node.output).extents.c
    return int(source * out * tiling.planes * tiling.tiles)


def _channel_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    return conv_work(graph, node, node.attrs["geometry"], options)


OPERATORS = (
    Operator(
        name=TILES,
        kind=Kind.TRANSFORM,
        rule=tiles_rule,
        numbers=Numbers.COMPUTED,
        operations=count_per_input_element(1),
    ),
    Operator(
        name=MULTIPLY,
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=multiply_rule,
        # A product a plane: [in, planes, tiles] to [out, planes, tiles].
        multiply_adds=lambda graph, node: (
            size_of(graph, node.output) * graph.tensors[node.inputs[0]].shape[0]
        ),
        channel_sums=ChannelSums(
            convolutions=1, work=pointwise_work, clocks=conv_clocks, in_float=False
        ),
    ),
    Operator(
        name=PIXELS,
        kind=Kind.TRANSFORM,
        rule=pixels_rule,
        numbers=Numbers.COMPUTED,
        operations=count_per_input_element(1),
    ),
    Operator(
        name=WHOLE,
        kind=Kind.CONVOLUTION,
        numbers=Numbers.WEIGHTED,
        rule=winograd_conv_rule,
        multiply_adds=_count_tile_products,
        channel_sums=ChannelSums(
            convolutions=1, work=_channel_work, clocks=whole_clocks, in_float=True
        ),
    ),
)
