"""What dynamic quantisations are computed of.

A dynamic quantisation takes its quantum from the data: from its largest and its smallest number.
Half moves these, and with them every quantum; and it moves data by an eighth of a quantum, which
moves one number in eight to the next.  Each is an error of a whole quantum, which the layers behind
it carry on to the next quantisation, so that halves anywhere before one cost much more than their
own rounding.  The products between them, which take most of the time, are of bytes as before.

Other roundings have factors that are computed, too: gates, norms, and the quantum of an earlier
rounding.  A factor is the quantum where nothing but maps leads to it from the greatest or least
numbers of what is rounded, and none of them squashes, as gates do.

Before -> after (mixed):
    s = (max(x) - min(x)) / 255; q = round(x / s)      x, its largest and smallest number
    x = layer_norm(matmul(p, w) * t + r)               and s, and the sum, t and r, stay in float32
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from adrenoc.base.tvmapi import Expr, tvm
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import changes_in_half
from adrenoc.kernels.families.operators import gives
from adrenoc.kernels.families.shared.operator import Numbers
from adrenoc.passes.analyse.scalar_body import parts_of, values_of
from adrenoc.passes.precision.known import Interval

GREATEST_EXACT = 2048.0
"""The largest integer up to which a half holds every one."""
_SQUASHING = ("tirx.exp", "tirx.sigmoid", "tirx.tanh", "tirx.erf")
"""What gates and shares are made by; quanta may be powers of two."""


def find_dynamic_sources(
    graph: Graph, rounded: Collection[str], ranges: Mapping[str, Interval]
) -> frozenset[str]:
    """Return the tensors that halves would change and dynamic quantisations are computed of."""
    starts = [
        name
        for node in graph.nodes
        if node.output in rounded and is_dynamic(graph, node, rounded)
        for name in node.inputs
    ]
    return led_by(graph, starts, rounded, ranges)


def is_dynamic(graph: Graph, node: Node, rounded: Collection[str]) -> bool:
    """Return whether a factor of fewer elements is of the greatest or least numbers of what is
    rounded.

    That waits for all numbers, so none of what a kernel rounds as it makes them is dynamic.
    """
    if node.body is None:
        return False
    size = _size(graph, node.output)
    factors = [name for name in node.inputs if _size(graph, name) < size]
    extremes = [name for name in factors if _is_plainly_read(node.body, name)]
    data = _led_by_maps(graph, [n for n in node.inputs if n not in factors], rounded)
    return any(data & _picked_for(graph, name) for name in extremes)


def led_by(
    graph: Graph,
    starts: Iterable[str],
    rounded: Collection[str],
    ranges: Mapping[str, Interval],
) -> frozenset[str]:
    """Return what halves would change of `starts`, and of what they are computed of up to
    `rounded`."""
    waiting = list(starts)
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or name in rounded:
            continue
        if is_data(graph, name, ranges):
            maker = graph.producers.get(name)
            waiting += [] if maker is None else maker.inputs
        elif not changes_in_half(graph.tensors[name].value):
            continue
        found.add(name)
    return frozenset(found)


def is_data(graph: Graph, name: str, ranges: Mapping[str, Interval]) -> bool:
    """Return whether a tensor holds numbers that half would change: no whole numbers that it can
    hold."""
    if graph.tensors[name].value is not None or not graph.tensors[name].is_float:
        return False
    return name not in ranges or ranges[name].most > GREATEST_EXACT


def _picked_for(graph: Graph, factor: str) -> frozenset[str]:
    """Return the tensors whose greatest or least numbers make a factor, and what maps make these
    of.

    Those of no more elements than the factor are factors themselves, of other numbers.
    """
    size = _size(graph, factor)
    waiting, seen, picked = [factor], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        maker = graph.producers.get(name)
        if name in seen or maker is None:
            continue
        seen.add(name)
        if gives(maker, Numbers.PICKED) and _is_plainly_stored(maker):
            picked |= {n for n in maker.inputs if _size(graph, n) > size}
            waiting += maker.inputs
        elif maker.is_map and maker.body is not None:
            waiting += [n for n in maker.inputs if _is_plainly_read(maker.body, n)]
    return _led_by_maps(graph, picked, ())


def _led_by_maps(graph: Graph, names: Iterable[str], rounded: Collection[str]) -> frozenset[str]:
    """These tensors, and what maps make them of, but for those that come out of a rounding."""
    waiting, found = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in found or graph.tensors[name].value is not None:
            continue
        found.add(name)
        maker = graph.producers.get(name)
        if maker is not None and maker.is_map and name not in rounded:
            waiting += maker.inputs
    return frozenset(found)


def _is_plainly_stored(node: Node) -> bool:
    return node.epilogue is None or _is_plainly_read(node.epilogue, Node.RESULT)


def _is_plainly_read(body: Body, name: str) -> bool:
    """Return whether a body reads a tensor other than to squash it."""

    def plain(part: Any) -> tuple[Expr, ...]:
        squashes = isinstance(part, tvm.ir.Call) and getattr(part.op, "name", "") in _SQUASHING
        return () if squashes else values_of(part)

    loads = (p for p in parts_of(body.value, plain) if isinstance(p, tvm.ir.TensorLoad))
    return any(body.source_of(load.source) == name for load in loads)


def _size(graph: Graph, name: str) -> int:
    return math.prod(graph.tensors[name].shape)
