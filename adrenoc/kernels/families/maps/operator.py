"""Maps and folds: operators that have a body, which says all that passes ask elsewhere."""

from __future__ import annotations

import math

from adrenoc.ir.graph import Graph, Node
from adrenoc.kernels.body_cost import body_operations
from adrenoc.kernels.families.maps.body_rule import body_rule
from adrenoc.kernels.families.shared.operator import (
    NO_INPUTS,
    Kind,
    Numbers,
    Operator,
    any_layout,
    refuses_nothing,
    same_layout,
)


def _operations(graph: Graph, node: Node) -> int:
    """Those of the expression, for each element and each that it folds."""
    if node.body is None:
        raise ValueError(f"{node.name} has no body")
    reduced = math.prod(extent for _, extent in node.body.reduced)
    elements = math.prod(graph.tensors[node.output].shape)
    return body_operations(node.body) * elements * reduced


def _make_body_operator(name: str) -> Operator:
    return Operator(
        name=name,
        kind=Kind.MAP,
        numbers=Numbers.COMPUTED,
        rule=body_rule,
        relax="",
        refuses=refuses_nothing,
        wants_layout=any_layout,
        makes_layout=same_layout,
        whole_numbers=NO_INPUTS,
        writes_into=None,
        keeps_axes=False,
        reads_often=False,
        needs_channel_only=False,
        follows_batch=None,
        multiply_adds=None,
        terms=None,
        operations=_operations,
        typical=None,
        fusions=frozenset(),
        channel_weights=None,
        channel_sums=None,
    )


OPERATORS = (_make_body_operator("map"), _make_body_operator("fold"))
