"""The product of two activations, batched."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from adrenoc.base.tvmapi import Expr, bytes_of, floordiv, floormod, iconst, lane, minimum, splat
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import LANES, Extents, Layout, channels_last, rows_along_w
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, pick_work_group
from adrenoc.kernels.families.conv.conv_rules import centred_rule, dense_conv
from adrenoc.kernels.families.matmul.gemv import gemv_rule, suits_gemv
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import POINT
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.operator import (
    ROWS,
    Along,
    Batch,
    ChannelWeights,
    Fusion,
    Kind,
    NotKnownError,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    have_one_sign,
    middle,
    size_of,
    sums_of_terms,
    weights_of,
)
from adrenoc.kernels.families.shared.row_product import CENTRED, read_form
from adrenoc.kernels.statements import all_of
from adrenoc.kernels.walk import RunSums, add_products, adds_in_runs, total_dtype
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits


@dataclass(frozen=True, kw_only=True)
class MatmulTile:
    """A thread makes `rows` rows of `blocks` blocks of four columns."""

    rows: int
    blocks: int
    work_group: tuple[int, int, int]


def _multiply_activations(kernel: NodeKernel, tile: MatmulTile, a: Access, b: Access) -> KernelCall:
    """Make out[.., m, :] = sum over k of a[.., m, k] * b[.., k, :].

    Shapes:
        a: roles N and H batch, W = m, C = k
        b: roles N and H batch (or extent 1), W = k, C = columns
        out: roles N and H batch, W = m, C = columns
    """
    builder, (out, epilogue) = kernel.builder, kernel.output()
    e, depth, rows, blocks = out.extents, a.extents.c, tile.rows, tile.blocks
    columns = -(-e.blocks // blocks)
    gx, gy, gz = builder.threads(-(-e.w // rows), e.h, e.n * columns, work_group=tile.work_group)
    n, group = (iconst(0), gz) if e.n == 1 else (floordiv(gz, columns), floormod(gz, columns))
    a_n, a_h = _batch(a, n, gy)
    b_n, b_h = _batch(b, n, gy)
    first = builder.let(gx * iconst(rows), "m") if rows > 1 else gx
    first_block = builder.let(group * iconst(blocks), "block") if blocks > 1 else group
    sums = builder.registers(rows * blocks, dtype=total_dtype(builder, depth), fill=0.0)
    several = adds_in_runs(out, depth)
    runs = RunSums(builder, sums, range(rows * blocks), depth, several=several)

    def multiply(kb: Expr) -> None:
        left = [
            builder.let(a.padded_texel(a_n, kb, a_h, first + iconst(m)), "a") for m in range(rows)
        ]
        # Beyond the last k the lanes of `a` are zero, and the row of `b` is read as zero too.
        right = [
            [
                builder.let(b.padded_texel(b_n, at, b_h, kb * iconst(LANES) + iconst(c)), "b")
                for c in range(min(LANES, depth))
            ]
            for at in _existing(builder, first_block, blocks, b.extents.blocks)
        ]
        for block, texels in enumerate(right):
            for m, texel in enumerate(left):
                products = [splat(lane(texel, c)) * row for c, row in enumerate(texels)]
                at = block * rows + m
                runs[at] = add_products(builder, runs[at], products)

    runs.loop(a.extents.blocks, LANES, "k", multiply)
    for some_blocks, some_rows in epilogue.parts(blocks, rows):
        for block, m in product(some_blocks, some_rows):
            column = first_block + iconst(block) if block else first_block
            row = first + iconst(m)
            inside = all_of(
                row < iconst(e.w) if e.w % rows and m else None,
                column < iconst(e.blocks) if e.blocks % blocks and block else None,
            )
            with builder.when(inside):
                epilogue.write(n, builder.let(column, "column"), gy, row, sums[block * rows + m])
    return kernel.call()


def _existing(builder: KernelBuilder, first: Expr, count: int, blocks: int) -> list[Expr]:
    """Return blocks from `first` on, the last one instead of those behind it."""
    if count == 1:
        return [first]
    last = iconst(blocks - 1)
    return [
        builder.let(minimum(first + iconst(i), last) if blocks % count else first + iconst(i), "o")
        for i in range(count)
    ]


def _batch(operand: Access, n: Expr, h: Expr) -> tuple[Expr, Expr]:
    """Return batch coordinates of an operand, whose extents of one are broadcast."""
    e = operand.extents
    return (iconst(0) if e.n == 1 else n), (iconst(0) if e.h == 1 else h)


@dataclass(frozen=True, kw_only=True)
class MatmulWork:
    """A batched product of activations."""

    out: Extents
    depth_blocks: int
    storage_bytes: int
    half: bool


def matmul_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a product: by a constant matrix it is a 1 x 1 convolution, of two
    activations a batched product.  Few vectors by a constant matrix have a kernel of their own."""
    a_name, b_name = node.inputs[:2]
    b = context.graph.tensors[b_name]
    if b.value is not None and b.value.ndim == 2:
        if suits_gemv(context.graph.operand(node.output).extents):
            return gemv_rule(context, node, _reshape_to_oihw)
        if node.attrs.get(CENTRED):
            return centred_rule(context, node, _reshape_to_oihw)
        return dense_conv(context, node, "dense", POINT, _reshape_to_oihw)
    work = MatmulWork(
        out=context.graph.operand(node.output).extents,
        depth_blocks=context.graph.operand(a_name).extents.blocks,
        storage_bytes=bytes_of(context.options.storage_dtype),
        half=context.options.compute_dtype == "float16",
    )
    tile = context.search(node, "matmul", work, candidates, estimate_clocks)
    kernel = context.kernel(node, "matmul", half=work.half)
    left, right = kernel.input(a_name), kernel.input(b_name)
    return _multiply_activations(kernel, tile, left, right)


def candidates(work: MatmulWork, limits: Limits, costs: Cost) -> Iterator[MatmulTile]:
    """Yield rows by blocks of columns, as many as there are and as registers hold."""
    e, cost, wave = work.out, costs.matmul, costs.pipes.wave_threads
    for rows in cost.rows:
        for blocks in cost.blocks:
            if rows > max(e.w, 1) or blocks > e.blocks or rows * blocks > cost.most_sums:
                continue
            extents = (-(-e.w // rows), e.h, e.n * -(-e.blocks // blocks))
            usual = pick_work_group(extents, limits)
            yield MatmulTile(rows=rows, blocks=blocks, work_group=usual)
            x, y, z = usual
            if 2 * x * y * z <= min(wave, limits.max_work_group_size) and 2 * z <= 2 * extents[2]:
                yield MatmulTile(rows=rows, blocks=blocks, work_group=(x, y, 2 * z))


def estimate_clocks(work: MatmulWork, tile: MatmulTile, machine: Machine) -> float:
    """Return clocks of the whole product."""
    e, sums = work.out, tile.rows * tile.blocks
    cost, rates = machine.cost.matmul, machine.cost.pipes
    group = math.prod(tile.work_group)
    threads = machine.threads_of(group)
    grid = (-(-e.w // tile.rows), e.h, e.n * -(-e.blocks // tile.blocks))
    groups = math.prod(-(-g // t) for g, t in zip(grid, tile.work_group, strict=True))
    waves = groups * math.ceil(group / threads)
    texels = tile.rows + LANES * tile.blocks
    mads = LANES * LANES * sums
    lanes = machine.lanes * (machine.half_rate if work.half and threads == machine.wave else 1.0)
    overhead = texels * cost.texel_slots + cost.loop_slots
    texture = texels / machine.texels_of(work.storage_bytes)
    busiest = threads * work.depth_blocks * max(mads / lanes + overhead / machine.lanes, texture)
    slots = mads + texels + overhead
    issued = threads / rates.threads_a_slot * slots
    serial = work.depth_blocks * (rates.texture_latency_clocks + issued)
    registers = (sums + texels) * (0.5 if work.half else 1.0) + cost.address_registers
    resident = machine.resident_waves(registers * threads / machine.wave)
    return machine.clocks(waves, busiest, serial, resident)


def _reshape_to_oihw(matrix: np.ndarray) -> np.ndarray:
    """Return `[K, N]` as the weights of a 1 x 1 convolution of K channels to N."""
    return np.ascontiguousarray(matrix.T)[:, :, None, None]


_MOST_PRODUCTS = 1 << 19


def typical_product(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return the sums of a product, by a constant matrix or of two that are computed."""
    terms = run.graph.tensors[node.inputs[0]].shape[-1]
    if run.graph.tensors[node.inputs[1]].value is None:
        return _multiply_matrices(data, run.numbers(node.inputs[1]), terms)
    matrix = weights_of(run, node)
    if matrix.ndim != 2 or data.ndim < 2:
        raise NotKnownError
    rows = middle(data, keep=data.ndim - 2).reshape(len(data), -1)
    rows = np.broadcast_to(rows, (len(data), terms)).astype(np.float32)
    sums, squares = np.zeros((2, len(data), matrix.shape[1]))
    for first in range(0, terms, ROWS):
        part, x = matrix[first : first + ROWS].astype(np.float32), rows[:, first : first + ROWS]
        sums += x @ part
        squares += np.square(x) @ np.square(part, out=part)
    made = sums_of_terms(sums, squares, alike=have_one_sign(matrix))
    return made.reshape(len(made), *[1] * (data.ndim - 2), -1)


def _multiply_matrices(left: np.ndarray, right: np.ndarray, terms: int) -> np.ndarray:
    """Return the product of two matrices, or stacks of them, that are both computed."""
    if min(left.ndim, right.ndim) < 3:
        raise NotKnownError
    if left.shape[-1] == right.shape[-2] == 1:
        return left * right * terms
    rows = left if left.shape[-1] > 1 else np.repeat(left, terms, axis=-1)
    columns = right if right.shape[-2] > 1 else np.repeat(right, terms, axis=-2)
    if rows.size * columns.shape[-1] > _MOST_PRODUCTS:
        rows = middle(rows, keep=rows.ndim - 2)
    rank = max(rows.ndim, columns.ndim)
    return np.asarray(np.matmul(_raise_rank(rows, rank), _raise_rank(columns, rank)))


def _raise_rank(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape(array.shape[0], *[1] * (rank - array.ndim), *array.shape[1:])


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    a, b = (tensors[name] for name in node.inputs[:2])
    if len(a.shape) > 4 or len(b.shape) > 4:
        return f"operands of rank {len(a.shape)} and {len(b.shape)}, expected at most 4"
    if b.value is not None and len(b.shape) == 2:
        return None if a.value is None else "both operands are constants"
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "an operand is a vector"
    short, long = sorted((a.shape[:-2], b.shape[:-2]), key=len)
    if len(short) != len(long) and math.prod(short) != 1:
        return f"batches {a.shape[:-2]} and {b.shape[:-2]} of different rank"
    return None


def _wants_layout(node: Node, position: int, tensors: Mapping[str, Tensor]) -> Layout | None:
    left, right = (tensors[name].shape for name in node.inputs[:2])
    if position > 1:
        return None
    if position == 0 and len(right) == len("IO"):
        return rows_along_w(left)
    return channels_last((len(left), len(right))[position])


def _makes_layout(
    node: Node, tensors: Mapping[str, Tensor], source: Layout | None
) -> Layout | None:
    if len(tensors[node.inputs[1]].shape) == len("IO") and "out_channel" not in node.attrs:
        return rows_along_w(tensors[node.output].shape)
    return channel_of_result(node, tensors, source)


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    rank = len(batch.shape(node.output))
    found = set()
    for position, name in enumerate(node.inputs[:2]):
        along = batch.along.get(name)
        if along is None:
            continue
        own = len(batch.shape(name))
        summed = own - 1 if position == 0 or own == 1 else own - 2
        if along.axis == summed:
            return None
        found.add(Along(along.axis + rank - own, along.factor))
    return found.pop() if len(found) == 1 else None


def _multiply_adds(graph: Graph, node: Node) -> int:
    return size_of(graph, node.output) * _terms(graph, node) * len(read_form(node).matrices)


def _terms(graph: Graph, node: Node) -> int:
    # The depth is that of the right operand: the left one can be an image, read as a vector.
    right = graph.tensors[node.inputs[1]].shape
    return right[max(len(right) - 2, 0)]


def _channel_weights(graph: Graph, node: Node) -> ChannelWeights:
    weights = graph.tensors[node.inputs[1]]
    return ChannelWeights(
        value=weights.value,
        shape=weights.shape,
        letters="IO".rjust(len(weights.shape), "N"),
        axis=len(graph.tensors[node.output].shape) - 1,
    )


OPERATORS = (
    Operator(
        name="matmul",
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=matmul_rule,
        relax="relax.matmul",
        refuses=_refuses,
        wants_layout=_wants_layout,
        makes_layout=_makes_layout,
        reads_often=True,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        typical=typical_product,
        fusions=frozenset((Fusion.ATTENTION,)),
        channel_weights=_channel_weights,
    ),
)
