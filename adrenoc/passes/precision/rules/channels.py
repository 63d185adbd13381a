"""Tensors of which some channels alone are tiny, and readers that bring these back.

Weights can make one channel a hundred million times smaller than the others, and the weights that
read it make up for it.  A channel that training has let die is as tiny, but nothing makes up for
it: it may be zero.

Before -> after (mixed):
    %y = conv2d(%x, %w), |w[2]| = 1e-8          the same, and %y stays in float32
    %z = conv2d(%y, %v), |v[:, 2]| = 1e8
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from adrenoc.ir.graph import Node
from adrenoc.ir.half import HALF_NORMAL
from adrenoc.passes.precision.analysis import Analysis, channel_weights

_COUNTS = 2.0**-10
"""The share of a sum from which on a term's digits are the sum's, in half."""


def channels(analysis: Analysis, kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The tensors with tiny channels that count, and the constants that they are made with."""
    graph = analysis.graph
    for node in graph.nodes:
        source = analysis.uneven_input(node)
        if not source or not _counts(analysis, node, source):
            continue
        for name in analysis[source].channels.way:
            if name in kept or graph.precision(name).rounded:
                continue
            yield name, f"half loses digits of tiny channels that {node.name} brings back"
            tensors = (graph.tensors[read] for read in graph.producers[name].inputs)
            yield from ((t.name, "") for t in tensors if t.value is not None and t.is_float)


def _counts(analysis: Analysis, node: Node, source: str) -> bool:
    """Whether a reader makes of a tiny channel what is not tiny."""
    graph, before = analysis.graph, np.asarray(analysis[source].channels.sizes)
    tiny = before < HALF_NORMAL
    weights = channel_weights(graph, node)
    sizes = weights.input_sizes if weights is not None and weights.mixes else None
    if sizes is None:
        made = analysis[node.output].channels
        after = np.asarray(made.sizes)
        if not made.way or after.shape != before.shape:
            return False
        return bool((tiny & (after >= HALF_NORMAL)).any())
    if sizes.shape != before.shape:
        return False
    shares = sizes * before
    return bool((tiny & (shares >= max(HALF_NORMAL, _COUNTS * shares.max()))).any())
