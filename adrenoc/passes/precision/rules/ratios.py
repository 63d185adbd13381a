"""Products of two tensors of which only ratios or roots are read, as similarities have them.

The product of two lengths of 300 is beyond half, and that of two of 1e-4 is zero there, while what
one divides by them is of the size of one.  Products that are added to other tensors, or read by
convolutions, are of the size of the model's activations.

Products of matrices are such products too where both are computed.  Linear attention adds up keys
times values over all tokens, multiplies queries by that, and divides by what the queries and the
keys alone come to: a ratio of the size of the values, of numbers that are as large as there are
tokens times three activations.

Before -> after (mixed):
    kv = matmul(k, [v, 1]); o = matmul(q, kv); y = o[.., :-1] / (o[.., -1] + 1e-15)
    the same, and kv and o stay in float32
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind
from adrenoc.ir.graph import Node
from adrenoc.passes.precision.analysis import ADDING, Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.tvmapi import Call, Expr, tirx

_ROOTS = ("tirx.sqrt", "tirx.rsqrt", "tirx.log", "tirx.log2")


def ratios(analysis: Analysis, _kept: Collection[str]) -> Iterator[tuple[str, str]]:
    """Such products and their sums, for the node that reads the ratio, and their inverses."""
    graph = analysis.graph
    found: dict[str, str] = {}
    for node in reversed(graph.nodes):
        for name in _relative(analysis, node):
            if analysis[name].is_product:
                found.setdefault(name, node.name)
        if node.output in found:
            for name in node.inputs:
                if analysis[name].is_product:
                    found.setdefault(name, found[node.output])
    for node in graph.nodes:  # one over such a product is as small as that is large
        if analysis[node.output].is_inverse and analysis[node.output].inverts_product:
            found.setdefault(node.output, node.name)
    for name, reader in found.items():
        if graph.tensors[name].is_float:
            yield name, f"{reader} reads the ratio or root of this product alone"


def _relative(analysis: Analysis, node: Node) -> Iterator[str]:
    """The tensors that a node divides, divides by, or takes a root of."""
    for expression in analysis.expressions[node.output]:
        for part in _ratio_parts(analysis, expression):
            for name in expression[part].factors:
                if name != Node.RESULT:
                    yield name
                elif gives(node, *ADDING):
                    yield node.inputs[0]
                elif is_kind(node, Kind.PRODUCT):
                    yield from node.inputs[:2]


def _ratio_parts(analysis: Analysis, expression: Expression) -> Iterator[Expr]:
    for part in expression.parts(tirx.Div, tirx.Mul, Call):
        if isinstance(part, tirx.Div):
            if expression.is_computed(part.b):
                yield from (part.a, part.b)
        elif isinstance(part, tirx.Mul):
            for one, other in ((part.a, part.b), (part.b, part.a)):
                inverses = (analysis[n].is_inverse for n in expression.reads(other) - {Node.RESULT})
                if expression[other].is_inverse or any(inverses):
                    yield one
        elif part.op.name in _ROOTS:
            yield part.args[0]
