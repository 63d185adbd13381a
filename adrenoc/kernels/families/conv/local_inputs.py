"""Convolutions with weights in local memory of other numbers than texels: an image's, and bytes.

An image that a model is given lies row-major in a buffer, and is read as texels of its pixels.
A thread needs neighbouring pixels of a row: neighbouring numbers in memory, those of each channel
(NCHW) or of all (NHWC).  It loads four at a time.  What lies beyond an end of the row is zero: a
vector that is outside of it for the first or the last thread alone is loaded from where there is
something, and its numbers are replaced.  So no copy of the image in texels is made.

Bytes are multiplied as integers, by dot products of four.
"""

from collections.abc import Callable

import numpy as np

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    clamp,
    construct,
    dot_products,
    fconst,
    floordiv,
    iconst,
    lane,
    load_vector,
    maximum,
    minimum,
    select,
)
from adrenoc.ir.layout import LANES, WORDS
from adrenoc.kernels.access import Access, BytesAccess, PlainAccess
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.shared.context import NodeKernel
from adrenoc.kernels.families.shared.conv_geometry import (
    ConvGeometry,
    ConvTile,
    LoadReach,
    RowPlan,
    _strides,
)
from adrenoc.kernels.families.shared.conv_weights import SIXTEEN
from adrenoc.kernels.weights import whole_k_steps

Normalise = Callable[[Expr, Expr, Expr, Expr], Expr]
"""(image, row, column, four channels as they are given) -> the same as they are convolved."""


class ImageConv(LocalConv):
    """One kernel while it is written: rows of numbers where `LocalConv` has texels.

    The weights are packed by `pack_local`; the image has at most four channels.  Zeros beyond the
    edges are zeros after `normalise`.
    """

    def __init__(
        self,
        kernel: NodeKernel,
        geometry: ConvGeometry,
        tile: ConvTile,
        x: PlainAccess,
        weight: Access,
        plan: RowPlan,
        normalise: Normalise | None,
    ) -> None:
        super().__init__(kernel, geometry, tile, x, weight)
        self._image, self._plan, self._normalise = x, plan, normalise
        # Threads beyond the last column read what the last one does.
        left = self.left * geometry.strides[1]
        first = minimum(left * iconst(plan.pitch), iconst(plan.last))
        self._first = self.b.share(first, "first")

    def reads(self, row: Expr) -> Expr:
        """Return whether a row is one of the image."""
        return (row >= 0) & (row < iconst(self.x.extents.h))

    def row(self, in_block: Expr, row: Expr) -> dict[int, Expr]:
        """Return the texels of a row that is inside of the image, by column of the plan.

        Lanes beyond the last channel are zero.
        """
        plan, channels = self._plan, self.x.extents.c
        strides = _strides(self.x.spec.roles, self.x.spec.shape)
        start = self.n * iconst(strides.get("N", 0)) + row * iconst(strides.get("H", 0))
        start = self.b.share(start, "start")
        with self.b.computing(self._loaded_dtype):
            runs = [self._numbers(start, run * strides.get("C", 0)) for run in range(plan.runs)]
        zero = fconst(0.0, self._loaded_dtype)
        # TVM puts an expression that only has a name into each place that uses it.
        found = self.b.registers(len(plan.columns))
        for place, column in enumerate(plan.columns):
            at = (column - plan.padding) * plan.pitch
            if plan.runs > 1:
                lanes = [run[at] for run in runs]
            else:
                lanes = [runs[0][at + i] for i in range(plan.pitch)]
            found[place] = self._normalise_texel(row, at, lanes + [zero] * (LANES - channels))
        return {column: found[place] for place, column in enumerate(plan.columns)}

    @property
    def _loaded_dtype(self) -> str:
        """Return the dtype of what is loaded."""
        return self.b.compute if self._normalise is None else "float32"

    def _normalise_texel(self, row: Expr, at: int, lanes: list[Expr]) -> Expr:
        """Return the texel of a pixel of which these are the numbers, from place `at` on."""
        plan, compute = self._plan, self.b.compute
        if self._normalise is None:
            return construct(lanes)
        column = floordiv(self._first + iconst(at), plan.pitch)
        texel = self.b.registers(1, dtype="float32")
        texel[0] = self._normalise(self.n, row, column, construct(lanes))
        if at < 0 or plan.last + at + plan.pitch > plan.width:
            inside = (self._first + iconst(at) >= 0) & (
                self._first + iconst(at) < iconst(plan.width)
            )
            zero = fconst(0.0, "float32")
            texel[0] = construct([select(inside, lane(texel[0], i), zero) for i in range(LANES)])
        return texel[0] if compute == "float32" else cast(texel[0], f"{compute}x{LANES}")

    def _numbers(self, start: Expr, of_run: int) -> dict[int, Expr]:
        """Return the numbers of the run `of_run` behind `start`, by place from the thread's own."""
        plan, statements = self._plan, self.b
        zero = fconst(0.0, statements.compute)
        found: dict[int, Expr] = {}
        for load in plan.loads:
            mine = self._first + iconst(load.at)
            inside = (mine >= 0) & (mine < iconst(plan.width))
            first, offset = mine, of_run
            if load.reach is LoadReach.WITHIN:
                first, offset = self._first, of_run + load.at
            elif load.reach is LoadReach.BEFORE:
                first = maximum(mine, iconst(0))
            elif load.reach is LoadReach.BEHIND:
                first = minimum(mine, iconst(plan.last - plan.step + load.at))
            else:
                first = clamp(mine, 0, plan.width - 1)
            base = statements.share(start + first, "base")
            loaded = self._image.numbers(base, offset, load.count, aligned=plan.aligned)
            value = statements.let(loaded, "v")
            for i in range(load.count):
                one = value if load.count == 1 else lane(value, i)
                within = load.reach is LoadReach.WITHIN
                found[load.at + i] = one if within else select(inside, one, zero)
        return found


class DotConv(LocalConv):
    """One kernel while it is written: sums of integers by dot products of four channels.

    Sixteen channels stand where `LocalConv` has four: a read gives four words of an activation, a
    vector of weights holds one such word for each of four output channels.

        sum.xyzw += dot(weights.xyzw, word of the activation)

    Sums are of 32 bits and so exact.  A byte is a number less `low`, and what that leaves out of
    the sums is one constant an output channel.
    """

    bytes: BytesAccess
    """The activations: roles N, C, H, W."""
    rest: Access
    """int32, `low` times the sum of the weights of each output channel, in blocks of four."""
    sum_dtype = "int32"
    weight_dtype = "uint32"

    def count_inputs(self) -> tuple[int, int]:
        """Return sixteens of channels, and the words of one that hold any."""
        blocks = self.x.extents.blocks
        return -(-blocks // WORDS), min(blocks, WORDS)

    def load(self, first: Expr, offset: int) -> Expr:
        """Load four words of weights: one for each of four output channels."""
        return self.b.let(load_vector(self.weight.buffer, first, offset, "uint32"), "w")

    def unpack(self, loaded: Expr) -> list[Expr]:
        """Return the one vector that was loaded."""
        return [loaded]

    def pixel(self, in_block: Expr, row: Expr, column: Expr) -> Expr:
        """Return sixteen channels of a pixel: four words."""
        e, geometry = self.grid, self.geometry
        source = self.x.extents
        plain = geometry.kernel == (1, 1) and geometry.padding == (0, 0)
        inside = plain and e.w % self.tile.pixels == 0
        inside = inside and all(
            (last - 1) * stride < extent
            for last, stride, extent in zip(
                (e.h, e.w), geometry.strides, (source.h, source.w), strict=True
            )
        )
        group = self.tile.work_group or (1, 1, 1)
        whole = (e.w // self.tile.pixels) % group[0] == 0 and e.h % group[1] == 0
        return self.bytes.words(self.n, in_block, row, column, padded=not (inside and whole))

    def product(self, pixel: Expr, channel: int, weights: Expr, total: Expr) -> Expr:
        """Return `total` and what one word of a pixel adds to four output channels."""
        return dot_products(weights, lane(pixel, channel), total)

    def finish_sums(self, total: Expr, block: Expr) -> Expr:
        """Return the sums as floats, with what `low` left out of them."""
        rest = load_vector(self.rest.buffer, block, 0, "int32")
        return cast(total + rest, "float32x4")


def pack_words(weight: np.ndarray, out_blocks: int, bands: int, k_step: int) -> np.ndarray:
    """Pack whole numbers `[O, I, KH, KW]` for `DotConv`, flat, as 32-bit words.

    The order is [work-group, KH, sixteen channels, band, KW, word, output block, output channel];
    a word holds four input channels.
    """
    out_channels, in_channels, kh, kw = weight.shape
    per_group = out_blocks * bands
    channel_groups = -(-out_channels // (per_group * LANES))
    window = whole_k_steps(-(-in_channels // SIXTEEN), k_step)
    padded = np.zeros((channel_groups * per_group * LANES, window * SIXTEEN, kh, kw), np.int8)
    padded[:out_channels, :in_channels] = weight
    split = padded.reshape(channel_groups, bands, out_blocks, LANES, window, WORDS, LANES, kh, kw)
    ordered = split.transpose(0, 7, 4, 1, 8, 5, 2, 3, 6)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint32)
