"""Products by a constant matrix whose weights stay in 4 bits, in blocks with scales of their own.

A word holds eight inputs of one output, and one read of 16 bytes those of four outputs.  A thread
makes some blocks of four outputs for some tokens; a team of threads shares the inputs (split K),
and its members read neighbouring words, so that a wave reads whole cache lines.

A number is not moved to the low bits before it is converted: its place there is a power of two, by
which the token's number is divided instead, once for all outputs.  The zero point of a block is
taken off by the sum of the token's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.families.n_bits.opened import WORD_INPUTS, place_of, take_number
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.team import ACCUMULATOR, Team, plus
from adrenoc.kernels.walk import widen
from adrenoc.tvmapi import (
    Expr,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_vector,
    minimum,
    splat,
)

_TEXELS = WORD_INPUTS // LANES


@dataclass(frozen=True, kw_only=True)
class NBitsTile:
    """`work_group` is (threads that share outputs, of blocks of these, of tokens).

    `tokens` and `blocks` are those of one thread, `unroll` the words that it asks for at a time.
    """

    work_group: tuple[int, int, int]
    tokens: int
    blocks: int
    unroll: int

    @property
    def splits(self) -> int:
        """Threads that share the inputs."""
        return self.work_group[0]


@dataclass(frozen=True, kw_only=True)
class NBitsOperands:
    """What the kernel reads; `zero` without zero points of their own is that of all blocks.

    Shapes:
        x: roles N, H, W of any extents, C = K, a multiple of eight
        words: `pack_words`, flat
        scales, zeros: `pack_blocks`
    """

    x: Access
    words: Access
    scales: Access
    zeros: Access | None
    zero: float
    block: int


def n_bits(
    builder: KernelBuilder,
    tile: NBitsTile,
    operands: NBitsOperands,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit out[t, :] = x[t, :] . weight for each token t, which are all of N, H and W."""
    e = out.extents
    tokens, steps = e.n * e.h * e.w, -(-operands.x.extents.c // WORD_INPUTS)
    groups = -(-e.blocks // tile.blocks)
    _, by, bz = builder.threads(
        tile.splits, groups, -(-tokens // tile.tokens), work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    first = builder.let(by * iconst(tile.blocks), "first")
    blocks = [_keep_within(builder, first + iconst(r), e.blocks) for r in range(tile.blocks)]
    wanted = [bz * iconst(tile.tokens) + iconst(p) for p in range(tile.tokens)]
    places = [_place(builder, _keep_within(builder, t, tokens), out) for t in wanted]
    sums = builder.registers(tile.tokens * tile.blocks, dtype=ACCUMULATOR)
    sums.fill(0.0)
    # The last block of inputs is whole in memory, and there may be fewer of these.
    row = operands.words.spec.shape[0] // (LANES * e.blocks)
    thread = _Thread(builder, operands, row, blocks, places, sums)
    _visit(builder, tile, team, steps, thread)
    count = tile.tokens * tile.blocks
    values = team.fold(builder, [sums[i] for i in range(count)], [plus] * count)
    for p, (n, h, w) in enumerate(places):
        for r, block in enumerate(blocks):
            number = p * tile.blocks + r
            inside = _is_below(wanted[p], tokens, tile.tokens)
            beyond = _is_below(first + iconst(r), e.blocks, tile.blocks * tile.work_group[1])
            with (
                builder.when(team.only(builder, number)),
                builder.when(inside),
                builder.when(beyond),
            ):
                epilogue.write(n, block, h, w, values[number])


def _keep_within(builder: KernelBuilder, number: Expr, count: int) -> Expr:
    """A number that exists: threads beyond the last repeat it."""
    return builder.let(minimum(number, iconst(count - 1)), "at")


def _is_below(number: Expr, count: int, step: int) -> Expr | None:
    return number < iconst(count) if count % step else None


def _place(builder: KernelBuilder, token: Expr, out: Access) -> tuple[Expr, Expr, Expr]:
    """(n, h, w) of a token."""
    e = out.extents
    row = floordiv(token, e.w)
    n, h = floordiv(row, e.h), floormod(row, e.h)
    w = builder.let(floormod(token, e.w), "w") if e.w > 1 else iconst(0)
    return (
        builder.let(n, "n") if e.n > 1 else iconst(0),
        builder.let(h, "h") if e.h > 1 else iconst(0),
        w,
    )


def _visit(
    builder: KernelBuilder, tile: NBitsTile, team: Team, steps: int, thread: _Thread
) -> None:
    """Give a thread its steps of eight inputs, some at a time."""
    rounds, rest = divmod(steps, tile.splits)
    unrolled, single = divmod(rounds, tile.unroll)
    if unrolled:
        with builder.loop(unrolled, "k", rolled=True) as i:
            at = builder.let(i * iconst(tile.unroll * tile.splits) + team.member, "at")
            thread.add([at + iconst(u * tile.splits) for u in range(tile.unroll)])
    for u in range(single):
        thread.add([iconst((unrolled * tile.unroll + u) * tile.splits) + team.member])
    if rest:
        with builder.when(team.member < iconst(rest) if tile.splits > 1 else None):
            thread.add([iconst(rounds * tile.splits) + team.member])


class _Thread:
    """Adds steps of eight inputs to the sums of one thread."""

    def __init__(
        self,
        builder: KernelBuilder,
        operands: NBitsOperands,
        row: int,
        blocks: list[Expr],
        places: list[tuple[Expr, Expr, Expr]],
        sums: Registers,
    ) -> None:
        self._builder, self._operands, self._row = builder, operands, row
        self._blocks, self._places, self._sums = blocks, places, sums

    def add(self, chosen: list[Expr]) -> None:
        """Add some steps: all words are asked for before the first is needed."""
        builder, operands = self._builder, self._operands
        steps = [builder.let(step, "step") for step in chosen]
        words = [
            [
                builder.let(
                    load_vector(
                        operands.words.buffer, block * iconst(self._row) + step, 0, "uint32"
                    ),
                    "word",
                )
                for block in self._blocks
            ]
            for step in steps
        ]
        for step, of_blocks in zip(steps, words, strict=True):
            tokens = [self._token(step, place) for place in self._places]
            group = builder.let(floordiv(step, operands.block // WORD_INPUTS), "group")
            for r, word in enumerate(of_blocks):
                self._add_word(r, word, tokens, group)

    def _token(self, step: Expr, place: tuple[Expr, Expr, Expr]) -> tuple[list[Expr], Expr]:
        """Eight numbers of a token, each divided by its place in a word; and their sum."""
        builder, (n, h, w) = self._builder, place
        divided, total = [], None
        for i in range(_TEXELS):
            block = step * iconst(_TEXELS) + iconst(i)
            texel = builder.let(widen(self._operands.x.texel(n, block, h, w)), "x")
            total = texel if total is None else total + texel
            places = [place_of(LANES * i + j) for j in range(LANES)]
            factors = construct([fconst(f, ACCUMULATOR) for f in places])
            divided.append(builder.let(texel * factors, "xs"))
        assert total is not None
        total = builder.let(total, "t")
        summed = lane(total, 0) + lane(total, 1) + (lane(total, 2) + lane(total, 3))
        numbers = [lane(texel, j) for texel in divided for j in range(LANES)]
        return numbers, builder.let(summed, "sum")

    def _add_word(
        self, r: int, word: Expr, tokens: list[tuple[list[Expr], Expr]], group: Expr
    ) -> None:
        builder, operands = self._builder, self._operands
        parts: list[Expr] = []
        for i in range(WORD_INPUTS):
            column = take_number(builder, word, i)
            for p, (numbers, _) in enumerate(tokens):
                product = splat(numbers[i]) * column
                if i == 0:
                    parts.append(product)
                else:
                    parts[p] = builder.let(parts[p] + product, "part")
        block, zero = self._blocks[r], iconst(0)
        scale = builder.let(widen(operands.scales.texel(zero, zero, block, group)), "scale")
        offset = splat(fconst(operands.zero, ACCUMULATOR))
        if operands.zeros is not None:
            offset = builder.let(widen(operands.zeros.texel(zero, zero, block, group)), "zero")
        for p, (_, summed) in enumerate(tokens):
            number = p * len(self._blocks) + r
            self._sums[number] = self._sums[number] + scale * (parts[p] - offset * splat(summed))


def pack_words(packed: np.ndarray) -> np.ndarray:
    """Pack bytes [N, blocks, block / 2], low bits first, as words of eight inputs, flat.

    The order is [block of four outputs, eight inputs, output].
    """
    outputs = packed.shape[0]
    padded = np.zeros((-(-outputs // LANES) * LANES, packed[0].size), np.uint8)
    padded[:outputs] = packed.reshape(outputs, -1)
    words = padded.view("<u4").reshape(-1, LANES, padded.shape[1] * 2 // WORD_INPUTS)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(-1)


def pack_blocks(values: np.ndarray) -> np.ndarray:
    """Pack one number of each block [N, blocks] as texels of four outputs."""
    outputs, blocks = values.shape
    padded = np.zeros((-(-outputs // LANES) * LANES, blocks), values.dtype)
    padded[:outputs] = values
    return np.ascontiguousarray(padded.reshape(1, -1, LANES, blocks).transpose(0, 1, 3, 2))
