"""What is compared for equality: numbers that differ would be the same in half.

Detectors keep a score where it equals the largest of its neighbourhood.  In half, neighbours whose
scores differ by less than 1 / 2048 of their size are all the largest, and an object is found twice.
What maps, pools and softmaxes compute such a tensor of is kept too.

The place of an extreme is where a number equals it.  The tensor that it is looked for in may lie in
float32 (an input, a kept tensor), so the extreme does too: rounded, it would equal none of them.

Before -> after (mixed):
    %s = map sigmoid(%x)                        the same, and s and p stay in float32
    %p = max_pool2d(%s)
    %y = map where(equal(%s, %p), %s, 0)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.tvmapi import tirx


def choices(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The float tensors that are compared with another one for equality."""
    graph = analysis.graph
    found: set[str] = set()
    for node in reversed(graph.nodes):
        for name in _find_compared(analysis, node):
            made = name in graph.producers and graph.tensors[name].is_float
            if made and name not in found:
                yield name, f"{node.name} tells its numbers apart"
                found.add(name)
        for name in _find_extremes(analysis, node, found):
            yield name, f"{node.name} looks for its place"
            found.add(name)
        if node.output in found and _tells_apart(node):
            handed = [name for name in node.inputs if _is_handed_on(graph, name)]
            yield from ((name, "") for name in handed)
            found.update(handed)


def _find_compared(analysis: Analysis, node: Node) -> Iterator[str]:
    """The tensors of which a node compares one with another; of folds, see `_find_extremes`."""
    for expression in analysis.expressions[node.output]:
        if expression.body.reduced:
            continue
        for comparison in expression.parts(tirx.EQ, tirx.NE):
            sides = [expression.reads(side) for side in (comparison.a, comparison.b)]
            if all(sides):
                yield from sorted(sides[0] | sides[1])


def _find_extremes(analysis: Analysis, node: Node, found: Collection[str]) -> Iterator[str]:
    """The folds whose place this fold looks for, and those that such a one is folded of."""
    for expression in analysis.expressions[node.output]:
        if not expression.body.reduced:
            continue
        sides = [
            expression.reads(side)
            for comparison in expression.parts(tirx.EQ)
            for side in (comparison.a, comparison.b)
        ]
        names = frozenset().union(*sides) if all(sides) else frozenset()
        if node.output in found:
            names |= frozenset(node.inputs)
        yield from sorted(name for name in names - set(found) if _is_fold(analysis, name))


def _is_fold(analysis: Analysis, name: str) -> bool:
    """Whether a float tensor is made by folding another one."""
    graph = analysis.graph
    if name not in graph.producers or not graph.tensors[name].is_float:
        return False
    return any(expression.body.reduced for expression in analysis.expressions[name])


def _is_handed_on(graph: Graph, name: str) -> bool:
    maker = graph.producers.get(name)
    return graph.tensors[name].is_float and maker is not None and _tells_apart(maker)


def _tells_apart(node: Node) -> bool:
    """Whether an operator gives as many different numbers as it reads."""
    shares = gives(node, Numbers.SHARES, Numbers.LOG_SHARES)
    return node.is_map or shares or (is_kind(node, Kind.POOL) and gives(node, Numbers.PICKED))
