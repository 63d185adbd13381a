"""Convolution of bytes: sums of integers by dot products of four channels, weights in local memory.

The loops are those of `conv2d_local`, with sixteen channels where it has four: a read gives four
words of an activation, a vector of weights holds one such word for each of four output channels.

```
sum.xyzw += dot(weights.xyzw, word of the activation)
```

Sums are of 32 bits and so exact.  A byte is a number less `low`, and what that leaves out of the
sums is one constant an output channel.
"""

from __future__ import annotations

import numpy as np

from adrenoc.base.tvmapi import Expr, cast, dot_products, lane, load_vector
from adrenoc.ir.layout import LANES, WORDS
from adrenoc.kernels.access import Access, BytesAccess
from adrenoc.kernels.families.conv.local_conv import LocalConv
from adrenoc.kernels.families.shared.integers import SIXTEEN
from adrenoc.kernels.weights import whole_k_steps


class DotConv(LocalConv):
    """One kernel while it is written: integers where `LocalConv` has floats."""

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
