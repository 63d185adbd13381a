"""What is known of every tensor of a graph, found in one walk from its inputs to its outputs.

An operator's record says what its results are to what it reads (`Numbers`); a body's expression
says it itself (`expression.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from adrenoc.families.operators import OPERATORS, gives, is_kind, terms_of
from adrenoc.families.shared.channel_weights import ChannelWeights
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node, Tensor
from adrenoc.ir.half import HALF_TINY, explain_not_half, largest_of, range_of
from adrenoc.passes.analyse.powers import unify_reads
from adrenoc.passes.precision.expression import Expression
from adrenoc.passes.precision.known import (
    ANY,
    FROM_ZERO,
    NEITHER,
    NOTHING,
    ONE,
    SAME,
    Channels,
    Ends,
    Interval,
    Known,
    Size,
    size_of_number,
)
from adrenoc.passes.precision.typical import typical_sizes
from adrenoc.tvmapi import tvm

FROM_TERMS = (Numbers.SUMMED, Numbers.AVERAGED, Numbers.PICKED)
"""Results that have the sign that all of their terms have, and about their size or its sum."""
ADDING = (*FROM_TERMS, Numbers.MULTIPLIED)
"""Results that may be as far from zero as what is read, or further."""
_BYTES = ("int8", "uint8")


class Analysis:
    """What is known of the tensors of a graph, and of the expressions that make them."""

    def __init__(self, graph: Graph, *, least_half: float = HALF_TINY) -> None:
        """Walk through a graph; below `least_half` the device's halves are zero."""
        self.graph = graph
        self.least_half = least_half
        self.expressions: dict[str, tuple[Expression, ...]] = {}
        """Tensor -> the expressions of the node that makes it, prologue first."""
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

    @cached_property
    def typical(self) -> Mapping[str, float]:
        """About how large what each node makes is, on data of about one."""
        return typical_sizes(self.graph)

    def is_computed(self, name: str) -> bool:
        """Whether a tensor is no constant, nor a part of none."""
        if name in (Node.RESULT, Node.BESIDE):
            return True
        return bool(name) and self.graph.tensors[name].value is None

    def uneven_input(self, node: Node) -> str:
        """The first tensor that a node reads of which some channels alone are tiny."""
        return next((name for name in node.inputs if self[name].channels.uneven), "")

    def _visit(self, node: Node) -> Known:
        source = self.uneven_input(node)
        expressions: list[Expression] = []

        def element(body: Body, before: Known) -> Known:
            expression = Expression(
                replace(body, value=unify_reads(body)),
                {name: self._known.get(name, before) for name in body.sources.values()},
                computed=self.is_computed,
                largest=self._is_largest,
                source=source,
            )
            expressions.append(expression)
            return _add_reason(expression.element(), before.ends.why)

        first = self[node.inputs[0]] if node.inputs else NOTHING
        if node.prologue is not None:
            first = element(node.prologue, NOTHING)
        known = self._know_operator(node, first, source)
        if node.body is not None:
            known = element(node.body, NOTHING)
        self.results[node.output] = known
        if node.epilogue is not None:
            known = element(node.epilogue, known)
        for body in node.parts.values():
            element(body, NOTHING)
        self.expressions[node.output] = tuple(expressions)
        floor = expressions[-1].element().floor if expressions else None
        return self._know_tensor(node, replace(known, floor=floor), source)

    def _know_tensor(self, node: Node, known: Known, source: str) -> Known:
        """What is kept of the tensor that a node makes."""
        tensor = self.graph.tensors[node.output]
        channels = SAME
        if not tensor.is_float:
            known = replace(known, size=ONE, hides=False, ends=NEITHER)
        elif known.channels.axis is not None and _has_channels(self.graph, node):
            passes = source and not _mixes_channels(self.graph, node)
            came = self[source].channels.way if passes else ()
            channels = replace(known.channels, way=(*came, node.output))
        if not known.whole and tensor.dtype in _BYTES:
            known = replace(known, interval=_bound_by_dtype(tensor).interval, whole=True)
        return replace(
            known, size=known.size or ONE, channels=channels, reads=frozenset(), factors=frozenset()
        )

    def _is_largest(self, name: str) -> bool:
        maker = self.graph.producers.get(name)
        return maker is not None and "max" in maker.operators

    # Operators

    def _know_operator(self, node: Node, first: Known, source: str) -> Known:
        """What an operator makes before its epilogue, of what it or its prologue reads."""
        interval = ANY
        if gives(node, Numbers.SHARES):
            interval = FROM_ZERO
        elif gives(node, Numbers.LOG_SHARES):
            interval = Interval(high=0.0)
        elif gives(node, Numbers.PICKED):
            interval = first.interval
        elif gives(node, *FROM_TERMS):
            interval = first.interval.of_sign
        product = is_kind(node, Kind.PRODUCT)
        computed = product and all(map(self.is_computed, node.inputs[:2]))
        return Known(
            interval=interval,
            whole=first.whole and gives(node, Numbers.PICKED),
            size=self._size_of_operator(node, first.size or ONE),
            ends=self._ends_of_operator(node, first),
            channels=self._channels_of_operator(node, source),
            is_product=computed or (first.is_product and gives(node, *ADDING)),
        )

    def _size_of_operator(self, node: Node, first: Size) -> Size:
        if is_kind(node, Kind.CONVOLUTION, Kind.PRODUCT):
            # A sum of products is about as large as its terms; weights within half keep what is
            # within half there, for networks are trained to do so.
            weights, factor = self.graph.tensors[node.inputs[1]], self[node.inputs[1]].size or ONE
            odd = weights.value is not None and explain_not_half(weights.value)
            if not first.beyond_half and not odd and (weights.value is not None or factor == ONE):
                return ONE
            return size_of_number(first.most).times(factor)
        if gives(node, Numbers.SUMMED):
            return first.times(size_of_number(max(1.0, terms_of(self.graph, node))))
        return first if gives(node, *FROM_TERMS) else ONE

    def _ends_of_operator(self, node: Node, first: Known) -> Ends:
        if node.prologue is not None:
            return first.ends if gives(node, *ADDING) else NEITHER
        name = node.inputs[0] if node.inputs else ""
        weighted = is_kind(node, Kind.CONVOLUTION)
        weighted = weighted and self[node.inputs[1]].interval.never_negative
        if first.ends and (gives(node, *ADDING) or weighted):
            return Ends(up=True, down=True, why=f"it adds up {name}")
        if is_kind(node, Kind.PRODUCT):
            left, right = (_origin(self.graph, n) for n in node.inputs[:2])
            if left == right:
                return Ends(up=True, down=True, why=f"it multiplies {left} by itself")
        return NEITHER

    def _channels_of_operator(self, node: Node, source: str) -> Channels:
        if is_kind(node, Kind.POOL):
            return self[source].channels if source else SAME
        weights = channel_weights(self.graph, node)
        sizes = None if weights is None else weights.output_sizes
        if weights is None or sizes is None:
            return SAME
        if sizes.size != self.graph.tensors[node.output].shape[weights.axis]:
            return SAME
        if not weights.mixes and source:
            before = np.asarray(self[source].channels.sizes)
            sizes = sizes * before if before.shape == sizes.shape else sizes
        return Channels(sizes, weights.axis)


def channel_weights(graph: Graph, node: Node) -> ChannelWeights | None:
    """The weights that stand between a node's channels, which make up for what is tiny."""
    operator = OPERATORS.get(node.op)
    if operator is None or operator.channel_weights is None:
        return None
    return operator.channel_weights(graph, node)


def _mixes_channels(graph: Graph, node: Node) -> bool:
    weights = channel_weights(graph, node)
    return weights is not None and weights.mixes


def _has_channels(graph: Graph, node: Node) -> bool:
    looked_into = node.is_map or is_kind(node, Kind.POOL)
    looked_into = looked_into or channel_weights(graph, node) is not None
    return looked_into and node.prologue is None


def _read_constant(tensor: Tensor) -> Known:
    value = tensor.value
    if value is None or not value.size or value.dtype.kind not in "fiu":
        return NOTHING
    low, high = range_of(value)
    interval = ANY if math.isnan(low + high) else Interval(low, high)
    varying = [axis for axis, extent in enumerate(value.shape) if extent > 1]
    channels = SAME
    if len(varying) == 1:
        sizes = np.abs(value).reshape(-1)
        channels = Channels(np.where(sizes > 0, sizes, 1.0), varying[0])
    largest = largest_of(value) if tensor.is_float else 0.0
    return Known(
        interval=interval,
        above_zero=interval.low > 0,
        size=size_of_number(largest) if largest else ONE,
        hides=tensor.is_float and high <= 0,
        channels=channels,
    )


def _bound_by_dtype(tensor: Tensor) -> Known:
    """What is known of data by its type alone."""
    if tensor.dtype not in _BYTES:
        return NOTHING
    info = np.iinfo(tensor.dtype)
    return Known(interval=Interval(float(info.min), float(info.max)), whole=True)


def _add_reason(known: Known, before: str) -> Known:
    if not known.ends:
        return known
    why = before or known.ends.why or "it is computed of a tensor that may be beyond half"
    return replace(known, ends=replace(known.ends, why=why))


def _origin(graph: Graph, name: str) -> str:
    """The tensor whose elements another one has in other places."""
    while (maker := graph.producers.get(name)) is not None and maker.is_map:
        body = maker.body
        if body is None or maker.epilogue or not isinstance(body.value, tvm.ir.TensorLoad):
            break
        name = maker.inputs[0]
    return name
