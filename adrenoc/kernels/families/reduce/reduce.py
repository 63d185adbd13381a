"""Reductions over any axes: one thread, or a team, makes one texel of the result.

Where the channel is kept, a texel of the result folds whole texels, lane by lane.  Where the
channel is folded too, each of its four elements has an accumulator of four lanes, which are
combined at the end.

Softmax and its logarithm along any axis, in one kernel.

One thread, or a team, makes one row along the axis: a pass for the largest element, one for the
sum of exponentials, one that stores.  Nothing is kept between the passes: the row comes from
the texture cache again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adrenoc.base.tvmapi import (
    Expr,
    bytes_of,
    construct,
    fconst,
    floordiv,
    floormod,
    iconst,
    larger,
    maximum,
    minimum,
    smaller,
    splat,
    tirx,
)
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Extents, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.kernels.families.shared.rows import (
    RowTile,
    RowWork,
    candidates,
    estimate_clocks,
    pick_row_tile,
    row_threads,
    start_of_row,
)
from adrenoc.kernels.fused_bodies import Epilogue
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.walk import (
    ACCUMULATOR,
    Position,
    RunSums,
    Team,
    combine_lanes,
    each_texel,
    only_channels,
    plus,
    region_along,
    visits,
    widen,
)

Combine = Callable[[Expr, Expr], Expr]


def _multiply(a: Expr, b: Expr) -> Expr:
    return a * b


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How elements are folded: begin with `neutral`, `combine` each; a mean divides by the count.
    A fold that is a `sum` is made in runs where it is long."""

    neutral: float
    combine: Combine
    sum: bool = False
    mean: bool = False


REDUCTIONS = {
    "sum": Reduction(neutral=0.0, combine=plus, sum=True),
    "mean": Reduction(neutral=0.0, combine=plus, sum=True, mean=True),
    "max": Reduction(neutral=-math.inf, combine=larger),
    "min": Reduction(neutral=math.inf, combine=smaller),
    "prod": Reduction(neutral=1.0, combine=_multiply),
}


def reduce_axes(
    builder: KernelBuilder,
    tile: RowTile,
    reduction: Reduction,
    axes: Sequence[int],
    keepdims: bool,
    x: Access,
    out: Access,
    epilogue: Epilogue,
) -> None:
    """Emit the fold of x over its logical `axes`.

    Shapes:
        x: any, with roles
        out: x without `axes`, or with extents of one there; x's roles, where C is kept
    """
    roles = "".join(r for a, r in enumerate(x.spec.roles.roles) if a in axes and r != "1")
    count = math.prod(x.spec.shape[a] for a in axes)
    e = out.extents
    w, h, z, team = row_threads(builder, (e.w, e.h, e.n * e.blocks), tile)
    n, block = (iconst(0), z) if e.n == 1 else (floordiv(z, e.blocks), floormod(z, e.blocks))
    folds = _Folds(builder, reduction, x, roles, team)
    if "C" in roles:
        value = folds.elements(out, axes, keepdims, Position(n, block, h, w))
    else:
        index = out.index(n, iconst(0), h, w)
        from_n, _, from_h, from_w = x.position(_source_index(index, axes, keepdims))
        value = folds.texel(Position(from_n, block, from_h, from_w))
    if reduction.mean:
        value = value / splat(fconst(count, ACCUMULATOR))
    with builder.when(team.store_condition(builder, 0)):
        epilogue.write(n, block, h, w, value)


class _Folds:
    def __init__(
        self, builder: KernelBuilder, reduction: Reduction, x: Access, roles: str, team: Team
    ) -> None:
        self._builder, self._reduction, self._x, self._roles = builder, reduction, x, roles
        self._team = team

    def texel(self, start: Position) -> Expr:
        """Return four channels, folded lane by lane."""
        folded = self._registers(1)
        self._fold(start, folded, 0)
        return self._fold_in_team(folded, 1)[0]

    def _fold_in_team(self, folded: Registers, count: int) -> list[Expr]:
        values = [folded[i] for i in range(count)]
        return self._team.fold(self._builder, values, [self._reduction.combine] * count)

    def elements(self, out: Access, axes: Sequence[int], keepdims: bool, at: Position) -> Expr:
        """Return four elements of the result, each folded over all lanes of its texels."""
        channels = out.extents.c
        lanes = min(LANES, channels)
        folded = self._registers(lanes)
        for i in range(lanes):
            channel = at.block * iconst(LANES) + iconst(i)
            if channels % LANES:  # what does not exist repeats the last channel
                channel = minimum(channel, iconst(channels - 1))
            index = out.index(at.n, self._builder.let(channel, "c"), at.h, at.w)
            n, _, h, w = self._x.position(_source_index(index, axes, keepdims))
            self._fold(Position(n, iconst(0), h, w), folded, i)
        combine = self._reduction.combine
        zero = fconst(0.0, ACCUMULATOR)
        values = self._fold_in_team(folded, lanes)
        sums = [combine_lanes(self._builder.let(value), combine) for value in values]
        return construct([*sums, *[zero] * (LANES - lanes)])

    def _registers(self, count: int) -> Registers:
        folded = self._builder.registers(count, dtype=ACCUMULATOR)
        folded.fill(self._reduction.neutral)
        return folded

    def _fold(self, start: Position, folded: Registers, index: int) -> None:
        region = region_along(self._x.extents, self._roles, start)
        combine, neutral = self._reduction.combine, self._reduction.neutral
        additions = visits(region, self._team) if self._reduction.sum else 0
        runs = RunSums(self._builder, folded, [index], additions)

        def visit(position: Position, lanes: int) -> None:
            texel = self._builder.let(widen(self._x.texel(*position)), "x")
            runs[0] = combine(runs[0], only_channels(texel, lanes, neutral))

        each_texel(self._builder, region, visit, self._team, runs)


def _source_index(index: Sequence[Expr], axes: Sequence[int], keepdims: bool) -> list[Expr]:
    """Return the first logical index of the source that an index of the result folds."""
    rest = list(index)
    if keepdims:
        return [iconst(0) if a in axes else i for a, i in enumerate(rest)]
    rank = len(index) + len(axes)
    return [iconst(0) if a in axes else rest.pop(0) for a in range(rank)]


def reduce_rule(context: RuleContext, node: Node) -> KernelCall:
    """Return one kernel for a reduction, named by the node's op, over any axes."""
    kernel = context.kernel(node, node.op)
    x = kernel.input_or_prologue()
    out, epilogue = kernel.output()
    axes = folded_axes(node, len(x.spec.shape))
    keepdims = bool(node.attrs["keepdims"])
    work = reduction_work(x.spec, x.extents, out.extents, axes)
    tile = pick_row_tile(kernel.context, kernel.node, kernel.builder.family, work)
    reduce_axes(kernel.builder, tile, REDUCTIONS[node.op], axes, keepdims, x, out, epilogue)
    return kernel.call()


def reduction_work(
    spec: OperandSpec, source: Extents, result: Extents, axes: Sequence[int]
) -> RowWork:
    """Return the rows of a fold over these axes of a tensor."""
    roles = "".join(r for a, r in enumerate(spec.roles.roles) if a in axes and r != "1")
    by_role = {"N": source.n, "C": source.blocks, "H": source.h, "W": source.w}
    channels = min(LANES, result.c) if "C" in roles else 1  # each channel is a row of its own
    return RowWork(
        rows=(result.w, result.h, result.n * result.blocks),
        length=math.prod(by_role[role] for role in roles),
        passes=channels,
        folds=channels,
        along_w="W" in roles,
    )


def folded_axes(node: Node, rank: int) -> list[int]:
    """Return the axes of its input of this rank that a reduction folds, in order."""
    stated = node.attrs["axis"]
    return sorted(a % rank for a in stated) if stated is not None else list(range(rank))


def reduction_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of a reduction that reads its input as it lies."""
    read, machine = graph.operand(node.inputs[0]), costs.machine
    axes = folded_axes(node, len(read.shape))
    work = reduction_work(read, read.extents, graph.operand(node.output).extents, axes)
    storage_bytes = bytes_of(costs.options.storage_dtype)
    tiles = candidates(work, costs.limits, machine.cost)
    return min(estimate_clocks(work, tile, machine, storage_bytes) for tile in tiles)


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

    runs = RunSums(builder, state, [1], visits(row, team))

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


def softmax_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a softmax, whichever role its axis plays."""
    kernel = context.kernel(node, node.op)
    x = kernel.input(node.inputs[0])
    out, epilogue = kernel.output()
    role = x.spec.roles.roles[int(node.attrs["axis"]) % len(x.spec.shape)]
    work = RowWork.from_extents(x.extents, role, passes=3, folds=2)
    tile = pick_row_tile(context, node, node.op, work)
    softmax(kernel.builder, tile, role, node.op == "log_softmax", x, out, epilogue)
    return kernel.call()
