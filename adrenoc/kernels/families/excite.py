"""A squeeze-and-excite block: what channels are multiplied by, of the mean of an image.

Each work-group of the last product computes the mean and the hidden layer before it anew; their
numbers stay in local memory (`shared/rows.py`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from adrenoc.base.tvmapi import Expr, bytes_of, fconst, floordiv, floormod, iconst, splat
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, groups_within
from adrenoc.kernels.families.matmul.gemv import (
    GemvOperands,
    GemvTile,
    GemvWork,
    add_products,
    blocks_dealt,
    estimate_clocks,
    gemv,
    pack_columns,
    walk_clocks,
)
from adrenoc.kernels.families.matmul.gemv import candidates as gemv_candidates
from adrenoc.kernels.families.separable import finish_operations, prepare_first_finish
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import transpose_to_oihw
from adrenoc.kernels.families.shared.machine import CostModel, Machine
from adrenoc.kernels.families.shared.operator import Kind, Numbers, Operator, size_of
from adrenoc.kernels.families.shared.row_product import LocalToken, TokenWork, begin_token
from adrenoc.kernels.families.shared.rows import Deal, add_up, count_texels, deal_out
from adrenoc.kernels.fused_bodies import Finished
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, MOST_UNROLLED, RunSums, Team, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

_DIVISION_TEXELS = 8
"""Texels that a thread reads in the time of a division by a constant."""


class MeanToken(LocalToken):
    """Reads of the mean of an image over its rows and columns.

    Shapes:
        image: N = 1, any C, H, W
    """

    def __init__(self, builder: KernelBuilder, image: Access) -> None:
        super().__init__(builder, image)
        self._image = image

    @property
    def extents(self) -> Extents:
        """Return one vector of the image's channels."""
        return Extents(1, self._image.extents.c, 1, 1)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, e = self._builder, self._image.extents
        deal, run = deal_mean(e, threads)
        pieces, each = e.w // run, deal.parts // deal.width
        means = builder.allocate_shared(e.blocks, dtype=ACCUMULATOR)
        at_once = max(1, MOST_UNROLLED // run)
        zero, share = iconst(0), splat(fconst(1.0 / (e.h * e.w), ACCUMULATOR))

        def add(block: Expr, place: Expr, sums: Registers) -> None:
            runs = RunSums(builder, sums, [0], run * math.ceil(deal.parts / deal.width))

            def read(number: Expr) -> list[Expr]:
                piece = builder.let(number, "piece")
                h, w = (piece, zero) if e.h > 1 else (zero, piece * iconst(run))
                if e.h > 1 and pieces > 1:
                    h = builder.let(floordiv(piece, pieces), "h")
                    w = builder.let(floormod(piece, pieces) * iconst(run), "w")
                texels = [self._image.texel(zero, block, h, w + iconst(i)) for i in range(run)]
                return [builder.let(widen(texel), "x") for texel in texels]

            def add_pieces(first: Expr, count: int) -> None:
                starts = [first + iconst(i * deal.width) for i in range(count)]
                for texel in [x for start in starts for x in read(start)]:
                    runs[0] = runs[0] + texel

            def step(turn: Expr) -> None:
                add_pieces(turn * iconst(at_once * deal.width) + place, at_once)

            if full := each // at_once:
                runs.loop(full, at_once * run, "t", step, rolled=True)
            if single := each % at_once:
                with runs.run():
                    add_pieces(iconst(full * at_once * deal.width) + place, single)
            if rest := deal.parts % deal.width:
                with runs.run(), builder.when(place < iconst(rest)):
                    add_pieces(iconst(each * deal.width) + place, 1)

        def store(block: Expr, total: Expr) -> None:
            means[block] = total * share

        add_up(builder, member, deal, add, store)
        return means


@dataclass(frozen=True, kw_only=True)
class HiddenShare:
    """How threads share the products of a hidden layer, and how many inputs each asks for at
    once: the most that it has, as nothing else hides how long weights take."""

    deal: Deal
    tile: GemvTile


def share_hidden(in_blocks: int, out_blocks: int, threads: int, costs: Cost) -> HiddenShare:
    """Return how so many threads share the products of a hidden layer."""
    deal = deal_hidden(in_blocks, out_blocks, threads)
    unroll = max(n for n in costs.gemv.unrolls if n == 1 or n * deal.width <= in_blocks)
    return HiddenShare(deal=deal, tile=GemvTile(work_group=(deal.width, 1, 1), unroll=unroll))


class HiddenToken(LocalToken):
    """Reads of the hidden layer of so many `channels`: a product of a vector, finished.

    Shapes:
        x: C = K of N = H = W = 1
        weights: `gemv.pack_columns` of [channels, K, 1, 1], for those that share a sum
    """

    def __init__(
        self,
        builder: KernelBuilder,
        x: Access,
        weights: Access,
        finish: Finished,
        channels: int,
        share: HiddenShare,
    ) -> None:
        super().__init__(builder, x)
        self._x, self._weights, self._finish = x, weights, finish
        self._channels, self._share = channels, share

    @property
    def extents(self) -> Extents:
        """Return one vector of the hidden channels."""
        return Extents(1, self._channels, 1, 1)

    def begin(self, work_group: tuple[int, int, int]) -> None:
        """Compute all numbers, after those that they are products of."""
        begin_token(self._x, work_group)
        super().begin(work_group)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, blocks, zero = self._builder, self.extents.blocks, iconst(0)
        deal, tile = self._share.deal, self._share.tile
        hidden = builder.allocate_shared(blocks, dtype=ACCUMULATOR)
        operands = GemvOperands(x=self._x, weights=(self._weights,))

        def add(block: Expr, place: Expr, sums: Registers) -> None:
            team = Team(width=deal.width, count=1, member=place, index=zero)
            add_products(builder, tile, team, operands, [(0, 0, 0)], block, sums)

        def store(block: Expr, total: Expr) -> None:
            hidden[block] = widen(self._finish.value(zero, block, zero, zero, total))

        add_up(builder, member, deal, add, store)
        return hidden


def deal_mean(image: Extents, threads: int) -> tuple[Deal, int]:
    """Return how so many threads share the means of an image, and how many texels of a row, read
    one after the other, are a part."""
    found: dict[int, tuple[Deal, int]] = {}
    for run in (i for i in range(1, min(image.w, MOST_UNROLLED) + 1) if image.w % i == 0):

        def texels(width: int, run: int = run) -> int:
            """Count those of a part, and the time to find its row, unless a thread has a column."""
            in_column = image.h == 1 or width % (image.w // run) == 0
            return run + (0 if in_column else _DIVISION_TEXELS)

        deal = deal_out(image.blocks, image.h * image.w // run, threads, texels)
        found[count_texels(deal, texels(deal.width))] = (deal, run)
    return found[min(found)]


def deal_hidden(in_blocks: int, out_blocks: int, threads: int) -> Deal:
    """Return how so many threads share the products of a hidden layer."""
    return deal_out(out_blocks, in_blocks, threads, lambda _: LANES)


def token_bytes(image: Extents, hidden_blocks: int, threads: int) -> int:
    """Return local memory of the hidden layer, of the mean before it, and of partial sums."""
    vectors = hidden_blocks + deal_hidden(image.blocks, hidden_blocks, threads).vectors
    if image.h * image.w > 1:
        vectors += image.blocks + deal_mean(image, threads)[0].vectors
    return vectors * LANES * FLOAT_BYTES


EXCITE = "excite"


def excite_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return the product, by the third input, of a hidden layer, which is that of the first input,
    or of its mean over rows and columns, by the second.  Attributes are `kernel_layouts`, the order
    of both weights, and `between`, the hidden layer, which no memory holds."""
    machine, limits = context.machine, context.limits
    work = excite_work(context.graph, node, context.options)
    tile = context.choose(
        node,
        EXCITE,
        candidates(work, limits, machine.cost),
        lambda tile: estimate_clocks(work, tile, machine),
    )
    kernel = context.kernel(node, EXCITE)
    image = kernel.input(node.inputs[0])
    between, threads = node.attrs["between"].extents, math.prod(tile.work_group)
    share = share_hidden(image.extents.blocks, between.blocks, threads, machine.cost)
    first, second = (
        kernel.pack_constant(
            name, f"gemv{blocks_dealt(splits)}", partial(_pack, layout=layout, members=splits)
        )
        for name, layout, splits in zip(
            node.inputs[1:3],
            node.attrs["kernel_layouts"],
            (share.tile.splits, tile.splits),
            strict=True,
        )
    )
    finish, _ = prepare_first_finish(kernel)
    x = MeanToken(kernel.builder, image) if image.extents.h * image.extents.w > 1 else image
    hidden = HiddenToken(kernel.builder, x, first, finish, between.c, share)
    out, epilogue = kernel.output()
    gemv(kernel.builder, tile, GemvOperands(x=hidden, weights=(second,)), out, epilogue)
    return kernel.call()


def _pack(weight: np.ndarray, layout: str, members: int) -> np.ndarray:
    """Pack the weights of a 1 x 1 convolution, or a matrix [inputs, outputs]."""
    if weight.ndim == len("IO"):
        return pack_columns(np.ascontiguousarray(weight.T)[:, :, None, None], members)
    return pack_columns(transpose_to_oihw(weight, layout), members)


def excite_work(graph: Graph, node: Node, options: CompileOptions) -> GemvWork:
    """Return the extents of the second product, and what each work-group does before it."""
    image, hidden = graph.operand(node.inputs[0]).extents, node.attrs["between"].extents
    storage_bytes = bytes_of(options.storage_dtype)
    weights = image.blocks * hidden.blocks * LANES * LANES
    return GemvWork(
        vectors=1,
        in_blocks=hidden.blocks,
        out_blocks=graph.operand(node.output).extents.blocks,
        storage_bytes=storage_bytes,
        token=TokenWork(
            local_bytes=partial(token_bytes, image, hidden.blocks),
            memory_bytes=weights * storage_bytes,
            clocks=partial(_token_clocks, image, hidden.blocks, storage_bytes),
        ),
    )


def candidates(work: GemvWork, limits: Limits, costs: Cost) -> Iterator[GemvTile]:
    """Return those of a product of one vector, by larger work-groups too: each does more."""
    return gemv_candidates(work, limits, costs, groups_within(costs.gemv.threads_of_layers, limits))


def excite_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of both products; infinite where no schedule fits."""
    work, machine = excite_work(graph, node, costs.options), costs.machine
    tiles = candidates(work, costs.limits, machine.cost)
    return min((estimate_clocks(work, tile, machine) for tile in tiles), default=math.inf)


def _token_clocks(
    image: Extents, hidden_blocks: int, storage_bytes: int, threads: int, machine: Machine
) -> tuple[float, float]:
    """Return how long the hidden layer, and the mean before it, keep a wave's busiest pipe, and how
    long they take alone."""
    cost, rates = machine.cost.gemv, machine.cost.pipes
    a_wave = machine.threads_of(threads)
    share = share_hidden(image.blocks, hidden_blocks, threads, machine.cost)
    layer = GemvWork(
        vectors=1, in_blocks=image.blocks, out_blocks=hidden_blocks, storage_bytes=storage_bytes
    )
    walked = walk_clocks(layer, share.tile, a_wave, machine)
    busiest, serial = (share.deal.rounds * clocks for clocks in walked)
    if image.h * image.w > 1:
        means, run = deal_mean(image, threads)
        texels = means.steps * run
        slots, folds = texels * (cost.texel_slots + LANES), len(means.folds) * cost.barrier_clocks
        texture = texels / machine.texels_of(storage_bytes)
        busiest += a_wave * max(slots / machine.lanes, texture) + folds / 2
        serial += math.ceil(texels / MOST_UNROLLED) * rates.texture_latency_clocks
        serial += a_wave / rates.threads_a_slot * slots + folds
    return busiest, serial


def _operations(graph: Graph, node: Node) -> int:
    """Count the additions of a mean, and what is applied to the first product."""
    x = graph.operand(node.inputs[0]).extents
    pixels = x.h * x.w
    return finish_operations(graph, node) + (pixels * x.c if pixels > 1 else 0)


OPERATORS = (
    Operator(
        name=EXCITE,
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=excite_rule,
        # Each weight of both products once.
        multiply_adds=lambda graph, node: sum(size_of(graph, n) for n in node.inputs[1:3]),
        operations=_operations,
    ),
)
