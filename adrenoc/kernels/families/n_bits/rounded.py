"""Tokens rounded to signed bytes, some numbers at a time with a scale of their own.

They are what dot products multiply by weights of few bits, as these stand in their words: byte
number i of a word that is shifted by j numbers is input `i * 8 / bits + j` of it.  So the bytes of
a token lie in this order, and no weight has to be moved.

Behind the bytes each group has four words more: its scale; what the zero point of the weights adds
to the sum of its products; the sum of its numbers, which zero points of their own multiply; none.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    cast,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    if_then_else,
    lane,
    maximum,
    pack_bytes,
    round_numbers,
    splat,
    tirx,
)
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import WORDS
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.bytes_access import BytesAccess
from adrenoc.kernels.families.n_bits.unpack import WORD_BITS, word_inputs
from adrenoc.kernels.families.shared.dot_products import SIXTEEN
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import sum_lanes, widen

BYTE_BITS = 8
MOST = 127
"""The largest number of a byte that is used: as far below zero as above."""
_SIGNS = 0x80808080
MOST_GROUP = 32
"""Inputs that share a scale: fewer round finer, more add less beside the products."""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How tokens of so many inputs are rounded for weights of these bits and blocks.

    Both are whole numbers of groups.  `zero` is the zero point of all weights, 0 where they have
    zero points of their own.
    """

    inputs: int
    block: int
    bits: int
    zero: int

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return min(self.block, MOST_GROUP)

    @property
    def groups(self) -> int:
        """Groups of a token."""
        return self.inputs // self.group

    @property
    def first_beside(self) -> int:
        """Sixteens of bytes before the words that a group has beside its bytes."""
        return self.inputs // SIXTEEN

    @property
    def channels(self) -> int:
        """Bytes of a token, with what lies behind its numbers."""
        return (self.first_beside + self.groups) * SIXTEEN


def explain_not_rounded(inputs: int, block: int) -> str:
    """Return why products of this form have no kernel of dot products, if so."""
    if block != SIXTEEN and block % MOST_GROUP:
        return f"blocks of {block} inputs, expected 16 or whole groups of {MOST_GROUP}"
    if inputs % block:
        return f"{inputs} inputs are no whole number of blocks of {block}"
    return ""


def round_tokens(builder: KernelBuilder, rounding: Rounding, x: Access, out: BytesAccess) -> None:
    """Emit the rounding of tokens: a thread has one group of one of them.

    Shapes:
        x: roles N, H, W of any extents, C = inputs
        out: the same, C = `rounding.channels`, in bytes
    """
    e = x.extents
    w, h, deep = builder.threads(e.w, e.h, e.n * rounding.groups)
    group = floormod(deep, rounding.groups) if e.n > 1 else deep
    group = builder.let(group, "group")
    n = builder.let(floordiv(deep, rounding.groups), "n") if e.n > 1 else iconst(0)
    first = builder.let(group * iconst(rounding.group // LANES), "first")
    texels = [
        builder.let(widen(x.texel(n, first + iconst(i), h, w)), "x")
        for i in range(rounding.group // LANES)
    ]
    largest = maximum(texels[0], -texels[0])
    for texel in texels[1:]:
        largest = builder.let(maximum(largest, maximum(texel, -texel)), "largest")
    most = builder.let(_largest_lane(largest), "most")
    nothing = fconst(0.0, ACCUMULATOR)
    factor = if_then_else(most > nothing, fconst(float(MOST), ACCUMULATOR) / most, nothing)
    factor = splat(builder.let(factor, "factor"))
    numbers = [builder.let(round_numbers(texel * factor), "q") for texel in texels]
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    total = builder.let(sum_lanes(builder.let(total, "t")), "total")
    _store_bytes(builder, rounding, numbers, out, (n, group, h, w))
    scale = builder.let(most * fconst(1.0 / MOST, ACCUMULATOR), "scale")
    beside = (
        _read_as_word(scale),
        cast(cast(total * fconst(float(-rounding.zero), ACCUMULATOR), "int32"), "uint32"),
        _read_as_word(scale * total),
        tirx.const(0, "uint32"),  # read by nobody, and the same in each run
    )
    plane = group + iconst(rounding.first_beside)
    for place, word in enumerate(beside):
        out.put(n, plane, h, w, place, word)


def _store_bytes(
    builder: KernelBuilder,
    rounding: Rounding,
    numbers: list[Expr],
    out: BytesAccess,
    place: tuple[Expr, Expr, Expr, Expr],
) -> None:
    """Store a group's numbers in the order in which words of weights have theirs."""
    n, group, h, w = place
    parts, inputs = BYTE_BITS // rounding.bits, word_inputs(rounding.bits)
    first = builder.let(group * iconst(rounding.group // SIXTEEN), "sixteen")
    for word in range(rounding.group // LANES):
        of_weights, shift = divmod(word, parts)
        places = [of_weights * inputs + i * parts + shift for i in range(LANES)]
        chosen = construct([lane(numbers[at // LANES], at % LANES) for at in places])
        above = builder.let(chosen + splat(fconst(float(MOST + 1), ACCUMULATOR)), "above")
        signs = tirx.const(_SIGNS, "uint32")
        signed = builder.let(tirx.BitwiseXor(pack_bytes(above), signs), "bytes")
        out.put(n, first + iconst(word // WORDS), h, w, word % WORDS, signed)


def _largest_lane(vector: Expr) -> Expr:
    first, *others = (lane(vector, i) for i in range(LANES))
    for other in others:
        first = maximum(first, other)
    return first


def _read_as_word(number: Expr) -> Expr:
    return tirx.call_pure_extern("uint32", "as_uint", number)


def mask_of_bytes(bits: int) -> int:
    """Return the numbers of a word that stand at the low end of its bytes."""
    return sum(((1 << bits) - 1) << at for at in range(0, WORD_BITS, BYTE_BITS))
