"""Which nodes multiply the numbers of tokens by constant matrices, whichever family makes them."""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import LANES
from adrenoc.ir.operand import Memory
from adrenoc.kernels.families.matmul import gemv_rule
from adrenoc.kernels.families.matmul.gemv_rule import FLATTENED, suits_gemv
from adrenoc.kernels.families.n_bits import n_bits_rule
from adrenoc.kernels.families.n_bits.n_bits_rule import suits_few
from adrenoc.kernels.families.n_bits.unpack import word_inputs
from adrenoc.kernels.families.shared.cost_model import CostModel
from adrenoc.kernels.families.shared.row_product import N_BITS
from adrenoc.target.cost.cost import Cost


def is_row_product(graph: Graph, node: Node) -> bool:
    """Return whether a node multiplies tokens by a constant matrix, in numbers and not in bytes."""
    if node.op == N_BITS:
        return True
    if node.op != "matmul" or node.attrs.get(FLATTENED) or node.prologue is not None:
        return False
    matrix = graph.tensors[node.inputs[1]]
    is_plain = matrix.value is not None and len(matrix.shape) == 2
    return is_plain and graph.operand(node.inputs[0]).memory is not Memory.BYTES


def is_of_few_bits(node: Node) -> bool:
    """Return whether a node multiplies by weights of few bits."""
    return node.op == N_BITS


def may_round_tokens(graph: Graph, node: Node, cost: Cost) -> bool:
    """Return whether a node multiplies many tokens by weights of few bits."""
    return is_of_few_bits(node) and not is_of_few_tokens(graph, node, cost)


def is_of_few_tokens(graph: Graph, node: Node, cost: Cost) -> bool:
    """Return whether a row product has so few tokens that every work-group reads all numbers of
    each."""
    out = graph.operand(node.output).extents
    return suits_few(out, cost) if node.op == N_BITS else suits_gemv(out)


def row_product_clocks(graph: Graph, node: Node, costs: CostModel) -> float:
    """Return the least clocks of a row product of few tokens; infinite where no schedule fits."""
    limits, machine = costs.limits, costs.machine
    if node.op == N_BITS:
        work = n_bits_rule.work_of(graph, node, costs.options)
        tiles = n_bits_rule.candidates(work, limits, machine.cost)
        return min((n_bits_rule.estimate_clocks(work, t, machine) for t in tiles), default=math.inf)
    vectors = gemv_rule.work_of(graph, node, costs.options)
    teams = gemv_rule.candidates(vectors, limits, machine.cost)
    return min((gemv_rule.estimate_clocks(vectors, t, machine) for t in teams), default=math.inf)


def whole_inputs(node: Node) -> int:
    """Inputs that a row product reads at a time."""
    return word_inputs(int(node.attrs["bits"])) if node.op == N_BITS else LANES
