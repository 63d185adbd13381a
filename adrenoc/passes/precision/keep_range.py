"""Keep in float32 what may leave the range of half by its own formula.

A half ends at 65504, and at 6e-8 towards zero.  The exponential of 11.1 is beyond that, so is one
over a distance that is kept from zero by 1e-8, and so is the 1e-8 itself.  Within a kernel all are
floats; what is stored in between, and the sums of it, is kept, up to where one is divided by
another or a function brings them back.

Before -> after (mixed):
    %w = map 1 / (%d + 1e-8)            the same, and w, s stay in float32
    %s = sum(%w)
    %y = map %w / %s
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adrenoc.families.operators import gives, is_kind
from adrenoc.families.shared.operator import Kind, Numbers
from adrenoc.ir.body import Body, loaded
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.half import HALF_MAX, HALF_TINY
from adrenoc.passes.context import Context
from adrenoc.passes.precision.powers import EXPONENTIALS, by_tensor, is_power
from adrenoc.passes.precision.ratios import ADDING, products_of_ratios
from adrenoc.passes.precision.signs import UNKNOWN, Sign, sign_of, signs_of
from adrenoc.tvmapi import IF_THEN_ELSE, Call, tirx, tvm

_MANY = 64
"""Terms of a sum: of a thousand each they are beyond half."""
_SAME_SIZE = ("tirx.fabs", "tirx.round", "tirx.nearbyint", "tirx.floor", "tirx.ceil", "tirx.trunc")


def keep_range(graph: Graph, context: Context) -> Graph:
    """Mark the float tensors that hold powers, exponentials, reciprocals of nearly zero, and
    their sums."""
    log = context.log
    large: set[str] = set()
    tiny: set[str] = set()
    long: set[str] = set()
    signs = signs_of(graph)
    for node in graph.nodes:
        if not graph.tensors[node.output].is_float:
            continue
        reason = _reason(graph, node, large, signs)
        least = _least(node.bodies[-1].value) if node.bodies else None
        if reason:
            large.add(node.output)
            log.add(node.output, "float32", f"{reason}: half ends at {HALF_MAX:.0f}")
        elif least is not None and least < HALF_TINY:
            tiny.add(node.output)
            reason = f"{least:.0e} keeps it from zero, and is zero in half"
            log.add(node.output, "float32", reason)
        elif (terms := _terms_of_sum(graph, node)) >= _MANY:
            long.add(node.output)
            log.add(node.output, "float32", f"{terms} numbers of {HALF_MAX / terms:.0f} fill half")
    products = products_of_ratios(graph)
    for name, reader in products.items():
        if name not in large | tiny | long and graph.tensors[name].is_float:
            log.add(name, "float32", f"{reader} reads the ratio or root of this product alone")
    return graph.with_precision(large | tiny | long | set(products), float32=True)


def _reason(graph: Graph, node: Node, large: Collection[str], signs: Mapping[str, Sign]) -> str:
    """Why a node's result may be beyond half by its formula, empty where that does not say so."""
    grown = "" if node.prologue else _reason_of_operator(graph, node, large, signs)
    for body in (node.prologue, node.body, node.epilogue):
        if body is None:
            continue
        held = (*large, Node.RESULT) if grown else large
        growth = _Growth(graph, body, held, signs)
        ends = growth.of(by_tensor(body))
        if ends.up or ends.down:
            grown = grown or growth.why or "it is computed of a tensor that may be beyond half"
        else:
            grown = ""
    return grown


def _reason_of_operator(
    graph: Graph, node: Node, large: Collection[str], signs: Mapping[str, Sign]
) -> str:
    """Why the operator alone, before its epilogue, may be beyond half."""
    first = node.inputs[0] if node.inputs else ""
    weighted = is_kind(node, Kind.CONVOLUTION) and signs.get(node.inputs[1], UNKNOWN).least
    if (gives(node, *ADDING) or weighted) and first in large:
        return f"it adds up {first}"
    if is_kind(node, Kind.PRODUCT) and _origin(graph, first) == _origin(graph, node.inputs[1]):
        return f"it multiplies {_origin(graph, first)} by itself"
    return ""


def _terms_of_sum(graph: Graph, node: Node) -> int:
    """How many numbers each result of a sum adds up, running sums too; 0 of others."""
    if node.body is not None and node.body.reduced and node.epilogue is None:
        adds = isinstance(node.body.value, tirx.Add) and len(node.body.sources) == 1
        return math.prod(extent for _, extent in node.body.reduced) if adds else 0
    if not gives(node, Numbers.SUMMED):
        return 0
    return math.prod(graph.tensors[node.inputs[0]].shape) // math.prod(
        graph.tensors[node.output].shape
    )


def _origin(graph: Graph, name: str) -> str:
    """The tensor whose elements another one has in other places."""
    while (maker := graph.producers.get(name)) is not None and maker.is_map:
        if (
            maker.body is None
            or maker.epilogue
            or not isinstance(maker.body.value, tvm.ir.TensorLoad)
        ):
            break
        name = maker.inputs[0]
    return name


@dataclass(frozen=True)
class _Ends:
    """Whether a number may be far above zero, and far below."""

    up: bool = False
    down: bool = False


_NEITHER = _Ends()


class _Growth:
    """What the parts of one expression may come to, where the tensors in `large` are large."""

    def __init__(
        self, graph: Graph, body: Body, large: Collection[str], signs: Mapping[str, Sign]
    ) -> None:
        self._graph, self._body, self._large, self._signs = graph, body, large, signs
        self.why = ""

    def of(self, value: Any) -> _Ends:
        """The ends of a part."""
        if is_power(value):
            self.why = self.why or "it holds powers of data"
            return _Ends(up=True, down=True)
        for kind, rule in _RULES:
            if isinstance(value, kind):
                return rule(self, value)
        return _NEITHER

    def load(self, load: Any) -> _Ends:
        names = self._names([load.source])
        accumulated = self._body.accumulator is not None and load.source.same_as(
            self._body.accumulator
        )
        is_large = not accumulated and any(name in self._large for name in names)
        return _Ends(up=is_large, down=is_large)

    def add(self, value: Any) -> _Ends:
        a, b = self.of(value.a), self.of(value.b)
        return _Ends(up=a.up or b.up, down=a.down or b.down)

    def subtract(self, value: Any) -> _Ends:
        a, b = self.of(value.a), self.of(value.b)
        return _Ends(up=a.up or b.down, down=a.down or b.up)

    def greater(self, value: Any) -> _Ends:
        a, b = self.of(value.a), self.of(value.b)
        return _Ends(up=a.up or b.up, down=a.down and b.down)

    def less(self, value: Any) -> _Ends:
        a, b = self.of(value.a), self.of(value.b)
        return _Ends(up=a.up and b.up, down=a.down or b.down)

    def choose(self, value: Any) -> _Ends:
        branches = (value.true_value, value.false_value)
        return self._any(*(self.of(branch) for branch in branches))

    def multiply(self, value: Any) -> _Ends:
        for one, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(one, tirx.FloatImm):
                ends = self.of(other)
                return ends if one.value >= 0 else _Ends(up=ends.down, down=ends.up)
            if _is_reciprocal(other) and loaded(one):
                # What is divided by its own length: no larger than one, however small it is.
                ends = self.of(one)
                return _Ends(up=ends.up or ends.down, down=ends.up or ends.down)
        ends = self._any(self.of(value.a), self.of(value.b))
        return _Ends(up=ends.up or ends.down, down=ends.up or ends.down)

    def divide(self, value: Any) -> _Ends:
        if not loaded(value.a):
            numerator = abs(value.a.value) if isinstance(value.a, tirx.FloatImm) else 1.0
            return self._one_over(numerator, _least(value.b))
        a, b = self.of(value.a), self.of(value.b)
        if b.up or b.down:
            return _NEITHER
        return _Ends(up=a.up or a.down, down=a.up or a.down)

    def cast(self, value: Any) -> _Ends:
        return self.of(value.value)

    def call(self, call: Any) -> _Ends:
        name = call.op.name
        if name == IF_THEN_ELSE:
            return self._any(*(self.of(branch) for branch in call.args[1:]))
        if (
            name in EXPONENTIALS
            and loaded(call.args[0])
            and not self._is_at_most_zero(call.args[0])
        ):
            self.why = self.why or "it holds exponentials, beyond half from an argument of 11.1 on"
            return _Ends(up=True)
        if name == "tirx.rsqrt":
            least = _least(call.args[0])
            return self._one_over(1.0, None if least is None else least**0.5)
        if name in _SAME_SIZE:
            ends = self.of(call.args[0])
            return _Ends(up=ends.up or ends.down, down=ends.up or ends.down)
        return _NEITHER

    def _one_over(self, numerator: float, least: float | None) -> _Ends:
        if least is None or numerator <= HALF_MAX * least:
            return _NEITHER
        self.why = self.why or f"it divides by numbers that {least:.0e} keeps from zero"
        return _Ends(up=True, down=True)

    def _is_at_most_zero(self, argument: Any) -> bool:
        """Whether an exponent is minus a size, or a number less the largest of its kind."""
        if sign_of(argument, self._body, self._signs).most:
            return True
        if not isinstance(argument, tirx.Sub):
            return False
        makers = (self._graph.producers.get(name) for name in self._names(loaded(argument.b)))
        return any(maker is not None and "max" in maker.operators for maker in makers)

    def _names(self, buffers: Iterable[Any]) -> list[str]:
        sources = self._body.sources.items()
        return [name for b in buffers for buffer, name in sources if buffer.same_as(b)]

    @staticmethod
    def _any(*ends: _Ends) -> _Ends:
        return _Ends(up=any(e.up for e in ends), down=any(e.down for e in ends))


_RULES: tuple[tuple[Any, Callable[[_Growth, Any], _Ends]], ...] = (
    (tvm.ir.TensorLoad, _Growth.load),
    (tirx.Add, _Growth.add),
    (tirx.Sub, _Growth.subtract),
    (tirx.Mul, _Growth.multiply),
    (tirx.Div, _Growth.divide),
    (tirx.Max, _Growth.greater),
    (tirx.Min, _Growth.less),
    (tirx.Select, _Growth.choose),
    (tirx.Cast, _Growth.cast),
    (Call, _Growth.call),
)


def _is_reciprocal(value: Any) -> bool:
    if isinstance(value, tirx.Div):
        return not loaded(value.a)
    return isinstance(value, Call) and value.op.name == "tirx.rsqrt"


def _least(value: Any) -> float | None:
    """The small number that keeps a denominator from zero; None where there is none to see."""
    if isinstance(value, tirx.Add | tirx.Max):
        for side in (value.a, value.b):
            if isinstance(side, tirx.FloatImm) and side.value > 0:
                return float(side.value)
    if isinstance(value, Call) and value.op.name == "tirx.sqrt":
        inner = _least(value.args[0])
        return None if inner is None else inner**0.5
    return None
