"""Means that are subtracted, where little is left.

The mean of products less the product of means, as variances, guided filters and similarities of
images have it, is a small part of either: of two numbers of 0.25 that halves hold to 0.0001, their
difference of 0.001 has one digit.

Before -> after (mixed):
    %a = avg_pool2d(%x)                     the same, and a, b, p and c stay in float32
    %b = avg_pool2d(%y)
    %p = map %x * %y
    %c = avg_pool2d(%p) - %a * %b
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.graph import Node
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.tvmapi import tirx


def differences(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """The float tensors of which such differences are computed, and these."""
    graph = analysis.graph
    for node in graph.nodes:
        if not graph.tensors[node.output].is_float:
            continue
        for expression in analysis.expressions[node.output]:
            for names in _find_cancelled(analysis, node, expression):
                why = f"{node.name} subtracts the product of means from the mean of products"
                yield from ((name, why) for name in (*names, node.output))


def _find_cancelled(
    analysis: Analysis, node: Node, expression: Expression
) -> Iterator[tuple[str, ...]]:
    """The tensors of each difference in an expression that cancels: means, and the products."""
    graph = analysis.graph
    for part in expression.parts(tirx.Sub):
        product = part.b
        if not isinstance(product, tirx.Mul):
            continue
        names = [expression.find_tensor(side) for side in (product.a, product.b)]
        first = expression.find_tensor(part.a)
        maker = node if first == Node.RESULT else graph.producers.get(first)
        makers = [maker, *(graph.producers.get(name) for name in names)]
        if maker and all(made is not None and _averages(analysis, made) for made in makers):
            kept = (*names, first, maker.inputs[0])
            yield tuple(n for n in kept if n != Node.RESULT and graph.tensors[n].is_float)


def _averages(analysis: Analysis, node: Node) -> bool:
    """Whether a node adds up numbers with weights that are not negative."""
    if is_kind(node, Kind.CONVOLUTION):
        return analysis[node.inputs[1]].interval.never_negative
    return gives(node, Numbers.AVERAGED, Numbers.SUMMED)
