"""Cumulative sums and products along any axis: each element is read once, or twice by a team.

One thread makes a row from its begin to its end.  Where rows are few and long a team shares each:
a member folds a range of the row, learns what those before it have folded, and goes through its
range once more, from there on.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from adrenoc.base.tvmapi import Expr, construct, iconst, lane, splat
from adrenoc.ir.graph import Node, Tensor
from adrenoc.ir.layout import LANES
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.operator import (
    Along,
    Batch,
    Kind,
    Numbers,
    Operator,
    TypicalRun,
    count_per_input_element,
)
from adrenoc.kernels.families.shared.rows import RowWork, pick_row_tile, start_of_row
from adrenoc.kernels.statements import Registers
from adrenoc.kernels.walk import (
    ACCUMULATOR,
    UNROLLED,
    Combine,
    Position,
    Team,
    combine_lanes,
    region_along,
    widen,
)

_PLACES = {"N": "n", "C": "block", "H": "h", "W": "w"}


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A scan from `neutral` on by `combine`; an exclusive one leaves out the element itself."""

    neutral: float
    combine: Combine
    exclusive: bool


_COMBINE = {"cumsum": (0.0, operator.add), "cumprod": (1.0, operator.mul)}


def scan_rule(context: RuleContext, node: Node) -> KernelCall:
    """Make the kernel of a scan, whichever role its axis plays."""
    kernel = context.kernel(node, node.op, carries=True)
    x, builder = kernel.input_or_prologue(), kernel.builder
    _, epilogue = kernel.output()
    role = x.spec.roles.roles[int(node.attrs["axis"]) % len(x.spec.shape)]
    work = RowWork.from_extents(x.extents, role, passes=2, folds=1, passes_alone=1)
    tile = pick_row_tile(context, node, node.op, work)
    neutral, combine = _COMBINE[node.op]
    what = Scan(neutral=neutral, combine=combine, exclusive=bool(node.attrs["exclusive"]))
    start, team = start_of_row(builder, tile, x, role)
    texels = math.prod(region_along(x.extents, role, start).counts)
    before = builder.registers(1, dtype=ACCUMULATOR, fill=what.neutral)

    def read(at: Position) -> Expr:
        return builder.let(widen(x.texel(*at)), "x")

    def fold(at: Position) -> None:
        value = read(at)
        whole = splat(combine_lanes(value, what.combine)) if role == "C" else value
        before[0] = what.combine(before[0], whole)

    def write(at: Position) -> None:
        along = _scan_lanes if role == "C" else _lane_by_lane
        epilogue.write(*at, along(builder, what, before, read(at)))

    if team.width > 1:
        _each_of_range(builder, team, role, start, texels, fold)
        # Put what the members before this one have folded in place of what it has.
        held = builder.allocate_shared(team.width * team.count, dtype=ACCUMULATOR)
        first = builder.let(team.index * iconst(team.width), "first")
        held[first + team.member] = before[0]
        builder.barrier()
        before.fill(what.neutral)
        with builder.loop(team.width - 1, "m", rolled=True) as m, builder.when(m < team.member):
            before[0] = what.combine(before[0], held[first + m])
    with builder.when(builder.inside):
        _each_of_range(builder, team, role, start, texels, write)
    return kernel.call()


def _each_of_range(
    builder: KernelBuilder,
    team: Team,
    role: str,
    start: Position,
    texels: int,
    visit: Callable[[Position], None],
) -> None:
    """Visit the texels of a row in order: a member of a team those of its range."""
    each = -(-texels // team.width)
    complete = each * team.width == texels

    def visit_number(i: Expr) -> None:
        number = i if team.width == 1 else builder.let(team.member * iconst(each) + i, "i")
        with builder.when(None if complete else number < iconst(texels)):
            visit(start._replace(**{_PLACES[role]: number}) if role in _PLACES else start)

    # A compiler that unrolls the loop once more has all of a row wait in registers.
    several = min(UNROLLED, each)
    with builder.loop(each // several, "t", rolled=True) as t:
        for u in range(several):
            visit_number(builder.let(t * iconst(several) + iconst(u), "i"))
    for u in range(each - each % several, each):
        visit_number(iconst(u))


def _lane_by_lane(builder: KernelBuilder, what: Scan, before: Registers, value: Expr) -> Expr:
    """Return the results of a texel of four rows; `before` is brought up to it."""
    excluded = builder.let(before[0], "before")
    included = builder.let(what.combine(excluded, value), "total")
    before[0] = included
    return excluded if what.exclusive else included


def _scan_lanes(builder: KernelBuilder, what: Scan, before: Registers, value: Expr) -> Expr:
    """Return the results of a texel that lies along its row; `before` is brought up to it."""
    totals = [builder.let(lane(before[0], 0), "before")]
    for i in range(LANES):
        totals.append(builder.let(what.combine(totals[-1], lane(value, i)), "total"))
    before[0] = splat(totals[-1])
    return construct(totals[:LANES] if what.exclusive else totals[1:])


def _refuses(node: Node, tensors: Mapping[str, Tensor]) -> str | None:
    for name in (node.inputs[0], node.output):
        if not tensors[name].is_float:
            return f"{name} is of {tensors[name].dtype}, expected floating point"
    return "all axes as one, expected one of them" if node.attrs["axis"] is None else None


def _follows_batch(batch: Batch, node: Node) -> Along | None:
    along, rank = batch.along[node.inputs[0]], len(batch.shape(node.inputs[0]))
    return None if int(node.attrs["axis"]) % rank == along.axis else along


def _typical(run: TypicalRun, node: Node, data: np.ndarray) -> np.ndarray:
    """Return sums up to the last; elements that are alike count as often as there are."""
    shape = run.graph.tensors[node.output].shape
    axis = int(node.attrs["axis"]) % len(shape)
    unseen = shape[axis] / data.shape[axis + 1]
    if node.op == "cumsum":
        return np.asarray(np.cumsum(data, axis=axis + 1) * unseen)
    return np.asarray(np.cumprod(data, axis=axis + 1) ** unseen)


def _scan(name: str) -> Operator:
    return Operator(
        name=name,
        kind=Kind.REDUCTION,
        numbers=Numbers.CARRIED,
        rule=scan_rule,
        relax=f"relax.{name}",
        refuses=_refuses,
        keeps_axes=True,
        follows_batch=_follows_batch,
        operations=count_per_input_element(1),
        typical=_typical,
    )


OPERATORS = (_scan("cumsum"), _scan("cumprod"))
