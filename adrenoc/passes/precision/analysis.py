"""What is certain of every tensor of a graph, found in one walk from its inputs to its outputs.

An operator's record says what its results are to what it reads (`Numbers`); a body's expression
says it itself: its parts are visited once each, those below before those above, without recursion:
an expression may be deep, and may share parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_equal

from adrenoc.base.tvmapi import IF_THEN_ELSE, Call, Expr, dtype_of, tirx, tvm
from adrenoc.ir.graph import Body, Graph, Node, Tensor
from adrenoc.ir.half import range_of
from adrenoc.kernels.body_cost import operands_of
from adrenoc.kernels.families.operators import gives
from adrenoc.kernels.families.shared.operator import Numbers
from adrenoc.passes.analyse.scalar_body import EXPONENTIALS, parts_of


@dataclass(frozen=True)
class Interval:
    """The least and the greatest that numbers can be."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def most(self) -> float:
        """Return the largest size that one can have."""
        return max(abs(self.low), abs(self.high))

    @property
    def of_sign(self) -> Interval:
        """Return the side of zero, which is left where numbers are scaled or added up."""
        return Interval(0.0 if self.low >= 0 else -math.inf, 0.0 if self.high <= 0 else math.inf)

    def plus(self, other: Interval) -> Interval:
        """Return the interval that sums of the two lie in."""
        return _interval(self.low + other.low, self.high + other.high)

    def times(self, other: Interval) -> Interval:
        """Return the interval that products lie in."""
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        if any(map(math.isnan, ends)):  # nothing times no end
            return self.of_sign.times_of_sign(other.of_sign)
        return Interval(min(ends), max(ends))

    def times_of_sign(self, other: Interval) -> Interval:
        """Return the interval of products and quotients, of which only the sign is known."""
        signs = [(one.low >= 0, one.high <= 0) for one in (self, other)]
        (above, below), (others_above, others_below) = signs
        alike = (above and others_above) or (below and others_below)
        unlike = (above and others_below) or (below and others_above)
        return Interval(0.0 if alike else -math.inf, 0.0 if unlike else math.inf)

    def either(self, other: Interval) -> Interval:
        """Return what holds for a choice of the two: it covers both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


ANY = Interval()
FROM_ZERO = Interval(low=0.0)


def _interval(low: float, high: float) -> Interval:
    return Interval(-math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of the numbers of a tensor, or of a part of an expression."""

    interval: Interval = ANY
    whole: bool = False
    """Whether all are whole numbers."""


NOTHING = Known()


_ROUNDING = ("tirx.round", "tirx.nearbyint", "tirx.floor", "prim.ceil", "tirx.trunc")
_OF_ONE = Interval(-1.0, 1.0)
_RANGES = {
    **dict.fromkeys((*EXPONENTIALS, "tirx.sqrt", "tirx.rsqrt", "tirx.fabs"), FROM_ZERO),
    **dict.fromkeys(("tirx.tanh", "tirx.erf", "tirx.sin", "tirx.cos"), _OF_ONE),
    "tirx.sigmoid": Interval(0.0, 1.0),
}
"""Functions whose results lie between these ends, whatever they are given."""


class Expression:
    """What is known of each part of a body's expression."""

    def __init__(self, body: Body, known: Mapping[str, Known]) -> None:
        """`known` are the tensors that it reads."""
        self.body = body
        self._known = known
        self._of: dict[Expr, Known] = {}

    def __getitem__(self, part: Expr) -> Known:
        """Return what is known of a part."""
        if part not in self._of:
            for below in parts_of(part, operands_of):
                if below not in self._of:
                    form = _form_of(below.__class__)
                    self._of[below] = NOTHING if form is None else form(self, below)
        return self._of[part]

    def element(self) -> Known:
        """Return what is known of an element of the body; of a fold, of what all terms come to."""
        known = self[self.body.value]
        if not self.body.reduced:
            return known
        if isinstance(self.body.value, tirx.Add):
            return Known(interval=known.interval.of_sign)
        if isinstance(self.body.value, tirx.Max | tirx.Min):
            return Known(interval=known.interval)
        return NOTHING

    # The forms of parts

    def _load(self, load: Any) -> Known:
        if isinstance(load, tvm.ir.TensorLoad) and load.source.same_as(self.body.accumulator):
            # What holds of the first term's sum with it, and of the next one's, holds of all.
            return NOTHING if self.body.init is None else self[self.body.init]
        return self._known.get(self.body.sources.get(load.source, ""), NOTHING)

    def _number(self, value: Any) -> Known:
        number = float(value.value)
        if math.isnan(number):
            return NOTHING
        whole = math.isfinite(number) and number == round(number)
        return Known(interval=Interval(number, number), whole=whole)

    def _add(self, value: Any) -> Known:
        a, b = self[value.a], self[value.b]
        return Known(interval=a.interval.plus(b.interval), whole=a.whole and b.whole)

    def _subtract(self, value: Any) -> Known:
        taken = self[value.b].interval
        return Known(interval=self[value.a].interval.plus(Interval(-taken.high, -taken.low)))

    def _multiply(self, value: Any) -> Known:
        a, b = self[value.a].interval, self[value.b].interval
        squared = value.a.same_as(value.b) or structural_equal(value.a, value.b)
        most = a.most * a.most
        return Known(interval=Interval(0.0, most) if squared else a.times(b))

    def _divide(self, value: Any) -> Known:
        a, b = self[value.a].interval, self[value.b].interval
        return Known(interval=a.of_sign.times_of_sign(b.of_sign))

    def _pick(self, value: Any, pick: Callable[[float, float], float]) -> Known:
        a, b = self[value.a], self[value.b]
        low = pick(a.interval.low, b.interval.low)
        high = pick(a.interval.high, b.interval.high)
        return Known(interval=Interval(low, high), whole=a.whole and b.whole)

    def _choose(self, value: Any) -> Known:
        return _either(self[value.true_value], self[value.false_value])

    def _cast(self, value: Any) -> Known:
        inner, dtype = self[value.value], dtype_of(value)
        interval, whole = inner.interval, inner.whole
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            if not (whole and info.min <= interval.low and interval.high <= info.max):
                interval, whole = Interval(float(info.min), float(info.max)), True
        elif dtype_of(value.value) == "bool":
            interval, whole = Interval(0.0, 1.0), True
        elif not dtype.startswith("float"):
            interval, whole = ANY, False
        return Known(interval=interval, whole=whole)

    def _call(self, call: Any) -> Known:
        name = call.op.name
        sides = [self[part] for part in call.args]
        if name == IF_THEN_ELSE:
            return _either(*sides[1:])
        if not sides:
            return NOTHING
        inner = sides[0]
        interval = _RANGES.get(name, ANY)
        if name == "tirx.log" and inner.interval.low >= 1:
            interval = FROM_ZERO
        if name in _ROUNDING and inner.whole:
            interval = inner.interval
        return Known(interval=interval, whole=name in _ROUNDING)


_FORMS: tuple[tuple[Any, Callable[[Expression, Any], Known]], ...] = (
    (tvm.ir.TensorLoad, Expression._load),
    (tirx.FloatImm | tirx.IntImm, Expression._number),
    (tirx.Add, Expression._add),
    (tirx.Sub, Expression._subtract),
    (tirx.Mul, Expression._multiply),
    (tirx.Div, Expression._divide),
    (tirx.Max, lambda of, value: of._pick(value, max)),
    (tirx.Min, lambda of, value: of._pick(value, min)),
    (tirx.Select, Expression._choose),
    (tirx.Cast, Expression._cast),
    (Call, Expression._call),
)


@functools.cache
def _form_of(kind: type) -> Callable[[Expression, Any], Known] | None:
    """Return what makes something of a kind of part; None of others, as comparisons are."""
    return next((form for known, form in _FORMS if issubclass(kind, known)), None)


def _either(one: Known, other: Known) -> Known:
    whole = one.whole and other.whole
    return Known(interval=one.interval.either(other.interval), whole=whole)


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
        """Return what is known of a tensor."""
        return self._known[name]

    @property
    def known(self) -> Mapping[str, Known]:
        """Return what is known of each tensor."""
        return self._known

    @cached_property
    def whole(self) -> Mapping[str, Interval]:
        """Return the ends of each computed tensor that holds nothing but whole numbers."""
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
