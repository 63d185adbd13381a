"""Operators that read or write at computed indices, and those that search for them.

TVM's ONNX frontend asks for shapes and wraps negative indices at run time; all shapes are known.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.refused import RefusedError
from adrenoc.base.tvmapi import Expr
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.fold import check_grown
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant


def wrap_index(node: Node, index: int, extents: np.ndarray) -> relax.Expr:
    """Indices counted from the front: a negative one counts from the end of its axis."""
    expr = node.inputs[index]
    value = constant_value(expr)
    if value is not None:
        return make_constant(np.where(value < 0, value + extents, value).astype(np.int32))
    expr = node.emit(expr.astype("int32"))
    extent = make_constant(np.asarray(extents, np.int32))
    negative = expr < make_constant(np.array(0, np.int32))
    return relax.op.where(negative, expr + extent, expr)


def _gather_elements(node: Node) -> relax.Expr:
    shape = node.shape()
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    index = wrap_index(node, 1, np.array(shape[axis]))
    return relax.op.gather_elements(node.inputs[0], index, axis=axis)


def _gather_nd(node: Node) -> relax.Expr:
    shape, batch = node.shape(), int(node.attrs.get("batch_dims", 0))
    index = wrap_index(node, 1, np.array(shape[batch : batch + node.shape(1)[-1]]))
    # Relax takes int64 alone.
    index = index.astype("int64")
    return relax.op.gather_nd(node.inputs[0], index, batch_dims=batch)


def _scatter_elements(node: Node) -> relax.Expr:
    """TVM: counts in indices as if they had the extents of the data on all other axes."""
    shape, counts = node.shape(), node.shape(1)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    short = [a for a, extent in enumerate(counts) if a != axis and extent < shape[a]]
    data = node.inputs[0]

    def part(begins: list[int], ends: list[int]) -> relax.Expr:
        return relax.op.strided_slice(data, list(range(len(shape))), begins, ends)

    ends = [counts[a] if a in short else extent for a, extent in enumerate(shape)]
    reached = part([0] * len(shape), ends) if short else data
    result = relax.op.scatter_elements(
        reached, node.inputs[1], node.inputs[2], axis=axis, reduction=_reduction(node)
    )
    for a in short:  # what lies beyond stays as it was
        begins = [counts[a] if b == a else 0 for b in range(len(shape))]
        ends[a] = shape[a]
        result = relax.op.concat([node.emit(result), part(begins, ends)], axis=a)
    return result


def _reduction(node: Node) -> str:
    name = node.text("reduction", "none")
    if name not in ("none", "add", "mul", "max", "min"):
        raise RefusedError(f"unknown reduction {name!r}")
    return "update" if name == "none" else name


def _one_hot(node: Node) -> relax.Expr:
    """TVM: off and on must be constants, and indices be plain."""
    depth = node.number(1)
    if depth is None:
        raise RefusedError("the depth is missing")
    extent = int(depth)
    rank = len(node.shape()) + 1
    axis = int(node.attrs.get("axis", -1)) % rank
    index = node.inputs[0].astype("int32")
    negative = index < make_constant(np.array(0, np.int32))
    from_end = index + make_constant(np.array(extent, np.int32))
    index = relax.op.expand_dims(relax.op.where(negative, from_end, index), axis)
    along = [extent if a == axis else 1 for a in range(rank)]
    check_grown(extent)
    numbers = make_constant(np.arange(extent, dtype=np.int32).reshape(along))
    hit = relax.op.equal(index, numbers)
    off, on = (
        relax.op.squeeze(relax.op.strided_slice(node.inputs[2], [0], [i], [i + 1]), [0])
        for i in (0, 1)
    )
    return relax.op.where(hit, on, off)


def _scan(node: Node, scan: Callable[..., relax.Expr]) -> relax.Expr:
    axis = node.number(1)
    if axis is None:
        raise RefusedError("the axis is missing")
    along = int(axis) % len(node.shape())
    reverse = bool(node.attrs.get("reverse", 0))
    x = node.inputs[0]
    if reverse:
        x = node.emit(relax.op.flip(x, along))
    exclusive = bool(node.attrs.get("exclusive", 0))
    result = scan(x, along, dtype_of(x), exclusive)
    return relax.op.flip(node.emit(result), along) if reverse else result


def _trilu(node: Node) -> relax.Expr:
    """TVM: a range in a form that has no kernel, where the diagonal is known at run time."""
    x, upper = node.inputs[0], bool(node.attrs.get("upper", 1))
    diagonal = node.input(1)
    if diagonal is None or constant_value(diagonal) is not None:
        cut = relax.op.triu if upper else relax.op.tril
        return cut(x, int(node.number(1) or 0))
    first = node.emit(relax.op.reshape(diagonal, [1]))

    def keep(source: te.Tensor, first: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            offset = (index[-1] - index[-2]).astype("int64")
            kept = offset >= first(0) if upper else offset <= first(0)
            return tirx.if_then_else(kept, source(*index), tirx.const(0, source.dtype))

        return te.compute(source.shape, element, name="triangle")

    return node.bb.call_te(keep, x, first, primfunc_name_hint="trilu")


INDEX_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    "CumProd": lambda node: _scan(node, relax.op.cumprod),
    "CumSum": lambda node: _scan(node, relax.op.cumsum),
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": lambda node: relax.op.scatter_nd(*node.inputs[:3], _reduction(node)),
    "Trilu": _trilu,
}
