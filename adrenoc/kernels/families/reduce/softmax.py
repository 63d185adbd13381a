"""Softmax and its logarithm along any axis, in one kernel.

One thread, or a team, makes one row along the axis: a pass for the largest element, one for the
sum of exponentials, one that stores.  Nothing is kept between the passes: the row comes from
the texture cache again.
"""

from __future__ import annotations

import math

from adrenoc.base.tvmapi import Expr, fconst, maximum, splat, tirx
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.epilogue import Epilogue
from adrenoc.kernels.families.shared.rows import RowTile, start_of_row
from adrenoc.kernels.runs import Runs
from adrenoc.kernels.team import ACCUMULATOR
from adrenoc.kernels.walk import (
    Position,
    combine_lanes,
    each_texel,
    only_channels,
    region_along,
    visits,
    widen,
)


def softmax(
    builder: KernelBuilder,
    tile: RowTile,
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
    start, team = start_of_row(builder, tile, x, role)
    row = region_along(x.extents, role, start)
    state = builder.registers(2, dtype=ACCUMULATOR)
    state[0] = splat(fconst(-math.inf, ACCUMULATOR))
    state[1] = splat(fconst(0.0, ACCUMULATOR))

    def read(position: Position) -> Expr:
        return builder.let(widen(x.texel(*position)), "x")

    def find_largest(position: Position, lanes: int) -> None:
        state[0] = maximum(state[0], only_channels(read(position), lanes, -math.inf))

    each_texel(builder, row, find_largest, team)
    (state[0],) = team.fold(builder, [state[0]], [maximum])
    if role == "C":
        state[0] = splat(combine_lanes(builder.let(state[0]), maximum))
    largest = builder.let(state[0], "largest")

    runs = Runs(builder, state, [1], visits(row, team))

    def add_exponential(position: Position, lanes: int) -> None:
        power = builder.let(tirx.exp(read(position) - largest), "power")
        runs[0] = runs[0] + only_channels(power, lanes, 0.0)

    each_texel(builder, row, add_exponential, team, runs)
    (state[1],) = team.fold(builder, [state[1]], [lambda a, b: a + b])
    if role == "C":
        state[1] = splat(combine_lanes(builder.let(state[1]), lambda a, b: a + b))
    if logarithm:
        offset = builder.let(largest + tirx.log(state[1]), "offset")
    else:
        factor = builder.let(splat(fconst(1.0, ACCUMULATOR)) / state[1], "factor")

    def write(position: Position, lanes: int) -> None:
        value = read(position)
        value = value - offset if logarithm else tirx.exp(value - largest) * factor
        epilogue.write(*position, value)

    with builder.when(builder.inside):
        each_texel(builder, row, write, team)
