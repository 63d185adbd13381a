"""What is certain of every tensor of a graph, found in one walk from its inputs to its outputs.

An operator's record says what its results are to what it reads (`Numbers`); a body's expression
says it itself (`expression.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.half import range_of
from adrenoc.kernels.families.operators import gives
from adrenoc.kernels.families.shared.operator import Numbers
from adrenoc.passes.precision.expression import Expression
from adrenoc.passes.precision.known import ANY, NOTHING, Interval, Known

_BYTES = ("int8", "uint8")
_BOUNDED = ("int8", "uint8", "int16", "uint16", "bool")
"""Types whose own ends say something of what they hold."""


class Analysis:
    """What is known of the tensors of a graph."""

    def __init__(self, graph: Graph) -> None:
        """Walk through a graph."""
        self.graph = graph
        self.results: dict[str, Known] = {}
        """Tensor -> what is known of it before its node's epilogue."""
        self._known = {
            name: _read_constant(tensor) if tensor.value is not None else _bound_by_dtype(tensor)
            for name, tensor in graph.tensors.items()
        }
        for node in graph.nodes:
            self._known[node.output] = self._visit(node)

    def __getitem__(self, name: str) -> Known:
        """What is known of a tensor."""
        return self._known[name]

    @property
    def known(self) -> Mapping[str, Known]:
        """What is known of each tensor."""
        return self._known

    @cached_property
    def whole(self) -> Mapping[str, Interval]:
        """The ends of each computed tensor that holds nothing but whole numbers."""
        return {
            name: self[name].interval
            for name, tensor in self.graph.tensors.items()
            if tensor.value is None and self[name].whole
        }

    def _visit(self, node: Node) -> Known:
        def element(body: Body, before: Known) -> Known:
            names = body.sources.values()
            return Expression(body, {n: self._known.get(n, before) for n in names}).element()

        first = self[node.inputs[0]] if node.inputs else NOTHING
        if node.prologue is not None:
            first = element(node.prologue, NOTHING)
        known = _know_operator(node, first)
        if node.body is not None:
            known = element(node.body, NOTHING)
        self.results[node.output] = known
        if node.epilogue is not None:
            known = element(node.epilogue, known)
        tensor = self.graph.tensors[node.output]
        if not known.whole and tensor.dtype in _BYTES:
            return _bound_by_dtype(tensor)
        return known


def _know_operator(node: Node, first: Known) -> Known:
    """Return what an operator makes before its epilogue, of what it or its prologue reads."""
    if gives(node, Numbers.SHARES):
        return Known(interval=Interval(0.0, 1.0))
    if gives(node, Numbers.LOG_SHARES):
        return Known(interval=Interval(high=0.0))
    if gives(node, Numbers.PICKED):
        return first
    if gives(node, Numbers.SUMMED, Numbers.AVERAGED):
        return Known(interval=first.interval.of_sign)
    return NOTHING


def _read_constant(tensor: Tensor) -> Known:
    value = tensor.value
    if value is None or not value.size or value.dtype.kind not in "fiu":
        return NOTHING
    low, high = range_of(value)
    return Known(interval=ANY if math.isnan(low + high) else Interval(low, high))


def _bound_by_dtype(tensor: Tensor) -> Known:
    """Return what is known of data by its type alone."""
    if tensor.dtype == "bool":
        return Known(interval=Interval(0.0, 1.0), whole=True)
    if tensor.dtype not in _BOUNDED:
        return NOTHING
    info = np.iinfo(tensor.dtype)
    return Known(interval=Interval(float(info.min), float(info.max)), whole=True)
