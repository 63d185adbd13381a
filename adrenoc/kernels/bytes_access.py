"""Reads and writes of whole numbers that are stored as bytes.

Sixteen channels of a pixel lie beside each other, four in each 32-bit word.  Kernels that compute
with floats read and write four channels as ever; products of integers take whole words.
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.kernels.access import BlockedAccess
from adrenoc.layout import LANES
from adrenoc.operand import WORDS
from adrenoc.tvmapi import (
    BufferLoad,
    Expr,
    cast,
    dtype_of,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    load_vector,
    simplify,
    splat,
    store,
    tirx,
)

_BYTE_BITS = 8
_ONE_IN_EACH = 0x01010101


class BytesAccess(BlockedAccess):
    """Blocks of sixteen channels in a buffer of 32-bit words; a byte is a number less `low`."""

    def coordinates(self, n: Expr, block: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr, Expr]:
        """(layer, row, col) of the sixteen channels that hold a block of four."""
        layers = -(-self.extents.blocks // WORDS)
        return n * iconst(layers) + floordiv(block, WORDS), h, w

    def _word(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        layer, row, col = (simplify(i) for i in self.coordinates(n, block, h, w))
        return BufferLoad(self._buffer, [layer, row, col, simplify(floormod(block, WORDS))])

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels as floats of the kernel's arithmetic."""
        parts = tirx.call_pure_extern("uint8x4", "as_uchar4", self._word(n, block, h, w))
        compute = self._statements.compute
        kind = "half" if compute == "float16" else "float"
        numbers = tirx.call_pure_extern(f"{compute}x4", f"convert_{kind}4", parts)
        low = self.spec.low
        return numbers + splat(fconst(float(low), compute)) if low else numbers

    def element(self, index: Sequence[Expr]) -> Expr:
        """One channel as a float."""
        n, c, h, w = self.position(index)
        word = self._word(n, simplify(floordiv(c, LANES)), h, w)
        bits = cast(simplify(floormod(c, LANES)) * iconst(_BYTE_BITS), "uint32")
        byte = tirx.BitwiseAnd(tirx.RShift(word, bits), tirx.const(255, "uint32"))
        compute = self._statements.compute
        return cast(byte, compute) + fconst(float(self.spec.low), compute)

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four floats that are whole numbers."""
        dtype = dtype_of(value).partition("x")[0]
        value = self._masked(block, value)
        low = self.spec.low
        value = value - splat(fconst(float(low), dtype)) if low else value
        parts = tirx.call_pure_extern("uint8x4", "convert_uchar4_sat_rte", value)
        word = tirx.call_pure_extern("uint32", "as_uint", parts)
        layer, row, col = (simplify(i) for i in self.coordinates(n, block, h, w))
        place = [layer, row, col, simplify(floormod(block, WORDS))]
        self._statements.emit(store(self._buffer, place, word))

    def words(self, n: Expr, sixteen: Expr, h: Expr, w: Expr, *, padded: bool) -> Expr:
        """Sixteen channels as four words; the bytes that mean zero where padded and outside."""
        e = self.extents
        layers = -(-e.blocks // WORDS)
        row = (n * iconst(layers) + sixteen) * iconst(e.h) + h
        inside = (h >= 0) & (h < iconst(e.h)) & (w >= 0) & (w < iconst(e.w))
        loaded = load_vector(self._buffer, row * iconst(e.w) + w, 0, "uint32")
        if not padded:
            return loaded
        zero = tirx.const(-self.spec.low * _ONE_IN_EACH, "uint32")
        return if_then_else(inside, loaded, splat(zero))
