"""Reads and writes of whole numbers that are stored as bytes.

Sixteen channels of a pixel lie beside each other, four in each 32-bit word.  Kernels that compute
with floats read and write four channels as ever; products of integers take whole words.
"""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.tvmapi import (
    BufferLoad,
    Expr,
    cast,
    fconst,
    floordiv,
    floormod,
    iconst,
    load_vector,
    maximum,
    minimum,
    pack_bytes,
    select,
    simplify,
    splat,
    store,
    tirx,
    words_where,
)
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.access import BlockedAccess

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
        return BufferLoad(self.buffer, [layer, row, col, simplify(floormod(block, WORDS))])

    def texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels as floats of the kernel's arithmetic."""
        return self._numbers(self._word(n, block, h, w))

    def _numbers(self, word: Expr) -> Expr:
        """Return the four numbers of a word, as floats of the kernel's arithmetic."""
        parts = tirx.call_pure_extern("uint8x4", "as_uchar4", word)
        compute = self._statements.compute
        kind = "half" if compute == "float16" else "float"
        numbers = tirx.call_pure_extern(f"{compute}x4", f"convert_{kind}4", parts)
        low = self.spec.low
        return numbers + splat(fconst(float(low), compute)) if low else numbers

    def padded_texel(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels as floats, or zeros outside."""
        return self._numbers(self.padded_word(n, block, h, w))

    def padded_word(self, n: Expr, block: Expr, h: Expr, w: Expr) -> Expr:
        """Four channels as one word; the bytes that mean zero where (h, w) lies outside."""
        row, column, inside = self._nearest(h, w)
        word = self._statements.let(self._word(n, block, row, column), "word")
        return self._statements.let(select(inside, word, self._zero), "word")

    def _nearest(self, h: Expr, w: Expr) -> tuple[Expr, Expr, Expr]:
        """Return the nearest position inside, and whether it is the one that was asked for.

        A branch around each read would wait for one before the next is asked for.
        """
        e, zero = self.extents, iconst(0)
        inside = (h >= zero) & (h < iconst(e.h)) & (w >= zero) & (w < iconst(e.w))
        row = maximum(minimum(h, iconst(e.h - 1)), zero)
        column = maximum(minimum(w, iconst(e.w - 1)), zero)
        return row, column, inside

    @property
    def _zero(self) -> Expr:
        """A word of four bytes that mean zero."""
        return tirx.const(-self.spec.low * _ONE_IN_EACH, "uint32")

    def element(self, index: Sequence[Expr]) -> Expr:
        """One channel as a float."""
        n, c, h, w = self.position(index)
        word = self._word(n, simplify(floordiv(c, LANES)), h, w)
        bits = cast(simplify(floormod(c, LANES)) * iconst(_BYTE_BITS), "uint32")
        byte = tirx.BitwiseAnd(tirx.RShift(word, bits), tirx.const(255, "uint32"))
        compute = self._statements.compute
        return cast(byte, compute) + fconst(float(self.spec.low), compute)

    def write(self, n: Expr, block: Expr, h: Expr, w: Expr, value: Expr) -> None:
        """Store four floats that are whole numbers of the tensor's range."""
        value = self._mask_tail(block, cast(value, "float32x4"))
        low = self.spec.low
        value = value - splat(fconst(float(low), "float32")) if low else value
        word = pack_bytes(self._statements.let(value, "bytes"))
        layer, row, col = (simplify(i) for i in self.coordinates(n, block, h, w))
        place = [layer, row, col, simplify(floormod(block, WORDS))]
        self._statements.emit(store(self.buffer, place, word))

    def put(self, n: Expr, sixteen: Expr, h: Expr, w: Expr, number: int, word: Expr) -> None:
        """Store a word of four bytes as they are: that of this number among those of sixteen
        channels."""
        layers = -(-self.extents.blocks // WORDS)
        place = [simplify(n * iconst(layers) + sixteen), h, w, iconst(number)]
        self._statements.emit(store(self.buffer, place, word))

    def words(self, n: Expr, sixteen: Expr, h: Expr, w: Expr, *, padded: bool) -> Expr:
        """Sixteen channels as four words; the bytes that mean zero where padded and outside."""
        inside = None
        if padded:
            h, w, inside = self._nearest(h, w)
        e = self.extents
        layers = -(-e.blocks // WORDS)
        row = (n * iconst(layers) + sixteen) * iconst(e.h) + h
        loaded = load_vector(self.buffer, row * iconst(e.w) + w, 0, "uint32")
        if inside is None:
            return loaded
        return words_where(inside, self._statements.let(loaded, "words"), self._zero)
