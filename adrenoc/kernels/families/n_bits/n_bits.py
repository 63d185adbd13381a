"""Products by a constant matrix whose weights stay in 2, 4 or 8 bits, in blocks with their scales.

A word holds some inputs of one output, of 4 bits eight, and one read of 16 bytes those of four
outputs.  A thread makes some blocks of four outputs for some tokens; a team of threads shares the
inputs (split K), and its members read neighbouring words, so that a wave reads whole cache lines.

A norm of the tokens costs two instructions a step, and no kernel: its gains multiply what is read,
and its scale, of the squares that the team adds up beside the products, what comes out.

A number is not moved to the low bits before it is converted: its place there is a power of two, by
which the token's number is divided instead, once for all outputs.  The zero point of a block is
taken off by the sum of the token's numbers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    cast,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    lane,
    load_texel,
    load_vector,
    minimum,
    splat,
    tirx,
)
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import FLOAT_BYTES, LANES, Extents
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder, groups_within, power_of_two
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.families.shared.row_product import (
    NORMED,
    begin_token,
    bytes_of_mix,
    declare_gate,
    declare_norm,
    declare_token,
    extents_read,
    give_gate,
    mix_clocks,
    parts_read,
    read_form,
)
from adrenoc.kernels.walk import ACCUMULATOR, FOLDED_AT_ONCE, Team, plus, sum_lanes, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

WORD_BITS = 32


def word_inputs(bits: int) -> int:
    """Return inputs of a word: of 4 bits, two texels of a token."""
    return WORD_BITS // bits


def take_number(builder: KernelBuilder, word: Expr, number: int, bits: int) -> Expr:
    """Mask one number of each of four words: it is times 2 to the power `bits * number`."""
    mask = tirx.Broadcast(tirx.const(((1 << bits) - 1) << (bits * number), "uint32"), LANES)
    return builder.let(cast(tirx.BitwiseAnd(word, mask), f"{ACCUMULATOR}x{LANES}"), "q")


WORD_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class NBitsTile:
    """`work_group` is (threads that share outputs, of blocks of these, of tokens).  `tokens` and
    `blocks` are those of one thread, `unroll` the words that it asks for at a time."""

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


def pack_words(packed: np.ndarray) -> np.ndarray:
    """Pack bytes [N, blocks, bytes of a block], low bits first, as words, flat.  The order is
    [block of four outputs, inputs of a word, output]."""
    padded = _fill_block(packed.reshape(packed.shape[0], -1))
    words = padded.view("<u4").reshape(-1, LANES, padded.shape[1] // WORD_BYTES)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(-1)


def pack_blocks(values: np.ndarray) -> np.ndarray:
    """Pack one number of each block [N, blocks] as texels of four outputs."""
    padded = _fill_block(values)
    blocks = padded.shape[1]
    return np.ascontiguousarray(padded.reshape(1, -1, LANES, blocks).transpose(0, 1, 3, 2))


def _fill_block(rows: np.ndarray) -> np.ndarray:
    """Return the rows, filled up by zeros to a multiple of four; no copy where they are that."""
    lacking = -len(rows) % LANES
    return np.pad(rows, ((0, lacking), (0, 0))) if lacking else np.ascontiguousarray(rows)


def declare_weights(kernel: NodeKernel, node: Node, names: tuple[str, ...]) -> NBitsWeights:
    """Declare a matrix, with its scales and zero points, as the next arguments."""
    words, scales, *zeros = names
    return NBitsWeights(
        words=kernel.flat(words, "n_bits_words", pack_words, np.asarray, "uint8"),
        scales=kernel.pack_constant(scales, "n_bits", pack_blocks),
        zeros=kernel.pack_constant(zeros[0], "n_bits", pack_blocks) if zeros else None,
        zero=float(node.attrs["zero"]),
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
    )


def few_tokens_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of out[t, :] = x[t, :] . weight for each token t: all of N, H and W.  Few
    tokens wait for their weights, and their sums are in float whatever the preset."""
    work = work_of(context.graph, node, context.options)
    tile = context.search(node, "n_bits", work, candidates, estimate_clocks)
    kernel = context.kernel(node, "n_bits")
    _FewTokens(kernel, tile).emit()
    return kernel.call()


class _FewTokens:
    """One thread: of each token it reads all numbers, perhaps as a norm leaves them.  With two
    matrices, `finish` makes of the second's products what the epilogue reads beside those of the
    first."""

    def __init__(self, kernel: NodeKernel, tile: NBitsTile) -> None:
        node, builder = kernel.node, kernel.builder
        self._builder, self._tile = builder, tile
        self._x = declare_token(kernel, node)
        names = read_form(node).matrices
        self._matrices = [declare_weights(kernel, node, of_one) for of_one in names]
        self._norm, self._finish = declare_norm(kernel, node), declare_gate(kernel, node)
        self._out, self._epilogue = kernel.output()
        e = self._out.extents
        self._token_count, groups = e.n * e.h * e.w, -(-e.blocks // tile.blocks)
        of_z = -(-self._token_count // tile.tokens)
        _, by, bz = builder.threads(
            tile.splits, groups, of_z, work_group=tile.work_group, cooperate=True
        )
        self._team = Team.make_along_x(builder, tile.work_group)
        begin_token(self._x, tile.work_group)
        self._first = builder.let(by * iconst(tile.blocks), "first")
        self._blocks = [
            _keep_within(builder, self._first + iconst(r), e.blocks) for r in range(tile.blocks)
        ]
        self._wanted = [bz * iconst(tile.tokens) + iconst(p) for p in range(tile.tokens)]
        self._places = [
            _place(builder, _keep_within(builder, t, self._token_count), self._out)
            for t in self._wanted
        ]
        self._row = self._matrices[0].words_a_block(e.blocks)
        self._count = len(self._places) * len(self._blocks) * len(self._matrices)
        self._sums = builder.registers(self._count, dtype=ACCUMULATOR, fill=0.0)
        if self._norm is not None:
            self._squares = builder.registers(len(self._places), dtype=ACCUMULATOR, fill=0.0)

    def emit(self) -> None:
        """Emit the sums, and store what the epilogue makes of them."""
        builder, tile, team = self._builder, self._tile, self._team
        steps = -(-self._x.extents.c // self._matrices[0].word_inputs)
        team.deal_out(builder, steps, tile.unroll, "at", self._add)
        found, blocks = self._fold(), self._out.extents.blocks
        for p, (n, h, w) in enumerate(self._places):
            for r, block in enumerate(self._blocks):
                inside = _is_below(self._wanted[p], self._token_count, tile.tokens)
                first = self._first + iconst(r)
                beyond = _is_below(first, blocks, tile.blocks * tile.work_group[1])
                with (
                    builder.when(team.store_condition(builder, p * tile.blocks + r)),
                    builder.when(inside),
                    builder.when(beyond),
                ):
                    value, *others = found[p][r]
                    given = give_gate(self._finish, (n, block, h, w), others)
                    self._epilogue.write(n, block, h, w, value, given)

    def _add(self, chosen: list[Expr]) -> None:
        """Add some steps: all words are asked for before the first is needed."""
        builder = self._builder
        steps = [builder.let(step, "step") for step in chosen]
        words = [
            [self._word(matrix, block, step) for matrix in self._matrices]
            for step in steps
            for block in self._blocks
        ]
        for number, step in enumerate(steps):
            tokens = self._tokens(step)
            for r in range(len(self._blocks)):
                of_block = words[number * len(self._blocks) + r]
                for s, (matrix, word) in enumerate(zip(self._matrices, of_block, strict=True)):
                    self._add_word(matrix, (s, r), word, tokens, step)

    def _fold(self) -> list[list[list[Expr]]]:
        """Return the sums of all members, by token, by block, by matrix."""
        builder, norm, tokens = self._builder, self._norm, range(len(self._places))
        values = [self._sums[i] for i in range(self._count)]
        if norm is not None:
            values += [self._squares[p] for p in tokens]
        folded = self._team.fold(builder, values, [plus] * len(values))
        found = []
        for p in tokens:
            of_token = [
                [folded[self._number(s, p, r)] for s in range(len(self._matrices))]
                for r in range(len(self._blocks))
            ]
            if norm is not None:
                scale = norm.scale(builder, folded[self._count + p], self._x.extents.c)
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
        builder, norm = self._builder, self._norm
        texels_a_word = self._matrices[0].word_inputs // LANES
        blocks = [step * iconst(texels_a_word) + iconst(i) for i in range(texels_a_word)]
        gains = []
        if norm is not None:
            gains = [builder.let(load_texel(norm.gains.buffer, b), "gain") for b in blocks]
        found = []
        for p, (n, h, w) in enumerate(self._places):
            texels = [builder.let(widen(self._x.texel(n, block, h, w)), "x") for block in blocks]
            if norm is not None:
                for texel in texels:
                    self._squares[p] = self._squares[p] + texel * texel
                texels = [builder.let(x * g, "x") for x, g in zip(texels, gains, strict=True)]
            found.append(self._divide(texels))
        return found

    def _divide(self, texels: list[Expr]) -> tuple[list[Expr], Expr]:
        builder, bits, divided = self._builder, self._matrices[0].bits, []
        for i, texel in enumerate(texels):
            places = [2.0 ** (-bits * (LANES * i + j)) for j in range(LANES)]
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


@dataclass(frozen=True, kw_only=True)
class NBitsWork:
    """Extents of a product: tokens, words of some inputs, blocks of four outputs."""

    tokens: int
    steps: int
    word_inputs: int
    out_blocks: int
    storage_bytes: int
    zeros: bool
    matrices: int = 1
    normed: bool = False
    parts: int = 0
    """In how many parts the token comes, each with all of its numbers; 0: whole."""
    mix_bytes: int = 0
    """Local memory that the mix of these takes."""


def work_of(graph: Graph, node: Node, options: CompileOptions) -> NBitsWork:
    """Return the extents of a product of few tokens."""
    e, inputs = graph.operand(node.output).extents, word_inputs(int(node.attrs["bits"]))
    return NBitsWork(
        tokens=e.n * e.h * e.w,
        steps=-(-extents_read(graph, node).c // inputs),
        word_inputs=inputs,
        out_blocks=e.blocks,
        storage_bytes=bytes_of(options.storage_dtype),
        zeros=bool(node.attrs["zeros"]),
        matrices=len(read_form(node).matrices),
        normed=bool(node.attrs.get(NORMED)),
        parts=parts_read(graph, node),
        mix_bytes=bytes_of_mix(graph, node),
    )


def suits_few(out: Extents, cost: Cost) -> bool:
    """Return whether a product has so few tokens that opening its weights for each wins."""
    return out.n * out.h * out.w <= cost.n_bits.few_tokens


def candidates(work: NBitsWork, limits: Limits, costs: Cost) -> Iterator[NBitsTile]:
    """Yield teams of any power of two that the words feed, in groups of up to a wave."""
    cost = costs.n_bits
    for tokens in cost.tokens:
        if tokens > power_of_two(work.tokens) and tokens > 1:
            break
        for blocks in cost.blocks:
            sums = blocks * tokens * work.matrices
            if sums > cost.most_sums or blocks > work.out_blocks:
                continue
            for splits in cost.splits:
                if splits > work.steps:
                    break
                for threads in groups_within(cost.threads, limits):
                    wide = min(threads // splits, power_of_two(-(-work.out_blocks // blocks)))
                    held = (sums + tokens) * splits * wide * LANES * FLOAT_BYTES
                    taken = work.mix_bytes + (held if splits > 1 else 0)
                    if not wide or taken > limits.local_mem_bytes:
                        continue
                    for unroll in cost.unrolls:
                        if unroll == 1 or unroll * splits <= work.steps:
                            yield NBitsTile(
                                work_group=(splits, wide, 1),
                                tokens=tokens,
                                blocks=blocks,
                                unroll=unroll,
                            )


def estimate_clocks(work: NBitsWork, tile: NBitsTile, machine: Machine) -> float:
    """Return clocks of the whole product."""
    cost, rates = machine.cost.n_bits, machine.cost.pipes
    splits, wide, _ = tile.work_group
    steps = math.ceil(work.steps / splits)
    blocks = tile.blocks * work.matrices
    vectors = work.word_inputs * blocks * (cost.unpack_vectors + tile.tokens)
    vectors += tile.tokens * (cost.token_vectors + blocks + 2 * 2 * work.normed)
    reads = blocks * (2 + work.zeros) + 2 * (tile.tokens + work.normed)
    alu = (LANES * vectors + cost.read_slots * reads + cost.loop_slots / tile.unroll) / (
        machine.lanes
    )
    texture = reads / machine.texels_of(work.storage_bytes)
    threads_a_wave = machine.threads_of(splits * wide)
    teams = math.ceil(work.tokens / tile.tokens) * math.ceil(work.out_blocks / tile.blocks)
    waves = math.ceil(teams / wide) * math.ceil(splits * wide / threads_a_wave)
    busiest = threads_a_wave * steps * max(alu, texture)
    sums = tile.tokens * blocks
    held = 2 * sums + (blocks + 2 * tile.tokens) * tile.unroll + cost.other_registers
    registers = held * threads_a_wave / machine.wave
    levels = math.ceil(math.log(splits, FOLDED_AT_ONCE)) if splits > 1 else 0
    serial = (
        math.ceil(steps / tile.unroll) * rates.texture_latency_clocks
        + steps * threads_a_wave / rates.threads_a_slot * LANES * vectors
        + levels * cost.barrier_clocks * (1 + sums / LANES)
    )
    beside = machine.resident_waves(registers)
    read_blocks = work.steps * work.word_inputs // LANES
    mixing, mix_serial = mix_clocks(work.parts, read_blocks, splits * wide, machine)
    passes = math.ceil(work.tokens / tile.tokens)
    weights = passes * work.steps * work.out_blocks * work.matrices * LANES * FLOAT_BYTES
    memory = machine.memory_clocks(weights)
    resident = beside * threads_a_wave / machine.wave
    return machine.hedge(
        busiest + mixing,
        (sums + tile.tokens * work.normed) * fold_visits(splits) * threads_a_wave / machine.wave,
        LANES * FLOAT_BYTES,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial + mix_serial, beside), memory, resident
        ),
    )


def fold_visits(splits: int) -> float:
    """Return how often a wave goes to local memory for each value that a team of so many folds.
    Every wave with a member that folds goes there for all of its threads."""
    if splits == 1:
        return 0.0
    return 2.0 + (FOLDED_AT_ONCE + 1) * math.log(splits, FOLDED_AT_ONCE)
