"""About how large the numbers of an expression are, by the factors that it states.

Data is taken to be about one.  Factors multiply, of a sum the largest term counts, and what an
operator picks out of several, as a concatenation does, has the sizes of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adrenoc.ir.body import Body, loaded
from adrenoc.ir.half import HALF_MAX, HALF_NORMAL
from adrenoc.passes.precision.signs import Sign, sign_of
from adrenoc.tvmapi import IF_THEN_ELSE, Call, tirx, tvm

_VAST = 1e30
"""Sizes stay between one over this and this: products of them are numbers."""


@dataclass(frozen=True)
class Size:
    """The sizes of a tensor's elements, from that of the smallest ones to that of the largest."""

    least: float = 1.0
    most: float = 1.0

    @property
    def beyond_half(self) -> str:
        """Why halves cannot hold such numbers, empty where they can."""
        if self.most > HALF_MAX:
            return f"factors make it about {self.most:.1g}: half ends at {HALF_MAX:.0f}"
        if self.least < HALF_NORMAL:
            digits = f"half loses digits below {HALF_NORMAL:.2g}"
            return f"factors make it about {self.least:.1g}: {digits}"
        return ""

    def times(self, other: Size) -> Size:
        """That of products."""
        return Size(_held(self.least * other.least), _held(self.most * other.most))

    def over(self, other: Size) -> Size:
        """That of quotients."""
        return Size(_held(self.least / other.most), _held(self.most / other.least))

    def power(self, exponent: float) -> Size:
        """That of powers with a small exponent."""
        ends = (math.log(self.least) * exponent, math.log(self.most) * exponent)
        limit = math.log(_VAST)
        return Size(math.exp(max(-limit, min(ends))), math.exp(min(limit, max(ends))))

    def plus(self, other: Size) -> Size:
        """That of sums, and of the larger of two."""
        return Size(max(self.least, other.least), max(self.most, other.most))

    def at_most(self, bound: float) -> Size:
        """That of what is cut off at a bound on both sides."""
        bound = _held(bound)
        return Size(min(self.least, bound), min(self.most, bound))

    def among(self, other: Size) -> Size:
        """That of a choice of two."""
        return Size(min(self.least, other.least), max(self.most, other.most))


ONE = Size()


def size_of_number(value: float) -> Size:
    """That of a number which is not zero."""
    return Size(_held(abs(value)), _held(abs(value)))


def _held(value: float) -> float:
    return min(max(value, 1 / _VAST), _VAST)


class Sizes:
    """The sizes of the parts of one expression, with those of the tensors that it reads."""

    def __init__(
        self,
        body: Body,
        known: Mapping[str, Size],
        masks: Mapping[str, bool],
        signs: Mapping[str, Sign],
    ) -> None:
        self._body, self._known, self._masks, self._signs = body, known, masks, signs

    def of_body(self) -> Size | None:
        """That of an element, None where the expression is zero.

        Sums of products have terms of both signs: they are about as large as their terms.
        """
        value, terms = self._body.value, math.prod(extent for _, extent in self._body.reduced)
        if not self._body.reduced:
            return self.of(value)
        if not isinstance(value, tirx.Add | tirx.Max | tirx.Min):
            return ONE
        term = value.b if self._is_accumulator(value.a) else value.a
        found = self.of(term)
        if found is None or not isinstance(value, tirx.Add):
            return found
        return found.times(size_of_number(terms if len(loaded(term)) == 1 else 1))

    def of(self, value: Any) -> Size | None:
        """That of a part, None where it is zero."""
        for kind, rule in _RULES:
            if isinstance(value, kind):
                return rule(self, value)
        return ONE

    def is_mask(self, value: Any, size: Size | None) -> bool:
        """Whether a part is far below zero where it is not zero: what it is added to, it hides."""
        if size is None or size.most <= HALF_MAX:
            return False
        if isinstance(value, tvm.ir.TensorLoad):
            return self._masks.get(self._name(value), False)
        if isinstance(value, tirx.Mul) and any(_is_negative(s) for s in (value.a, value.b)):
            return True
        return sign_of(value, self._body, self._signs).most

    def _is_accumulator(self, value: Any) -> bool:
        return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(self._body.accumulator)

    def _name(self, load: Any) -> str:
        sources = self._body.sources.items()
        return next((name for b, name in sources if b.same_as(load.source)), "")

    # Rules

    def _load(self, load: Any) -> Size | None:
        return self._known.get(self._name(load), ONE)

    def _number(self, value: Any) -> Size | None:
        return size_of_number(float(value.value)) if value.value else None

    def _add(self, value: Any) -> Size | None:
        if isinstance(value, tirx.Sub) and (_is_whole(value.a) or _is_whole(value.b)):
            return ONE  # what is left of a number after its whole part
        sizes = [
            size
            for side in (value.a, value.b)
            if (size := self._term(side)) is not None and not self.is_mask(side, size)
        ]
        return sizes[0].plus(sizes[-1]) if sizes else None

    def _term(self, value: Any) -> Size | None:
        """Of a sum: a number that halves hold, as an offset of pixels, makes data no larger."""
        size = self.of(value)
        if isinstance(value, tirx.FloatImm) and size is not None and size.most <= HALF_MAX:
            return size.at_most(1.0)
        return size

    def _multiply(self, value: Any) -> Size | None:
        a, b = self.of(value.a), self.of(value.b)
        return None if a is None or b is None else a.times(b)

    def _divide(self, value: Any) -> Size | None:
        a, b = self.of(value.a), self.of(value.b)
        return None if a is None else a.over(b or ONE)

    def _bound(self, value: Any) -> Size | None:
        """Max and Min: two bounds cut off both sides, one leaves one of them as it is."""
        number, inner = _number_and_rest(value)
        if number is None and isinstance(value, tirx.Max):
            return self._add(value)
        if number is None:
            a, b = self.of(value.a), self.of(value.b)
            return a.plus(b) if a is not None and b is not None else a or b
        size = self.of(inner)
        other = tirx.Min if isinstance(value, tirx.Max) else tirx.Max
        if isinstance(inner, other) and size is not None:
            opposite, _ = _number_and_rest(inner)
            if opposite is not None:
                return size.at_most(max(abs(number), abs(opposite)))
        if isinstance(value, tirx.Max) and number > 0 and size is not None:
            return size.plus(size_of_number(number))
        return size

    def _choose(self, value: Any) -> Size | None:
        return self._among(value.true_value, value.false_value)

    def _cast(self, value: Any) -> Size | None:
        return ONE if _is_whole(value) else self.of(value.value)

    def _call(self, call: Any) -> Size | None:
        name = call.op.name
        if name == IF_THEN_ELSE:
            return self._among(*call.args[1:])
        size = self.of(call.args[0]) if call.args else ONE
        if size is None:
            return ONE
        if name in _SAME:
            return size
        if name in _ODD:
            return size.at_most(1.0)
        if name in _ROOTS:
            return size.power(_ROOTS[name])
        return ONE

    def _among(self, *branches: Any) -> Size | None:
        """Of a choice; a number beside data stands for what is masked or lies outside."""
        computed = [b for b in branches if loaded(b)] or branches
        sizes = [size for branch in computed if (size := self.of(branch)) is not None]
        return sizes[0].among(sizes[-1]) if sizes else None


_RULES: tuple[tuple[Any, Callable[[Sizes, Any], Size | None]], ...] = (
    (tvm.ir.TensorLoad, Sizes._load),
    (tirx.FloatImm | tirx.IntImm, Sizes._number),
    (tirx.Add | tirx.Sub, Sizes._add),
    (tirx.Mul, Sizes._multiply),
    (tirx.Div, Sizes._divide),
    (tirx.Max | tirx.Min, Sizes._bound),
    (tirx.Select, Sizes._choose),
    (tirx.Cast, Sizes._cast),
    (Call, Sizes._call),
)

_SAME = ("tirx.fabs", "tirx.round", "tirx.nearbyint", "tirx.floor", "tirx.ceil", "tirx.trunc")
_ODD = ("tirx.tanh", "tirx.erf", "tirx.sin", "tirx.atan", "tirx.asin", "tirx.sinh", "tirx.asinh")
"""Functions that are about the same as their argument where that is small."""
_ROOTS = {"tirx.sqrt": 0.5, "tirx.rsqrt": -0.5}


def _number_and_rest(value: Any) -> tuple[float | None, Any]:
    for side, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(side, tirx.FloatImm):
            return float(side.value), other
    return None, value


def _is_whole(value: Any) -> bool:
    """Whether a part is a whole number by its formula, as the pixel is in which a place lies."""
    if isinstance(value, Call):
        return value.op.name == "tirx.floor"
    return isinstance(value, tirx.Cast) and not str(value.value.ty).startswith("float")


def _is_negative(value: Any) -> bool:
    return isinstance(value, tirx.FloatImm) and value.value < -HALF_MAX
