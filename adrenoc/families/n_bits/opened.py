"""Words of eight numbers of 4 bits, for each of four outputs, as the floats that they stand for."""

from __future__ import annotations

from adrenoc.ir.layout import LANES
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.tvmapi import Expr, cast, fconst, splat, tirx

BITS = 4
WORD_INPUTS = 8
"""Inputs of a word: two texels of a token."""


def take_number(builder: KernelBuilder, word: Expr, number: int) -> Expr:
    """One number of each of four words, where it stands: times 16 to the power `number`."""
    mask = tirx.Broadcast(tirx.const(15 << (BITS * number), "uint32"), LANES)
    return builder.let(cast(tirx.BitwiseAnd(word, mask), f"{ACCUMULATOR}x{LANES}"), "q")


def place_of(number: int) -> float:
    """By what to multiply a number that stands there."""
    return float(2.0 ** (-BITS * number))


def open_word(builder: KernelBuilder, word: Expr, scale: Expr, offset: Expr) -> list[Expr]:
    """Number times scale less offset, of each of the eight inputs."""
    opened = []
    for number in range(WORD_INPUTS):
        factor = scale * splat(fconst(place_of(number), ACCUMULATOR)) if number else scale
        product = take_number(builder, word, number) * builder.let(factor, "factor")
        opened.append(builder.let(product - offset, "opened"))
    return opened
