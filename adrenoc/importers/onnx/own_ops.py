"""Operators that stand in an ONNX graph for adrenoc's own: what rewrites make of other domains'.

They are called as no operator of the standard is, so that no file means one of them by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from adrenoc.importers.onnx.cached import APPEND_ROWS, CACHED_ATTENTION
from adrenoc.importers.onnx.contrib import INVERSE
from adrenoc.importers.onnx.n_bits import N_BITS
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax import own
from adrenoc.importers.relax.cache_constants import head_of
from adrenoc.importers.relax.values import dtype_of


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


OWN_DOMAIN_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    APPEND_ROWS: _append_rows,
    CACHED_ATTENTION: _cached_attention,
    INVERSE: _inverse,
    N_BITS: _n_bits,
}
