"""What dynamic quantisations are computed of.

A dynamic quantisation takes its quantum from the data: from its largest and its smallest number.
Half moves these, and with them every quantum; and it moves data by an eighth of a quantum, which
moves one number in eight to the next.  Each is an error of a whole quantum, which the layers behind
it carry on to the next quantisation, so that halves anywhere before one cost much more than their
own rounding.  The products between them, which take most of the time, are of bytes as before.

Before -> after (mixed):
    s = (max(x) - min(x)) / 255; q = round(x / s)      x, its largest and smallest number
    x = layer_norm(matmul(p, w) * t + r)               and s, and the sum, t and r, stay in float32
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from adrenoc.families.operators import is_product
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.precision.known import Interval

GREATEST_EXACT = 2048.0
"""Up to here a half holds every integer."""


def before_dynamic(
    graph: Graph, rounded: Collection[str], ranges: Mapping[str, Interval]
) -> frozenset[str]:
    """The tensors that halves would change and dynamic quantisations are computed of."""
    starts = [
        name
        for node in graph.nodes
        if node.output in rounded and _is_dynamic(graph, node, ranges)
        for name in node.inputs
    ]
    return led_by(graph, starts, rounded, ranges)


def led_by(
    graph: Graph,
    starts: Iterable[str],
    rounded: Collection[str],
    ranges: Mapping[str, Interval],
) -> frozenset[str]:
    """What halves would change of `starts`, and of what they are computed of up to `rounded`."""
    waiting = list(starts)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or name in rounded:
            continue
        if is_data(graph, name, ranges):
            maker = graph.producers.get(name)
            waiting += [] if maker is None else maker.inputs
        elif not is_other_in_half(graph.tensors[name].value):
            continue
        found.add(name)
    return frozenset(found)


def is_data(graph: Graph, name: str, ranges: Mapping[str, Interval]) -> bool:
    """Whether a tensor holds numbers that half would change: no whole numbers that it can hold."""
    if graph.tensors[name].value is not None or not graph.tensors[name].is_float:
        return False
    return name not in ranges or ranges[name].most > GREATEST_EXACT


def is_other_in_half(value: np.ndarray | None) -> bool:
    """Whether half changes a constant; it keeps the integers that quantised weights are."""
    if value is None or value.dtype != np.float32:
        return False
    with np.errstate(over="ignore"):
        return not np.array_equal(value.astype(np.float16).astype(np.float32), value)


def _is_dynamic(graph: Graph, node: Node, ranges: Mapping[str, Interval]) -> bool:
    """Whether what it is rounded by is computed: of fewer elements than what is rounded."""
    size = math.prod(graph.tensors[node.output].shape)
    scales = node.inputs[2:] if is_product(node) else node.inputs
    return any(
        math.prod(graph.tensors[name].shape) < size and is_data(graph, name, ranges)
        for name in scales
    )
