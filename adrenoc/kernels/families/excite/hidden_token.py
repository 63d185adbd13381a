"""A hidden layer, and the mean of an image before it, by the threads of one work-group.

Each work-group of the product after them computes both anew.  Their numbers stay in local memory.
"""

from __future__ import annotations

import math

from adrenoc.base.tvmapi import Expr, fconst, floordiv, floormod, iconst, splat
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Finished
from adrenoc.kernels.families.excite.shared_sums import Deal, add_up, count_texels, deal_out
from adrenoc.kernels.families.matmul.gemv import GemvOperands, GemvTile, add_products
from adrenoc.kernels.families.shared.local_token import LocalToken
from adrenoc.kernels.families.shared.row_product import begin_token
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.team import ACCUMULATOR, Team
from adrenoc.kernels.walk import MOST_UNROLLED, widen

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
        """One vector of the image's channels."""
        return Extents(1, self._image.extents.c, 1, 1)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, e = self._builder, self._image.extents
        deal, run = deal_mean(e, threads)
        pieces, each = e.w // run, deal.parts // deal.width
        means = builder.allocate_shared(e.blocks, dtype=ACCUMULATOR)
        at_once = max(1, MOST_UNROLLED // run)
        zero, share = iconst(0), splat(fconst(1.0 / (e.h * e.w), ACCUMULATOR))

        def add(block: Expr, place: Expr, sums: Registers) -> None:
            runs = Runs(builder, sums, [0], run * math.ceil(deal.parts / deal.width))

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


class HiddenToken(LocalToken):
    """Reads of the hidden layer of so many `channels`: a product of a vector, finished.

    Shapes:
        x: C = K of N = H = W = 1
        weights: `weights.pack_conv` of [channels, K, 1, 1]
    """

    def __init__(
        self,
        builder: KernelBuilder,
        x: Access,
        weights: Access,
        finish: Finished,
        channels: int,
        unroll: int,
    ) -> None:
        super().__init__(builder, x)
        self._x, self._weights, self._finish = x, weights, finish
        self._channels, self._unroll = channels, unroll

    @property
    def extents(self) -> Extents:
        """One vector of the hidden channels."""
        return Extents(1, self._channels, 1, 1)

    def begin(self, work_group: tuple[int, int, int]) -> None:
        """Compute all numbers, after those that they are products of."""
        begin_token(self._x, work_group)
        super().begin(work_group)

    def _compute(self, member: Expr, threads: int) -> SharedArray:
        builder, blocks, zero = self._builder, self.extents.blocks, iconst(0)
        deal = deal_hidden(self._x.extents.blocks, blocks, threads)
        tile = GemvTile(work_group=(deal.width, 1, 1), unroll=self._unroll)
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
    """Local memory of the hidden layer, of the mean before it, and of partial sums."""
    vectors = hidden_blocks + deal_hidden(image.blocks, hidden_blocks, threads).vectors
    if image.h * image.w > 1:
        vectors += image.blocks + deal_mean(image, threads)[0].vectors
    return vectors * LANES * FLOAT_BYTES
