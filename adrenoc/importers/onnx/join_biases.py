"""Biases of attention over a cache that a graph computes of positions, as tables by distance.

Before -> after:
    y = GroupQueryAttention(..., attention_bias)      y = GroupQueryAttention(..., a constant)

What is added to scores is looked at by numbers (`found_rows.py`), as masks are; what it hides is a
window of the attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.cached import BIAS, BY_DISTANCE, SINKS
from adrenoc.importers.onnx.found_rows import RowReader
from adrenoc.importers.onnx.found_scores import FoundMask
from adrenoc.importers.onnx.graph import OnnxGraph, attributes
from adrenoc.importers.onnx.probe import Prober, choose_pasts
from adrenoc.importers.onnx.refusals import NotCovered

_WINDOW = "local_window_size"


def join_biases(
    graph: OnnxGraph, caches: Sequence[tuple[str, str]], tokens: int, rows: int
) -> None:
    """Change `graph` in place, for `tokens` new ones and caches of `rows`.

    Raises:
        UnsupportedOperatorError: biases hang on more than how far a row lies before the token.
    """
    biased = [
        node
        for node in graph.nodes
        if node.op_type == "GroupQueryAttention"
        and len(node.input) > BIAS
        and node.input[BIAS]
        and not attributes(node).get(BY_DISTANCE, 0)
    ]
    if not biased:
        return
    prober = Prober(graph=graph, caches=frozenset(past for past, _ in caches))
    pasts = choose_pasts(tokens, rows)
    reader = RowReader(prober=prober, graph=graph, tokens=tokens, rows=rows, pasts=pasts)
    refused = NotCovered()
    for node in biased:
        try:
            _join(graph, reader, node)
        except RefusedError as error:
            refused.add(node.name or node.output[0], error)
    refused.raise_if_any()
    reason = "that is all that they hang on, by their numbers for pasts of several lengths"
    taken = "tables by how far a row lies before the token"
    graph.log.add(f"{len(biased)} attention biases", taken, reason)


def _join(graph: OnnxGraph, reader: RowReader, node: onnx.NodeProto) -> None:
    own, name = attributes(node), node.input[BIAS]
    sunk = own.get("smooth_softmax", 0) == 1 or any(node.input[SINKS : SINKS + 1])
    mask = FoundMask(name=name)
    seen = reader.read([mask], causal=True, shifted=not sunk)
    node.input[BIAS] = ""
    if seen.bias is not None:
        wide = np.broadcast_to(seen.bias, (own["num_heads"], seen.bias.shape[1]))
        node.input[BIAS] = f"{name}/by distance"
        graph.set_constant(node.input[BIAS], np.ascontiguousarray(wide))
    before = own.get(_WINDOW, -1)
    windows = [window for window in (before, seen.window) if window > 0]
    kept = [a for a in node.attribute if a.name != _WINDOW]
    del node.attribute[:]
    node.attribute.extend(
        [
            *kept,
            helper.make_attribute(_WINDOW, min(windows, default=-1)),
            helper.make_attribute(BY_DISTANCE, 1),
        ]
    )
