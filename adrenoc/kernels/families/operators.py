"""All operators of the planning graph that a family computes, by name.

A new family adds its `OPERATORS` here; that is the only row outside of its folder.
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.attention import operator as attention
from adrenoc.kernels.families.cache import operator as cache
from adrenoc.kernels.families.conv_nd import operator as conv_nd
from adrenoc.kernels.families.excite import operator as excite
from adrenoc.kernels.families.expansion import operator as expansion
from adrenoc.kernels.families.inverse import operator as inverse
from adrenoc.kernels.families.maps import operator as maps
from adrenoc.kernels.families.matmul import operator as matmul
from adrenoc.kernels.families.n_bits import operator as n_bits
from adrenoc.kernels.families.pool import operator as pool
from adrenoc.kernels.families.recurrent import operator as recurrent
from adrenoc.kernels.families.reduce import operator as reduce
from adrenoc.kernels.families.scan import operator as scan
from adrenoc.kernels.families.separable import operator as separable
from adrenoc.kernels.families.shared.operator import Fusion, Kind, Numbers, Operator
from adrenoc.kernels.families.winograd import operator as winograd

_FAMILIES = (
    maps,
    conv_nd,
    matmul,
    n_bits,
    attention,
    cache,
    pool,
    recurrent,
    reduce,
    scan,
    separable,
    expansion,
    excite,
    inverse,
    winograd,
)

OPERATORS: dict[str, Operator] = {
    operator.name: operator for family in _FAMILIES for operator in family.OPERATORS
}
"""Name in the planning graph -> what passes ask about it."""

OF_RELAX: dict[str, Operator] = {
    operator.relax: operator for operator in OPERATORS.values() if operator.relax
}
"""Operator of Relax -> the one that it stays whole as."""


def is_product(node: Node) -> bool:
    """Return whether a node adds up products, by weights or of activations."""
    operator = OPERATORS.get(node.op)
    return operator is not None and operator.is_product


def is_kind(node: Node, *kinds: Kind) -> bool:
    """Return whether a node is one of these to a network; copies, regions and functions are
    none."""
    operator = OPERATORS.get(node.op)
    return operator is not None and operator.kind in kinds


def gives(node: Node, *numbers: Numbers) -> bool:
    """Return whether a node's own operator, before prologue and epilogue, gives one of these."""
    operator = OPERATORS.get(node.op)
    return operator is not None and operator.numbers in numbers


def can(node: Node, fusion: Fusion) -> bool:
    """Return whether a node may become a part of this, if all else suits."""
    operator = OPERATORS.get(node.op)
    return operator is not None and fusion in operator.fusions


def changed_input(node: Node) -> int | None:
    """Position of the input that a node's result is a change of; None of most."""
    operator = OPERATORS.get(node.op)
    return None if operator is None else operator.writes_into


def terms_of(graph: Graph, node: Node) -> int:
    """Return how many numbers or products each result of a node's operator adds up; 0 of others."""
    operator = OPERATORS.get(node.op)
    return 0 if operator is None or operator.terms is None else operator.terms(graph, node)
