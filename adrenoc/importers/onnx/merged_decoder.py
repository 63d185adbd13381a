"""A decoder of optimum's that holds two graphs, for the first call and for those behind a past.

Before -> after:
    logits, present = If(use_cache_branch) {then: with past} {else: without}     the nodes of `then`
"""

from __future__ import annotations

import numpy as np

from adrenoc.bundle.decoder_names import PAST_BRANCH
from adrenoc.importers.onnx.branch import branch_taken, inline_branch
from adrenoc.importers.onnx.graph import OnnxGraph


def take_past_branch(graph: OnnxGraph) -> None:
    """Fix the input that chooses, and have the nodes of the branch with a past in `graph`.

    A past of no rows is what the other branch is for.
    """
    if PAST_BRANCH not in graph.constants and all(s.name != PAST_BRANCH for s in graph.inputs):
        return
    graph.inputs = [spec for spec in graph.inputs if spec.name != PAST_BRANCH]
    graph.set_constant(PAST_BRANCH, np.array([True]))
    nodes, taken = [], "is true"
    for node in graph.nodes:
        if node.op_type == "If" and node.input[0] == PAST_BRANCH:
            taken = f"is true: the {branch_taken(graph, node).replace('_', ' ')} alone is compiled"
            nodes += inline_branch(graph, node, "")
        else:
            nodes.append(node)
    graph.nodes = nodes
    reason = "it computes the first tokens too, over a past of no rows"
    graph.log.add(PAST_BRANCH, taken, reason)
