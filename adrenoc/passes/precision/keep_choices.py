"""Keep in float32 what is compared for equality: numbers that differ would be the same in half.

Detectors keep a score where it equals the largest of its neighbourhood.  In half, neighbours whose
scores differ by less than 1 / 2048 of their size are all the largest, and an object is found twice.
What maps, pools and softmaxes compute such a tensor of is kept too.

Before -> after (mixed):
    %s = map sigmoid(%x)                        the same, and s, p stay in float32
    %p = max_pool2d(%s)
    %y = map where(equal(%s, %p), %s, 0)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body, loaded
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.context import Context
from adrenoc.tvmapi import tirx


def keep_choices(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors that are compared with another one for equality."""
    log = context.log
    exact: set[str] = set()
    for node in reversed(graph.nodes):
        for name in dict.fromkeys(_compared(node)):
            if _is_computed(graph, name) and name not in exact:
                log.add(name, "float32", f"{node.name} tells its numbers apart")
                exact.add(name)
        if node.output in exact and _tells_apart(node):
            exact.update(name for name in node.inputs if _is_handed_on(graph, name))
    return graph.with_precision(exact, float32=True)


def _compared(node: Node) -> Iterator[str]:
    """The tensors of which a node compares one with another.

    A fold that looks for the place of an extreme finds one however they are rounded.
    """
    for body in node.bodies:
        if body.reduced:
            continue
        for comparison in _equalities(body):
            sides = [_tensors(body, side) for side in (comparison.a, comparison.b)]
            if all(sides):
                yield from (name for side in sides for name in side)


def _equalities(body: Body) -> list[Any]:
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    structural_map(body.value, ((tirx.EQ, tirx.NE), note))
    return found


def _tensors(body: Body, value: Any) -> list[str]:
    """The tensors that a part of an expression reads."""
    return [
        name for b in loaded(value) for buffer, name in body.sources.items() if buffer.same_as(b)
    ]


def _is_computed(graph: Graph, name: str) -> bool:
    return name in graph.tensors and graph.tensors[name].is_float and name in graph.producers


def _is_handed_on(graph: Graph, name: str) -> bool:
    maker = graph.producers.get(name)
    return graph.tensors[name].is_float and maker is not None and _tells_apart(maker)


def _tells_apart(node: Node) -> bool:
    """Whether an operator gives as many different numbers as it reads."""
    shares = gives(node, Numbers.SHARES, Numbers.LOG_SHARES)
    return node.is_map or shares or (is_kind(node, Kind.POOL) and gives(node, Numbers.PICKED))
