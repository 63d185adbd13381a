"""Rows of products of data with data, which no norm keeps at one size.

A weight multiplies data by what it is; data that multiply each other, block after block, grow by
their own size, so that a network of such blocks (StarNet) is beyond half for some inputs and far
from it for others.  What does not count: gates of at most one, as sigmoids and clips make them,
shares of a softmax, and rows that a norm ends, written out (by a root or a quotient) or not.
"""

from __future__ import annotations

import math
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.families.operators import is_kind
from adrenoc.families.shared.operator import Kind
from adrenoc.ir.body import Body, find_loaded_buffers
from adrenoc.ir.graph import Graph, Node
from adrenoc.passes.analyse.powers import calls
from adrenoc.passes.precision.analysis import Analysis
from adrenoc.passes.precision.expression import Expression
from adrenoc.tvmapi import Call, tirx

_GATE = 1.01
"""The largest size of a gate: six sixths are a little more than one."""
_SATURATING = ("tirx.sigmoid", "tirx.tanh", "tirx.erf", "tirx.sin", "tirx.cos")
_ROOTS = ("tirx.sqrt", "tirx.rsqrt")
_ENDING = (Kind.SOFTMAX, Kind.ATTENTION, Kind.NORM)


def longest_row_of_products(graph: Graph) -> tuple[str, int]:
    """The tensor with the most products of data in a row up to it, and how many they are."""
    rows = _Rows(graph)
    for node in graph.nodes:
        rows.visit(node)
    name = max(rows.count, key=lambda name: rows.count[name], default="")
    return name, rows.count.get(name, 0)


class _Rows:
    """The products in a row up to each tensor, in execution order."""

    def __init__(self, graph: Graph) -> None:
        self.count: dict[str, int] = {}
        self._analysis = Analysis(graph)
        self._bounds: dict[str, float] = {}
        """Tensor -> the largest size that one of its elements can have."""
        self._norms: set[str] = set()
        """What data are divided by, or multiplied with in its place."""

    def visit(self, node: Node) -> None:
        """Count what a node makes."""
        expressions = self._analysis.expressions[node.output]
        bound = self._analysis[node.output].interval.most
        if expressions:
            bound = min(bound, self._most(expressions[-1], expressions[-1].body.value))
        if is_kind(node, *_ENDING) and not expressions:
            bound = 0.0 if is_kind(node, Kind.SOFTMAX) else bound
        self._bounds[node.output] = bound
        bodies = [body for body in (node.body, node.epilogue) if body is not None]
        if any(map(_divides, bodies)):
            self._norms.add(node.output)
        ends = is_kind(node, *_ENDING) or math.isfinite(bound)
        if ends or node.output in self._norms or self._norms & set(node.inputs):
            self.count[node.output] = 0
        else:
            self.count[node.output] = self._count_node(node, bodies, expressions)

    def _count_node(
        self, node: Node, bodies: list[Body], expressions: tuple[Expression, ...]
    ) -> int:
        """What is added to a product, as a residual is, is in no row with it."""
        added = {name for body in bodies for name in body.sources.values()}
        read = [name for name in node.inputs if name not in added]
        own = is_kind(node, Kind.PRODUCT) and all(map(self._grows, node.inputs[:2]))
        before = {**self.count, Node.RESULT: own + max(map(self._count_before, read), default=0)}
        found = [before.get(name, 0) for name in (*added, Node.RESULT)]
        for expression in expressions:
            for part in expression.parts(tirx.Mul):
                sides = [expression.reads(side) for side in (part.a, part.b)]
                gated = any(self._most(expression, side) <= _GATE for side in (part.a, part.b))
                if gated or sides[0] & sides[1]:
                    continue
                if all(any(map(self._grows, side)) for side in sides):
                    found.append(1 + max(before.get(name, 0) for name in sides[0] | sides[1]))
        return max(found)

    def _count_before(self, name: str) -> int:
        return self.count.get(name, 0)

    def _grows(self, name: str) -> bool:
        """Whether a tensor is computed, and no gate."""
        return self._analysis.is_computed(name) and self._bounds.get(name, math.inf) > _GATE

    def _most(self, expression: Expression, part: Any) -> float:
        """The largest size that a part of an expression can have."""
        if isinstance(part, Call) and part.op.name in _SATURATING:
            return 1.0
        most = expression[part].interval.most
        if isinstance(part, tirx.Mul):
            sides = [self._most(expression, side) for side in (part.a, part.b)]
            most = min(most, math.prod(sides) if all(map(math.isfinite, sides)) else math.inf)
        name = expression.find_tensor(part)
        return min(most, self._bounds.get(name, math.inf)) if name else most


def _divides(body: Body) -> bool:
    """Whether data are divided by data, or a root of them is taken, as in norms written out."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        if find_loaded_buffers(part.b):
            found.append(part)
        return part

    structural_map(body.value, (tirx.Div, note))
    return bool(found) or calls(body, _ROOTS)
