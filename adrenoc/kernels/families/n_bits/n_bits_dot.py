"""Products of many tokens in signed bytes by weights of few bits, by dot products.

The loops are those of `DotConv`, a 1x1 convolution of bytes.  A work-group brings words of
weights to local memory, where those of fewer than 8 bits become bytes by a shift and a mask.  A
k-step is one group of inputs: its sum is a whole number, exact in 32 bits, which is scaled by what
the group of the token and the block of the weights have as their scales, and added up in float.

```
part.xyzw = zero of the token's group
part.xyzw += dot(word of the token, weights.xyzw)            for each word of the group
sum.xyzw  += part.xyzw * scale of the token * scales.xyzw
```

Tokens are rounded some numbers at a time, with a scale of their own.  They are what dot products
multiply by weights of few bits, as these stand in their words: byte number i of a word that is
shifted by j numbers is input `i * 8 / bits + j` of it.  So the bytes of a token lie in this order,
and no weight has to be moved.

Behind the bytes each group has four words more: its scale; what the zero point of the weights adds
to the sum of its products; the sum of its numbers, which zero points of their own multiply; none.

The records of all products by weights of few bits are at the end.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

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
    load_vector,
    maximum,
    pack_bytes,
    round_numbers,
    splat,
    tirx,
)
from adrenoc.importers.relax.own import N_BITS
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.layout import FLOAT_BYTES, LANES, WORDS, channels_last
from adrenoc.kernels.access import BytesAccess
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.conv_tile_local import (
    ThreadCounts,
    bytes_of,
    local_candidates,
    local_counts,
    waves_of,
    weights_of,
)
from adrenoc.kernels.families.conv.local_conv import vectors_added
from adrenoc.kernels.families.conv.local_inputs import DotConv
from adrenoc.kernels.families.n_bits.n_bits import (
    WORD_BITS,
    NBitsWeights,
    declare_weights,
    few_tokens_rule,
    suits_few,
    word_inputs,
)
from adrenoc.kernels.families.n_bits.n_bits_matrix import (
    find_block,
    many_tokens_rule,
    matrix_work,
    place_weights,
    score_matrix_tiles,
    share_out,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import POINT, ConvTile, ConvWork
from adrenoc.kernels.families.shared.conv_weights import SIXTEEN, WORD_BYTES, vectors_held
from adrenoc.kernels.families.shared.machine import MOST_KNOWN, CostModel, Machine, Scored
from adrenoc.kernels.families.shared.operator import (
    Along,
    Batch,
    Kind,
    NotKnownError,
    Numbers,
    Operator,
    TypicalRun,
    channel_of_result,
    channels_last_at,
    count_per_input_element,
    size_of,
)
from adrenoc.kernels.families.shared.row_product import (
    JOINED,
    N_BITS_DOT,
    ROUND_TOKENS,
    extents_read,
    read_form,
)
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, combine_lanes, sum_lanes, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

ROUNDING = "rounding"
"""Attribute of both nodes: how the tokens are rounded."""
BYTE_BITS = 8
MOST = 127
"""The largest number of a byte that is used: as far below zero as above."""
_SIGNS = 0x80808080
MOST_GROUP = 32
"""Inputs that share a scale: fewer round finer, more add less beside the products."""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How tokens of so many inputs are rounded for weights of these bits and blocks.  Both are
    whole numbers of groups.  `zero` is the zero point of all weights, 0 where they have zero points
    of their own."""

    inputs: int
    block: int
    bits: int
    zero: int

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return min(self.block, MOST_GROUP)

    @property
    def groups(self) -> int:
        """Groups of a token."""
        return self.inputs // self.group

    @property
    def first_beside(self) -> int:
        """Sixteens of bytes before the words that a group has beside its bytes."""
        return self.inputs // SIXTEEN

    @property
    def channels(self) -> int:
        """Bytes of a token, with what lies behind its numbers."""
        return (self.first_beside + self.groups) * SIXTEEN


def explain_not_rounded(inputs: int, block: int) -> str:
    """Return why products of this form have no kernel of dot products, if so."""
    if block != SIXTEEN and block % MOST_GROUP:
        return f"blocks of {block} inputs, expected 16 or whole groups of {MOST_GROUP}"
    if inputs % block:
        return f"{inputs} inputs are no whole number of blocks of {block}"
    return ""


def round_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that rounds tokens: a thread has one group of one of them.

    Shapes:
        x: roles N, H, W of any extents, C = inputs
        out: the same, C = `rounding.channels`, in bytes
    """
    rounding: Rounding = node.attrs[ROUNDING]
    kernel = context.kernel(node, "round_tokens")
    x, builder = kernel.input(node.inputs[0]), kernel.builder
    out, _ = kernel.output()
    if not isinstance(out, BytesAccess):
        raise ValueError(f"{node.output} does not lie in bytes")
    e = x.extents
    w, h, deep = builder.threads(e.w, e.h, e.n * rounding.groups)
    group = floormod(deep, rounding.groups) if e.n > 1 else deep
    group = builder.let(group, "group")
    n = builder.let(floordiv(deep, rounding.groups), "n") if e.n > 1 else iconst(0)
    first = builder.let(group * iconst(rounding.group // LANES), "first")
    texels = [
        builder.let(widen(x.texel(n, first + iconst(i), h, w)), "x")
        for i in range(rounding.group // LANES)
    ]
    largest = maximum(texels[0], -texels[0])
    for texel in texels[1:]:
        largest = builder.let(maximum(largest, maximum(texel, -texel)), "largest")
    most = builder.let(combine_lanes(largest, maximum), "most")
    nothing = fconst(0.0, ACCUMULATOR)
    factor = if_then_else(most > nothing, fconst(float(MOST), ACCUMULATOR) / most, nothing)
    factor = splat(builder.let(factor, "factor"))
    numbers = [builder.let(round_numbers(texel * factor), "q") for texel in texels]
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    total = builder.let(sum_lanes(builder.let(total, "t")), "total")
    _store_bytes(builder, rounding, numbers, out, (n, group, h, w))
    scale = builder.let(most * fconst(1.0 / MOST, ACCUMULATOR), "scale")
    beside = (
        _read_as_word(scale),
        cast(cast(total * fconst(float(-rounding.zero), ACCUMULATOR), "int32"), "uint32"),
        _read_as_word(scale * total),
        tirx.const(0, "uint32"),  # read by nobody, and the same in each run
    )
    plane = group + iconst(rounding.first_beside)
    for place, word in enumerate(beside):
        out.put(n, plane, h, w, place, word)
    return kernel.call()


def _store_bytes(
    builder: KernelBuilder,
    rounding: Rounding,
    numbers: list[Expr],
    out: BytesAccess,
    place: tuple[Expr, Expr, Expr, Expr],
) -> None:
    """Store a group's numbers in the order in which words of weights have theirs."""
    n, group, h, w = place
    parts, inputs = BYTE_BITS // rounding.bits, word_inputs(rounding.bits)
    first = builder.let(group * iconst(rounding.group // SIXTEEN), "sixteen")
    for word in range(rounding.group // LANES):
        of_weights, shift = divmod(word, parts)
        places = [of_weights * inputs + i * parts + shift for i in range(LANES)]
        chosen = construct([lane(numbers[at // LANES], at % LANES) for at in places])
        above = builder.let(chosen + splat(fconst(float(MOST + 1), ACCUMULATOR)), "above")
        signs = tirx.const(_SIGNS, "uint32")
        signed = builder.let(tirx.BitwiseXor(pack_bytes(above), signs), "bytes")
        out.put(n, first + iconst(word // WORDS), h, w, word % WORDS, signed)


def _read_as_word(number: Expr) -> Expr:
    return tirx.call_pure_extern("uint32", "as_uint", number)


class _DotProducts(DotConv):
    """Whole numbers in parts of sums, floats in sums."""

    sum_dtype = ACCUMULATOR
    part_dtype = "int32"
    long = True

    def __init__(
        self,
        kernel: NodeKernel,
        tile: ConvTile,
        x: BytesAccess,
        rounding: Rounding,
        matrix: NBitsWeights,
    ) -> None:
        """Tokens are as `round_tokens` leaves them.  The inputs are a whole number of k-steps, and
        one of `tile.unroll` input blocks is a group."""
        self.bytes, self._matrix, self._rounding = x, matrix, rounding
        super().__init__(kernel, POINT, tile, x, matrix.words)
        self._row = matrix.words_a_block(self.grid.blocks)
        scales = self.span // tile.unroll * self.group_blocks
        self._scales = self.b.allocate_shared(scales, dtype=ACCUMULATOR)
        self._zeros = None
        if matrix.zeros is not None:
            self._zeros = self.b.allocate_shared(scales, dtype=ACCUMULATOR)
        self._beside: list[Expr] = []
        self._group: Expr = iconst(0)

    def count_inputs(self) -> tuple[int, int]:
        return self._rounding.first_beside, WORDS

    # What a k-step needs

    def begin_step(self, in_block: Expr, done: Expr, row: Expr) -> None:
        group = floordiv(in_block, self.tile.unroll)
        plane = self.b.let(group + iconst(self._rounding.first_beside), "plane")
        self._beside = [
            self.b.let(self.pixel(plane, row, self.col0 + iconst(p)), "beside")
            for p in range(self.tile.pixels)
        ]
        first = floordiv(done, self.tile.unroll) * iconst(self.group_blocks)
        self._group = self.b.let(first + self.band * iconst(self.tile.out_blocks), "sg")

    def begin_parts(self, partial: Registers) -> None:
        for p, beside in enumerate(self._beside):
            partial[p] = splat(cast(lane(beside, 1), "int32"))

    def product(self, pixel: Expr, channel: int, weights: Expr, total: Expr) -> Expr:
        word = lane(pixel, channel)  # signed bytes, by unsigned ones of four words
        return tirx.call_pure_extern("int32x4", "DOT_PRODUCTS_OF", word, weights, total)

    def add_parts(self, partial: Registers, first: int) -> None:
        """Scale the whole sums of a group, and add them."""
        at = self._group + iconst(first // self.tile.pixels)
        scale = self.b.let(self._scales[at], "scale")
        zero = None if self._zeros is None else self.b.let(self._zeros[at], "zero")
        for p, beside in enumerate(self._beside):
            part = cast(partial[p], f"{ACCUMULATOR}x{LANES}") * splat(
                _read_as_float(lane(beside, 0))
            )
            if zero is not None:
                part = part - splat(_read_as_float(lane(beside, 2))) * zero
            self.sums[first + p] = self.sums[first + p] + part * scale

    def finish_sums(self, total: Expr, block: Expr) -> Expr:
        return total

    # What a chunk brings

    def bring(self, start: Expr, span: int, first_load: Expr, shared: SharedArray) -> None:
        """Bring the words of these input blocks, as bytes, and the scales of their groups."""
        inputs = self._matrix.word_inputs
        first = self.b.let(floordiv(start * iconst(SIXTEEN), inputs), "first")
        steps = span * SIXTEEN // inputs
        for item in share_out(self, steps * self.group_blocks):
            self._bring_word(item, first, steps, shared)
        groups = span // self.tile.unroll
        group = self.b.let(floordiv(start, self.tile.unroll), "group")
        for item in share_out(self, groups * self.group_blocks):
            builder, matrix, zero = self.b, self._matrix, iconst(0)
            of_group = builder.let(floormod(item, self.group_blocks), "of")
            mine = builder.let(floordiv(item, self.group_blocks), "mine")
            of_block = matrix.block // self._rounding.group
            block = find_block(self, of_group)
            at = builder.let(floordiv(group + mine, of_block), "at")
            self._scales[item] = widen(matrix.scales.texel(zero, zero, block, at))
            if matrix.zeros is not None and self._zeros is not None:
                self._zeros[item] = widen(matrix.zeros.texel(zero, zero, block, at))

    def _bring_word(self, item: Expr, first: Expr, steps: int, shared: SharedArray) -> None:
        """One word of four outputs: neighbouring threads read neighbouring words."""
        builder, bits = self.b, self._matrix.bits
        of_group = builder.let(floordiv(item, steps), "of")
        mine = builder.let(floormod(item, steps), "mine")
        place = find_block(self, of_group) * iconst(self._row) + first + mine
        loaded = builder.let(load_vector(self._matrix.words.buffer, place, 0, "uint32"), "word")
        blocks, parts = self.tile.out_blocks, BYTE_BITS // bits
        slot = builder.let(mine * iconst(parts), "slot")
        to = floordiv(slot, WORDS) * iconst(self.vectors)
        to = to + floormod(slot, WORDS) * iconst(blocks) + place_weights(self, of_group)
        to = builder.let(to, "to")
        low_ends = sum(((1 << bits) - 1) << at for at in range(0, WORD_BITS, BYTE_BITS))
        mask = tirx.Broadcast(tirx.const(low_ends, "uint32"), LANES)
        for part in range(parts):
            word = loaded
            if part:
                by = tirx.Broadcast(tirx.const(part * bits, "uint32"), LANES)
                word = tirx.RShift(loaded, by)
            if parts > 1:
                word = tirx.BitwiseAnd(word, mask)
            shared[to + iconst(part * blocks)] = word


def _read_as_float(word: Expr) -> Expr:
    return tirx.call_pure_extern(ACCUMULATOR, "as_float", word)


@dataclass(frozen=True, kw_only=True)
class DotWork:
    """A product as estimates see it: the 1x1 convolution of bytes, and what few bits add."""

    conv: ConvWork
    rounding: Rounding
    zeros: bool


def rounding_of(graph: Graph, node: Node) -> Rounding:
    """Return how the tokens of a product by weights of few bits would be rounded."""
    return Rounding(
        inputs=graph.tensors[node.inputs[0]].shape[-1],
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
        zero=0 if node.attrs["zeros"] else int(node.attrs["zero"]),
    )


def dot_work(graph: Graph, node: Node, rounding: Rounding, costs: CostModel) -> DotWork:
    """Return what estimates need of a product, before its tokens are rounded or after."""
    conv = replace(
        matrix_work(graph, node, costs.options),
        in_blocks=rounding.first_beside,
        channels=WORDS,
        storage_bytes=WORD_BYTES,
        half=False,
        texel_work=costs.machine.cost.conv_dot.load_work,
        words=costs.limits.dot_instructions,
        image=None,
    )
    return DotWork(conv=conv, rounding=rounding, zeros=bool(node.attrs["zeros"]))


def dot_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel that multiplies rounded tokens."""
    costs = CostModel(options=context.options, limits=context.limits, machine=context.machine)
    work = dot_work(context.graph, node, node.attrs[ROUNDING], costs)
    tiles = score_dot_tiles(work, context.limits, context.machine)
    tile = context.choose(node, "n_bits_dot", tiles, tiles)
    kernel = context.kernel(node, "n_bits_dot")
    x = kernel.input(node.inputs[0])
    if not isinstance(x, BytesAccess):
        raise ValueError(f"{node.inputs[0]} does not lie in bytes")
    (names,) = read_form(node).matrices
    matrix = declare_weights(kernel, node, names)
    _DotProducts(kernel, tile, x, work.rounding, matrix).emit()
    return kernel.call()


def least_matrix_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return clocks of the product with its weights opened to floats, at best."""
    work, bits = matrix_work(graph, node, costs.options), int(node.attrs["bits"])
    return score_matrix_tiles(work, costs.limits, costs.machine, bits).least


@lru_cache(maxsize=MOST_KNOWN)
def score_dot_tiles(work: DotWork, limits: Limits, machine: Machine) -> Scored[ConvTile]:
    """Return the tiles of the product of rounded tokens, each with its estimate."""
    return Scored(
        lambda: dot_candidates(work, limits, machine.cost),
        lambda tile: dot_clocks(work, tile, machine),
    )


def dot_candidates(work: DotWork, limits: Limits, costs: Cost) -> Iterator[ConvTile]:
    """Yield tiles whose k-steps are single groups of inputs, and whole ones."""
    blocks = work.conv.in_blocks
    for tile in local_candidates(work.conv, limits, costs):
        whole = tile.unroll * SIXTEEN == work.rounding.group and blocks % tile.k_step == 0
        if whole and dot_bytes(work, tile) <= limits.local_mem_bytes:
            yield tile


def dot_bytes(work: DotWork, tile: ConvTile) -> int:
    """Return local memory of a work-group: weights, what belongs to them, and sums of splits."""
    threads = math.prod(tile.work_group or (1, 1, 1))
    span = min(tile.chunk * tile.split_k, work.conv.in_blocks)
    of_group = tile.out_blocks * tile.bands
    weights = vectors_held(LANES * of_group * span, threads, half=False)
    beside = span // tile.unroll * of_group * (1 + work.zeros)
    added = vectors_added(tile.pixels * tile.out_blocks, tile.split_k, threads)
    return (weights + beside + added) * LANES * FLOAT_BYTES


def dot_clocks(work: DotWork, tile: ConvTile, machine: Machine) -> float:
    """Clocks of the 1x1 convolution of bytes, of scaling its parts, and of opening its words."""
    costs, cost, conv = machine.cost.n_bits, machine.cost.pipes, work.conv
    counts: ThreadCounts = local_counts(conv, tile, machine)
    threads = math.prod(tile.work_group or (1, 1, 1))
    sums, parts = tile.pixels * tile.out_blocks, BYTE_BITS // work.rounding.bits
    words = counts.chunks * math.ceil(
        LANES * tile.out_blocks * tile.bands * tile.chunk * tile.split_k / parts / threads
    )
    opening = words * (LANES * 2 * parts + costs.read_slots * 2)
    scaling = counts.k_steps * sums * LANES * (costs.part_vectors + work.zeros)
    texels = counts.k_steps * (counts.texels + tile.pixels)
    alu = counts.alu + opening + scaling + texels * conv.texel_work
    busiest = max(
        machine.wave * alu / machine.lanes,
        machine.wave * texels / machine.texels_of(conv.load_bytes),
    )
    slots = counts.slots + opening + scaling + texels * (1 + conv.texel_work)
    waits = counts.waits + words + counts.k_steps
    serial = machine.slots_a_wave * slots + waits * cost.buffer_latency_clocks
    registers = counts.registers + 2 * tile.pixels
    resident = machine.resident_waves(registers)
    opened = weights_of(conv, tile) * LANES * conv.storage_bytes
    moved = bytes_of(conv, tile) - opened + opened // word_inputs(work.rounding.bits) * LANES
    return machine.hedge(
        busiest,
        counts.reads + words * parts + counts.k_steps * tile.out_blocks * (1 + work.zeros),
        LANES * FLOAT_BYTES,
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves_of(conv, tile, machine.wave), busy, serial, resident),
            machine.memory_clocks(moved),
            resident,
        ),
    )


def round_clocks(work: DotWork, machine: Machine) -> float:
    """Return clocks of rounding the tokens: memory's, for a number is read once."""
    e = work.conv.out
    tokens = e.n * e.h * e.w
    read = tokens * work.rounding.inputs * FLOAT_BYTES
    return machine.memory_clocks(read, tokens * work.rounding.channels) + machine.launch_clocks


def n_bits_rule(context: RuleContext, node: Node) -> KernelCall:
    """`attrs`: `block`, the inputs of a scale, and `zero` where no zero points are inputs.  `gated`
    where a second matrix is there, whose products `parts` finish, and the epsilon as `normed` where
    there are gains."""
    few = suits_few(context.graph.operand(node.output).extents, context.cost)
    return (few_tokens_rule if few else many_tokens_rule)(context, node)


def typical_n_bits(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return sums of terms of both signs, alike for all outputs."""
    scales = run.graph.tensors[node.inputs[2]].value
    if scales is None:
        raise NotKnownError
    terms = run.graph.tensors[node.inputs[0]].shape[-1]
    steps = 2.0 ** (int(node.attrs["bits"]) - 2)  # half of what the bits hold on either side
    size = steps * float(np.abs(scales).mean()) * np.sqrt(terms)
    return np.asarray(data[..., :1] * size)


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    if any(tensors[name].value is None for name in node.inputs[1:]):
        return "its weights are computed, expected constants"
    rank = len(tensors[node.inputs[0]].shape)
    return None if channels_last(rank) is not None else f"an operand of rank {rank}"


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along = batch.along.get(node.inputs[0])
    last = len(batch.shape(node.output)) - 1
    return None if along is None or along.axis == last else along


def _terms(graph: Graph, node: Node) -> int:
    return (
        extents_read(graph, node).c
        if node.attrs.get(JOINED)
        else graph.tensors[node.inputs[0]].shape[-1]
    )


def _multiply_adds(graph: Graph, node: Node) -> int:
    return size_of(graph, node.output) * _terms(graph, node) * len(read_form(node).matrices)


OPERATORS = (
    Operator(
        name="n_bits",
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=n_bits_rule,
        relax=N_BITS,
        refuses=_refuses,
        wants_layout=channels_last_at(0),
        makes_layout=channel_of_result,
        whole_numbers=frozenset((1,)),
        reads_often=True,
        follows_batch=_follows_batch,
        multiply_adds=_multiply_adds,
        terms=_terms,
        typical=typical_n_bits,
    ),
    Operator(
        name=ROUND_TOKENS,
        kind=Kind.TRANSFORM,
        rule=round_rule,
        numbers=Numbers.COMPUTED,
        operations=count_per_input_element(2),
    ),
    Operator(
        name=N_BITS_DOT,
        kind=Kind.PRODUCT,
        numbers=Numbers.WEIGHTED,
        rule=dot_rule,
        multiply_adds=lambda graph, node: size_of(graph, node.output) * node.attrs[ROUNDING].inputs,
    ),
)
