"""Products of many tokens by weights of few bits, which are opened once for all of a work-group.

It is the 1x1 convolution whose weights lie in local memory (`local_conv.py`): what brings them
there reads words of some inputs of four outputs, and leaves the numbers that they stand for.
"""

from __future__ import annotations

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
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.conv.local_plan import plan_of
from adrenoc.kernels.families.n_bits.n_bits import NBitsOperands
from adrenoc.kernels.families.n_bits.shared_out import find_block, place_weights, share_out
from adrenoc.kernels.families.n_bits.unpack import unpack_word
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.sums import adds_in_runs
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import widen

POINT = ConvGeometry(kernel=(1, 1))


def n_bits_matrix(
    builder: KernelBuilder, tile: ConvTile, operands: NBitsOperands, out: Access, epilogue: Epilogue
) -> None:
    """Emit out[t, :] = x[t, :] . weight for each token t, which are all of N, H and W."""
    kernel = _Opening(builder, tile, operands, out)
    kernel.accumulate(weights_by_row=False)
    kernel.write(epilogue, out.extents)


class _Opening(LocalConv):
    """Of halves, the products of a few input blocks are added up as such, their sums as floats."""

    def __init__(
        self, builder: KernelBuilder, tile: ConvTile, operands: NBitsOperands, out: Access
    ) -> None:
        x, grid = operands.x, out.extents
        plan = plan_of(POINT, tile, x.extents, grid)
        self.sum_dtype = ACCUMULATOR if builder.compute != ACCUMULATOR else None
        self.long = builder.compute != ACCUMULATOR or adds_in_runs(
            out, plan.window * LANES // tile.split_k
        )
        super().__init__(builder, POINT, tile, plan, x, operands.weights[0].words, grid)
        self._matrix = operands.weights[0]
        self._blocks_a_word = self._matrix.word_inputs // LANES
        self._row = self._matrix.words_a_block(grid.blocks)

    def add_parts(self, partial: Registers, first: int) -> None:
        for at in range(partial.count):
            self.sums[first + at] = self.sums[first + at] + widen(partial[at])

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
