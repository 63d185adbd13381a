"""Maps that move whole texels, and where each texel of what they read goes.

A head is split from its channels, an image becomes tokens or windows, tensors are put side by side
along their rows: four channels that lie in one texel stay together, and every texel goes to one
place.  Who makes what such a map reads can write it there.

Before -> after:
    y[0, m, c] = x[0, m // 16, m % 16, c]     texel (0, b, h, w) of x goes to (0, b, 0, h * 16 + w)
    y[0, m, c] = x[0, m, c] if m < 9 else     texel (0, b, 0, w) of x goes to (0, b, 0, w), that of
                 z[0, m - 9, c]               z goes to (0, b, 0, w + 9)

Most moves need none: maps read where elements lie, convolutions make channels in the order that is
read, concatenations and slices are ranges of other tensors, whole texels are stored where they are
read.  What is left has a reader that takes whole texels, many times, of a tensor whose texels it
would have to put together at each read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import (
    IF_THEN_ELSE,
    Call,
    Expr,
    Var,
    const_int,
    floordiv,
    floormod,
    iconst,
    sym,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Body, Graph, Node, Placing
from adrenoc.ir.layout import LANES, OperandSpec
from adrenoc.kernels.views import (
    UnknownFormError,
    Values,
    bind_extents,
    index_expr,
    index_value,
    truth_value,
)
from adrenoc.passes.analyse.reads import mentions
from adrenoc.passes.context import Context

MOST_TEXELS = 1 << 20
"""The most texels of a tensor whose every texel is looked at."""

MOST_COPIES = 4
"""Places that one texel goes to: those of an image of twice as many rows and columns."""

_ROLES = "nbhw"


@dataclass(frozen=True, kw_only=True, eq=False)
class TexelMove:
    """A part of a tensor whose texels are those of `source`: which one each is, by its position.
    The part is a box that begins at `begin`: `grid` are the extents of its n, block, h and w, `at`
    variables for them, and `read` the position of the texel in the source, whose extents `held`
    are."""

    source: str
    begin: tuple[int, ...]
    grid: tuple[int, ...]
    held: tuple[int, ...]
    at: tuple[Expr, ...]
    read: tuple[Expr, ...]

    def compose(self, first: TexelMove, *, block: int) -> TexelMove:
        """Return both moves as one; `source` is what `first` makes, from `block` on."""
        position = [self.read[0], self.read[1] + iconst(block), *self.read[2:]]
        analyzer = bind_extents(self.at, self.grid)
        values = list(zip(first.at, position, strict=True))
        read = tuple(analyzer.simplify(index_expr(index, values)) for index in first.read)
        return replace(self, source=first.source, held=first.held, read=read)


def texel_moves(graph: Graph, node: Node) -> tuple[TexelMove, ...]:
    """Return what a node moves, in parts; nothing where it moves no whole texels or computes."""
    body, made = node.body, graph.operand(node.output)
    if not node.is_map or body is None or node.epilogue is not None or body.reduced:
        return ()
    if made.layout is None or math.prod(_grid(made)) > MOST_TEXELS:
        return ()
    try:
        moves = [_move(graph, body, load, made, box) for load, box in _parts(body, made)]
    except UnknownFormError:
        return ()
    found = tuple(move for move in moves if move is not None)
    return found if len(found) == len(moves) else ()


Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a part begins, and its extents."""


def _parts(body: Body, made: OperandSpec) -> Iterator[tuple[Any, Box]]:
    """Yield the loads that a body chooses from, each with the box in which it is chosen.

    Raises:
        UnknownFormError: it does more than that.
    """
    loads = list(_iterate_choices(body.value))
    if len(loads) == 1:
        yield loads[0][0], ((0,) * len(_ROLES), _grid(made))
        return
    at = [axis.reshape(-1) for axis in np.indices(_grid(made))]
    by_role = {"N": at[0], "H": at[2], "W": at[3], "1": np.zeros_like(at[0])}
    axes = [(a, by_role[r]) for a, r in zip(body.axes, made.roles.roles, strict=True) if r != "C"]
    for load, conditions in loads:
        there = np.ones(at[0].shape, bool)
        for condition, holds in conditions:
            there &= truth_value(condition, axes) == holds
        if not there.any():
            continue
        begin = tuple(int(axis[there].min()) for axis in at)
        extents = tuple(
            int(axis[there].max()) + 1 - first for axis, first in zip(at, begin, strict=True)
        )
        if math.prod(extents) != there.sum():
            raise UnknownFormError
        yield load, (begin, extents)


def _iterate_choices(value: Expr) -> Iterator[tuple[Any, tuple[tuple[Expr, bool], ...]]]:
    """Yield the loads of a value that is one of them, and the conditions for each."""
    if isinstance(value, tvm.ir.TensorLoad):
        yield value, ()
        return
    if isinstance(value, tirx.Select):
        condition, then, otherwise = value.condition, value.true_value, value.false_value
    elif isinstance(value, Call) and value.op.name == IF_THEN_ELSE:
        condition, then, otherwise = value.args
    else:
        raise UnknownFormError
    for branch, holds in ((then, True), (otherwise, False)):
        for load, conditions in _iterate_choices(branch):
            yield load, ((condition, holds), *conditions)


def _move(graph: Graph, body: Body, load: Any, made: OperandSpec, box: Box) -> TexelMove | None:
    """Return a part that one load gives, if it is texels of what that reads."""
    name = body.name_of(load)
    source = graph.operand(name)
    if source.layout is None or math.prod(_grid(source)) > MOST_TEXELS:
        return None
    begin, extents = box
    at = tuple(Var(f"t{role}", "int32") for role in _ROLES)
    read = _read_at(body.axes, load, made, source, (begin, extents), at)
    if read is None:
        return None
    return TexelMove(source=name, begin=begin, grid=extents, held=_grid(source), at=at, read=read)


def _grid(spec: OperandSpec) -> tuple[int, ...]:
    """Return extents of n, block, h, w."""
    e = spec.extents
    return e.n, e.blocks, e.h, e.w


def _read_at(
    axes: Sequence[Expr],
    load: Any,
    made: OperandSpec,
    source: OperandSpec,
    box: Box,
    at: Sequence[Expr],
) -> tuple[Expr, ...] | None:
    """Return which texel (n, block, h, w) of the source a texel of the box is, if it is one."""
    begin, extents = box
    lane = Var("lane", "int32")
    analyzer = bind_extents((*at, lane), (*extents, LANES))
    n, block, h, w = (
        iconst(first) if extent == 1 else var + iconst(first)
        for var, first, extent in zip(at, begin, extents, strict=True)
    )
    channel = block * iconst(LANES) + lane if made.extents.c > 1 else iconst(0)
    by_role = {"N": n, "C": channel, "H": h, "W": w, "1": iconst(0)}
    values = [(axis, by_role[r]) for axis, r in zip(axes, made.roles.roles, strict=True)]
    read = dict.fromkeys("NCHW", iconst(0))
    for role, index, extent in zip(source.roles.roles, load.indices, source.shape, strict=True):
        if extent > 1:
            read[role] = analyzer.simplify(_floor_quotients(index_expr(index, values), analyzer))
    if made.extents.c % LANES or source.extents.c % LANES:
        same = analyzer.simplify(read["C"] - channel)
        if made.extents.c != source.extents.c or const_int(same) != 0:
            return None
        read["C"] = block
    else:
        first = analyzer.simplify(read["C"] - lane)
        if const_int(analyzer.simplify(floormod(first, LANES))) != 0:
            return None
        read["C"] = analyzer.simplify(floordiv(first, LANES))
    found = tuple(read[role] for role in "NCHW")
    return None if mentions(found, [lane]) else found


def _floor_quotients(index: Expr, analyzer: Any) -> Expr:
    """Round an index's quotients down, which is the same where nothing is negative.

    Raises:
        UnknownFormError: something can be.
    """

    def floor(quotient: Any) -> Any:
        if analyzer.const_int_bound(quotient.a).min_value < 0:
            raise UnknownFormError
        return tirx.floordiv(quotient.a, quotient.b)

    return structural_map(index, (tirx.Div, floor))


def placing_of(move: TexelMove) -> Placing | None:
    """Return where each texel of the source goes; None where one goes to many places.  Those that
    the move does not read go nowhere (`Placing.within`), those of what is enlarged go to a few
    places each (`Placing.copies`).  What TVM's arithmetic finds is tried for every texel."""
    at = [axis.reshape(-1) for axis in np.indices(move.grid)]
    here = list(zip(move.at, at, strict=True))
    read = [np.broadcast_to(index_value(index, here), at[0].shape) for index in move.read]
    beyond = any((r < 0).any() or (r >= e).any() for r, e in zip(read, move.held, strict=True))
    lost = None if beyond else _find_lost_digits(move, here, read)
    if lost is None:
        return None
    copies = tuple(copies for _, copies in lost)
    within = _box(read, move.held, math.prod(move.grid) // math.prod(copies))
    if within is None:
        return None
    axes = tuple(Var(f"s{number}", "int32") for number in range(len(_ROLES) + len(lost)))
    to = _solve_position(move, axes, lost)
    tables = [*read, *(index_value(digit, here) for digit, _ in lost)]
    there = list(zip(axes, tables, strict=True))
    if to is None or any((index_value(t, there) != a).any() for t, a in zip(to, at, strict=True)):
        return None
    to = tuple(t + iconst(first) if first else t for t, first in zip(to, move.begin, strict=True))
    return Placing(axes=axes, to=to, blocks=move.held[1], within=within, copies=copies)


def _find_lost_digits(
    move: TexelMove, here: Values, read: Sequence[np.ndarray]
) -> tuple[tuple[Expr, int], ...] | None:
    """Digits of the target's position that the source's leaves open, and how many there are.  None
    for one texel that goes to one place; pixels may be repeated, or the image as a whole."""
    grown = [
        (var, extent, extent // held)
        for var, extent, held in zip(move.at, move.grid, move.held, strict=True)
        if extent > held and extent % held == 0
    ]
    repeated = tuple((floormod(var, times), times) for var, _, times in grown)
    tiled = tuple((floordiv(var, extent // times), times) for var, extent, times in grown)
    for lost in ((), repeated, tiled):
        copies = [times for _, times in lost]
        if math.prod(copies) > MOST_COPIES:
            continue
        tables = [*read, *(index_value(digit, here) for digit, _ in lost)]
        if np.bincount(np.ravel_multi_index(tables, (*move.held, *copies))).max() == 1:
            return lost
    return None


def _solve_position(
    move: TexelMove, axes: Sequence[Expr], lost: Sequence[tuple[Expr, int]]
) -> tuple[Expr, ...] | None:
    """Return the position in what is made by that in the source, by TVM's arithmetic."""
    iterated = {
        var: tvm.ir.Range(0, extent)
        for var, extent in zip(move.at, move.grid, strict=True)
        if extent > 1
    }
    read = (*move.read, *(digit for digit, _ in lost))
    extents = (*move.held, *(copies for _, copies in lost))
    indices, known = [], []
    for index, axis, extent in zip(read, axes, extents, strict=True):
        turned, by = _remove_rotation(index, extent)
        indices.append(turned)
        known.append(floormod(axis - iconst(by), extent) if by else axis)
    found = sym.detect_iter_map(indices, iterated, check_level="nocheck")
    if not found.indices:
        return None
    try:
        back = sym.inverse_affine_iter_map(found.indices, known)
    except tvm.error.InternalError:
        return None  # it asks for steps of one, where it could say no
    analyzer = bind_extents(axes, extents)
    return tuple(
        analyzer.simplify(back[var]) if extent > 1 and var in back else iconst(0)
        for var, extent in zip(move.at, move.grid, strict=True)
    )


def _remove_rotation(index: Expr, extent: int) -> tuple[Expr, int]:
    """Return an index without the turn of its axis, and by how much it was turned: (i + 3) % 56."""
    if isinstance(index, tirx.FloorMod) and const_int(index.b) == extent:
        inner = index.a
        if isinstance(inner, tirx.Add) and (by := const_int(inner.b)) is not None:
            return inner.a, by
    return index, 0


def _box(
    read: Sequence[np.ndarray], source: Sequence[int], count: int
) -> tuple[tuple[int, int, int], ...] | None:
    """Return the ranges that the texels which are read are, where those are a box of the source."""
    limits = [(int(r.min()), int(r.max()) + 1) for r in read]
    if math.prod(end - first for first, end in limits) != count:
        return None
    return tuple(
        (number, first, end)
        for number, ((first, end), extent) in enumerate(zip(limits, source, strict=True))
        if (first, end) != (0, extent)
    )


def explain_moves(graph: Graph, context: Context) -> Graph:
    """Log a Decision for each node that moves elements and that no Decision is about yet."""
    log = context.log
    told = {decision.subject for decision in log}
    for node in graph.nodes:
        is_told = node.output in graph.output_names or bool(told & {node.name, node.output})
        if is_told or not node.moves_alone:
            continue
        log.add(node.name, "a kernel that only moves elements", _reason(graph, node))
    return graph


def _reason(graph: Graph, node: Node) -> str:
    readers = graph.consumers[node.output]
    source = graph.placements[node.inputs[0]]
    made = graph.placements[node.output]
    who = ", ".join(dict.fromkeys(f"{reader.op} {reader.name}" for reader in readers[:2]))
    who += f" and {len(readers) - 2} more" if len(readers) > 2 else ""
    if not readers:
        return f"its result lies in {graph.owner(node.output)}, in place"
    if texel_moves(graph, node):
        return f"{who} would look up each texel; {node.inputs[0]} is not made by one kernel alone"
    return (
        f"{who} would put each texel together anew at each read: {node.inputs[0]} lies in "
        f"{source.memory.value}, {source.layout}, and is read as {made.layout} "
        f"of {'x'.join(map(str, graph.tensors[node.output].shape))}"
    )
