"""Maps that read one tensor at other rows and columns: pads that mirror or repeat, enlargements.

Their channels stay where they are, so that a texel of theirs is a texel of what they read, and who
reads them can read that instead.

Before -> after:
    p = map[nn.pad reflect](x); y = conv2d(p, w)      y = conv2d[nn.pad conv2d](x, w), which reads
                                                      row abs(h - 1) of x where it read row h of p
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tvm_ffi.structural import structural_walk

from adrenoc.base.tvmapi import BufferLoad, Expr, const_int, dtype_of, tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Layout, agree

OUTSIDE = -1
"""A row or column that no tensor has."""


def find_moved_source(graph: Graph, node: Node) -> str | None:
    """Return the tensor that a map reads at other rows and columns, where that is all that it
    does."""
    body, layout = node.body, graph.placements[node.output].layout
    if body is None or layout is None or not isinstance(body.value, tvm.ir.TensorLoad):
        return None
    if len(node.inputs) != 1 or body.reduced or node.output in graph.output_names:
        return None
    (source,) = node.inputs
    theirs = graph.placements[source].layout
    if graph.tensors[source].value is not None or theirs is None:
        return None
    shapes = [graph.tensors[name].shape for name in (source, node.output)]
    if len(theirs.roles) != len(layout.roles):
        return None
    if not all(agree(theirs, layout, shape) for shape in shapes):
        return None
    return source if _moves_pixels(graph, node, source, body, layout) else None


def _moves_pixels(graph: Graph, node: Node, source: str, body: Body, layout: Layout) -> bool:
    """Return whether rows are read by row and columns by column, and nothing else moves."""
    before, made = graph.tensors[source].shape, graph.tensors[node.output].shape
    load: BufferLoad = body.value
    facts = zip(layout.roles, load.indices, body.axes, before, made, strict=True)
    moved = False
    for role, index, axis, extent, own in facts:
        kept = index.same_as(axis) or (extent == 1 and const_int(index) == 0)
        if role in "HW":
            others = [other for other in body.axes if not other.same_as(axis)]
            if mentions([index], others):
                return False
            moved = moved or not index.same_as(axis)
        elif extent != own or not kept:
            return False
    return moved


def mentions(expressions: Iterable[Any], axes: Sequence[Any]) -> bool:
    """Return whether expressions depend on any of these axes."""
    found = False

    def note(var: Any) -> None:
        nonlocal found
        found = found or any(var.same_as(axis) for axis in axes)

    for expression in expressions:
        structural_walk(expression, (tirx.Var, note))
    return found


def zero_outside(body: Body, layout: Layout, shape: Sequence[int]) -> Body:
    """Return the move, which reads outside of its source wherever it is itself read outside of
    `shape`.

    That is for zero padding, which comes after the map, and for sources that are zero there.
    """

    def guard_index(index: Expr, axis: Expr, extent: int) -> Expr:
        inside = tirx.And(axis >= 0, axis < extent)
        return tirx.Select(inside, index, tirx.const(OUTSIDE, dtype_of(index)))

    load: BufferLoad = body.value
    indices = [
        guard_index(index, axis, extent) if role in "HW" else index
        for role, index, axis, extent in zip(
            layout.roles, load.indices, body.axes, shape, strict=True
        )
    ]
    return replace(body, value=BufferLoad(load.source, indices))
