"""Operators that stand in an ONNX graph for adrenoc's own: what rewrites make of other domains'.

They are called as no operator of the standard is, so that no file means one of them by its name.

TensorScatter: new rows of a cache, at a row that is given.

Of one sequence they are added in place, where heads and rows have axes of their own; others are a
choice, for each element, between old and new.

Source: ONNX operator reference: TensorScatter-24.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from adrenoc.base.tvmapi import Expr
from adrenoc.importers.onnx.cached import APPEND_ROWS, CACHED_ATTENTION
from adrenoc.importers.onnx.contrib import INVERSE
from adrenoc.importers.onnx.n_bits import N_BITS
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax import own
from adrenoc.importers.relax.cache_constants import head_of
from adrenoc.importers.relax.values import dtype_of, make_constant


def _n_bits(node: Node) -> relax.Expr:
    x, *constants = (operand for operand in node.inputs if operand is not None)
    return own.call_own(
        own.N_BITS,
        [x, *constants],
        shape=(*node.shape()[:-1], node.shape(1)[0]),
        dtype=dtype_of(x),
        block=int(node.attrs["block"]),
        bits=int(node.attrs["bits"]),
        zero=float(node.attrs["zero"]),
        zeros=len(constants) > 2,
    )


def _append_rows(node: Node) -> relax.Expr:
    operands = [operand for operand in node.inputs if operand is not None]
    return own.call_own(
        own.APPEND_ROWS,
        operands,
        shape=node.shape(),
        dtype=dtype_of(operands[0]),
        epsilon=float(node.attrs["epsilon"]),
        **_whole_attrs(node, "first", "rotated", "interleaved", "normed", "bits", "context"),
    )


def _cached_attention(node: Node) -> relax.Expr:
    operands = [operand for operand in node.inputs if operand is not None]
    heads, width = int(node.attrs["heads"]), node.shape(2)[-1]
    head = head_of(width, int(node.attrs["bits"]))
    return own.call_own(
        own.CACHED_ATTENTION,
        operands,
        shape=(*node.shape()[:2], heads * head),
        dtype=dtype_of(operands[0]),
        scale=float(node.attrs["scale"]),
        cap=float(node.attrs["cap"]),
        epsilon=float(node.attrs["epsilon"]),
        **_whole_attrs(
            node,
            "heads",
            "first",
            "rotated",
            "interleaved",
            "normed",
            "window",
            "sunk",
            "biased",
            "bits",
            "context",
        ),
    )


def _inverse(node: Node) -> relax.Expr:
    x = node.inputs[0]
    return own.call_own(own.INVERSE, [x], shape=node.shape(), dtype=dtype_of(x))


def _whole_attrs(node: Node, *names: str) -> dict[str, int]:
    return {name: int(node.attrs[name]) for name in names}


_ROWS = 2
"""The axis of rows in [1, heads, rows, head]."""


def _tensor_scatter(node: Node) -> relax.Expr:
    shape, given = node.shape(), node.shape(1)
    axis = int(node.attrs.get("axis", -2)) % len(shape)
    circular = node.text("mode", "linear") == "circular"
    apart = len(shape) == _ROWS + 2 and axis == _ROWS and shape[0] == 1
    whole = not circular or given[axis] == 1  # rows that begin again at the first are two runs
    if apart and whole and dtype_of(node.inputs[0]).startswith("float"):
        return _add_rows(node, shape, given, circular=circular)
    return _choose(node, shape, given, axis, circular=circular)


def _add_rows(
    node: Node, shape: tuple[int, ...], given: tuple[int, ...], *, circular: bool
) -> relax.Expr:
    """Return the operator that adds rows to a cache, which reads them token by token."""
    _, heads, tokens, head = given
    turned = relax.op.permute_dims(node.inputs[1], [0, 2, 1, 3])
    rows = relax.op.reshape(turned, (1, tokens, heads * head))
    starts = node.inputs[2] if len(node.inputs) > 2 else None
    first = make_constant(np.zeros(1, np.int32))
    if starts is not None:
        first = starts.astype("int32")
    if circular:
        first = relax.op.floor_mod(first, make_constant(np.array([shape[_ROWS]], np.int32)))
    plain = dict.fromkeys(("first", "rotated", "interleaved", "normed", "bits", "context"), 0)
    operands = [node.inputs[0], *(node.bb.normalize(one) for one in (rows, first))]
    dtype = dtype_of(node.inputs[0])
    return own.call_own(own.APPEND_ROWS, operands, shape=shape, dtype=dtype, epsilon=0.0, **plain)


def _choose(
    node: Node, shape: tuple[int, ...], given: tuple[int, ...], axis: int, *, circular: bool
) -> relax.Expr:
    def scatter(past: te.Tensor, update: te.Tensor, *starts: te.Tensor) -> te.Tensor:
        def element(*index: Expr) -> Expr:
            start = starts[0](index[0]).astype("int32") if starts else tirx.const(0, "int32")
            at = index[axis] - start
            at = tirx.floormod(at, shape[axis]) if circular else at
            source = [at if a == axis else i for a, i in enumerate(index)]
            written = tirx.And(at >= 0, at < given[axis])
            return tirx.if_then_else(written, update(*source), past(*index))

        return te.compute(shape, element, name="scattered")

    operands = [e for e in node.inputs[:3] if e is not None]
    return node.bb.call_te(scatter, *operands, primfunc_name_hint="tensor_scatter")


OWN_DOMAIN_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    "TensorScatter": _tensor_scatter,
    APPEND_ROWS: _append_rows,
    CACHED_ATTENTION: _cached_attention,
    INVERSE: _inverse,
    N_BITS: _n_bits,
}
