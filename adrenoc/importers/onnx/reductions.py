"""Reductions over axes: NaN, empty axes and integers as onnxruntime has them.

Integers of 32 bits are folded in 64 and end at the ends of their dtype, where C and TVM wrap.

Source: ONNX operator reference; what onnxruntime 1.32 computes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.tvmapi import Expr
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.values import dtype_of, make_constant

Convert = Callable[[Node], relax.Expr]
Map = Callable[[relax.Expr], relax.Expr]
Fold = Callable[..., relax.Expr]

_ENDS = np.iinfo(np.int32)


def _axes_of(node: Node) -> list[int]:
    """Return the axes to fold; none where an attribute says that no axes are none."""
    axes = node.ints(1, "axes")
    if axes or node.attrs.get("noop_with_empty_axes", 0):
        return axes or []
    return list(range(len(node.shape())))


def _same(x: relax.Expr) -> relax.Expr:
    return x


def _square(x: relax.Expr) -> relax.Expr:
    return x * x


def _end(x: relax.Expr) -> relax.Expr:
    """End an int64 where an int32 does."""
    least, most = (make_constant(np.array(end, np.int64)) for end in (_ENDS.min, _ENDS.max))
    return relax.op.minimum(relax.op.maximum(x, least), most)


def _fold(fold: Fold, before: Map = _same, after: Map = _same) -> Convert:
    """Fold; TVM wraps integers, and leaves out what comes before and after where no axis is."""

    def convert(node: Node) -> relax.Expr:
        x, axes, keepdims = node.inputs[0], _axes_of(node), bool(node.attrs.get("keepdims", 1))
        dtype = dtype_of(x)
        if dtype == "int32":
            x = node.emit(x.astype("int64"))
        x = before(x)
        if before is _square and dtype == "int32":  # so that a sum of them stays in 64 bits
            x = _end(x)
        folded = after(_of_int32(node, fold)(x, axes, keepdims) if axes else x)
        return _end(folded).astype(dtype) if dtype == "int32" else folded

    return convert


# TVM inspects this function: it must be Python's own, with two parameters.
def _multiply_within(a: Expr, b: Expr) -> Expr:
    """Multiply so that a further factor stays in 64 bits: what is beyond the end stays there."""
    end = tirx.const(-_ENDS.min, "int64")
    return tirx.max(tirx.min(a * b, end), -end)


_PRODUCT = te.comm_reducer(_multiply_within, lambda t: tirx.const(1, t), name="product")


def _of_int32(node: Node, fold: Fold) -> Fold:
    """Return the fold of what was int32, in int64: products end on their way."""
    if fold is not relax.op.prod or dtype_of(node.inputs[0]) != "int32":
        return fold

    def product(x: relax.Expr, axes: list[int], keepdims: bool) -> relax.Expr:
        def fold_axes(source: te.Tensor) -> te.Tensor:
            shape = [int(d) for d in source.shape]
            folded = [axis % len(shape) for axis in axes]
            loops = {axis: te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in folded}
            kept = [1 if a in folded else d for a, d in enumerate(shape)]
            walked = [loops[axis] for axis in folded]

            def element(*index: Expr) -> Expr:
                at = [loops[a].var if a in loops else i for a, i in enumerate(index)]
                return _PRODUCT(source(*at), axis=walked)

            return te.compute(kept, element, name="product")

        whole = node.emit(node.bb.call_te(fold_axes, x, primfunc_name_hint="product"))
        return whole if keepdims else relax.op.squeeze(whole, axes)

    return product


def _log_sum_exp(node: Node) -> relax.Expr:
    """Fold; TVM takes an infinite extreme away from itself, which is NaN."""
    x, axes = node.inputs[0], _axes_of(node)
    if not axes:
        return x
    most = relax.op.max(x, axes, True)
    taken = relax.op.where(relax.op.isinf(most), node.like(0), most)
    total = relax.op.log(relax.op.sum(relax.op.exp(x - taken), axes, True))
    result = total + taken
    return result if node.attrs.get("keepdims", 1) else relax.op.squeeze(result, axes)


def _extreme(fold: Fold) -> Convert:
    """Fold; TVM has no extremes of booleans, and refuses axes from an input."""

    def convert(node: Node) -> relax.Expr:
        x, axes, dtype = node.inputs[0], _axes_of(node), dtype_of(node.inputs[0])
        if not axes:
            return x
        if dtype == "bool":
            x = x.astype("int32")
        result = fold(x, axes, keepdims=bool(node.attrs.get("keepdims", 1)))
        return node.emit(result).astype("bool") if dtype == "bool" else result

    return convert


def _place_of(fold: Fold, loser: float) -> Convert:
    """Find a place; TVM takes the last of equal ones without a look at NaN.

    onnxruntime keeps one that is first and passes over others.
    """

    def convert(node: Node) -> relax.Expr:
        x, shape = node.inputs[0], node.shape()
        axis, keepdims = int(node.attrs.get("axis", 0)) % len(shape), node.attrs.get("keepdims", 1)
        if not node.attrs.get("select_last_index", 0):
            return fold(x, axis, bool(keepdims))
        begins = None
        if dtype_of(x).startswith("float"):
            first = relax.op.strided_slice(x, [axis], [0], [1])
            first = first if keepdims else relax.op.squeeze(first, [axis])
            begins = relax.op.isnan(first)
            x = node.emit(relax.op.where(relax.op.isnan(x), node.like(loser), x))
        turned = fold(node.emit(relax.op.flip(x, axis)), axis, bool(keepdims))
        end, begin = (make_constant(np.array(at, np.int64)) for at in (shape[axis] - 1, 0))
        last = end - turned
        return last if begins is None else relax.op.where(begins, begin, node.emit(last))

    return convert


REDUCTION_OPS: dict[str, Convert] = {
    "ArgMax": _place_of(relax.op.argmax, -np.inf),
    "ArgMin": _place_of(relax.op.argmin, np.inf),
    "ReduceL1": _fold(relax.op.sum, relax.op.abs),
    "ReduceL2": _fold(relax.op.sum, _square, relax.op.sqrt),
    "ReduceLogSum": _fold(relax.op.sum, after=relax.op.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(relax.op.max),
    "ReduceMean": _fold(relax.op.mean),
    "ReduceMin": _extreme(relax.op.min),
    "ReduceProd": _fold(relax.op.prod),
    "ReduceSum": _fold(relax.op.sum),
    "ReduceSumSquare": _fold(relax.op.sum, _square),
}
