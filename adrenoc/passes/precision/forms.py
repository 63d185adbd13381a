"""What each form of expression makes of what is known of its parts: a sum, a product, a call.

Each gives all that `Known` holds; what a form says nothing of is as of any numbers of about one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tvm_ffi.structural import structural_equal

from adrenoc.ir.body import Body, find_loaded_buffers
from adrenoc.ir.graph import Node
from adrenoc.ir.half import HALF_MAX
from adrenoc.passes.analyse.powers import EXPONENTIALS
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
    any_of,
    size_of_number,
)
from adrenoc.tvmapi import IF_THEN_ELSE, Call, Expr, dtype_of, tirx, tvm

_NEVER_NEGATIVE = (*EXPONENTIALS, "tirx.sqrt", "tirx.rsqrt", "tirx.fabs")
_KEEPING_ABOVE = ("tirx.pow", "tirx.sqrt", "tirx.rsqrt")
_ROUNDING = ("tirx.round", "tirx.nearbyint", "tirx.floor", "tirx.ceil", "tirx.trunc")
_AS_LARGE = ("tirx.fabs", *_ROUNDING)
_ODD = ("tirx.tanh", "tirx.erf", "tirx.sin", "tirx.atan", "tirx.asin", "tirx.sinh", "tirx.asinh")
"""Functions that are about the same as their argument where that is small."""
_BOUNDED = ("tirx.sigmoid", "tirx.tanh", "tirx.erf", "tirx.sin", "tirx.cos")
_ROOTS = {"tirx.sqrt": 0.5, "tirx.rsqrt": -0.5}


class Forms:
    """The forms of the parts of one body's expression; `expression.py` goes through the parts."""

    def __init__(
        self,
        body: Body,
        known: Mapping[str, Known],
        *,
        computed: Callable[[str], bool] = lambda _: True,
        largest: Callable[[str], bool] = lambda _: False,
        source: str = "",
    ) -> None:
        """`known` are the tensors that it reads, those of them `computed` that are no constants,
        `largest` those that are the largest of others, `source` the one whose channels count."""
        self.body = body
        self._known, self._computed, self._largest = known, computed, largest
        self._source = source
        self._of: dict[Expr, Known] = {}

    def __getitem__(self, part: Expr) -> Known:
        """What is known of a part; of those that it is made of, it has to be known before."""
        return self._of[part]

    def is_computed(self, part: Expr) -> bool:
        """Whether a part reads what is no constant."""
        return any(self._computed(name) for name in self[part].reads)

    def pointing(self, load: Any) -> frozenset[str]:
        """The tensors that say where a load reads."""
        buffers = (buffer for index in load.indices for buffer in find_loaded_buffers(index))
        return frozenset(self.body.sources.get(buffer, "") for buffer in buffers)

    def is_accumulator(self, part: Any) -> bool:
        """Whether a part is what was folded so far."""
        return isinstance(part, tvm.ir.TensorLoad) and part.source.same_as(self.body.accumulator)

    def _load(self, load: Any, known: Known) -> Known:
        if self.is_accumulator(load):
            # What holds of the first term's sum with it, and of the next one's, holds of all.
            first = NOTHING if self.body.init is None else self[self.body.init]
            return replace(known, interval=first.interval, reads=frozenset({""}))
        name = self.body.sources.get(load.source, "")
        tensor = self._known.get(name, NOTHING)
        size = tensor.size
        if self.body.reduced and len(set(self.body.sources.values())) > 1 and size is not None:
            size = size if size.beyond_half else ONE  # of a product of matrices, or a convolution
        channels, axis = tensor.channels, None
        counts = name in (self._source, Node.RESULT) or not self._computed(name)
        if counts and channels.axis is not None:
            index = load.indices[channels.axis]
            axis = next((n for n, v in enumerate(self.body.axes) if v.same_as(index)), None)
        return replace(
            tensor,
            size=size,
            ends=Ends(bool(tensor.ends), bool(tensor.ends)),
            floor=None,
            channels=SAME if axis is None else Channels(channels.sizes, axis),
            reads=self.pointing(load) | {name},
            factors=frozenset({name}),
            is_inverse=False,
        )

    def _number(self, value: Any, known: Known) -> Known:
        number = float(value.value)
        return replace(
            known,
            interval=ANY if math.isnan(number) else Interval(number, number),
            above_zero=number > 0,
            whole=math.isfinite(number) and number == round(number),
            size=size_of_number(number) if number else None,
            channels=Channels(abs(number)) if isinstance(value, tirx.FloatImm) else SAME,
        )

    def _add(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        return replace(
            known,
            interval=a.interval.plus(b.interval),
            above_zero=_is_above_zero(a, b) or _is_above_zero(b, a),
            whole=a.whole and b.whole,
            size=self._size_of_sum(value),
            ends=a.ends.join(b.ends, up=a.ends.up or b.ends.up, down=a.ends.down or b.ends.down),
            floor=_floor(value),
            channels=a.channels.plus(b.channels),
            is_product=self._product_of_one(value),
            factors=self._factors_of_one(value),
        )

    def _subtract(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        fraction = _is_pixel(value.a) or _is_pixel(value.b)  # what a whole part leaves of a number
        return replace(
            known,
            interval=a.interval.plus(b.interval.negate()),
            size=ONE if fraction else self._size_of_sum(value),
            ends=a.ends.join(b.ends, up=a.ends.up or b.ends.down, down=a.ends.down or b.ends.up),
            channels=a.channels.plus(b.channels),
        )

    def _multiply(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        squared = value.a.same_as(value.b) or structural_equal(value.a, value.b)
        numbers = [s.value for s in (value.a, value.b) if isinstance(s, tirx.FloatImm)]
        bounded = any(isinstance(s, Call) and s.op.name in _BOUNDED for s in (value.a, value.b))
        return replace(
            known,
            interval=FROM_ZERO if squared else a.interval.times(b.interval),
            above_zero=a.above_zero and b.above_zero,
            size=None if a.size is None or b.size is None else a.size.times(b.size),
            hides=any(number < -HALF_MAX for number in numbers),
            ends=_POWER if squared and a.reads else self._ends_of_product(value),
            channels=a.channels.times(b.channels),
            is_product=not bounded if a.reads and b.reads else self._product_of_one(value),
            factors=a.factors | b.factors,
        )

    def _divide(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        if not a.reads:
            numerator = abs(value.a.value) if isinstance(value.a, tirx.FloatImm) else 1.0
            ends = _one_over(numerator, b.floor)
        else:
            ends = NEITHER if b.ends else a.ends.both
        inverse = isinstance(value.a, tirx.FloatImm) and self.is_computed(value.b)
        return replace(
            known,
            interval=a.interval.times(b.interval),
            above_zero=a.above_zero and b.above_zero,
            size=None if a.size is None else a.size.divide(b.size or ONE),
            ends=ends,
            channels=a.channels.divide(b.channels),
            is_inverse=inverse,
            inverts_product=any(self._known.get(n, NOTHING).is_product for n in b.factors),
        )

    def _greater(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        ends = a.ends.join(b.ends, up=a.ends.up or b.ends.up, down=a.ends.down and b.ends.down)
        low, high = (max(x, y) for x, y in _ends_of(a, b))
        known = self._limit(value, replace(known, interval=Interval(low, high), ends=ends))
        return replace(
            known,
            floor=_floor(value),
            is_product=self._product_of_one(value),
            factors=self._factors_of_one(value),
        )

    def _less(self, value: Any, known: Known) -> Known:
        a, b = self[value.a], self[value.b]
        ends = a.ends.join(b.ends, up=a.ends.up and b.ends.up, down=a.ends.down or b.ends.down)
        low, high = (min(x, y) for x, y in _ends_of(a, b))
        return self._limit(value, replace(known, interval=Interval(low, high), ends=ends))

    def _limit(self, value: Any, known: Known) -> Known:
        """Max and Min: two bounds cut off both sides, one leaves one of them as it is."""
        a, b = self[value.a], self[value.b]
        data = [side for side in (value.a, value.b) if not isinstance(side, tirx.FloatImm)]
        numbers = [side.value for side in (value.a, value.b) if isinstance(side, tirx.FloatImm)]
        channels = (
            functools.reduce(Channels.plus, (self[s].channels for s in data)) if data else SAME
        )
        if numbers:
            size = self[data[0]].size if data else size_of_number(max(map(abs, numbers)) or 1.0)
            if size is not None and isinstance(value, tirx.Max) and numbers[0] > 0:
                size = size.plus(size_of_number(numbers[0]))
            bound = known.interval.most
            if size is not None and math.isfinite(bound) and bound:
                size = size.clip(bound)
        elif isinstance(value, tirx.Max):
            size = self._size_of_sum(value)
        elif a.size is not None and b.size is not None:
            size = a.size.plus(b.size)
        else:
            size = a.size or b.size
        return replace(known, whole=a.whole and b.whole, size=size, channels=channels)

    def _choose(self, value: Any, known: Known) -> Known:
        return self._choose_among([self[value.true_value], self[value.false_value]], known)

    def _choose_among(self, branches: list[Known], known: Known) -> Known:
        """What is known of a choice; a number beside data stands for what is masked or outside."""
        computed = [branch for branch in branches if branch.reads] or branches
        sizes = [branch.size for branch in computed if branch.size is not None]
        return replace(
            known,
            interval=functools.reduce(Interval.either, (b.interval for b in branches)),
            whole=all(branch.whole for branch in branches),
            size=sizes[0].cover(sizes[-1]) if sizes else None,
            ends=any_of(branch.ends for branch in branches),
        )

    def _cast(self, value: Any, known: Known) -> Known:
        inner, dtype = self[value.value], dtype_of(value)
        interval, whole = inner.interval, inner.whole
        if dtype.startswith(("int", "uint")):
            info = np.iinfo(dtype)
            if not (whole and info.min <= interval.low and interval.high <= info.max):
                interval, whole = Interval(float(info.min), float(info.max)), True
        elif not dtype.startswith("float"):
            interval, whole = ANY, False
        return replace(
            known,
            interval=interval,
            above_zero=inner.above_zero,
            whole=whole,
            size=ONE if _is_pixel(value) else inner.size,
            ends=inner.ends,
            is_product=inner.is_product,
            factors=inner.factors,
        )

    def _call(self, call: Any, known: Known) -> Known:
        name = call.op.name
        sides = [self[part] for part in call.args]
        if name == IF_THEN_ELSE:
            return self._choose_among(sides[1:], known)
        if not sides:
            return known
        inner = sides[0]
        interval = FROM_ZERO if name in _NEVER_NEGATIVE else ANY
        if name == "tirx.log" and inner.interval.low >= 1:
            interval = FROM_ZERO
        if name in _ROUNDING and inner.whole:
            interval = inner.interval
        return replace(
            known,
            interval=interval,
            above_zero=name in EXPONENTIALS or (inner.above_zero and name in _KEEPING_ABOVE),
            whole=name in _ROUNDING,
            size=_size_of_call(name, inner.size),
            ends=self._ends_of_call(call, inner),
            floor=inner.floor**0.5 if name == "tirx.sqrt" and inner.floor is not None else None,
        )

    # Of sums and products

    def _size_of_sum(self, value: Any) -> Size | None:
        """A number that halves hold, as an offset of pixels, makes data no larger."""
        sizes = []
        for side in (value.a, value.b):
            known = self[side]
            if known.size is None or known.hides:
                continue
            small = isinstance(side, tirx.FloatImm) and known.size.most <= HALF_MAX
            sizes.append(known.size.clip(1.0) if small else known.size)
        return sizes[0].plus(sizes[-1]) if sizes else None

    def _product_of_one(self, value: Any) -> bool:
        """Whether a part is such a product times, plus or above a number."""
        for side, other in ((value.a, value.b), (value.b, value.a)):
            if not self[other].reads:
                return self[side].is_product
        return False

    def _factors_of_one(self, value: Any) -> frozenset[str]:
        a, b = self[value.a], self[value.b]
        return frozenset() if a.reads and b.reads else a.factors | b.factors

    def _ends_of_product(self, value: Any) -> Ends:
        for one, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(one, tirx.FloatImm):
                ends = self[other].ends
                return ends if one.value >= 0 else Ends(ends.down, ends.up, ends.why)
            if self._is_reciprocal(other) and self[one].reads:
                # What is divided by its own length: no larger than one, however small it is.
                return self[one].ends.both
        return any_of((self[value.a].ends, self[value.b].ends)).both

    def _is_reciprocal(self, value: Any) -> bool:
        if isinstance(value, tirx.Div):
            return not self[value.a].reads
        return isinstance(value, Call) and value.op.name == "tirx.rsqrt"

    def _ends_of_call(self, call: Any, inner: Known) -> Ends:
        name = call.op.name
        if name == "tirx.pow":
            exponent = call.args[1]
            raised = not isinstance(exponent, tirx.FloatImm) or abs(exponent.value) > 1
            return _POWER if (raised if inner.reads else self[exponent].reads) else NEITHER
        if name in EXPONENTIALS and inner.reads and not self._is_at_most_zero(call.args[0]):
            return _EXPONENTIAL
        if name == "tirx.rsqrt":
            return _one_over(1.0, None if inner.floor is None else inner.floor**0.5)
        return inner.ends.both if name in _AS_LARGE else NEITHER

    def _is_at_most_zero(self, argument: Any) -> bool:
        """Whether an exponent is minus a size, or a number less the largest of its kind."""
        if self[argument].interval.never_positive:
            return True
        return isinstance(argument, tirx.Sub) and any(map(self._largest, self[argument.b].reads))


_POWER = Ends(up=True, down=True, why="it holds powers of data")
_EXPONENTIAL = Ends(up=True, why="it holds exponentials, beyond half from an argument of 11.1 on")

_FORMS: tuple[tuple[Any, Callable[[Forms, Any, Known], Known]], ...] = (
    (tvm.ir.TensorLoad, Forms._load),
    (tirx.FloatImm | tirx.IntImm, Forms._number),
    (tirx.Add, Forms._add),
    (tirx.Sub, Forms._subtract),
    (tirx.Mul, Forms._multiply),
    (tirx.Div, Forms._divide),
    (tirx.Max, Forms._greater),
    (tirx.Min, Forms._less),
    (tirx.Select, Forms._choose),
    (tirx.Cast, Forms._cast),
    (Call, Forms._call),
)


@functools.cache
def form_of(kind: type) -> Callable[[Forms, Any, Known], Known] | None:
    """What makes something of a kind of part; None of others, as comparisons are."""
    return next((form for known, form in _FORMS if issubclass(kind, known)), None)


def _ends_of(a: Known, b: Known) -> tuple[tuple[float, float], tuple[float, float]]:
    return (a.interval.low, b.interval.low), (a.interval.high, b.interval.high)


def _is_above_zero(one: Known, other: Known) -> bool:
    return one.above_zero and other.interval.never_negative


def _one_over(numerator: float, least: float | None) -> Ends:
    if least is None or numerator <= HALF_MAX * least:
        return NEITHER
    why = f"it divides by numbers that {least:.0e} keeps from zero"
    return Ends(up=True, down=True, why=why)


def _floor(value: Any) -> float | None:
    """The small number that a part adds, or that it is at least."""
    sides = (s.value for s in (value.a, value.b) if isinstance(s, tirx.FloatImm) and s.value > 0)
    return next(map(float, sides), None)


def _size_of_call(name: str, size: Size | None) -> Size | None:
    if size is None:
        return ONE
    if name in _AS_LARGE:
        return size
    if name in _ODD:
        return size.clip(1.0)
    return size.power(_ROOTS[name]) if name in _ROOTS else ONE


def _is_pixel(value: Any) -> bool:
    """Whether a part is a whole number by its formula, as the pixel is in which a place lies."""
    if isinstance(value, Call):
        return bool(value.op.name == "tirx.floor")
    return isinstance(value, tirx.Cast) and not dtype_of(value.value).startswith("float")
