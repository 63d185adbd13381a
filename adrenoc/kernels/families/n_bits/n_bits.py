"""Products by a constant matrix whose weights stay in 2, 4 or 8 bits, in blocks with their scales.

A word holds some inputs of one output, of 4 bits eight, and one read of 16 bytes those of four
outputs.  A thread makes some blocks of four outputs for some tokens; a team of threads shares the
inputs (split K), and its members read neighbouring words, so that a wave reads whole cache lines.

A norm of the tokens costs two instructions a step, and no kernel: its gains multiply what is read,
and its scale, of the squares that the team adds up beside the products, what comes out.

A number is not moved to the low bits before it is converted: its place there is a power of two, by
which the token's number is divided instead, once for all outputs.  The zero point of a block is
taken off by the sum of the token's numbers.

Of many tokens, weights are opened once for all of a work-group: it is the 1x1 convolution whose
weights lie in local memory (`local_conv.py`): what brings them there reads words of some inputs of
four outputs, and leaves the numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    load_texel,
    load_vector,
    minimum,
    splat,
    tirx,
)
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.local_conv import LocalConv, plan_of
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry, ConvTile
from adrenoc.kernels.families.shared.row_product import RowNorm, begin_token, give_gate
from adrenoc.kernels.fused_bodies import Epilogue, Finished
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, Team, adds_in_runs, plus, sum_lanes, widen

WORD_BITS = 32


def word_inputs(bits: int) -> int:
    """Return inputs of a word: of 4 bits, two texels of a token."""
    return WORD_BITS // bits


def take_number(builder: KernelBuilder, word: Expr, number: int, bits: int) -> Expr:
    """Mask one number of each of four words: it is times 2 to the power `bits * number`."""
    mask = tirx.Broadcast(tirx.const(((1 << bits) - 1) << (bits * number), "uint32"), LANES)
    return builder.let(cast(tirx.BitwiseAnd(word, mask), f"{ACCUMULATOR}x{LANES}"), "q")


def unshift_factor(number: int, bits: int) -> float:
    """Return 2 to the power `-bits * number`: it moves a masked number to the lowest bits."""
    return float(2.0 ** (-bits * number))


def unpack_word(
    builder: KernelBuilder, word: Expr, scale: Expr, offset: Expr, bits: int
) -> Iterator[Expr]:
    """Yield number times scale less offset, for each input of a word.

    Each is emitted when it is asked for: what is stored before the next one is opened leaves its
    registers to it.  Eight open numbers at a time halve the threads that a GPU keeps in flight.
    """
    for number in range(word_inputs(bits)):
        factor = (
            scale * splat(fconst(unshift_factor(number, bits), ACCUMULATOR)) if number else scale
        )
        product = take_number(builder, word, number, bits) * builder.let(factor, "factor")
        yield builder.let(product - offset, "opened")


def share_out(kernel: LocalConv, items: int) -> Iterator[Expr]:
    """Give each thread its numbers of so many items; what is emitted meanwhile is for one."""
    builder, threads = kernel.b, kernel.threads
    for done in range(0, items, threads):
        item = builder.let(kernel.thread + iconst(done), "item")
        with builder.when(item < iconst(items) if items - done < threads else None):
            yield item


def find_block(kernel: LocalConv, of_group: Expr) -> Expr:
    """Return output block `of_group` of the work-group; the last one where there is none."""
    blocks, builder = kernel.tile.out_blocks * kernel.tile.bands, kernel.b
    block = builder.let(kernel.channel_group * iconst(blocks) + of_group, "block")
    if kernel.plan.channel_groups * blocks > kernel.grid.blocks:
        block = builder.let(minimum(block, iconst(kernel.grid.blocks - 1)), "block")
    return block


def place_weights(kernel: LocalConv, of_group: Expr) -> Expr:
    """Return where its weights begin among those of an input block in local memory."""
    blocks = kernel.tile.out_blocks
    band = floordiv(of_group, blocks) * iconst(LANES * blocks)
    return band + floormod(of_group, blocks)


WORD_BYTES = 4


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
class NBitsWeights:
    """A matrix; `zero` without zero points of their own is that of all blocks.

    Shapes:
        words: `pack_words`, flat
        scales, zeros: `pack_blocks`
    """

    words: Access
    scales: Access
    zeros: Access | None
    zero: float
    block: int
    bits: int

    @property
    def word_inputs(self) -> int:
        """Inputs of a word."""
        return word_inputs(self.bits)

    def words_a_block(self, out_blocks: int) -> int:
        """Words of each output of a block: those of whole blocks of inputs, if there are fewer."""
        return int(self.words.spec.shape[0]) // (LANES * out_blocks)


@dataclass(frozen=True, kw_only=True)
class NBitsOperands:
    """What the kernel reads: of each token all numbers, perhaps as a norm leaves them.

    With two matrices, `finish` makes of the second's products what the epilogue reads beside those
    of the first.

    Shapes:
        x: roles N, H, W of any extents, C = K, of whole words
    """

    x: Access
    weights: tuple[NBitsWeights, ...]
    norm: RowNorm | None = None
    finish: Finished | None = None


def n_bits(
    builder: KernelBuilder,
    tile: NBitsTile,
    operands: NBitsOperands,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit out[t, :] = x[t, :] . weight for each token t, which are all of N, H and W."""
    e = out.extents
    tokens, steps = e.n * e.h * e.w, -(-operands.x.extents.c // operands.weights[0].word_inputs)
    groups = -(-e.blocks // tile.blocks)
    _, by, bz = builder.threads(
        tile.splits, groups, -(-tokens // tile.tokens), work_group=tile.work_group, cooperate=True
    )
    team = Team.make_along_x(builder, tile.work_group)
    begin_token(operands.x, tile.work_group)
    first = builder.let(by * iconst(tile.blocks), "first")
    blocks = [_keep_within(builder, first + iconst(r), e.blocks) for r in range(tile.blocks)]
    wanted = [bz * iconst(tile.tokens) + iconst(p) for p in range(tile.tokens)]
    places = [_place(builder, _keep_within(builder, t, tokens), out) for t in wanted]
    thread = _Thread(builder, operands, e.blocks, blocks, places)
    _visit(builder, tile, team, steps, thread)
    found = thread.fold(team)
    for p, (n, h, w) in enumerate(places):
        for r, block in enumerate(blocks):
            inside = _is_below(wanted[p], tokens, tile.tokens)
            beyond = _is_below(first + iconst(r), e.blocks, tile.blocks * tile.work_group[1])
            with (
                builder.when(team.store_condition(builder, p * tile.blocks + r)),
                builder.when(inside),
                builder.when(beyond),
            ):
                value, *others = found[p][r]
                given = give_gate(operands.finish, (n, block, h, w), others)
                epilogue.write(n, block, h, w, value, given)


def _keep_within(builder: KernelBuilder, number: Expr, count: int) -> Expr:
    """Return a number that exists: threads beyond the last repeat it."""
    return builder.let(minimum(number, iconst(count - 1)), "at")


def _is_below(number: Expr, count: int, step: int) -> Expr | None:
    return number < iconst(count) if count % step else None


def _place(builder: KernelBuilder, token: Expr, out: Access) -> tuple[Expr, Expr, Expr]:
    """Return (n, h, w) of a token."""
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
    """Give a thread its steps of a word, some at a time."""
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
    """Adds steps of a word to the sums of one thread."""

    def __init__(
        self,
        builder: KernelBuilder,
        operands: NBitsOperands,
        out_blocks: int,
        blocks: list[Expr],
        places: list[tuple[Expr, Expr, Expr]],
    ) -> None:
        self._builder, self._operands = builder, operands
        self._blocks, self._places = blocks, places
        self._row = operands.weights[0].words_a_block(out_blocks)
        count = len(places) * len(blocks) * len(operands.weights)
        self._sums = builder.registers(count, dtype=ACCUMULATOR)
        self._sums.fill(0.0)
        if operands.norm is not None:
            self._squares = builder.registers(len(places), dtype=ACCUMULATOR)
            self._squares.fill(0.0)

    def add(self, chosen: list[Expr]) -> None:
        """Add some steps: all words are asked for before the first is needed."""
        builder = self._builder
        steps = [builder.let(step, "step") for step in chosen]
        words = [
            [self._word(matrix, block, step) for matrix in self._operands.weights]
            for step in steps
            for block in self._blocks
        ]
        for number, step in enumerate(steps):
            tokens = self._tokens(step)
            for r in range(len(self._blocks)):
                of_block = words[number * len(self._blocks) + r]
                for s, (matrix, word) in enumerate(
                    zip(self._operands.weights, of_block, strict=True)
                ):
                    self._add_word(matrix, (s, r), word, tokens, step)

    def fold(self, team: Team) -> list[list[list[Expr]]]:
        """Return the sums of all members, by token, by block, by matrix."""
        builder, norm = self._builder, self._operands.norm
        count = len(self._places) * len(self._blocks) * len(self._operands.weights)
        values = [self._sums[i] for i in range(count)]
        if norm is not None:
            values += [self._squares[p] for p in range(len(self._places))]
        folded = team.fold(builder, values, [plus] * len(values))
        found = []
        for p in range(len(self._places)):
            scale = None
            if norm is not None:
                scale = norm.scale(builder, folded[count + p], self._operands.x.extents.c)
            of_token = [
                [folded[self._number(s, p, r)] for s in range(len(self._operands.weights))]
                for r in range(len(self._blocks))
            ]
            if scale is not None:
                of_token = [[value * scale for value in values] for values in of_token]
            found.append(of_token)
        return found

    def _number(self, matrix: int, token: int, block: int) -> int:
        """Return the number of a sum."""
        return (matrix * len(self._places) + token) * len(self._blocks) + block

    def _word(self, matrix: NBitsWeights, block: Expr, step: Expr) -> Expr:
        at = block * iconst(self._row) + step
        return self._builder.let(load_vector(matrix.words.buffer, at, 0, "uint32"), "word")

    def _tokens(self, step: Expr) -> list[tuple[list[Expr], Expr]]:
        """Return a word's numbers of each token, each divided by its place there; and their sum."""
        builder, norm = self._builder, self._operands.norm
        texels_a_word = self._operands.weights[0].word_inputs // LANES
        blocks = [step * iconst(texels_a_word) + iconst(i) for i in range(texels_a_word)]
        gains = []
        if norm is not None:
            gains = [builder.let(load_texel(norm.gains.buffer, b), "gain") for b in blocks]
        found = []
        for p, (n, h, w) in enumerate(self._places):
            texels = [
                builder.let(widen(self._operands.x.texel(n, block, h, w)), "x") for block in blocks
            ]
            if norm is not None:
                for texel in texels:
                    self._squares[p] = self._squares[p] + texel * texel
                texels = [builder.let(x * g, "x") for x, g in zip(texels, gains, strict=True)]
            found.append(self._divide(texels))
        return found

    def _divide(self, texels: list[Expr]) -> tuple[list[Expr], Expr]:
        builder, bits, divided = self._builder, self._operands.weights[0].bits, []
        for i, texel in enumerate(texels):
            places = [unshift_factor(LANES * i + j, bits) for j in range(LANES)]
            factors = construct([fconst(f, ACCUMULATOR) for f in places])
            divided.append(builder.let(texel * factors, "xs"))
        total = texels[0]
        for texel in texels[1:]:
            total = total + texel
        total = builder.let(total, "t")
        summed = sum_lanes(total)
        numbers = [lane(texel, j) for texel in divided for j in range(LANES)]
        return numbers, builder.let(summed, "sum")

    def _add_word(
        self,
        matrix: NBitsWeights,
        which: tuple[int, int],
        word: Expr,
        tokens: list[tuple[list[Expr], Expr]],
        step: Expr,
    ) -> None:
        builder = self._builder
        parts: list[Expr] = []
        for i in range(matrix.word_inputs):
            column = take_number(builder, word, i, matrix.bits)
            for p, (numbers, _) in enumerate(tokens):
                product = splat(numbers[i]) * column
                if i == 0:
                    parts.append(product)
                else:
                    parts[p] = builder.let(parts[p] + product, "part")
        block, zero = self._blocks[which[1]], iconst(0)
        group = builder.let(floordiv(step, matrix.block // matrix.word_inputs), "group")
        scale = builder.let(widen(matrix.scales.texel(zero, zero, block, group)), "scale")
        offset = splat(fconst(matrix.zero, ACCUMULATOR))
        if matrix.zeros is not None:
            offset = builder.let(widen(matrix.zeros.texel(zero, zero, block, group)), "zero")
        for p, (_, summed) in enumerate(tokens):
            number = self._number(which[0], p, which[1])
            self._sums[number] = self._sums[number] + scale * (parts[p] - offset * splat(summed))


def pack_words(packed: np.ndarray) -> np.ndarray:
    """Pack bytes [N, blocks, bytes of a block], low bits first, as words, flat.

    The order is [block of four outputs, inputs of a word, output].
    """
    padded = _fill_block(packed.reshape(packed.shape[0], -1))
    words = padded.view("<u4").reshape(-1, LANES, padded.shape[1] // WORD_BYTES)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(-1)


def pack_blocks(values: np.ndarray) -> np.ndarray:
    """Pack one number of each block [N, blocks] as texels of four outputs."""
    padded = _fill_block(values)
    blocks = padded.shape[1]
    return np.ascontiguousarray(padded.reshape(1, -1, LANES, blocks).transpose(0, 1, 3, 2))


def _fill_block(rows: np.ndarray) -> np.ndarray:
    """Return the rows with zeros behind them, a multiple of four; without a copy where they are
    that."""
    lacking = -len(rows) % LANES
    return np.pad(rows, ((0, lacking), (0, 0))) if lacking else np.ascontiguousarray(rows)


POINT = ConvGeometry(kernel=(1, 1))


def n_bits_matrix(
    builder: KernelBuilder, tile: ConvTile, operands: NBitsOperands, out: Access, epilogue: Epilogue
) -> None:
    """Emit out[t, :] = x[t, :] . weight for each token t, which are all of N, H and W."""
    kernel = _Opening(builder, tile, operands, out)
    kernel.accumulate(weights_by_row=False)
    kernel.write(epilogue, out.extents)


class _Opening(LocalConv):
    """A 1x1 convolution whose weights are opened as they are brought."""

    def __init__(
        self, builder: KernelBuilder, tile: ConvTile, operands: NBitsOperands, out: Access
    ) -> None:
        x, grid = operands.x, out.extents
        plan = plan_of(POINT, tile, x.extents, grid)
        super().__init__(builder, POINT, tile, plan, x, operands.weights[0].words, grid)
        self.long = adds_in_runs(out, plan.window * LANES // tile.split_k)
        self._matrix = operands.weights[0]
        self._blocks_a_word = self._matrix.word_inputs // LANES
        self._row = self._matrix.words_a_block(grid.blocks)

    def bring(self, start: Expr, span: int, first_load: Expr, shared: SharedArray) -> None:
        """Open the weights of these input blocks, a word of four outputs at a time."""
        steps = span // self._blocks_a_word
        items = steps * self.tile.out_blocks * self.tile.bands
        first = self.b.let(floordiv(start, self._blocks_a_word), "first")
        for item in share_out(self, items):
            self._open(item, first, steps, shared)

    def _open(self, item: Expr, first: Expr, steps: int, shared: SharedArray) -> None:
        """One word: neighbouring threads read neighbouring words of an output block."""
        builder, operands = self.b, self._matrix
        of_group = builder.let(floordiv(item, steps), "of")
        local_step = builder.let(floormod(item, steps), "mine")
        step, there = first + local_step, self.plan.blocks // self._blocks_a_word
        at_step = builder.let(minimum(step, iconst(there - 1)), "step")
        block = find_block(self, of_group)
        place = block * iconst(self._row) + at_step
        word = builder.let(load_vector(operands.words.buffer, place, 0, "uint32"), "word")
        words_a_block, zero = operands.block // operands.word_inputs, iconst(0)
        group = builder.let(floordiv(at_step, words_a_block), "group")
        with builder.computing(ACCUMULATOR):
            scale = widen(operands.scales.texel(zero, zero, block, group))
            if self.plan.window > self.plan.blocks:
                nothing = splat(fconst(0.0, ACCUMULATOR))
                scale = if_then_else(step < iconst(there), scale, nothing)
            scale = builder.let(scale, "scale")
            offset = splat(fconst(operands.zero, ACCUMULATOR))
            if operands.zeros is not None:
                offset = widen(operands.zeros.texel(zero, zero, block, group))
            offset = builder.let(scale * offset, "offset")
        vectors = self._blocks_a_word * self.plan.vectors
        to = builder.let(local_step * iconst(vectors) + place_weights(self, of_group), "to")
        for number, value in enumerate(unpack_word(builder, word, scale, offset, operands.bits)):
            at = number // LANES * self.plan.vectors + number % LANES * self.tile.out_blocks
            shared[to + iconst(at)] = cast(value, f"{builder.compute}x{LANES}")
