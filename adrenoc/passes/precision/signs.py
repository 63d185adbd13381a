"""Which numbers are never below zero, or never above, by the formula that computes them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm_ffi import structural_equal

from adrenoc.families.operators import gives
from adrenoc.families.shared.operator import Numbers
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Graph, Node
from adrenoc.tvmapi import IF_THEN_ELSE, Call, tirx, tvm

_NEVER_NEGATIVE = ("tirx.exp", "tirx.exp2", "tirx.exp10", "tirx.sqrt", "tirx.rsqrt", "tirx.fabs")
_LOOKED_AT = 1 << 16
"""Elements of a constant: larger ones are weights, of both signs."""
_OF_ONE_SIGN = (Numbers.SUMMED, Numbers.AVERAGED, Numbers.PICKED)
"""Their results have the sign that all of their terms have."""


@dataclass(frozen=True)
class Sign:
    """What is known of a number: that it is at least zero, that it is at most zero."""

    least: bool = False
    most: bool = False

    def negated(self) -> Sign:
        """That of minus the number."""
        return Sign(least=self.most, most=self.least)


UNKNOWN = Sign()


def signs_of(graph: Graph) -> dict[str, Sign]:
    """The signs of the tensors of which something is known."""
    found: dict[str, Sign] = {}
    for name, tensor in graph.tensors.items():
        value = tensor.value
        if value is not None and 0 < value.size <= _LOOKED_AT and value.dtype.kind in "fiu":
            found[name] = Sign(least=value.min() >= 0, most=value.max() <= 0)
    for node in graph.nodes:
        found[node.output] = _sign_of_node(node, found)
    return found


def _sign_of_node(node: Node, known: dict[str, Sign]) -> Sign:
    sign = UNKNOWN
    if gives(node, Numbers.SHARES):
        sign = Sign(least=True)
    if gives(node, Numbers.LOG_SHARES):
        sign = Sign(most=True)
    if gives(node, *_OF_ONE_SIGN) and node.prologue is None:
        sign = known.get(node.inputs[0], UNKNOWN)
    for body in (node.prologue, node.body, node.epilogue):
        if body is not None and _is_inductive(body):
            sign = sign_of(body.value, body, ChainMap({Node.RESULT: sign}, known))
    return sign


def _is_inductive(body: Body) -> bool:
    """Whether a fold is a sum, or the largest or smallest of its terms."""
    return not body.reduced or isinstance(body.value, tirx.Add | tirx.Max | tirx.Min)


def sign_of(value: Any, body: Body, known: Mapping[str, Sign]) -> Sign:
    """The sign of a part of the expression of `body`, with those of tensors in `known`."""

    def of(part: Any) -> Sign:
        return sign_of(part, body, known)

    sign = UNKNOWN
    if isinstance(value, tirx.FloatImm | tirx.IntImm):
        sign = Sign(least=value.value >= 0, most=value.value <= 0)
    elif isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(body.accumulator):
        # What holds of the first term's sum with it, and of the next one's, holds of all.
        sign = of(body.init)
    elif isinstance(value, tvm.ir.TensorLoad):
        sign = known.get(_name(value, body), UNKNOWN)
    elif isinstance(value, tirx.Cast):
        sign = of(value.value)
    elif isinstance(value, Call) and value.op.name == IF_THEN_ELSE:
        sign = _either(of(value.args[1]), of(value.args[2]))
    elif isinstance(value, Call):
        sign = Sign(least=value.op.name in _NEVER_NEGATIVE or _is_log_from_one(value, of))
    elif isinstance(value, tirx.Select):
        sign = _either(of(value.true_value), of(value.false_value))
    elif isinstance(value, tirx.Mul) and _is_same(value.a, value.b, body):
        sign = Sign(least=True)
    elif type(value) in _RULES:
        sign = _RULES[type(value)](of(value.a), of(value.b))
    return sign


def _name(load: Any, body: Body) -> str:
    return next((name for b, name in body.sources.items() if b.same_as(load.source)), "")


def _is_same(a: Any, b: Any, body: Body) -> bool:
    """Whether two parts are one number: a tensor may be read under several names."""
    if isinstance(a, tvm.ir.TensorLoad) and isinstance(b, tvm.ir.TensorLoad):
        same = all(structural_equal(i, j) for i, j in zip(a.indices, b.indices, strict=False))
        return same and _name(a, body) == _name(b, body)
    return bool(structural_equal(a, b))


def _is_log_from_one(call: Any, of: Callable[[Any], Sign]) -> bool:
    """Whether it is log(1 + something that is not negative), as softplus has it."""
    if call.op.name != "tirx.log" or not isinstance(call.args[0], tirx.Add):
        return False
    sides = (call.args[0].a, call.args[0].b)
    one = any(isinstance(side, tirx.FloatImm) and side.value >= 1 for side in sides)
    return one and all(of(side).least for side in sides)


def _either(a: Sign, b: Sign) -> Sign:
    return Sign(least=a.least and b.least, most=a.most and b.most)


def _product(a: Sign, b: Sign) -> Sign:
    return Sign(
        least=(a.least and b.least) or (a.most and b.most),
        most=(a.least and b.most) or (a.most and b.least),
    )


_RULES: dict[Any, Callable[[Sign, Sign], Sign]] = {
    tirx.Add: _either,
    tirx.Sub: lambda a, b: _either(a, b.negated()),
    tirx.Mul: _product,
    tirx.Div: _product,
    tirx.Max: lambda a, b: Sign(least=a.least or b.least, most=a.most and b.most),
    tirx.Min: lambda a, b: Sign(least=a.least and b.least, most=a.most or b.most),
}
