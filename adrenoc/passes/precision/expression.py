"""What is certain of the parts of one expression, from what is known of the tensors that it reads.

Parts are visited once each, those below before those above, without recursion: an expression may
be deep, and may share parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_equal

from adrenoc.base.tvmapi import IF_THEN_ELSE, Call, Expr, dtype_of, tirx, tvm
from adrenoc.ir.body import Body
from adrenoc.passes.analyse.powers import EXPONENTIALS
from adrenoc.passes.analyse.scalar_body import parts_of, values_of
from adrenoc.passes.precision.known import ANY, FROM_ZERO, NOTHING, Interval, Known

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
        """What is known of a part."""
        if part not in self._of:
            for below in parts_of(part, values_of):
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
        return Known(interval=self[value.a].interval.plus(self[value.b].interval.negate()))

    def _multiply(self, value: Any) -> Known:
        a, b = self[value.a].interval, self[value.b].interval
        squared = value.a.same_as(value.b) or structural_equal(value.a, value.b)
        most = a.most * a.most
        return Known(interval=Interval(0.0, most) if squared else a.times(b))

    def _divide(self, value: Any) -> Known:
        a, b = self[value.a].interval, self[value.b].interval
        return Known(interval=a.of_sign.times_of_sign(b.of_sign))

    def _greater(self, value: Any) -> Known:
        return self._pick(value, max)

    def _less(self, value: Any) -> Known:
        return self._pick(value, min)

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
    (tirx.Max, Expression._greater),
    (tirx.Min, Expression._less),
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
