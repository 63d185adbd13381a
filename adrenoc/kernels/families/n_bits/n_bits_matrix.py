"""Products of many tokens by weights of few bits, which are opened once for all of a work-group.

It is the 1x1 convolution whose weights lie in local memory (`local_conv.py`): what brings them
there reads words of some inputs of four outputs, and leaves the numbers that they stand for.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    load_vector,
    minimum,
    splat,
)
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.options import CompileOptions
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.conv.conv_tile_local import (
    bytes_of,
    local_candidates,
    local_counts,
    vector_bytes,
    waves_of,
    weights_of,
)
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.n_bits.n_bits import (
    NBitsWeights,
    declare_weights,
    take_number,
    word_inputs,
)
from adrenoc.kernels.families.shared.context import KernelCall, NodeKernel, RuleContext
from adrenoc.kernels.families.shared.conv_geometry import POINT, ConvTile, ConvWork, pointwise_work
from adrenoc.kernels.families.shared.machine import (
    MOST_KNOWN,
    Column,
    Machine,
    Scored,
    TileTable,
    larger,
    round_up,
)
from adrenoc.kernels.families.shared.row_product import declare_token, read_form
from adrenoc.kernels.statements import SharedArray
from adrenoc.kernels.walk import ACCUMULATOR, adds_in_runs, widen
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import Limits

HALF_BYTES = 2


def many_tokens_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of out[t, :] = x[t, :] . weight: the weights are opened once for all."""
    work = matrix_work(context.graph, node, context.options)
    tiles = score_matrix_tiles(work, context.limits, context.machine, int(node.attrs["bits"]))
    tile = context.choose(node, "n_bits_matrix", tiles, tiles)
    kernel = context.kernel(node, "n_bits_matrix", half=work.half)
    (names,) = read_form(node).matrices
    x = declare_token(kernel, node)
    _Opening(kernel, tile, x, declare_weights(kernel, node, names)).emit()
    return kernel.call()


def matrix_work(graph: Graph, node: Node, options: CompileOptions) -> ConvWork:
    """Return a product of many tokens as the 1x1 convolution that it is."""
    return replace(pointwise_work(graph, node, options), textures=False)


@lru_cache(maxsize=MOST_KNOWN)
def score_matrix_tiles(
    work: ConvWork, limits: Limits, machine: Machine, bits: int
) -> Scored[ConvTile]:
    """Return the tiles of a product of many tokens, each with its estimate."""
    return Scored(
        lambda: matrix_candidates(work, limits, machine.cost, bits),
        lambda tile: matrix_clocks(work, tile, machine, bits),
    )


def matrix_candidates(
    work: ConvWork, limits: Limits, costs: Cost, bits: int
) -> TileTable[ConvTile]:
    """Return tiles that bring whole words."""
    tiles = local_candidates(work, limits, costs)
    return tiles.where(lambda tile: tile.chunk * tile.split_k * LANES % word_inputs(bits) == 0)


def matrix_clocks(work: ConvWork, tile: ConvTile, machine: Machine, bits: int) -> Column:
    """Return clocks of the 1x1 convolution, and of opening its weights for each work-group."""
    costs, cost = machine.cost.n_bits, machine.cost.pipes
    counts = local_counts(work, tile, machine)
    threads = math.prod(tile.work_group or (1, 1, 1))
    vectors = LANES * tile.out_blocks * tile.bands * tile.chunk * tile.split_k
    words = counts.chunks * round_up(vectors / word_inputs(bits) / threads)
    stored = words * word_inputs(bits)
    opening = stored * costs.open_slots + words * costs.read_slots * 2
    texels = counts.k_steps * counts.texels
    alu = counts.alu + opening + machine.cost.conv_local.texel_alu * texels
    busiest = larger(
        machine.wave * alu / machine.lanes,
        machine.wave * texels / machine.texels_of(work.load_bytes),
    )
    slots = counts.slots + opening + (1 + machine.cost.conv_local.texel_slots) * texels
    waits = counts.waits + words + counts.k_steps
    serial = machine.slots_a_wave * slots + waits * cost.buffer_latency_clocks
    resident = machine.resident_waves(counts.registers)
    waves = waves_of(work, tile, machine.wave)
    opened = weights_of(work, tile) * LANES * work.storage_bytes
    moved = bytes_of(work, tile) - opened + opened // word_inputs(bits)
    return machine.hedge(
        busiest,
        counts.reads + stored,
        vector_bytes(work),
        lambda busy: machine.overlap_with_memory(
            machine.clocks(waves, busy, serial, resident), machine.memory_clocks(moved), resident
        ),
    )


def unpack_word(
    builder: KernelBuilder, word: Expr, scale: Expr, offset: Expr, bits: int
) -> Iterator[Expr]:
    """Yield number times scale less offset, for each input of a word.  Each is emitted when it is
    asked for: what is stored before the next one is opened leaves its registers to it.  Eight open
    numbers at a time halve the threads that a GPU keeps in flight."""
    for number in range(word_inputs(bits)):
        factor = scale * splat(fconst(2.0 ** (-bits * number), ACCUMULATOR)) if number else scale
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
    blocks, builder = kernel.group_blocks, kernel.b
    block = builder.let(kernel.channel_group * iconst(blocks) + of_group, "block")
    if kernel.channel_groups * blocks > kernel.grid.blocks:
        block = builder.let(minimum(block, iconst(kernel.grid.blocks - 1)), "block")
    return block


def place_weights(kernel: LocalConv, of_group: Expr) -> Expr:
    """Return where its weights begin among those of an input block in local memory."""
    blocks = kernel.tile.out_blocks
    band = floordiv(of_group, blocks) * iconst(LANES * blocks)
    return band + floormod(of_group, blocks)


class _Opening(LocalConv):
    """A 1x1 convolution whose weights are opened as they are brought."""

    def __init__(self, kernel: NodeKernel, tile: ConvTile, x: Access, matrix: NBitsWeights) -> None:
        super().__init__(kernel, POINT, tile, x, matrix.words)
        self.long = adds_in_runs(self.out, self.window * LANES // tile.split_k)
        self._matrix = matrix
        self._blocks_a_word = matrix.word_inputs // LANES
        self._row = matrix.words_a_block(self.grid.blocks)

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
        step, there = first + local_step, self.blocks // self._blocks_a_word
        at_step = builder.let(minimum(step, iconst(there - 1)), "step")
        block = find_block(self, of_group)
        place = block * iconst(self._row) + at_step
        word = builder.let(load_vector(operands.words.buffer, place, 0, "uint32"), "word")
        words_a_block, zero = operands.block // operands.word_inputs, iconst(0)
        group = builder.let(floordiv(at_step, words_a_block), "group")
        with builder.computing(ACCUMULATOR):
            scale = widen(operands.scales.texel(zero, zero, block, group))
            if self.window > self.blocks:
                nothing = splat(fconst(0.0, ACCUMULATOR))
                scale = if_then_else(step < iconst(there), scale, nothing)
            scale = builder.let(scale, "scale")
            offset = splat(fconst(operands.zero, ACCUMULATOR))
            if operands.zeros is not None:
                offset = widen(operands.zeros.texel(zero, zero, block, group))
            offset = builder.let(scale * offset, "offset")
        vectors = self._blocks_a_word * self.vectors
        to = builder.let(local_step * iconst(vectors) + place_weights(self, of_group), "to")
        for number, value in enumerate(unpack_word(builder, word, scale, offset, operands.bits)):
            at = number // LANES * self.vectors + number % LANES * self.tile.out_blocks
            shared[to + iconst(at)] = cast(value, f"{builder.compute}x{LANES}")
