"""Softmax and its logarithm along any axis, in one kernel.

One thread makes one line along the axis: a pass for the largest element, one for the sum of
exponentials, one that stores.  Nothing is kept between the passes: the line comes from the
texture cache again.
"""

from __future__ import annotations

import math

from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.walk import (
    ACCUMULATOR,
    Position,
    across,
    each_texel,
    narrowed,
    only_channels,
    region_along,
    widened,
)
from adrenoc.tvmapi import Expr, fconst, floordiv, floormod, iconst, maximum, splat, tirx


def softmax(
    builder: KernelBuilder,
    role: str,
    logarithm: bool,
    x: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit the softmax along the axis of this role.

    Shapes:
        x: any, with roles
        out: as x, with the same roles
    """
    start = _start_of_line(builder, x, role)
    line = region_along(x.extents, role, start)
    state = builder.registers(2, dtype=ACCUMULATOR)
    state[0] = splat(fconst(-math.inf, ACCUMULATOR))
    state[1] = splat(fconst(0.0, ACCUMULATOR))

    def read(position: Position) -> Expr:
        return builder.let(widened(x.texel(*position)), "x")

    def find_largest(position: Position, lanes: int) -> None:
        state[0] = maximum(state[0], only_channels(read(position), lanes, -math.inf))

    each_texel(builder, line, find_largest)
    if role == "C":
        state[0] = splat(across(builder.let(state[0]), maximum))
    largest = builder.let(state[0], "largest")

    def add_exponential(position: Position, lanes: int) -> None:
        power = builder.let(tirx.exp(read(position) - largest), "power")
        state[1] = state[1] + only_channels(power, lanes, 0.0)

    each_texel(builder, line, add_exponential)
    if role == "C":
        state[1] = splat(across(builder.let(state[1]), lambda a, b: a + b))
    if logarithm:
        offset = builder.let(largest + tirx.log(state[1]), "offset")
    else:
        factor = builder.let(splat(fconst(1.0, ACCUMULATOR)) / state[1], "factor")

    def write(position: Position, lanes: int) -> None:
        value = read(position)
        value = value - offset if logarithm else tirx.exp(value - largest) * factor
        epilogue.write(*position, narrowed(builder, value))

    each_texel(builder, line, write)


def _start_of_line(builder: KernelBuilder, x: Access, role: str) -> Position:
    """One thread for each line along the role; returns the line's first texel."""
    e = x.extents
    blocks = 1 if role == "C" else e.blocks
    w, h, z = builder.threads(
        1 if role == "W" else e.w,
        1 if role == "H" else e.h,
        (1 if role == "N" else e.n) * blocks,
    )
    if blocks == 1:
        return Position(z, iconst(0), h, w)
    return Position(floordiv(z, blocks), floormod(z, blocks), h, w)
