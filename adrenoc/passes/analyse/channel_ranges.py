"""Maps that only put ranges side by side, or cut one out: concatenations and slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adrenoc.base.tvmapi import IF_THEN_ELSE, Expr, const_int, sym, tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node


@dataclass(frozen=True, kw_only=True)
class Part:
    """One operand of a concatenation; `start` is its first index along the axis."""

    name: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Concat:
    """A tensor that is others side by side along `axis`, in order."""

    axis: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A tensor that is `source` from index `start` of `axis` on, whole along the other axes."""

    axis: int
    source: str
    start: int


def concat_of(graph: Graph, node: Node) -> Concat | None:
    """Return what a node puts side by side; None where it does something else.

    TVM states a concatenation as `if_then_else(k <= i, last[i - k], <the parts before>)`.
    """
    body = node.body
    if body is None or body.reduced or node.epilogue is not None:
        return None
    axis, rest, loads = None, body.value, []
    while isinstance(rest, tvm.ir.Call) and rest.op.name == IF_THEN_ELSE:
        condition, then, rest = rest.args
        place = _read_bound(condition, body)
        if place is None or (axis is not None and place[0] != axis):
            return None
        axis = place[0]
        loads.append((place[1], then))
    if axis is None:
        return None
    parts, end = [], graph.tensors[node.output].shape[axis]
    for start, load in (*loads, (0, rest)):
        name = _find_shifted_source(graph, body, load, axis, start)
        if name is None or start + graph.tensors[name].shape[axis] != end:
            return None
        parts.append(Part(name=name, start=start))
        end = start
    return Concat(axis=axis, parts=tuple(reversed(parts)))


def slice_of(graph: Graph, node: Node) -> Slice | None:
    """Return what a map cuts out, with steps of one; None where it does something else."""
    body = node.body
    if not node.is_map or body is None or node.epilogue is not None or len(node.inputs) != 1:
        return None
    (source,) = node.inputs
    shape, whole = graph.tensors[node.output].shape, graph.tensors[source].shape
    cut = [a for a, (x, y) in enumerate(zip(shape, whole, strict=False)) if x != y]
    if len(shape) != len(whole) or len(cut) != 1:
        return None
    (axis,) = cut
    load = body.value
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    start = const_int(_analyzer(body, shape).simplify(load.indices[axis] - body.axes[axis]))
    if start is None or _find_shifted_source(graph, body, load, axis, -start) is None:
        return None
    return Slice(axis=axis, source=source, start=start)


def restore_whole_sources(
    graph: Graph, parts: Sequence[Part], slices: Mapping[str, Slice]
) -> tuple[Part, ...]:
    """Return the parts; slices that are in order all of what they are cut from become that.

    Before -> after:
        concat(x[0:8], x[8:16], y)      concat(x, y)
    """
    found: list[Part] = []
    waiting = list(parts)
    while waiting:
        first = waiting[0]
        cut = slices.get(first.name)
        run = 1 if cut is None else _run_of(graph, waiting, slices, cut.source)
        whole = cut is not None and run > 1
        found.append(Part(name=cut.source, start=first.start) if cut and whole else first)
        del waiting[:run]
    return tuple(found)


def _run_of(graph: Graph, parts: Sequence[Part], slices: Mapping[str, Slice], source: str) -> int:
    """Return how many of the first parts are, in order, all of a tensor; 1 if they are not."""
    for count, part in enumerate(parts):
        cut, at = slices.get(part.name), part.start - parts[0].start
        if cut is None or (cut.source, cut.start) != (source, at):
            return 1
        if at + graph.tensors[part.name].shape[cut.axis] == graph.tensors[source].shape[cut.axis]:
            return count + 1
    return 1


def _analyzer(body: Body, shape: tuple[int, ...]) -> Any:
    """It knows the axes that have one element only."""
    analyzer = sym.Analyzer()
    for var, extent in zip(body.axes, shape, strict=True):
        if extent == 1:
            zero = tirx.const(0, str(var.ty))
            analyzer.bind(var, tvm.ir.Range(zero, zero + 1))
    return analyzer


def _read_bound(condition: Any, body: Body) -> tuple[int, int] | None:
    """(axis, k) of the condition `k <= axis`."""
    if isinstance(condition, tirx.LE):
        bound, var = condition.a, condition.b
    elif isinstance(condition, tirx.GE):
        bound, var = condition.b, condition.a
    else:
        return None
    axes = [number for number, axis in enumerate(body.axes) if axis.same_as(var)]
    least = const_int(bound)
    return None if least is None or not axes else (axes[0], least)


def _find_shifted_source(graph: Graph, body: Body, load: Expr, axis: int, start: int) -> str | None:
    """Return the tensor that is read at the element's own place, `start` less along `axis`."""
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    name = body.source_of(load.source)
    if name is None or len(load.indices) != len(body.axes):
        return None
    analyzer = _analyzer(body, graph.tensors[name].shape)
    for number, (index, var) in enumerate(zip(load.indices, body.axes, strict=True)):
        if graph.tensors[name].shape[number] == 1 and const_int(analyzer.simplify(index)) == 0:
            continue
        wanted = -start if number == axis else 0
        if const_int(analyzer.simplify(index - var)) != wanted:
            return None
    return name
