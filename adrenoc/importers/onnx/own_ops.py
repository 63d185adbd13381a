"""Operators that stand in an ONNX graph for adrenoc's own: what rewrites make of other domains'.

They are called as no operator of the standard is, so that no file means one of them by its name.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from adrenoc.importers.onnx.n_bits import N_BITS
from adrenoc.importers.onnx.node import Node
from adrenoc.relax.own import N_BITS as RELAX_N_BITS
from adrenoc.relax.own import call_own
from adrenoc.relax.values import dtype_of


def _n_bits(node: Node) -> relax.Expr:
    x, *constants = (operand for operand in node.inputs if operand is not None)
    return call_own(
        RELAX_N_BITS,
        [x, *constants],
        shape=(*node.shape()[:-1], node.shape(1)[0]),
        dtype=dtype_of(x),
        block=int(node.attrs["block"]),
        zero=float(node.attrs["zero"]),
        zeros=len(constants) > 2,
    )


OWN_DOMAIN_OPS: dict[str, Callable[[Node], relax.Expr]] = {N_BITS: _n_bits}
