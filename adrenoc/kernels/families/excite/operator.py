"""Two products of one vector, perhaps of an image's mean: made by `fuse_excite`."""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.families.excite.excite_rule import EXCITE, excite_rule
from adrenoc.kernels.families.separable.joined import finish_operations
from adrenoc.kernels.families.shared.counts import size_of
from adrenoc.kernels.families.shared.operator import Kind, made_by_passes


def _multiply_adds(graph: Graph, node: Node) -> int:
    """Count each weight of both products once."""
    return sum(size_of(graph, name) for name in node.inputs[1:3])


def _operations(graph: Graph, node: Node) -> int:
    """Count the additions of a mean, and what is applied to the first product."""
    x = graph.operand(node.inputs[0]).extents
    pixels = x.h * x.w
    return finish_operations(graph, node) + (pixels * x.c if pixels > 1 else 0)


OPERATORS = (
    made_by_passes(
        EXCITE,
        Kind.PRODUCT,
        excite_rule,
        multiply_adds=_multiply_adds,
        operations=_operations,
    ),
)
