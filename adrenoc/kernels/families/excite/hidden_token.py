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
from adrenoc.kernels.families.matmul.gemv import GemvOperands, GemvTile, add_products
from adrenoc.kernels.families.shared.local_token import LocalToken
from adrenoc.kernels.families.shared.row_product import begin_token
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import Position, each_texel, region_along, visits, widen
from adrenoc.kernels.work_group import power_of_two, power_of_two_within


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
        width = mean_team(e, threads)
        team = _deal_out(builder, member, threads, width)
        means = builder.allocate_shared(e.blocks, dtype=ACCUMULATOR)
        held = builder.allocate_shared(threads, dtype=ACCUMULATOR) if width > 1 else None
        sums = builder.registers(1, dtype=ACCUMULATOR)
        zero, share = iconst(0), fconst(1.0 / (e.h * e.w), ACCUMULATOR)
        region = region_along(e, "HW", Position(zero, zero, zero, zero))
        runs = Runs(builder, sums, [0], visits(region, team))

        def visit(position: Position, _: int) -> None:
            runs[0] = runs[0] + builder.let(widen(self._image.texel(*position)), "x")

        with builder.loop(math.ceil(e.blocks / team.count), "round", rolled=True) as turn:
            block = builder.let(turn * iconst(team.count) + team.index, "block")
            exists = block < iconst(e.blocks) if e.blocks % team.count else None
            sums.fill(0.0)
            with builder.when(exists):
                start = Position(zero, block, zero, zero)
                each_texel(builder, region_along(e, "HW", start), visit, team, runs)
            (total,) = team.fold(builder, [sums[0]], [plus], held=held)
            with builder.when(exists), builder.when(_is_first(team)):
                means[block] = total * splat(share)
            if held is not None:
                builder.barrier()
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
        width = hidden_team(self._x.extents.blocks, blocks, threads)
        team = _deal_out(builder, member, threads, width)
        tile = GemvTile(work_group=(width, team.count, 1), unroll=self._unroll)
        hidden = builder.allocate_shared(blocks, dtype=ACCUMULATOR)
        held = builder.allocate_shared(threads, dtype=ACCUMULATOR) if width > 1 else None
        sums = builder.registers(1, dtype=ACCUMULATOR)
        operands = GemvOperands(x=self._x, weights=(self._weights,))
        with builder.loop(math.ceil(blocks / team.count), "round", rolled=True) as turn:
            block = builder.let(turn * iconst(team.count) + team.index, "block")
            exists = block < iconst(blocks) if blocks % team.count else None
            sums.fill(0.0)
            with builder.when(exists):
                add_products(builder, tile, team, operands, [(0, 0, 0)], block, sums)
            (total,) = team.fold(builder, [sums[0]], [plus], held=held)
            with builder.when(exists), builder.when(_is_first(team)):
                hidden[block] = widen(self._finish.value(zero, block, zero, zero, total))
            if held is not None:
                builder.barrier()
        return hidden


def mean_team(image: Extents, threads: int) -> int:
    """Return how many of so many threads share a channel block of a mean: the fewest steps."""
    pixels = image.h * image.w
    widths = (1 << i for i in range(threads.bit_length()))
    return min(widths, key=lambda width: mean_steps(pixels, image.blocks, width, threads))


def mean_steps(pixels: int, blocks: int, width: int, threads: int) -> int:
    """Return how many texels a thread reads one after the other."""
    return math.ceil(blocks * width / threads) * math.ceil(pixels / width)


def hidden_team(in_blocks: int, out_blocks: int, threads: int) -> int:
    """Return how many of so many threads share a block of a hidden layer."""
    return max(1, min(threads // power_of_two(out_blocks), power_of_two_within(in_blocks)))


def token_bytes(image: Extents, hidden_blocks: int, threads: int) -> int:
    """Local memory of the hidden layer, of the mean before it, and of what teams fold."""
    vectors = hidden_blocks
    if hidden_team(image.blocks, hidden_blocks, threads) > 1:
        vectors += threads
    if image.h * image.w > 1:
        vectors += image.blocks + (threads if mean_team(image, threads) > 1 else 0)
    return vectors * LANES * FLOAT_BYTES


def _deal_out(builder: KernelBuilder, member: Expr, threads: int, width: int) -> Team:
    """Return the team of thread `member`: its neighbours."""
    return Team(
        width=width,
        count=threads // width,
        member=builder.let(floormod(member, width), "member") if width > 1 else iconst(0),
        index=builder.let(floordiv(member, width), "team") if width > 1 else member,
    )


def _is_first(team: Team) -> Expr | None:
    return team.member < iconst(1) if team.width > 1 else None
