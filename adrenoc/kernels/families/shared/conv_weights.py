"""Two routes for the weights of a convolution, one interface.

Through the texture cache each weight texel costs as much as an activation texel, and every
public Adreno kernel waits for the texture pipe.  From a buffer, at an index that is the same
for the whole wave, weights come through another pipe; that needs a work-group whose threads all
make the same output blocks.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from adrenoc.base.tvmapi import Buffer, Expr, const_int, construct, iconst, lane, load_vector, tirx
from adrenoc.ir.layout import FLOAT_BYTES, LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.weights import pack_conv

BYTES_A_LOAD = LANES * FLOAT_BYTES
HALVES_A_LOAD = BYTES_A_LOAD // 2
"""Halves in one 16-byte load: two texels of weights."""


class ConvWeights(Protocol):
    """Weights of the output blocks that a thread makes."""

    def row(self, tap: Expr, column: Expr) -> list[Expr]:
        """Return a vector of four output channels for each block of the thread.

        `column` is the input channel within the window of the output block.
        """


class TextureWeights:
    """Weights as texels `[tap, output block, column]` (`weights.pack_conv`)."""

    def __init__(
        self, builder: KernelBuilder, access: Access, first_block: Expr, out_blocks: int
    ) -> None:
        self._builder, self._access = builder, access
        self._first, self._count = first_block, out_blocks

    def row(self, tap: Expr, column: Expr) -> list[Expr]:
        """One texel an output block."""
        return [
            self._builder.let(
                self._access.texel(tap, iconst(0), self._first + iconst(b), column), "k"
            )
            for b in range(self._count)
        ]


class UniformWeights:
    """Weights in a buffer, in the order in which a thread reads them (`pack_uniform`).

    For half arithmetic, halves are loaded as four 32-bit words and seen as eight halves, since
    compilers split a load of halves into single ones; for float arithmetic they are loaded with
    conversion, which needs no half type and so no cl_khr_fp16.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        buffer: Buffer,
        group: Expr,
        *,
        taps: int,
        columns: int,
        out_blocks: int,
    ) -> None:
        self._builder, self._buffer = builder, buffer
        self._columns = columns
        lanes_a_load = HALVES_A_LOAD if builder.compute == "float16" else LANES
        self._texels_a_load = lanes_a_load // LANES
        self._loads = out_blocks // self._texels_a_load
        self._base = builder.let(group * iconst(taps * columns * self._loads), "wb")

    def row(self, tap: Expr, column: Expr) -> list[Expr]:
        """One load for each one or two output blocks."""
        base, offset = _constant_part(column)
        first = self._base + (tap * iconst(self._columns) + base) * iconst(self._loads)
        texels: list[Expr] = []
        for number in range(self._loads):
            words = load_vector(
                self._buffer, first, offset * self._loads + number, self._builder.compute
            )
            texels += unpack_texels(self._builder, words)
        return texels


def unpack_texels(builder: KernelBuilder, words: Expr) -> list[Expr]:
    """Return what `load_vector` gave, as vectors of four: two for half arithmetic, else one."""
    if builder.compute != "float16":
        return [builder.let(words, "k")]
    halves = builder.let(_reinterpret_as_float16(words, HALVES_A_LOAD), "k")
    return [
        builder.let(construct([lane(halves, part * LANES + i) for i in range(LANES)]), "k")
        for part in range(HALVES_A_LOAD // LANES)
    ]


def _constant_part(index: Expr) -> tuple[Expr, int]:
    """Return an index as what changes and what is added to it."""
    if isinstance(index, tirx.Add) and const_int(index.b) is not None:
        return index.a, const_int(index.b) or 0
    fixed = const_int(index)
    return (iconst(0), fixed) if fixed is not None else (index, 0)


def _reinterpret_as_float16(words: Expr, lanes: int) -> Expr:
    """Return the same bits as `lanes` halves."""
    return tirx.call_pure_extern(f"float16x{lanes}", f"as_half{lanes}", words)


def pack_uniform(weight: np.ndarray, out_blocks: int) -> np.ndarray:
    """Pack `[O, I, KH, KW]` for `UniformWeights`: [group, tap, column, block of group, 4], flat.

    Halves are returned as 32-bit words, two in each.  Output blocks are padded to whole groups.
    """
    texels = pack_conv(weight, 1)
    taps, blocks, columns, _ = texels.shape
    groups = -(-blocks // out_blocks)
    padded = np.zeros((taps, groups * out_blocks, columns, LANES), weight.dtype)
    padded[:, :blocks] = texels
    by_group = padded.reshape(taps, groups, out_blocks, columns, LANES)
    flat = np.ascontiguousarray(by_group.transpose(1, 0, 3, 2, 4)).reshape(-1)
    return flat.view(np.uint32) if flat.dtype == np.float16 else flat
