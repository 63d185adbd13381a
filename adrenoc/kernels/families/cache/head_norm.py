"""The root-mean-square norm of one head, where a kernel reads it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.base.tvmapi import Expr, fconst, iconst, load_numbers, splat, tirx
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.cache.rotation import Texel
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import sum_lanes


@dataclass(frozen=True, kw_only=True)
class HeadNorm:
    """`gains` holds a factor for each number of a head, flat, in float32."""

    gains: Access
    epsilon: float

    def scale(self, squares: Expr, head: int) -> Expr:
        """Return the factor of a head of so many numbers, in all lanes, by its sums of squares."""
        mean = sum_lanes(squares)
        one = fconst(1.0, ACCUMULATOR)
        root = tirx.sqrt(mean / fconst(head, ACCUMULATOR) + fconst(self.epsilon, ACCUMULATOR))
        return splat(one / root)

    def gain(self, block: Expr) -> Expr:
        """Return the factors of four numbers."""
        return load_numbers(self.gains.buffer, block * iconst(LANES), 0, LANES, aligned=True)


def norm_head(builder: KernelBuilder, norm: HeadNorm | None, blocks: int, read: Texel) -> Texel:
    """Reads a head as the norm leaves it; each thread adds up all of it by itself."""
    if norm is None:
        return read
    squares = builder.registers(1, dtype=ACCUMULATOR)
    squares.fill(0.0)
    with builder.loop(blocks, "b", rolled=True) as block:
        value = builder.let(read(block), "x")
        squares[0] = squares[0] + value * value
    scale = builder.let(norm.scale(builder.let(squares[0], "squares"), blocks * LANES), "scale")
    return lambda block: read(block) * scale * norm.gain(block)
