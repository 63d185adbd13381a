"""Products of few vectors by a constant matrix: every weight is read once, and that is the time.

One thread makes a part of the sums of one block of four outputs, for all vectors; a team of
threads shares the block (split K).  The input blocks go round the team, and of so many blocks as
neighbours take at once, the first columns lie together, then the second ones: neighbours read
neighbouring texels of the weights' row (`pack_columns`).

Of bytes, by dot products of four: sixteen channels a step where floats have four: the matrix is
read once, and takes a quarter of the memory of floats.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    cast,
    dot_products,
    floordiv,
    floormod,
    iconst,
    lane,
    load_texel,
    load_vector,
    minimum,
    splat,
)
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, WORDS, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.access import Access, BytesAccess
from adrenoc.kernels.builder import KernelBuilder, groups_within, power_of_two
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import Oihw
from adrenoc.kernels.families.shared.conv_weights import SIXTEEN, WORD_BYTES, split_bias, suits_dot
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.row_product import (
    RowNorm,
    TokenWork,
    begin_token,
    declare_gate,
    declare_norm,
    declare_token,
    extents_read,
    give_gate,
    mix_work,
    read_form,
)
from adrenoc.kernels.fused_bodies import Epilogue, Finished
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.views import FlatAccess, flat_order
from adrenoc.kernels.walk import ACCUMULATOR, Team, plus, widen
from adrenoc.kernels.weights import pack_conv
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

MAX_PIXELS = 8
"""Vectors that one thread serves: its sums stay in registers."""


@dataclass(frozen=True, kw_only=True)
class GemvTile:
    """`work_group` is (threads that share an output block, output blocks, 1).  `unroll` is the
    input blocks whose texels a thread asks for before it waits."""

    work_group: tuple[int, int, int]
    unroll: int

    @property
    def splits(self) -> int:
        """Threads that share one output block's sums."""
        return self.work_group[0]


@dataclass(frozen=True, kw_only=True)
class GemvOperands:
    """What the kernel reads: of each vector all numbers, perhaps as a norm leaves them.

    With two matrices, `finish` makes of the second's products what the epilogue reads beside those
    of the first.

    Shapes:
        x: roles N, H, W of any small extents, C = K; with a norm K is a multiple of four
        weights: each `pack_columns` of [O, K, 1, 1], for the members of a team
    """

    x: Access
    weights: tuple[Access, ...]
    norm: RowNorm | None = None
    finish: Finished | None = None


def gemv(
    builder: KernelBuilder, tile: GemvTile, operands: GemvOperands, out: Access, epilogue: Epilogue
) -> None:
    """Emit out[p, :] = x[p, :] . weight for each of at most `MAX_PIXELS` places p.

    Shapes:
        out: the same N, H, W as x, C = O
    """
    places, x, norm = places_of(out.extents), operands.x, operands.norm
    team, block = team_of_block(builder, tile, out.extents.blocks)
    begin_token(x, tile.work_group)
    count, width = len(places), len(operands.weights)
    sums = builder.registers(count * width, dtype=ACCUMULATOR, fill=0.0)
    squares = None
    if norm is not None:
        squares = builder.registers(count, dtype=ACCUMULATOR, fill=0.0)

    add_products(builder, tile, team, operands, places, block, sums, squares)
    values = [sums[p] for p in range(count * width)]
    if squares is not None:
        values += [squares[p] for p in range(count)]
    values = team.fold(builder, values, [plus] * len(values))
    for p, (n, h, w) in enumerate(places):
        # The members store a place each, where there are several.
        with builder.when(team.store_condition(builder, p)):
            value, *others = values[p : count * width : count]
            if norm is not None:
                scale = norm.scale(builder, values[count * width + p], x.extents.c)
                value, others = value * scale, [other * scale for other in others]
            place = (iconst(n), block, iconst(h), iconst(w))
            given = give_gate(operands.finish, place, others)
            epilogue.write(*place, value, given)


def add_products(
    builder: KernelBuilder,
    tile: GemvTile,
    team: Team,
    operands: GemvOperands,
    places: list[tuple[int, int, int]],
    block: Expr,
    sums: Registers,
    squares: Registers | None = None,
) -> None:
    """Add this member's part of the products of each vector to `sums`, those of one matrix after
    those of another; with a norm its squares to `squares`."""
    count = len(places)

    dealt = blocks_dealt(tile.splits)
    own = builder.let(
        floordiv(team.member, dealt) * iconst(dealt * LANES) + floormod(team.member, dealt), "own"
    )

    def add(chosen: list[Expr]) -> None:
        reads = []
        for in_block in chosen:
            first = own + (in_block - team.member) * iconst(LANES)
            reads.append(_reads(builder, operands, places, block, (in_block, first, dealt)))
        for read, weights, gains in reads:
            vectors = read
            if squares is not None and gains is not None:
                for p, vector in enumerate(vectors):
                    squares[p] = squares[p] + vector * vector
                vectors = [builder.let(vector * gains, "x") for vector in vectors]
            for s, columns in enumerate(weights):
                for p, vector in enumerate(vectors, s * count):
                    total = sums[p]
                    for c, column in enumerate(columns):
                        total = total + splat(lane(vector, c)) * column
                    sums[p] = total

    team.deal_out(builder, operands.x.extents.blocks, tile.unroll, "kb", add)


MOST_DEALT = 2 * LANES
"""Blocks whose columns are dealt out: a texel of four floats of each fills a line of a cache."""


def blocks_dealt(members: int) -> int:
    """Return how many input blocks that neighbours of a team take have their columns together."""
    return math.gcd(members, MOST_DEALT)


def pack_columns(weight: np.ndarray, members: int) -> np.ndarray:
    """Pack `[O, K, 1, 1]` as `weights.pack_conv` does, but for the order of the columns.

    Before -> after, of eight blocks that are dealt out:
        column 4 * b + c of block b        column 8 * c + b
    """
    packed, dealt = pack_conv(weight, 1), blocks_dealt(members)
    taps, out_blocks, columns, _ = packed.shape
    runs = -(-columns // (dealt * LANES))
    filled = np.zeros((taps, out_blocks, runs * dealt * LANES, LANES), packed.dtype)
    filled[:, :, :columns] = packed
    blocks = filled.reshape(taps, out_blocks, runs, dealt, LANES, LANES)
    return np.ascontiguousarray(blocks.transpose(0, 1, 2, 4, 3, 5)).reshape(filled.shape)


def team_of_block(builder: KernelBuilder, tile: GemvTile, out_blocks: int) -> tuple[Team, Expr]:
    """Start the threads: the team of this one, and the output block that it makes."""
    _, asked, _ = builder.threads(
        tile.splits, out_blocks, work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    block = asked
    if out_blocks % tile.work_group[1]:  # threads beyond the last block repeat it
        block = builder.let(minimum(asked, iconst(out_blocks - 1)), "block")
    return team, block


def places_of(extents: Extents) -> list[tuple[int, int, int]]:
    """Return (n, h, w) of every vector."""
    return [(n, h, w) for n in range(extents.n) for h in range(extents.h) for w in range(extents.w)]


def _reads(
    builder: KernelBuilder,
    operands: GemvOperands,
    places: list[tuple[int, int, int]],
    block: Expr,
    chosen: tuple[Expr, Expr, int],
) -> tuple[list[Expr], list[list[Expr]], Expr | None]:
    """Return a texel of each vector, the weights of its channels by matrix, and the gains of a
    norm: all are asked for, none awaited.  `chosen` is the input block, its first column and how
    far apart its columns are."""
    x, norm = operands.x, operands.norm
    in_block, first, apart = builder.let(chosen[0], "kb"), builder.let(chosen[1], "k"), chosen[2]
    channels, zero = min(LANES, x.extents.c), iconst(0)
    weights = [
        [
            builder.let(widen(weight.texel(zero, zero, block, first + iconst(c * apart))), "w")
            for c in range(channels)
        ]
        for weight in operands.weights
    ]
    gains = None
    if norm is not None:
        gains = builder.let(load_texel(norm.gains.buffer, in_block), "gain")
    vectors = [
        builder.let(widen(x.texel(iconst(n), in_block, iconst(h), iconst(w))), "x")
        for n, h, w in places
    ]
    return vectors, weights, gains


def pack_rows(weight: np.ndarray) -> np.ndarray:
    """Pack whole numbers `[O, K, 1, 1]` as 32-bit words of four inputs, flat.  The order is [output
    block, word, sixteen inputs, output channel], so that neighbouring threads of a team, which take
    neighbouring sixteens, read neighbouring vectors."""
    outputs, inputs = weight.shape[:2]
    blocks, steps = -(-outputs // LANES), -(-inputs // SIXTEEN)
    padded = np.zeros((blocks * LANES, steps * SIXTEEN), np.int8)
    padded[:outputs, :inputs] = weight[:, :, 0, 0]
    split = padded.reshape(blocks, LANES, steps, WORDS, LANES)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4)).reshape(-1).view(np.uint32)


FLATTENED = "flattened"
"""Attribute of a product of one vector that is read from the image that it is flattened from."""


@dataclass(frozen=True, kw_only=True)
class GemvWork:
    """Extents of a product: vectors, blocks of four inputs and of four outputs."""

    vectors: int
    in_blocks: int
    out_blocks: int
    storage_bytes: int
    matrices: int = 1
    normed: bool = False
    token: TokenWork | None = None
    """What each work-group does to make the vector; None where it reads it."""


def suits_gemv(out: Extents) -> bool:
    """Return whether a product has few enough vectors."""
    return out.n * out.h * out.w <= MAX_PIXELS


def gemv_rule(context: RuleContext, node: Node, oihw: Oihw) -> KernelCall:
    """Make the kernel of a matrix times a few vectors, for which reading the weights is the time.

    The node's first input holds the vectors, its second the matrix, which `oihw` transposes to
    [O, I, 1, 1]; a second matrix and a norm's gains may come behind (`row_product.py`).

    Sums are in float whatever the preset: the kernel waits for its weights.
    """
    form = read_form(node)
    work = work_of(context.graph, node, context.options)
    if suits_dot(context, node, oihw):
        return _dot_rule(context, node, work, oihw)
    tile = context.search(node, "gemv", work, candidates, estimate_clocks)
    kernel = context.kernel(node, "gemv")
    x = declare_token(kernel, node)
    kind, pack = f"gemv{blocks_dealt(tile.splits)}", oihw
    if node.attrs.get(FLATTENED):
        order = flat_order(x.spec)
        x, kind = FlatAccess(x, kernel.builder), f"{kind}_flat"

        def pack(weight: np.ndarray) -> np.ndarray:
            ordered = oihw(weight)[:, np.maximum(order, 0)]
            ordered[:, order < 0] = 0
            return ordered

    weights = tuple(
        kernel.pack_constant(name, kind, lambda w: pack_columns(pack(w), tile.splits))
        for (name,) in form.matrices
    )
    operands = GemvOperands(
        x=x, weights=weights, norm=declare_norm(kernel, node), finish=declare_gate(kernel, node)
    )
    out, epilogue = kernel.output()
    gemv(kernel.builder, tile, operands, out, epilogue)
    return kernel.call()


def work_of(graph: Graph, node: Node, options: CompileOptions) -> GemvWork:
    """Return the extents of a product of few vectors."""
    out, form = graph.operand(node.output).extents, read_form(node)
    e = extents_read(graph, node)
    in_blocks = e.blocks * e.h * e.w if node.attrs.get(FLATTENED) else e.blocks
    return GemvWork(
        vectors=out.n * out.h * out.w,
        in_blocks=in_blocks,
        out_blocks=out.blocks,
        storage_bytes=bytes_of(options.storage_dtype),
        matrices=len(form.matrices),
        normed=bool(form.gains),
        token=mix_work(graph, node, in_blocks),
    )


def _dot_rule(context: RuleContext, node: Node, work: GemvWork, oihw: Oihw) -> KernelCall:
    """Make the same of bytes: a step reads sixteen inputs, as many bytes as four floats."""
    family, (x_name, weight_name) = "gemv_dot", node.inputs[:2]
    machine, limits = context.machine, context.limits
    tiles = candidates(work, limits, machine.cost)
    floats = min(estimate_clocks(work, tile, machine) for tile in tiles)
    steps = -(-work.in_blocks // WORDS)
    work = replace(work, in_blocks=steps, storage_bytes=WORD_BYTES)
    tile = context.search(node, family, work, candidates, estimate_clocks)
    context.byte_costs.add(estimate_clocks(work, tile, machine), floats)
    bias = split_bias(context.graph, node, oihw)
    kernel = context.kernel(bias.node, family)
    x = kernel.input(x_name)
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{x_name} does not lie in bytes")
    weight = kernel.flat(weight_name, f"{family}_rows", pack_rows, oihw, "float32")
    rest = bias.operand(kernel, family, x.spec.low, oihw)
    return _multiply_bytes(kernel, tile, x, weight, rest)


def _multiply_bytes(
    kernel: NodeKernel, tile: GemvTile, x: BytesAccess, weight: Access, rest: Access
) -> KernelCall:
    """Make out[p, :] = x[p, :] . weight for each of at most `MAX_PIXELS` places p.

    Shapes:
        weight: `pack_rows` of [O, K], flat
        rest: `IntegerBias.rest`
    """
    builder, (out, epilogue) = kernel.builder, kernel.output()
    places, out_blocks = places_of(out.extents), out.extents.blocks
    steps = -(-x.extents.blocks // WORDS)
    words = min(x.extents.blocks, WORDS)
    team, block = team_of_block(builder, tile, out_blocks)
    sums = builder.registers(len(places), dtype="int32", fill=0)
    row = builder.let(block * iconst(WORDS * steps), "wb")

    def add(chosen: list[Expr]) -> None:
        reads = []
        for step in chosen:
            at = builder.let(row + step, "k")
            columns = [
                builder.let(load_vector(weight.buffer, at, j * steps, "uint32"), "w")
                for j in range(words)
            ]
            vectors = [
                builder.let(x.words(iconst(n), step, iconst(h), iconst(w), padded=False), "x")
                for n, h, w in places
            ]
            reads.append((columns, vectors))
        for columns, vectors in reads:
            for p, vector in enumerate(vectors):
                total = sums[p]
                for j, column in enumerate(columns):
                    total = dot_products(column, lane(vector, j), total)
                sums[p] = total

    team.deal_out(builder, steps, tile.unroll, "kb", add)
    values = [sums[p] for p in range(len(places))]
    values = team.fold(builder, values, [plus] * len(places), dtype="int32")
    for p, (n, h, w) in enumerate(places):
        with builder.when(team.store_condition(builder, p)):
            total = values[p] + load_vector(rest.buffer, block, 0, "int32")
            value = builder.let(cast(total, "float32x4"), "total")
            epilogue.write(iconst(n), block, iconst(h), iconst(w), value)
    return kernel.call()


def candidates(
    work: GemvWork, limits: Limits, costs: Cost, groups: Sequence[int] = ()
) -> Iterator[GemvTile]:
    """Yield teams, powers of two that the input blocks feed, in groups of these sizes."""
    cost = costs.gemv
    for splits in cost.splits:
        if splits > work.in_blocks:
            break
        for threads in groups or groups_within(cost.threads, limits):
            blocks = min(threads // splits, power_of_two(work.out_blocks))
            folded = work.vectors * (work.matrices + work.normed)
            shared = folded * splits * blocks * LANES * FLOAT_BYTES if splits > 1 else 0
            token = work.token.local_bytes(splits * blocks) if work.token is not None else 0
            if not blocks or shared + token > limits.local_mem_bytes:
                continue
            for unroll in cost.unrolls:
                if unroll == 1 or unroll * splits <= work.in_blocks:
                    yield GemvTile(work_group=(splits, blocks, 1), unroll=unroll)


def estimate_clocks(work: GemvWork, tile: GemvTile, machine: Machine) -> float:
    """Return clocks of the whole product."""
    splits, blocks, _ = tile.work_group
    threads_a_wave = machine.threads_of(splits * blocks)
    of_group = math.ceil(splits * blocks / threads_a_wave)
    waves = math.ceil(work.out_blocks / blocks) * of_group
    # The waves of a group share the processors that share local memory, however many others idle.
    waves = max(waves, math.ceil(of_group / machine.waves_together) * machine.processors)
    busiest, serial = walk_clocks(work, tile, threads_a_wave, machine)
    making, make_serial, brought = 0.0, 0.0, 0.0
    if work.token is not None:
        making, make_serial = work.token.clocks(splits * blocks, machine)
        # Before the first barrier, so that nothing of the product hides it.
        brought = machine.memory_clocks(work.token.memory_bytes)
    held = _texels(work) * tile.unroll + _sums(work) + machine.cost.gemv.other_registers
    beside = machine.resident_waves(held * threads_a_wave / machine.wave)
    pipes = machine.clocks(waves, busiest + making, serial + make_serial, beside)
    weights = work.in_blocks * work.out_blocks * LANES * LANES * work.matrices * work.storage_bytes
    resident = beside * threads_a_wave / machine.wave
    memory = machine.memory_clocks(weights)
    return brought + machine.overlap_with_memory(pipes, memory, resident)


def walk_clocks(
    work: GemvWork, tile: GemvTile, threads_a_wave: int, machine: Machine
) -> tuple[float, float]:
    """Return how long a wave keeps the busiest pipe with its sums of one output block a team, and
    how long it takes alone."""
    cost, rates = machine.cost.gemv, machine.cost.pipes
    steps, texels, sums = math.ceil(work.in_blocks / tile.splits), _texels(work), _sums(work)
    mads = LANES * LANES * work.vectors * work.matrices + 2 * LANES * work.vectors * work.normed
    overhead = cost.texel_slots * texels + cost.loop_slots / tile.unroll
    alu = (mads + overhead) / machine.lanes
    texture = texels / machine.texels_of(work.storage_bytes)
    levels = math.ceil(math.log(tile.splits, LANES)) if tile.splits > 1 else 0
    serial = (
        math.ceil(steps / tile.unroll) * rates.texture_latency_clocks
        + steps * threads_a_wave / rates.threads_a_slot * (mads + texels + overhead)
        + levels * cost.barrier_clocks * (1 + sums / LANES)
    )
    return threads_a_wave * steps * max(alu, texture), serial


def _texels(work: GemvWork) -> int:
    """Return texels that a step reads."""
    return LANES * work.matrices + work.vectors + work.normed


def _sums(work: GemvWork) -> int:
    """Return vectors of sums that a thread holds."""
    return work.vectors * (work.matrices + work.normed)
