"""All operators of the planning graph that a family computes, by name, and what spans families.

A new family adds its `OPERATORS` here; that is the only row outside of its folder.
"""

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES, Memory
from adrenoc.kernels.families.attention.attention import OPERATORS as ATTENTION
from adrenoc.kernels.families.cache.operator import OPERATORS as CACHE
from adrenoc.kernels.families.conv_nd import OPERATORS as CONV_ND
from adrenoc.kernels.families.excite import OPERATORS as EXCITE
from adrenoc.kernels.families.expansion.expansion_rule import OPERATORS as EXPANSION
from adrenoc.kernels.families.inverse import OPERATORS as INVERSE
from adrenoc.kernels.families.maps import OPERATORS as MAPS
from adrenoc.kernels.families.matmul import gemv
from adrenoc.kernels.families.matmul.gemv import suits_gemv
from adrenoc.kernels.families.matmul.matmul import OPERATORS as MATMUL
from adrenoc.kernels.families.n_bits import n_bits
from adrenoc.kernels.families.n_bits.n_bits import suits_few, word_inputs
from adrenoc.kernels.families.n_bits.n_bits_dot import OPERATORS as FEW_BITS
from adrenoc.kernels.families.pool import OPERATORS as POOL
from adrenoc.kernels.families.recurrent import OPERATORS as RECURRENT
from adrenoc.kernels.families.reduce.operator import OPERATORS as REDUCE
from adrenoc.kernels.families.scan import OPERATORS as SCAN
from adrenoc.kernels.families.separable import OPERATORS as SEPARABLE
from adrenoc.kernels.families.shared.machine import CostModel
from adrenoc.kernels.families.shared.operator import Fusion, Kind, Numbers, Operator
from adrenoc.kernels.families.shared.row_product import N_BITS
from adrenoc.kernels.families.winograd.winograd_conv_rule import OPERATORS as WINOGRAD
from adrenoc.target.cost import Cost

_FAMILIES = (
    MAPS,
    CONV_ND,
    MATMUL,
    FEW_BITS,
    ATTENTION,
    CACHE,
    POOL,
    RECURRENT,
    REDUCE,
    SCAN,
    SEPARABLE,
    EXPANSION,
    EXCITE,
    INVERSE,
    WINOGRAD,
)

OPERATORS: dict[str, Operator] = {
    operator.name: operator for family in _FAMILIES for operator in family
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
    """Return whether a node is one of these to a network; copies, regions, functions are not."""
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
    """Return the position of the input that a node's result is a change of; None of most."""
    operator = OPERATORS.get(node.op)
    return None if operator is None else operator.writes_into


def terms_of(graph: Graph, node: Node) -> int:
    """Return how many numbers or products each result of a node's operator adds up; 0 of others."""
    operator = OPERATORS.get(node.op)
    return 0 if operator is None or operator.terms is None else operator.terms(graph, node)


def is_row_product(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies tokens by a constant matrix, in numbers and not in bytes."""
    if node.op == N_BITS:
        return True
    if node.op != "matmul" or node.prologue is not None:
        return False
    matrix = graph.tensors[node.inputs[1]]
    is_plain = matrix.value is not None and len(matrix.shape) == 2
    return is_plain and graph.operand(node.inputs[0]).memory is not Memory.BYTES


def is_of_few_bits(node: Node) -> bool:
    """Return whether a node multiplies by weights of few bits."""
    return node.op == N_BITS


def is_of_few_tokens(graph: Graph, node: Node, cost: Cost) -> bool:
    """Return whether each work-group of a row product reads all numbers of each token."""
    out = graph.operand(node.output).extents
    return suits_few(out, cost) if node.op == N_BITS else suits_gemv(out)


def row_product_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of a row product of few tokens; infinite where no schedule fits."""
    limits, machine = costs.limits, costs.machine
    if node.op == N_BITS:
        work = n_bits.work_of(graph, node, costs.options)
        tiles = n_bits.candidates(work, limits, machine.cost)
        return min((n_bits.estimate_clocks(work, t, machine) for t in tiles), default=math.inf)
    vectors = gemv.work_of(graph, node, costs.options)
    teams = gemv.candidates(vectors, limits, machine.cost)
    return min((gemv.estimate_clocks(vectors, t, machine) for t in teams), default=math.inf)


def whole_inputs(node: Node) -> int:
    """Return inputs that a row product reads at a time."""
    return word_inputs(int(node.attrs["bits"])) if node.op == N_BITS else LANES
