"""Unpack words of numbers of few bits, for each of four outputs, to the floats they stand for."""

from __future__ import annotations

from collections.abc import Iterator

from adrenoc.base.tvmapi import Expr, cast, fconst, splat, tirx
from adrenoc.ir.layout import LANES
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.team import ACCUMULATOR

WORD_BITS = 32


def word_inputs(bits: int) -> int:
    """Inputs of a word: of 4 bits, two texels of a token."""
    return WORD_BITS // bits


def take_number(builder: KernelBuilder, word: Expr, number: int, bits: int) -> Expr:
    """Mask one number of each of four words: it is times 2 to the power `bits * number`."""
    mask = tirx.Broadcast(tirx.const(((1 << bits) - 1) << (bits * number), "uint32"), LANES)
    return builder.let(cast(tirx.BitwiseAnd(word, mask), f"{ACCUMULATOR}x{LANES}"), "q")


def unshift_factor(number: int, bits: int) -> float:
    """Return 2 to the power `-bits * number`: it moves a masked number to the lowest bits."""
    return float(2.0 ** (-bits * number))


def unpack_word(
    builder: KernelBuilder, word: Expr, scale: Expr, offset: Expr, bits: int
) -> Iterator[Expr]:
    """Yield number times scale less offset, for each input of a word.

    Each is emitted when it is asked for: what is stored before the next one is opened leaves its
    registers to it.  Eight open numbers at a time halve the threads that a GPU keeps in flight.
    """
    for number in range(word_inputs(bits)):
        factor = (
            scale * splat(fconst(unshift_factor(number, bits), ACCUMULATOR)) if number else scale
        )
        product = take_number(builder, word, number, bits) * builder.let(factor, "factor")
        yield builder.let(product - offset, "opened")
