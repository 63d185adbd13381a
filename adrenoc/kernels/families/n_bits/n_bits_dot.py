"""Products of many tokens in signed bytes by weights of few bits, by dot products.

The loops are those of `conv2d_dot`, a 1x1 convolution of bytes.  A work-group brings words of
weights to local memory, where those of fewer than 8 bits become bytes by a shift and a mask.  A
k-step is one group of inputs: its sum is a whole number, exact in 32 bits, which is scaled by what
the group of the token and the block of the weights have as their scales, and added up in float.

```
part.xyzw = zero of the token's group
part.xyzw += dot(word of the token, weights.xyzw)            for each word of the group
sum.xyzw  += part.xyzw * scale of the token * scales.xyzw
```
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    dot_products_of,
    floordiv,
    floormod,
    iconst,
    lane,
    load_vector,
    splat,
    tirx,
)
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.conv.conv2d_dot import DotConv
from adrenoc.kernels.families.conv.local_plan import Plan
from adrenoc.kernels.families.n_bits.n_bits import NBitsWeights
from adrenoc.kernels.families.n_bits.rounded import BYTE_BITS, Rounding, mask_of_bytes
from adrenoc.kernels.families.n_bits.shared_out import find_block, place_weights, share_out
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.families.shared.conv_tile_shape import ConvTile
from adrenoc.kernels.families.shared.dot_products import SIXTEEN
from adrenoc.kernels.statements import Registers, SharedArray
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import widen

POINT = ConvGeometry(kernel=(1, 1))


@dataclass(frozen=True, kw_only=True)
class RoundedOperands:
    """Tokens as `round_tokens` leaves them, and a matrix."""

    x: BytesAccess
    rounding: Rounding
    weights: NBitsWeights


def n_bits_dot(
    builder: KernelBuilder,
    tile: ConvTile,
    operands: RoundedOperands,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit out[t, :] = x[t, :] . weight for each token t, which are all of N, H and W.

    The inputs are a whole number of k-steps, and one of `tile.unroll` input blocks is a group.
    """
    kernel = _DotProducts(builder, tile, operands, out)
    kernel.accumulate(weights_by_row=False)
    kernel.write(epilogue, out.extents)


class _DotProducts(DotConv):
    """Whole numbers in parts of sums, floats in sums."""

    sum_dtype = ACCUMULATOR
    part_dtype = "int32"
    long = True

    def __init__(
        self, builder: KernelBuilder, tile: ConvTile, operands: RoundedOperands, out: Access
    ) -> None:
        grid, per_work_group = out.extents, tile.out_blocks * tile.bands
        blocks = operands.rounding.first_beside
        plan = Plan(
            blocks=blocks,
            window=blocks,
            taps=1,
            channels=WORDS,
            channel_groups=-(-grid.blocks // per_work_group),
            vectors=LANES * per_work_group,
        )
        matrix = operands.weights
        super().__init__(builder, POINT, tile, plan, operands.x, matrix.words, grid)
        self.bytes, self._matrix, self._rounding = operands.x, matrix, operands.rounding
        self._row = matrix.words_a_block(grid.blocks)
        self._of_group = per_work_group
        scales = self.span // tile.unroll * per_work_group
        self._scales = builder.allocate_shared(scales, dtype=ACCUMULATOR)
        self._zeros = None
        if matrix.zeros is not None:
            self._zeros = builder.allocate_shared(scales, dtype=ACCUMULATOR)
        self._beside: list[Expr] = []
        self._group: Expr = iconst(0)

    # What a k-step needs

    def begin_step(self, in_block: Expr, done: Expr, row: Expr) -> None:
        group = floordiv(in_block, self.tile.unroll)
        plane = self.b.let(group + iconst(self._rounding.first_beside), "plane")
        self._beside = [
            self.b.let(self.pixel(plane, row, self.col0 + iconst(p)), "beside")
            for p in range(self.tile.pixels)
        ]
        first = floordiv(done, self.tile.unroll) * iconst(self._of_group)
        self._group = self.b.let(first + self.band * iconst(self.tile.out_blocks), "sg")

    def begin_parts(self, partial: Registers) -> None:
        for p, beside in enumerate(self._beside):
            partial[p] = splat(cast(lane(beside, 1), "int32"))

    def product(self, pixel: Expr, channel: int, weights: Expr, total: Expr) -> Expr:
        return dot_products_of(lane(pixel, channel), weights, total)

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
        for item in share_out(self, steps * self._of_group):
            self._bring_word(item, first, steps, shared)
        groups = span // self.tile.unroll
        group = self.b.let(floordiv(start, self.tile.unroll), "group")
        for item in share_out(self, groups * self._of_group):
            self._bring_scale(item, group, groups)

    def _bring_word(self, item: Expr, first: Expr, steps: int, shared: SharedArray) -> None:
        """One word of four outputs: neighbouring threads read neighbouring words."""
        builder, bits = self.b, self._matrix.bits
        of_group = builder.let(floordiv(item, steps), "of")
        mine = builder.let(floormod(item, steps), "mine")
        place = find_block(self, of_group) * iconst(self._row) + first + mine
        loaded = builder.let(load_vector(self._matrix.words.buffer, place, 0, "uint32"), "word")
        blocks, parts = self.tile.out_blocks, BYTE_BITS // bits
        slot = builder.let(mine * iconst(parts), "slot")
        to = floordiv(slot, WORDS) * iconst(self.plan.vectors)
        to = to + floormod(slot, WORDS) * iconst(blocks) + place_weights(self, of_group)
        to = builder.let(to, "to")
        mask = tirx.Broadcast(tirx.const(mask_of_bytes(bits), "uint32"), LANES)
        for part in range(parts):
            word = loaded
            if part:
                by = tirx.Broadcast(tirx.const(part * bits, "uint32"), LANES)
                word = tirx.RShift(loaded, by)
            if parts > 1:
                word = tirx.BitwiseAnd(word, mask)
            shared[to + iconst(part * blocks)] = word

    def _bring_scale(self, item: Expr, first: Expr, groups: int) -> None:
        """The scales of an output block for one group of inputs, and its zero points."""
        builder, matrix, zero = self.b, self._matrix, iconst(0)
        of_group = builder.let(floormod(item, self._of_group), "of")
        mine = builder.let(floordiv(item, self._of_group), "mine")
        of_block = matrix.block // self._rounding.group
        block = find_block(self, of_group)
        at = builder.let(floordiv(first + mine, of_block), "at")
        self._scales[item] = widen(matrix.scales.texel(zero, zero, block, at))
        if matrix.zeros is not None and self._zeros is not None:
            self._zeros[item] = widen(matrix.zeros.texel(zero, zero, block, at))


def _read_as_float(word: Expr) -> Expr:
    return tirx.call_pure_extern(ACCUMULATOR, "as_float", word)
