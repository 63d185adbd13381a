"""Numbers that may all be alike, under weights that cancel.

A kernel machine, as a Gaussian process, adds up exponentials of how far a point is from each of
those that it was fitted to.  Where its kernel is wide, they are all near one, and the weights, of
both signs, leave little of them: what is left hangs on digits that halves do not have.  Roundings
fall independently and leave of the weights the root of their squares' sum; numbers that are alike
leave their sum.  Where that is the smaller one by far, for all results together, the numbers stay
in float32, and what has one for each of them before.  Features that a layer was trained on differ,
and may be zero: weights that cancel by chance lose nothing there.

Before -> after (mixed):
    %d = sum(abs(%x - %points))             the same, and d, k, y and weights
    %k = map exp(%d * -0.01)                stay in float32
    %y = matmul(%k, %weights), all of %weights add up to .001 of their size
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from adrenoc.families.operators import is_kind
from adrenoc.families.shared.operator import Kind
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.precision.analysis import Analysis, channel_weights
from adrenoc.passes.precision.expression import Expression
from adrenoc.tvmapi import tirx, tvm

_LEFT = 2.0**-2
"""The share of what independent roundings leave, below which the sum of weights counts as none."""

Sum = tuple[str, str, np.ndarray]
"""What is added up, what it is multiplied by, and these weights as [term, result]."""


def cancellations(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """What such products add up, their weights, and what has a number for each term before."""
    graph = analysis.graph
    for node in graph.nodes:
        for source, name, matrix in (*_products(analysis, node), *_folds(analysis, node)):
            share = _share_left(matrix)
            if share >= _LEFT:
                continue
            why = f"{node.name} leaves {share:.1g} of these numbers where they are alike"
            yield node.output, why
            yield name, ""  # weights are stored as what they make is
            yield from ((kept, why) for kept in _find_terms(graph, source, len(matrix)))


def _share_left(matrix: np.ndarray) -> float:
    """The sums of weights over what independent roundings leave, 1 where nothing is added up."""
    weights = matrix.astype(np.float64)
    alone = float(np.sqrt((weights**2).sum()))
    return float(np.sqrt((weights.sum(axis=0) ** 2).sum())) / alone if alone else 1.0


def _products(analysis: Analysis, node: Node) -> Iterator[Sum]:
    """A product or convolution by constant weights of what may all be alike."""
    if not is_kind(node, Kind.PRODUCT, Kind.CONVOLUTION) or not _first_is_alike(analysis, node):
        return
    weights = channel_weights(analysis.graph, node)
    if weights is None or weights.value is None or not weights.mixes or weights.groups > 1:
        return
    matrix = np.moveaxis(weights.value, weights.letters.index("O"), -1)
    matrix = matrix.reshape(-1, matrix.shape[-1])
    sources = node.inputs[:1] if node.prologue is None else _computed_of(analysis, node.prologue)
    for source in sources:
        yield source, node.inputs[1], matrix


def _first_is_alike(analysis: Analysis, node: Node) -> bool:
    if node.prologue is not None:
        return analysis.expressions[node.output][0].element().above_zero
    return analysis.is_computed(node.inputs[0]) and analysis[node.inputs[0]].above_zero


def _folds(analysis: Analysis, node: Node) -> Iterator[Sum]:
    """A sum of products by a constant, as a product of a matrix with a vector is."""
    if node.body is None or not node.body.reduced:
        return
    for expression in analysis.expressions[node.output]:
        if expression.body.reduced and isinstance(expression.body.value, tirx.Add):
            yield from _factors(analysis, expression)


def _factors(analysis: Analysis, expression: Expression) -> Iterator[Sum]:
    value: Any = expression.body.value
    term = value.b if expression.is_accumulator(value.a) else value.a
    if not isinstance(term, tirx.Mul):
        return
    for numbers, factor in ((term.a, term.b), (term.b, term.a)):
        name = expression.find_tensor(factor)
        constant = analysis.graph.tensors[name].value if name else None
        if constant is None or not expression.is_computed(numbers):
            continue
        matrix = _order_by_term(constant, factor, expression.body)
        if expression[numbers].above_zero and len(matrix) > 1:
            for source in expression.reads(numbers):
                yield source, name, matrix


def _order_by_term(constant: np.ndarray, load: tvm.ir.TensorLoad, body: Body) -> np.ndarray:
    """The weights as [term, result]: terms lie along the axes that are folded."""
    folded = [variable for variable, _ in body.reduced]
    axes = [a for a, i in enumerate(load.indices) if any(i.same_as(v) for v in folded)]
    return np.moveaxis(constant, axes, range(len(axes))).reshape(
        int(np.prod([constant.shape[a] for a in axes])), -1
    )


def _find_terms(graph: Graph, source: str, terms: int) -> Iterator[str]:
    """The float tensors from which a sum's terms come and that have a number for each of them.

    What has none, as the point that all distances are from, moves all terms alike.  Terms that were
    computed apart and joined lie in tensors that nothing else reads.
    """
    pending, seen = [(source, False)], {source}
    while pending:
        name, is_part = pending.pop()
        tensor = graph.tensors[name]
        alone = is_part and len(graph.consumers.get(name, ())) == 1
        if not tensor.is_float or not (alone or terms in tensor.shape):
            continue
        yield name
        maker = graph.producers.get(name)
        if maker is None or (is_part and is_kind(maker, Kind.PRODUCT, Kind.CONVOLUTION)):
            continue
        is_part = is_part or "concat" in maker.operators
        pending += [(n, is_part) for n in maker.inputs if n not in seen]
        seen.update(maker.inputs)


def _computed_of(analysis: Analysis, body: Body) -> Iterator[str]:
    return (name for name in body.sources.values() if analysis.is_computed(name))
