"""A 1x1 convolution and the depthwise convolution that reads it, as one kernel: rule, tiles, costs.

The clocks of a work-group are those of its two phases.  Instructions beside the multiply-adds and
registers are the target's (`ExpansionCost`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import numpy as np

from adrenoc.base.tvmapi import bytes_of
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.body_cost import body_instructions
from adrenoc.kernels.families.conv.conv_rules import conv_clocks
from adrenoc.kernels.families.depthwise import UNROLLED_ROWS, pack_taps, rows_read
from adrenoc.kernels.families.expansion.expansion import expansion
from adrenoc.kernels.families.expansion.expansion_plan import ExpansionTile, HaloRegion
from adrenoc.kernels.families.separable import (
    depthwise_geometry,
    finish_operations,
    finish_texels,
    finish_work,
    prepare_first_finish,
)
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    pointwise_work,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.conv_weights import declare_run, vectors_held
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
    smaller,
)
from adrenoc.kernels.families.shared.operator import (
    ChannelSums,
    Fusion,
    Kind,
    Numbers,
    Operator,
    positions_of,
    size_of,
)
from adrenoc.kernels.walk import ACCUMULATOR
from adrenoc.kernels.weights import pack_local
from adrenoc.target.conv_cost import ExpansionCost
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class ExpansionWork:
    """Both convolutions as a cost model sees them."""

    depthwise: ConvGeometry
    source: Extents
    """What the expansion reads."""
    out: Extents
    storage_bytes: int
    half: bool
    """Whether the products of the expansion are in half precision."""
    kept: str
    """The dtype of weights and wide pixels in local memory: as both would lie in memory."""
    finish_work: int
    """Scalar instructions that make four elements of the sums of the expansion."""
    finish_texels: int = 0
    """Texels that those read of each block beside the sums."""
    epilogue_work: int
    """Scalar instructions that make four elements of the sums of taps."""
    textures: bool = False
    """Whether weights and taps lie in textures, if the target reads them there."""
    mean_parts: tuple[int, int] | None = None
    """Rows and columns of work-groups, each of which makes a part of the mean of the result too."""

    @property
    def taps(self) -> int:
        """Return the taps (weights) that one channel of the depthwise convolution has."""
        return math.prod(self.depthwise.kernel)

    @property
    def element_bytes(self) -> int:
        """Bytes of such a number."""
        return bytes_of(self.kept)

    def region(self, tile: ExpansionTile) -> HaloRegion:
        """Return the wide pixels that a work-group keeps."""
        return HaloRegion.from_geometry(
            self.depthwise, self.source, self.out, tile.rows, tile.columns
        )


_ACTIONS = (
    "rows",
    "columns",
    "pixels",
    "out_blocks",
    "bands",
    "made_rows",
    "made_columns",
    "unroll",
)


def candidates(work: ExpansionWork, limits: Limits, costs: Cost) -> TileTable[ExpansionTile]:
    """Return the tiles that suit the extents and fit local memory."""
    rows = list(_rows(work, limits, costs))
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_ACTIONS) + 1).T
    ones = np.ones(len(rows), dtype=np.int64)
    actions = dict(zip(_ACTIONS, columns, strict=False))
    table = TileTable(
        ExpansionTile, {**actions, "work_group": (columns[-1], ones, ones)}, len(rows)
    )
    if not rows:
        return table
    # The first sums of deep networks are in float in the end, and have to fit so.
    in_float = replace(work, half=False)
    return table.where(
        lambda tiles: local_bytes(in_float, tiles, work.region(tiles)) <= limits.local_mem_bytes
    )


def _rows(work: ExpansionWork, limits: Limits, costs: Cost) -> Iterator[tuple[int, ...]]:
    """Yield for each tile the `_ACTIONS` and the threads of a work-group."""
    e, cost, wave = work.out, costs.expansion, costs.pipes.wave_threads
    unrolls = {pixels: _unroll(work.source.blocks, pixels, cost) for pixels in cost.pixels}
    most_blocks = max(1, min(cost.most_blocks, e.blocks))
    ways = [
        (out_blocks, bands, pixels)
        for out_blocks, bands, pixels in product(cost.out_blocks, cost.bands, cost.pixels)
        if out_blocks * bands <= most_blocks and pixels * out_blocks <= cost.most_sums
    ]
    shares = _ShareChooser(work, cost)
    for rows, columns in product(_shares(e.h, cost), _shares(e.w, cost)):
        if rows * columns > cost.most_pixels:
            continue
        region = HaloRegion.from_geometry(work.depthwise, work.source, e, rows, columns)
        whole = (rows, columns) == (e.h, e.w)
        if work.mean_parts not in (None, (region.down.count, region.across.count)):
            continue
        if region.pixels > cost.most_pixels or (region.pixels < cost.fewest_pixels and not whole):
            continue
        for out_blocks, bands, pixels in ways:
            if pixels > region.across.computed:
                continue
            items = region.runs(pixels) * region.down.computed * bands
            threads = min(wave if items > wave // 2 else wave // 2, limits.max_work_group_size)
            if items > cost.most_rounds * threads:
                continue
            for made in shares.choose((rows, columns), out_blocks * bands, threads):
                yield rows, columns, pixels, out_blocks, bands, *made, unrolls[pixels], threads


def _shares(extent: int, cost: ExpansionCost) -> list[int]:
    """Return rows, or columns, of work-groups that share so many about equally."""
    shares = {-(-extent // n) for n in range(1, extent + 1)}
    shares = {n for n in shares if -(-extent // n) * n <= cost.most_empty * extent}
    return sorted(n for n in shares if n >= min(cost.fewest_a_side, extent))


def _unroll(blocks: int, pixels: int, cost: ExpansionCost) -> int:
    """Return input blocks that are asked for at once, which divide all."""
    most = max(cost.texels_at_once // pixels, 1)
    return max(n for n in range(1, most + 1) if blocks % n == 0)


class _ShareChooser:
    """The ways to share the output among threads that read the least, each found once."""

    def __init__(self, work: ExpansionWork, cost: ExpansionCost) -> None:
        self._tried = cost.made_tried
        self._reads = [
            (made, _count_wide_pixels(work, made) + made[0] * work.taps)
            for made in _ways_to_make(cost)
        ]
        self._found: dict[tuple[tuple[int, int], int, int], list[tuple[int, int]]] = {}

    def choose(self, kept: tuple[int, int], blocks: int, threads: int) -> list[tuple[int, int]]:
        """Rows and columns that a thread makes at a time of those that a work-group keeps."""
        key = kept, blocks, threads
        if key not in self._found:
            self._found[key] = self._choose(*key)
        return self._found[key]

    def _choose(self, kept: tuple[int, int], blocks: int, threads: int) -> list[tuple[int, int]]:
        rows, columns = kept
        suited = []
        for made, read in self._reads:
            if not rows % made[0] and not columns % made[1]:
                items = rows * columns * blocks // (made[0] * made[1])
                suited.append((math.ceil(items / threads) * read, made))
        return [made for _, made in sorted(suited, key=lambda way: way[0])[: self._tried]]


def _ways_to_make(cost: ExpansionCost) -> list[tuple[int, int]]:
    """Return rows and columns that a thread makes at a time, the shortest sides first."""
    sides = cost.made_sides
    ways = [(down, across) for down in sides for across in sides if down * across <= cost.most_made]
    return sorted(ways, key=max)


def _count_wide_pixels(work: ExpansionWork, made: tuple[int, int]) -> Column:
    """Return wide pixels that so many rows and columns of the output read."""
    rows = look_up(made[0], lambda down: rows_read(work.depthwise, down))
    return rows * look_up(made[1], lambda across: len(work.depthwise.columns(across)))


def local_bytes(work: ExpansionWork, tile: ExpansionTile, region: HaloRegion) -> Column:
    """Return local memory of a work-group."""
    weights = tile.window(work.source.blocks) * LANES * tile.group_blocks
    in_halves = work.element_bytes < FLOAT_BYTES
    weights = vectors_held(weights, tile.threads, half=in_halves, texels=work.textures)
    pixels = region.held_pixels * tile.group_blocks
    taps = work.taps * (2 if work.half else FLOAT_BYTES) + work.finish_texels * FLOAT_BYTES
    taps = taps * tile.group_blocks
    if work.mean_parts:
        taps = taps + tile.items * tile.group_blocks * FLOAT_BYTES
    return ((weights + pixels) * work.element_bytes + taps) * LANES


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """What one thread does."""

    alu: Column
    """Instructions of the arithmetic pipe; those of half arithmetic are as long as they take."""
    slots: Column
    """Instructions and empty slots."""
    reads: Column
    """Vectors to and from local memory."""
    texels: Column
    """That are read, and stored."""
    waits: Column


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: ExpansionWork, limits: Limits, machine: Machine) -> Scored[ExpansionTile]:
    """Return the tiles that suit the extents, each with its estimate."""
    kept, texels = limits.buffer_dtype(work.kept), brings_texels(work, machine)
    work = replace(work, kept=kept, textures=texels)
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, limits),
    )


def estimate_clocks(
    work: ExpansionWork, tile: ExpansionTile, machine: Machine, limits: Limits
) -> Column:
    """Return clocks of both on the target."""
    region, e = work.region(tile), work.out
    cost, rates = machine.cost.expansion, machine.cost.pipes
    counts = _counts(work, tile, region, machine)
    as_texels = brings_texels(work, machine)
    texels = counts.texels + _count_loads(work, tile) * as_texels
    busiest = larger(
        machine.wave * counts.alu / machine.lanes,
        machine.wave * texels / machine.texels_of(work.storage_bytes),
    )
    waves = round_up(tile.threads / machine.wave)
    groups = region.down.count * region.across.count * e.n
    groups = groups * round_up(e.blocks / tile.group_blocks)
    serial = machine.slots_a_wave * counts.slots + counts.waits * (
        rates.texture_latency_clocks if as_texels else rates.buffer_latency_clocks
    )
    registers = _registers(work, tile, cost)
    # What does not fit goes to memory.
    serial = serial * choose(registers > machine.registers / 2, rates.spilled, 1.0)
    shared = local_bytes(work, tile, region)
    by_memory = machine.waves_of_groups(tile.threads, shared, limits.local_mem_bytes)
    resident = larger(1, smaller(machine.resident_waves(registers), by_memory))
    memory = machine.memory_clocks(_bytes(work))
    return machine.hedge(
        busiest,
        counts.reads,
        LANES * work.element_bytes,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(groups * waves, busy, serial, resident), memory, resident
        ),
    )


def brings_texels(work: ExpansionWork, machine: Machine) -> bool:
    """Return whether weights and taps are read as texels: then a thread never waits for a
    buffer."""
    return work.textures and machine.texel_weights


def _count_loads(work: ExpansionWork, tile: ExpansionTile) -> Column:
    """Return texels of weights and taps that a thread brings."""
    weights = tile.window(work.source.blocks) * LANES * tile.group_blocks
    taps = work.taps * tile.group_blocks
    return round_up(weights / tile.threads) + round_up(taps / tile.threads)


def _counts(
    work: ExpansionWork, tile: ExpansionTile, region: HaloRegion, machine: Machine
) -> _Counts:
    """Return both phases, each of whole rounds of all threads."""
    cost = machine.cost.expansion
    items = region.runs(tile.pixels) * region.down.computed * tile.bands
    rounds = round_up(items / tile.threads)
    blocks = tile.window(work.source.blocks)
    k_steps, texels = blocks // tile.unroll, blocks * tile.pixels
    sums = tile.pixels * tile.out_blocks
    mads = blocks * sums * LANES * LANES
    in_halves = work.element_bytes < FLOAT_BYTES
    finish = work.finish_work + (cost.half_alu if in_halves else 0)
    vectors = blocks * LANES * tile.out_blocks
    widening = LANES * vectors if in_halves and not work.half else 0
    wide_alu = cost.round_alu + cost.k_step_alu * k_steps + cost.texel_alu * texels + sums * finish
    wide_alu = wide_alu + widening
    wide_slots = (
        widening + cost.round_slots + cost.k_step_slots * k_steps + cost.texel_slots * texels
    )
    shifted = choose(region.has_shift, cost.shifted_slots, 0)
    wide_slots = wide_slots + sums * (finish + cost.store_slots + shifted)
    made = (tile.made_rows, tile.made_columns)
    outputs, held = math.prod(made), _count_wide_pixels(work, made)
    places, made_rounds = tile.made_rounds[0], math.prod(tile.made_rounds)
    of_blocks = tile.out_blocks if work.finish_work else 0
    of_taps = 1.0 * outputs * (work.taps * LANES + work.epilogue_work)
    of_taps = of_taps + held * (cost.held_alu if in_halves else 0)
    averaging = machine.cost.depthwise
    # Vectors of floats, where others may be of halves.
    averaged = FLOAT_BYTES // work.element_bytes if work.mean_parts else 0
    return _Counts(
        alu=rounds * (mads / (machine.half_rate if work.half else 1.0) + wide_alu)
        + places * cost.place_alu
        + made_rounds * (cost.made_alu + outputs * cost.output_alu + of_taps),
        slots=rounds * (mads + wide_slots)
        + places * cost.place_slots
        + made_rounds * (cost.made_slots + outputs * cost.output_slots + work.taps + of_taps)
        + averaged * averaging.averaging_slots,
        reads=_count_stores(work, tile, region, cost)
        + rounds * (vectors + sums + of_blocks)
        + made_rounds * (held + work.taps)
        + averaged * (2 * made_rounds + averaging.averaging_reads),
        texels=rounds * texels + made_rounds * outputs,
        waits=rounds * k_steps + made_rounds + cost.waits,
    )


def _count_stores(
    work: ExpansionWork, tile: ExpansionTile, region: HaloRegion, cost: ExpansionCost
) -> Column:
    """Return vectors that a thread stores before the products: weights, taps, zeros."""
    weights = tile.window(work.source.blocks) * LANES * tile.group_blocks
    zeros = choose(region.has_padding, region.held_pixels * tile.group_blocks, 0)
    return cost.taps_stored + sum(round_up(count / tile.threads) for count in (weights, zeros))


def _registers(work: ExpansionWork, tile: ExpansionTile, cost: ExpansionCost) -> Column:
    """Return full registers of four that a thread needs, in the phase that needs more."""
    return larger(_registers_of_wide(work, tile, cost), _registers_of_output(work, tile, cost))


def _registers_of_wide(work: ExpansionWork, tile: ExpansionTile, cost: ExpansionCost) -> Column:
    sums, unroll = tile.pixels * tile.out_blocks, tile.unroll
    wide = 1.0 * sums + unroll * tile.pixels
    # Compilers finish all sums at once, in float.
    of_sum = cost.finished_half_registers if work.half else cost.finished_float_registers
    finished = sums * of_sum + tile.out_blocks
    if work.half:
        totals = choose(_count_parts(work, tile) > 1, sums, 0)
        weights = cost.weights_half_registers * unroll * tile.out_blocks
        wide = (wide + totals + weights) / 2 + cost.wide_half_registers
        bands = choose(tile.bands > 1, cost.bands_half_registers, 0.0)
        finished = finished + totals / 2 + bands - cost.saved_half_registers
    else:
        wide = wide + (unroll * tile.out_blocks + cost.wide_float_registers)
    return larger(wide, finished) if work.finish_work else wide


def _count_parts(work: ExpansionWork, tile: ExpansionTile) -> Column:
    """Return parts that a sum of halves is added up in: they depend on the unrolling alone."""

    def parts(unroll: int) -> int:
        like = replace(tile, unroll=unroll)
        return like.parts(like.window(work.source.blocks), half=True)[0]

    return look_up(tile.unroll, parts)


def _registers_of_output(work: ExpansionWork, tile: ExpansionTile, cost: ExpansionCost) -> Column:
    rows = look_up(tile.made_rows, lambda made: rows_read(work.depthwise, made))
    # A loop, which compilers keep.
    rows = choose((tile.made_rows == 1) & (rows > UNROLLED_ROWS), cost.looped_rows, rows)
    held = rows * look_up(tile.made_columns, lambda made: len(work.depthwise.columns(made)))
    outputs = tile.made_rows * tile.made_columns
    if work.half:
        registers = outputs * cost.output_half_registers + held * cost.ahead_half_registers
        return registers + cost.made_half_registers
    registers = outputs * cost.output_float_registers + held * cost.ahead_float_registers
    return registers + cost.made_float_registers


def _bytes(work: ExpansionWork) -> int:
    """Return what memory has to move: the input, the output, weights and taps."""
    source, out = work.source, work.out
    vectors = source.n * source.h * source.w * source.blocks
    vectors += out.n * out.h * out.w * out.blocks + source.blocks * LANES * out.blocks
    return (vectors * work.storage_bytes + out.blocks * work.taps * FLOAT_BYTES) * LANES


EXPANSION = "expand_depthwise_conv2d"


def expansion_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return a 1x1 convolution of the first input by the second, then a depthwise one by the third.
    Its attributes are those that `joined` describes."""
    work = expansion_work(context.graph, node, context.options)
    tiles = score_tiles(work, context.limits, context.machine)
    family = "expand_depthwise_mean" if work.mean_parts else EXPANSION
    tile = context.choose(node, family, tiles, tiles)
    kernel = context.kernel(node, family, half=work.half)
    x = kernel.input(node.inputs[0])
    oihw = partial(transpose_to_oihw, layout=str(node.attrs["pointwise_layout"]))
    texels = brings_texels(work, context.machine)
    weight = declare_run(
        kernel,
        node.inputs[1],
        f"expansion{tile.packing}",
        lambda w: pack_local(oihw(w), *tile.packing),
        texels=texels,
    )
    taps = declare_run(
        kernel,
        node.inputs[2],
        f"depthwise{tile.group_blocks}",
        lambda w: pack_taps(
            transpose_to_oihw(w, str(node.attrs["kernel_layout"])), tile.group_blocks
        ),
        dtype=ACCUMULATOR,
        texels=texels,
    )
    finished, of_channels = prepare_first_finish(kernel)
    out, epilogue = kernel.output()
    means = kernel.other_output(node.also_writes[0]) if work.mean_parts else None
    expansion(
        kernel.builder,
        work.depthwise,
        tile,
        work.region(tile),
        x,
        weight,
        taps,
        finished,
        of_channels,
        out,
        epilogue,
        kept=context.limits.buffer_dtype(work.kept),
        means=means,
    )
    return kernel.call()


def expansion_work(graph: Graph, node: Node, options: CompileOptions) -> ExpansionWork:
    """Return what a cost model needs of such a node."""
    source = graph.operand(node.inputs[0])
    pointwise = pointwise_work(graph, node, options)
    return ExpansionWork(
        depthwise=depthwise_geometry(graph, node, node.inputs[2]),
        source=source.extents,
        out=graph.operand(node.output).extents,
        storage_bytes=bytes_of(options.storage_dtype),
        half=pointwise.half,
        kept=options.storage_dtype,
        finish_work=finish_work(node),
        finish_texels=finish_texels(node),
        epilogue_work=LANES * body_instructions(node.epilogue) if node.epilogue is not None else 0,
        textures=pointwise.textures and pointwise.image is None,
        mean_parts=pointwise.mean_parts,
    )


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Return a weight of the first convolution counts for each wide pixel, a tap for each
    output."""
    between = node.attrs["between"]
    wide = math.prod(between.shape) // between.extents.c
    weights, taps = (size_of(graph, name) for name in node.inputs[1:3])
    return int(weights * wide + taps * positions_of(graph, node.output))


OPERATORS = (
    Operator(
        name=EXPANSION,
        kind=Kind.CONVOLUTION,
        numbers=Numbers.WEIGHTED,
        rule=expansion_rule,
        multiply_adds=_multiply_adds,
        fusions=frozenset({Fusion.MEAN}),
        operations=finish_operations,
        channel_sums=ChannelSums(
            convolutions=2,
            work=lambda graph, node, options: replace(
                pointwise_work(graph, node, options), out=node.attrs["between"].extents
            ),
            clocks=conv_clocks,
            in_float=True,
        ),
    ),
)
