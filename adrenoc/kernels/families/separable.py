"""A depthwise convolution and the 1x1 convolution after it, in one kernel.

The result of a depthwise convolution is as large as what it reads, and all that it does waits for
memory.  Here it never gets there: a thread computes it for its pixels, one input block after the
other, and multiplies it for its output blocks at once.  Work is repeated where several threads
make output blocks of the same pixels, so this is for convolutions to few channels.

```
for chunk of input blocks:
    each thread: weights and taps of the chunk -> shared         barrier
    for input blocks of chunk:
        texels * taps from shared                                -> pixels
        sums += pixels * weights from shared
    barrier
```

The loops are those of `conv2d_local`, whose texels are computed here.

Attributes of the pair are those of the depthwise convolution, with `pointwise_layout`, the order
of the other weights, and `between`, the tensor between the two, which no memory holds.

The 1x1 half costs what it does in `conv_tile_local`, but for its texels, which each thread
computes.  What that takes is the target's (`SeparableCost`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from adrenoc.base.tvmapi import Expr, cast, iconst, minimum, vector_dtype
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.access import Access
from adrenoc.kernels.body_cost import body_instructions, body_operations
from adrenoc.kernels.families.conv.conv_rules import conv_clocks, local_weights
from adrenoc.kernels.families.conv.conv_tile_local import (
    ThreadCounts,
    adds_in_parts,
    fills,
    groups_of,
    local_counts,
    vector_bytes,
    waves_of,
    weights_of,
)
from adrenoc.kernels.families.conv.conv_tile_local import local_bytes as pointwise_bytes
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.depthwise import TapSums
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import (
    POINT,
    ConvGeometry,
    ConvTile,
    ConvWork,
    Route,
    geometry_of,
    pointwise_work,
    transpose_to_oihw,
)
from adrenoc.kernels.families.shared.conv_weights import (
    declare_run,
    has_texel_weights,
    load_run,
    vectors_a_load,
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
    smaller,
)
from adrenoc.kernels.families.shared.operator import (
    ChannelSums,
    Kind,
    Numbers,
    Operator,
    positions_of,
    size_of,
)
from adrenoc.kernels.fused_bodies import Finished, is_of_channels
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR
from adrenoc.kernels.weights import pack_depthwise, whole_k_steps
from adrenoc.target.conv_cost import SeparableCost
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

FINISH = "finish"
"""The part of a joined node that is applied to the sums of its first convolution."""


def join_products(node: Node, reader: Node, op: str, attrs: Mapping[str, Any]) -> Node:
    """Return node `op` in the place of `reader`, which computes `node`, that it alone reads, too.
    Inputs are what `node` reads, its weights, those of `reader`, and what else both read."""
    source, weights, *others = node.inputs
    _, more_weights, *rest = reader.inputs
    return replace(
        reader,
        op=op,
        inputs=(source, weights, *dict.fromkeys((more_weights, *others, *rest))),
        attrs=attrs,
        parts={} if node.epilogue is None else {FINISH: node.epilogue},
        fused=(*node.operators, *reader.operators),
        also=(node.name,),
    )


def prepare_first_finish(kernel: NodeKernel) -> tuple[Finished, Mapping[str, Access]]:
    """Prepare what is applied to the sums of the first of two joined convolutions.  Returns the
    epilogue of that convolution, and the constants of one number a channel that it reads, by name,
    which a kernel may load once."""
    finish, between = kernel.node.parts.get(FINISH), kernel.node.attrs["between"]
    of_channels = {}
    for buffer, name in finish.sources.items() if finish is not None else ():
        if name != Node.RESULT:
            access = kernel.input(name)
            if finish is not None and is_of_channels(finish, buffer, access, between):
                of_channels[name] = access
    return Finished(kernel.builder, finish, kernel.accesses, between), of_channels


def finish_work(node: Node) -> int:
    """Return scalar instructions that make four elements of the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    return LANES * body_instructions(finish) if finish is not None else 0


def finish_texels(node: Node) -> int:
    """Return texels that those instructions read of each block of channels, beside the sums."""
    finish = node.parts.get(FINISH)
    return sum(name != Node.RESULT for name in finish.sources.values()) if finish else 0


def finish_operations(_graph: Graph, node: Node) -> int:
    """Return operations of what is applied to the sums of the first convolution."""
    finish = node.parts.get(FINISH)
    if finish is None:
        return 0
    return body_operations(finish) * math.prod(node.attrs["between"].shape)


def depthwise_geometry(graph: Graph, node: Node, taps: str) -> ConvGeometry:
    """Return the geometry of the depthwise part, whose taps are the tensor of that name."""
    letters = str(node.attrs["kernel_layout"])
    by_letter = dict(zip(letters, graph.tensors[taps].shape, strict=True))
    return geometry_of(node.attrs, (by_letter["H"], by_letter["W"]))


@dataclass(frozen=True, kw_only=True)
class SeparableTile(ConvTile):
    """The share of one thread."""

    rolled: bool = False
    """Whether the loop over the rows of taps stays one: it waits for each, in fewer registers."""


class SeparableConv(LocalConv):
    """Both convolutions: pixels that it computes where `LocalConv` reads them.  Taps are packed by
    `pack_k_steps` and weights by `pack_local`; `finish` is applied to the results of the first, and
    `of_channels` are the constants that it reads of each channel."""

    parts_by_chunk = True

    def __init__(
        self,
        kernel: NodeKernel,
        depthwise: ConvGeometry,
        tile: SeparableTile,
        x: Access,
        taps: Access,
        weight: Access,
    ) -> None:
        self.finish, of_channels = prepare_first_finish(kernel)
        super().__init__(kernel, POINT, tile, x, weight)
        builder = self.b
        self.taps = taps
        self.count = depthwise.kernel[0] * depthwise.kernel[1]
        self.shared_taps = builder.allocate_shared(self.span * self.count, dtype=ACCUMULATOR)
        self.given = {
            name: (access, builder.allocate_shared(self.span, dtype=ACCUMULATOR))
            for name, access in of_channels.items()
        }
        self.rectangle = TapSums(
            builder=builder,
            geometry=depthwise,
            rows=1,
            pixels=tile.pixels,
            x=self.x,
            shared=self.shared_taps,
            rolled=tile.rolled,
        )
        self.dtype = builder.compute
        (sy, sx), (top, left) = depthwise.strides, depthwise.padding
        self.first_row = builder.let(self.gy * iconst(sy) - iconst(top), "dr")
        self.first_col = builder.let(self.left * iconst(sx) - iconst(left), "dc")

    def bring(self, start: Expr, span: int, first_load: Expr, shared: SharedArray) -> None:
        """Weights and taps, and what else belongs to the channels."""
        self.start = start
        asked = list(self._ask_channels(start, span))
        self.bring_weights(span * self.vectors, first_load, shared)
        for array, done, count, value in asked:
            with self.b.when(self.thread < iconst(count) if count < self.threads else None):
                array[self.thread + iconst(done)] = value

    def _ask_channels(self, start: Expr, span: int) -> Iterator[tuple[SharedArray, int, int, Expr]]:
        """Yield taps, and what else is read of each channel: (where to, from, how many, value).
        They are asked for before the weights, so that a thread waits for all of them once."""
        builder = self.b
        with builder.computing(ACCUMULATOR):
            first, total = start * iconst(self.count), span * self.count
            for done in range(0, total, self.threads):
                count = min(total - done, self.threads)
                at = builder.let(first + self._clamp_thread(count), "tap")
                tap = builder.let(load_run(builder, self.taps, at, done, ACCUMULATOR), "t")
                yield self.shared_taps, done, count, tap
            for access, held in self.given.values():
                for done in range(0, span, self.threads):
                    count = min(span - done, self.threads)
                    block = self.existing(start + self._clamp_thread(count) + iconst(done))
                    texel = access.texel(iconst(0), block, iconst(0), iconst(0))
                    yield held, done, count, builder.let(texel, "t")

    def _clamp_thread(self, count: int) -> Expr:
        """Return the thread's number, or the last of so many."""
        return minimum(self.thread, iconst(count - 1)) if count < self.threads else self.thread

    def row(self, in_block: Expr, row: Expr) -> dict[int, Expr]:
        """Return the depthwise convolution's results at the thread's pixels."""
        builder, pixels = self.b, self.tile.pixels
        # TVM puts an expression that only has a name into each place that uses it.
        held = builder.registers(pixels, dtype=self.dtype)
        of_chunk = builder.let(in_block - self.start, "of_chunk")
        with builder.computing(ACCUMULATOR):
            given = {n: builder.let(kept[of_chunk], "of") for n, (_, kept) in self.given.items()}
            first_tap = builder.let(of_chunk * iconst(self.count), "wd")
            sums = self.rectangle.rectangle(
                self.n, in_block, self.first_row, self.first_col, first_tap
            )
            for p in range(pixels):
                col = self.left + iconst(p)
                value = self.finish.value(self.n, in_block, self.gy, col, sums[p], given)
                held[p] = cast(value, vector_dtype(self.dtype))
        return {p: held[p] for p in range(pixels)}


def pack_k_steps(weight: np.ndarray, k_step: int) -> np.ndarray:
    """Pack `[C, 1, KH, KW]` as [block, tap, 4], flat; blocks are filled up to whole k-steps."""
    texels = pack_depthwise(weight)[0]
    taps, blocks, _ = texels.shape
    padded = np.zeros((whole_k_steps(blocks, k_step), taps, LANES), weight.dtype)
    padded[:blocks] = texels.transpose(1, 0, 2)
    return padded.reshape(-1)


@dataclass(frozen=True, kw_only=True)
class SeparableWork:
    """Both convolutions as a cost model sees them."""

    depthwise: ConvGeometry
    source: Extents
    """What the depthwise part reads."""
    pointwise: ConvWork
    finish_work: int
    """Scalar instructions that make four elements of the sums of the depthwise part."""
    finish_texels: int = 0
    """Texels that those read of each block beside the sums."""

    @property
    def taps(self) -> int:
        """Return the taps (weights) that one channel of the depthwise convolution has."""
        return self.depthwise.kernel[0] * self.depthwise.kernel[1]


_SHAPE = ("pixels", "out_blocks", "width", "height", "bands", "split_k")
"""What the search finds first of a tile."""


def candidates(work: SeparableWork, limits: Limits, costs: Cost) -> TileTable[SeparableTile]:
    """Return the tiles that suit the extents."""
    shapes, cost = list(_shapes(work, limits, costs)), costs.separable
    ways: dict[int, tuple[bool, ...]] = {}
    for pixels in cost.pixels:
        texels = work.depthwise.kernel[0] * len(work.depthwise.columns(pixels))
        ways[pixels] = (False, True) if texels <= cost.most_texels else (True,)
    rows = [
        (*shape, chunk, rolled)
        for shape, chunks in zip(shapes, _chunks(work, limits, cost, shapes), strict=True)
        for chunk in chunks
        for rolled in ways[shape[0]]
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_SHAPE) + 2).T
    actions = _actions(columns[: len(_SHAPE)])
    actions |= {"chunk": columns[-2], "rolled": columns[-1].astype(bool)}
    return TileTable(SeparableTile, actions, len(rows))


def _actions(columns: np.ndarray) -> dict[str, Any]:
    """Return columns of `_shapes` as actions of a tile."""
    pixels, out_blocks, width, height, bands, split_k = columns
    return {
        "pixels": pixels,
        "out_blocks": out_blocks,
        "route": Route.LOCAL,
        "work_group": (width, height, bands * split_k),
        "bands": bands,
        "split_k": split_k,
    }


def _shapes(work: SeparableWork, limits: Limits, costs: Cost) -> Iterator[tuple[int, ...]]:
    """Yield pixels, output blocks, width and height of the work-group, bands and splits."""
    e, cost = work.pointwise.out, costs.separable
    for pixels in cost.pixels:
        if pixels > 1 and 2 * pixels > e.w:
            continue
        groups = list(groups_of(-(-e.w // pixels), e.h, costs))
        for out_blocks in cost.out_blocks:
            if out_blocks > e.blocks or pixels * out_blocks > cost.most_sums:
                break
            depths = {
                threads: list(_deep(work, limits, costs, out_blocks, threads))
                for threads in {width * height for width, height in groups}
            }
            for width, height in groups:
                for depth in depths[width * height]:
                    yield pixels, out_blocks, width, height, *depth


def _deep(
    work: SeparableWork, limits: Limits, costs: Cost, out_blocks: int, threads: int
) -> Iterator[tuple[int, int]]:
    """Yield bands and splits."""
    cost = costs.separable
    deepest = min(costs.pipes.wave_threads, limits.max_work_group_size) // threads
    deepest = min(deepest, limits.group_sides[2])
    runs = -(-work.pointwise.out.blocks // out_blocks)
    for split_k in cost.split_k:
        bands = min(deepest // split_k, runs)
        if bands < 1 or (split_k > 1 and 2 * split_k > work.pointwise.in_blocks):
            return
        enough = threads * bands * split_k >= min(cost.fewest_threads, limits.max_work_group_size)
        if fills(work.pointwise, split_k, costs.conv_local) and (enough or split_k * 2 > deepest):
            yield bands, split_k


def _chunks(
    work: SeparableWork, limits: Limits, cost: SeparableCost, shapes: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Input blocks of a split at a time, of each shape: the most that fit in chunks alike."""
    found: list[list[int]] = [[] for _ in shapes]
    table = np.array(shapes, dtype=np.int64).reshape(-1, len(_SHAPE))
    for split_k in sorted(set(table[:, -1].tolist())):
        k_steps = -(-work.pointwise.in_blocks // split_k)
        longest = cost.most_blocks_a_part if work.pointwise.half else k_steps
        alike = [n for n in range(1, min(longest, k_steps) + 1) if k_steps % n == 0]
        (places,) = np.nonzero(table[:, -1] == split_k)
        # A row for each shape, a column for each number of blocks.
        actions = _actions(table[places].T[:, :, None]) | {"chunk": np.array(alike)}
        held = local_bytes(work, SeparableTile(**actions))
        for most in cost.shared_bytes:
            fits = held <= min(most, limits.local_mem_bytes)
            last = np.where(fits, np.arange(len(alike)), -1).max(axis=1)
            for place, number in zip(places.tolist(), last.tolist(), strict=True):
                if number >= 0 and alike[number] not in found[place]:
                    found[place].append(alike[number])
    return found


def local_bytes(work: SeparableWork, tile: SeparableTile) -> Column:
    """Return local memory of a work-group: what the 1x1 convolution holds, and taps beside it."""
    of_block = (work.taps + work.finish_texels) * LANES * FLOAT_BYTES
    return pointwise_bytes(work.pointwise, tile) + tile.chunk * tile.split_k * of_block


@lru_cache(maxsize=MOST_KNOWN)
def score_tiles(work: SeparableWork, limits: Limits, machine: Machine) -> Scored[SeparableTile]:
    """Return the tiles that suit the extents, each with its estimate."""
    return Scored(
        lambda: candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine, limits),
    )


def estimate_clocks(
    work: SeparableWork, tile: SeparableTile, machine: Machine, limits: Limits
) -> Column:
    """Return clocks of both on the target."""
    cost, rates = machine.cost.separable, machine.cost.pipes
    counts = local_counts(work.pointwise, tile, machine, parts_by_chunk=True)
    as_texels = has_texel_weights(work.pointwise, machine)
    rows = work.depthwise.kernel[0]
    columns = look_up(tile.pixels, lambda pixels: len(work.depthwise.columns(pixels)))
    texels, k_steps = rows * columns, counts.k_steps
    made = tile.pixels * (work.taps * LANES + work.finish_work)
    passes = choose(tile.rolled, rows, 0)
    alu = counts.alu + k_steps * (made + cost.texel_alu * texels + cost.row_alu * passes)
    vectors, bytes_each = _local_vectors(work, tile, counts, as_texels=as_texels)
    of_k_step = made + cost.texel_slots * texels + cost.row_slots * passes + work.taps
    slots = counts.slots + k_steps * of_k_step
    read = k_steps * texels + counts.loads * as_texels
    busiest = larger(
        machine.wave * alu / machine.lanes,
        machine.wave * read / machine.texels_of(work.pointwise.storage_bytes),
    )
    waits = k_steps * larger(1, passes) + cost.chunk_waits * (counts.chunks - 1)
    waits = waits + (cost.last_waits + look_up(tile.split_k, math.log2))
    serial = machine.slots_a_wave * slots + waits * (
        rates.texture_latency_clocks if as_texels else rates.buffer_latency_clocks
    )
    registers = _registers(work, tile, choose(tile.rolled, columns, texels), machine.cost)
    registers = registers + choose(counts.chunks > 1, cost.chunk_registers, 0)
    # What does not fit goes to memory.
    serial = serial * choose(registers > machine.registers / 2, rates.spilled, 1.0)
    threads, shared = math.prod(tile.work_group or (1,)), local_bytes(work, tile)
    by_memory = machine.waves_of_groups(threads, shared, limits.local_mem_bytes)
    resident = larger(1, smaller(machine.resident_waves(registers), by_memory))
    waves = waves_of(work.pointwise, tile, machine.wave)
    memory = machine.memory_clocks(_bytes(work, tile))
    return machine.hedge(
        busiest,
        vectors,
        bytes_each,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), memory, resident
        ),
    )


def _local_vectors(
    work: SeparableWork, tile: SeparableTile, counts: ThreadCounts, *, as_texels: bool
) -> tuple[Column, Column]:
    """Vectors that a thread reads of local memory and stores there, and the bytes of one of them.
    Taps, and what finishes the pixels, are floats; few k-steps of many splits move more sums than
    weights."""
    threads, span = math.prod(tile.work_group or (1,)), tile.chunk * tile.split_k
    stored = counts.loads * vectors_a_load(half=work.pointwise.half, texels=as_texels)
    added = 2 * look_up(tile.split_k, math.log2) * tile.pixels * tile.out_blocks
    own = counts.reads + stored + added
    floats = counts.k_steps * (work.taps + work.finish_texels)
    floats = floats + counts.chunks * round_up(span * work.taps / threads)
    floats = floats + counts.chunks * work.finish_texels * round_up(span / threads)
    moved = own * vector_bytes(work.pointwise) + floats * LANES * FLOAT_BYTES
    return own + floats, moved / (own + floats)


def _registers(work: SeparableWork, tile: SeparableTile, texels: Column, costs: Cost) -> Column:
    """Return full registers of four that a thread needs."""
    cost = costs.separable
    sums = 1.0 * tile.pixels * tile.out_blocks
    if work.pointwise.half:
        sums = sums * choose(adds_in_parts(work.pointwise, tile), 1.0, 0.5)
    finish = cost.finish_registers if work.finish_work else 0.0
    split_k = choose(tile.split_k > 1, costs.conv_local.split_k_registers, 0.0)
    strided = cost.stride_registers if work.depthwise.strides[1] > 1 else 0.0
    # Of taps that are written out, texels take more than what comes after them.
    wide = 0.0 if work.pointwise.half else choose(tile.rolled, cost.float_registers, 0.0)
    # Coordinates of strides are not needed any more where wide weights are.
    other = cost.other_registers + larger(strided, wide)
    return sums + texels + tile.pixels + other + finish + split_k


def _bytes(work: SeparableWork, tile: SeparableTile) -> Column:
    """Return what memory has to move: the input, the output, weights and taps."""
    source, out, of_one = work.source, work.pointwise.out, work.pointwise.storage_bytes
    vectors = source.n * source.h * source.w * source.blocks
    vectors += out.n * out.h * out.w * out.blocks
    vectors = vectors + weights_of(work.pointwise, tile)
    return (vectors * of_one + source.blocks * work.taps * FLOAT_BYTES) * LANES


SEPARABLE = "separable_conv2d"


def separable_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return a depthwise convolution of the first input by the second, then a 1x1 one by the third.
    Its attributes are those that `joined` describes."""
    work = separable_work(context.graph, node, context.options)
    tiles = score_tiles(work, context.limits, context.machine)
    tile = context.choose(node, SEPARABLE, tiles, tiles)
    kernel = context.kernel(node, SEPARABLE, half=work.pointwise.half)
    x = kernel.input(node.inputs[0])
    texels = has_texel_weights(work.pointwise, context.machine)
    taps = declare_run(
        kernel,
        node.inputs[1],
        f"separable{tile.k_step}",
        lambda w: pack_k_steps(transpose_to_oihw(w, str(node.attrs["kernel_layout"])), tile.k_step),
        dtype=ACCUMULATOR,
        texels=texels,
    )
    oihw = partial(transpose_to_oihw, layout=str(node.attrs["pointwise_layout"]))
    weight = local_weights(kernel, node.inputs[2], "conv2d", tile, oihw, texels=texels)
    SeparableConv(kernel, work.depthwise, tile, x, taps, weight).emit()
    return kernel.call()


def separable_work(graph: Graph, node: Node, options: CompileOptions) -> SeparableWork:
    """Return what a cost model needs of such a node."""
    return SeparableWork(
        depthwise=depthwise_geometry(graph, node, node.inputs[1]),
        source=graph.operand(node.inputs[0]).extents,
        pointwise=pointwise_work(graph, node, options),
        finish_work=finish_work(node),
        finish_texels=finish_texels(node),
    )


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Count the multiply-adds: each weight of both convolutions, once for each output position."""
    weights = sum(size_of(graph, name) for name in node.inputs[1:3])
    return weights * positions_of(graph, node.output)


OPERATORS = (
    Operator(
        name=SEPARABLE,
        kind=Kind.CONVOLUTION,
        numbers=Numbers.WEIGHTED,
        rule=separable_rule,
        multiply_adds=_multiply_adds,
        operations=finish_operations,
        channel_sums=ChannelSums(
            convolutions=2, work=pointwise_work, clocks=conv_clocks, in_float=True
        ),
    ),
)
