"""Depthwise convolution of bytes by the GPU's dot products, a channel each.

Nothing is summed over channels, so three of four products of a dot product are of zeros.  It still
takes one instruction for a multiply-add, as floats do, and spares what floats need before it: to
take four bytes of a word apart, to convert and to shift them.

```
sum.x += dot((tap.x, 0, 0, 0), word)    sum.y += dot((0, tap.y, 0, 0), word)    ...
```
"""

from __future__ import annotations

import numpy as np

from adrenoc.base.tvmapi import Expr, cast, dot_products, load_vector
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.depthwise.depthwise import (
    DepthwiseTile,
    TapSums,
    depthwise,
    pack_taps,
)
from adrenoc.kernels.families.shared.conv_geometry import ConvGeometry
from adrenoc.kernels.statements import Registers


def depthwise_dot(
    builder: KernelBuilder,
    geometry: ConvGeometry,
    tile: DepthwiseTile,
    x: BytesAccess,
    weight: Access,
    rest: Access,
    out: Access,
    epilogue: Epilogue,
    *,
    shares: bool = True,
) -> None:
    """Emit a depthwise convolution of bytes with packed weights (`pack_tap_words`).

    Shapes:
        x: roles N, C, H, W
        rest: `conv2d_dot.pack_rest`
        out: roles N, C, OH, OW
    """

    def finish_sums(total: Expr, block: Expr) -> Expr:
        return cast(total + load_vector(rest.buffer, block, 0, "int32"), "float32x4")

    depthwise(
        builder,
        geometry,
        tile,
        x,
        weight,
        out,
        epilogue,
        sums_of=_DotSums,
        tap_dtype="uint32",
        finished=finish_sums,
        shares=shares,
    )


class _DotSums(TapSums):
    """Sums of integers, of words of four bytes."""

    def zeros(self) -> Registers:
        sums = self.builder.registers(self.rows * self.pixels, dtype="int32")
        sums.fill(0)
        return sums

    def pixel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        if not isinstance(self.x, BytesAccess):
            raise ValueError("the input does not lie in bytes")
        return self.x.padded_word(n, block, h, w)

    def product(self, pixel: Expr, tap: Expr, total: Expr) -> Expr:
        return dot_products(tap, pixel, total)


def pack_tap_words(weight: np.ndarray, most_blocks: int) -> np.ndarray:
    """Pack whole numbers `[C, 1, KH, KW]` as [block, tap, 4] 32-bit words, flat.

    The word of each channel has its weight in the byte where a word of pixels has that channel.
    """
    taps = pack_taps(weight, most_blocks).astype(np.int8).reshape(-1, LANES)
    words = np.zeros((*taps.shape, LANES), np.int8)
    channels = np.arange(LANES)
    words[:, channels, channels] = taps
    return words.reshape(-1).view(np.uint32)
