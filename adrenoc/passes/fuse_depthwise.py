"""Join depthwise convolutions with the 1x1 convolution before or after them, where it is faster.

A depthwise convolution waits for memory, so what surrounds it is worth computing in its kernel:
the 1x1 convolution that reads it (`fuse_separable`), or the one that it reads (`fuse_expansion`).
A convolution joins one other at most: the pair that saves the most time comes first.

Before -> after:
    e = conv2d(x, w1); d = conv2d[depthwise](e, w2); y = conv2d(d, w3)
    d = expand_depthwise_conv2d(x, w1, w2); y = conv2d(d, w3), or
    e = conv2d(x, w1); y = separable_conv2d(e, w2, w3)
"""

from __future__ import annotations

from adrenoc.decision import DecisionLog
from adrenoc.graph import Graph
from adrenoc.passes.depthwise_pairs import Model, Pair
from adrenoc.passes.fuse_expansion import expansion_pair
from adrenoc.passes.fuse_separable import separable_pair
from adrenoc.passes.widen_sums import widen_sums
from adrenoc.rules.cost_model import CostModel

WORTH = 1.1
"""By how much a pair has to win: for the error of the estimates."""


def fuse_depthwise(graph: Graph, costs: CostModel, log: DecisionLog) -> Graph:
    """Join each pair that gains by it, in the place of its second half."""
    model = Model(costs=costs, wide=widen_sums(graph, costs, DecisionLog()).wide)
    pairs = [
        pair
        for node in graph.nodes
        for find in (separable_pair, expansion_pair)
        if (pair := find(graph, node, model, log)) is not None
    ]
    joined: dict[str, Pair] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.saved):
        ends = (pair.first.output, pair.second.output)
        other = next((joined[end] for end in ends if end in joined), None)
        if not WORTH * pair.together < pair.apart:  # nor where no schedule fits
            _refuse(log, pair, pair.estimates)
        elif other is not None:
            _refuse(log, pair, f"{other.first.name} with {other.second.name} saves more")
        else:
            log.add(pair.second.name, f"computes {pair.first.name} too", pair.estimates)
            joined.update(dict.fromkeys(ends, pair))
    if not joined:
        return graph
    gone = {pair.first.output for pair in joined.values()}
    changed = {pair.second.output: pair.joined for pair in joined.values()}
    return graph.with_nodes(changed.get(n.output, n) for n in graph.nodes if n.output not in gone)


def _refuse(log: DecisionLog, pair: Pair, reason: str) -> None:
    log.add(pair.first.name, f"a kernel before {pair.second.name}", reason)
