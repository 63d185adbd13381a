"""Evaluate a scalar body for one element, or for the four channels of a texel at once.

The body says what one element is; a kernel wants four.  An expression whose parts advance with
the channel is computed as vectors: a read whose channel index advances with the lane and whose
block starts at a multiple of four is one texel.  Whatever does not fit (a channel shuffle, a
concat at an odd offset) is computed lane by lane and put together, which is slower and just as
right.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import (
    IF_THEN_ELSE,
    OWN_FUNCTIONS,
    Expr,
    Var,
    cast,
    clamp,
    const_int,
    construct,
    dtype_of,
    floordiv,
    iconst,
    if_then_else,
    lanes_of,
    larger,
    own_function,
    quotient,
    smaller,
    splat,
    sym,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Body
from adrenoc.ir.layout import LANES, OperandSpec
from adrenoc.kernels.access import Access
from adrenoc.kernels.body_cost import any_part, number_in
from adrenoc.kernels.statements import Statements

_DIVIDE = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, *_DIVIDE, tirx.Min, tirx.Max)
_COMPARE = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_LOGIC = (tirx.And, tirx.Or)
_BITS = (tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor, tirx.LShift, tirx.RShift)
_SCALAR_CALLS = ("tirx.isnan", "tirx.isinf", "tirx.popcount", "tirx.reinterpret")
"""Calls that have no vector form in TVM's OpenCL backend."""

_BUILT_IN = {
    "tirx.nearbyint": "rint",
    **{f"tirx.{name}": name for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2")},
    **{f"tirx.{name}": name for name in ("atanh", "copysign", "hypot", "tan")},
}
"""Calls that OpenCL C has, by its name, but TVM's OpenCL backend does not know."""

_ROUNDED = ("tirx.nearbyint", "tirx.round")
_STEPS = ("tirx.floor", "prim.ceil", "tirx.trunc")

_NARROW = 2**31
"""Constants below this are int32 until they meet an int64."""

Texel = Callable[[], Expr]


class _LanesDifferError(Exception):
    """Raised where an index of all lanes at once is read from a place that differs by lane."""


class Evaluator:
    """Turns a body into the expressions of one thread.  `reads` maps each buffer of the body to the
    access that serves it, or to a function that gives the four channels at hand (the result of the
    operator whose epilogue this is)."""

    def __init__(
        self, statements: Statements, body: Body, reads: Mapping[Any, Access | Texel]
    ) -> None:
        self._statements = statements
        self._body = body
        self._reads = reads
        self._lane = Var("lane", "int32")
        self._analyzer = sym.Analyzer()
        self._analyzer.bind(self._lane, tvm.ir.Range(0, LANES))
        self._env: list[tuple[Expr, Expr]] = []
        self._channels = 0
        self._channel_var: Expr | None = None
        self._conditions = 0
        """How many undecided conditions guard what is being evaluated."""
        self._indices = 0
        """How many indices that are being evaluated lie in each other."""
        self._steps = False
        """Whether only whole parts count of what is being evaluated: a quotient that is off by its
        last digit may be off by one then."""

    def know(self, var: Expr, extent: int) -> None:
        """Tell the arithmetic that `var` runs over 0..extent-1."""
        if isinstance(var, Var):
            self._analyzer.bind(var, tvm.ir.Range(0, extent))

    def know_channels(self, count: int) -> None:
        """Tell how many channels there are: the last block's other lanes repeat the last one."""
        self._channels = count

    def scalar(self, index: Sequence[Expr], more: Sequence[tuple[Expr, Expr]] = ()) -> Expr:
        """Return the element at a logical index; `more` binds further variables of the body."""
        self._env = [*zip(self._body.axes, index, strict=True), *more]
        return self._scalar(self._body.value, None)

    def texel(
        self,
        index: Sequence[Expr],
        channel_axis: int | None,
        more: Sequence[tuple[Expr, Expr]] = (),
    ) -> Expr:
        """Return four elements: `index` with the channel axis at its block's first channel.  Where
        no axis is the channel, the element and three zeros."""
        index = list(index)
        if channel_axis is None:
            self._env = [*zip(self._body.axes, index, strict=True), *more]
            first = self._scalar(self._body.value, None)
            zero = tirx.const(0, dtype_of(first))
            return construct([first, zero, zero, zero])
        index[channel_axis] = index[channel_axis] + self._lane
        self._channel_var = self._body.axes[channel_axis]
        self._env = [*zip(self._body.axes, index, strict=True), *more]
        return self._vector(self._body.value)

    # One element

    def _scalar(self, expr: Any, lane: int | None) -> Expr:  # noqa: PLR0911 (one a kind)
        """Return the scalar value, with the lane variable fixed to `lane` if it appears."""
        if isinstance(expr, Var):
            return self._look_up(expr, lane)
        if isinstance(expr, tirx.IntImm):
            narrow = dtype_of(expr) == "int64" and abs(int(expr.value)) < _NARROW
            return iconst(int(expr.value)) if narrow else expr
        if isinstance(expr, tirx.FloatImm):
            return tirx.const(expr.value, self._dtype(dtype_of(expr)))
        if isinstance(expr, tvm.ir.TensorLoad):
            return self._scalar_load(expr, lane)
        if isinstance(expr, _BINARY + _COMPARE + _LOGIC + _BITS):
            return self._combine(expr, *_alike(*(self._scalar(x, lane) for x in (expr.a, expr.b))))
        if isinstance(expr, tirx.Not | tirx.BitwiseNot):
            return type(expr)(self._scalar(expr.a, lane))
        if isinstance(expr, tirx.Cast):
            return cast(self._scalar(expr.value, lane), self._dtype(dtype_of(expr)))
        if isinstance(expr, tirx.Select):
            then, other = (self._scalar(v, lane) for v in (expr.true_value, expr.false_value))
            return if_then_else(self._scalar(expr.condition, lane), *_alike(then, other))
        if isinstance(expr, tvm.ir.Call):
            if expr.op.name == IF_THEN_ELSE:
                condition, *branches = (self._scalar(a, lane) for a in expr.args)
                return if_then_else(condition, *_alike(*branches))
            args = self._operands(expr, lambda a: self._scalar(a, lane))
            args = list(_alike(*args)) if len(args) == 2 else args
            return _call(expr, args, self._dtype(dtype_of(expr)))
        raise TypeError(f"cannot evaluate {type(expr).__name__} in {expr}")

    def _operands(self, call: Any, evaluate: Callable[[Any], Expr]) -> list[Expr]:
        """Return the operands of a call, each evaluated."""
        steps = self._steps
        if call.op.name in (*_STEPS, *_ROUNDED):
            self._steps = call.op.name in _STEPS
        found = [evaluate(operand) for operand in call.args]
        self._steps = steps
        return found

    def _combine(self, expr: Any, a: Expr, b: Expr) -> Expr:
        """Combine the two sides of an expression; extremes are NaN where a side is.  Whole numbers
        are none, and a constant is the second side."""
        if isinstance(expr, tirx.Div) and self._steps and dtype_of(a).startswith("float32"):
            return quotient(a, b)
        if not isinstance(expr, tirx.Max | tirx.Min) or _is_whole(expr):
            combined: Expr = type(expr)(a, b)
            return combined
        first, second = (b, a) if number_in(a) is not None else (a, b)
        return (larger if isinstance(expr, tirx.Max) else smaller)(first, second)

    def _scalar_load(self, load: Any, lane: int | None) -> Expr:
        source = self._source(load.source)
        if isinstance(source, Access):
            pairs = zip(load.indices, source.spec.shape, strict=True)
            index = [self._safe_index(i, lane, e) for i, e in pairs]
            if lane is None and self._indices and any(map(self._has_lane, index)):
                raise _LanesDifferError
            value = source.element(index)
            # Indices and their arithmetic are int32, so an int64 that they are made of is too.
            wide = self._indices and dtype_of(value) == "int64"
            return cast(value, "int32") if wide else value
        texel = self._statements.let(source())
        if lanes_of(texel) == 1:
            return texel
        return tirx.Shuffle([texel], [iconst(lane or 0)])

    def _safe_index(self, expr: Any, lane: int | None, extent: int) -> Expr:
        """Return an index; one that is itself data is kept inside of the tensor, and gets a name.
        Reads that stand in many indices, such as those of a grid, would be written out in each."""
        index = self._index(expr, lane)
        if not self._loads(expr):
            return index
        index = clamp(index, 0, extent - 1)
        nameable = self._safe_anywhere(expr) and not self._has_lane(index)
        return self._statements.share(index, "index") if nameable else index

    def _safe_anywhere(self, expr: Any) -> bool:
        """Return whether what `expr` reads may be read where a condition would not have it read."""

        def needs_guard(part: Any) -> bool:
            if not isinstance(part, tvm.ir.TensorLoad):
                return False
            source = self._source(part.source)
            return isinstance(source, Access) and not source.safe_outside

        return not any_part(expr, needs_guard)

    def _index(self, expr: Any, lane: int | None) -> Expr:
        self._indices += 1
        index = self._analyzer.simplify(self._scalar(expr, lane))
        self._indices -= 1
        return index

    # Four elements

    def _vector(self, expr: Any) -> Expr:  # noqa: PLR0911 (one a kind)
        """Return the value of all four lanes; a scalar where no lane differs."""
        if not self._varies(expr):
            return self._scalar(expr, None)
        if isinstance(expr, tvm.ir.TensorLoad):
            return self._vector_load(expr)
        if isinstance(expr, _BINARY) and dtype_of(expr).startswith("float"):
            return self._combine(expr, *_same_lanes(self._vector(expr.a), self._vector(expr.b)))
        if isinstance(expr, tirx.Cast) and dtype_of(expr).startswith("float"):
            value = expr.value
            if dtype_of(value).startswith("float"):
                inner = self._vector(value)
                lanes = "x4" if lanes_of(inner) == LANES else ""
                return cast(inner, self._dtype(dtype_of(expr)) + lanes)
        if isinstance(expr, tirx.Select):
            return self._vector_choice(expr.condition, expr.true_value, expr.false_value, expr)
        if isinstance(expr, tvm.ir.Call):
            if expr.op.name == IF_THEN_ELSE:
                condition, then, otherwise = expr.args
                return self._vector_choice(condition, then, otherwise, expr)
            if self._has_vector_form(expr):
                args = self._operands(expr, lambda a: fill_vector(self._vector(a)))
                return _call(expr, args, f"{self._dtype(dtype_of(expr))}x4")
        return self._lane_by_lane(expr)

    def _vector_load(self, load: Any) -> Expr:
        source = self._source(load.source)
        if not isinstance(source, Access):
            return self._statements.let(source())
        extents = source.spec.shape
        depth = self._indices
        try:
            pairs = zip(load.indices, extents, strict=True)
            index = [self._safe_index(i, None, e) for i, e in pairs]
        except _LanesDifferError:
            self._indices = depth
            return self._lane_by_lane(load)
        layout = source.spec.layout
        channel = layout.axis("C") if layout is not None else None
        if channel is None or source.spec.extents.c == 1:
            return self._lane_by_lane(load)
        others = [i for axis, i in enumerate(index) if axis != channel]
        first = self._analyzer.simplify(index[channel] - self._lane)
        aligned = self._analyzer.simplify(tirx.floormod(first, iconst(LANES)))
        if any(self._has_lane(i) for i in [*others, first]) or const_int(aligned) != 0:
            return self._lane_by_lane(load)
        index[channel] = first
        n, c, h, w = source.position(index)
        block = self._analyzer.simplify(floordiv(c, LANES))
        texel = source.texel(n, block, h, w)
        if source.safe_outside or self._conditions == 0:
            return self._statements.let_once(texel)
        return texel

    def _vector_choice(self, condition: Any, then: Any, otherwise: Any, whole: Any) -> Expr:
        decided = self._decide(condition)
        if decided is None:
            return self._lane_by_lane(whole)
        if const_int(decided) is not None:
            return self._vector(then if const_int(decided) else otherwise)
        self._conditions += 1
        a, b = _same_lanes(self._vector(then), self._vector(otherwise))
        self._conditions -= 1
        return if_then_else(decided, a, b)

    def _decide(self, condition: Any) -> Expr | None:
        """Return the condition if it is the same for all four lanes, else None."""
        if isinstance(condition, tirx.And):
            a, b = self._decide(condition.a), self._decide(condition.b)
            return None if a is None or b is None else self._analyzer.simplify(tirx.And(a, b))
        if self._loads(condition) and self._varies(condition):
            return None
        value = self._analyzer.simplify(self._scalar(condition, None))
        if isinstance(value, (tirx.LE, tirx.GE)):
            # The simplifier only sees through `block * 4 + lane < constant`.
            a, b = (value.b, value.a) if isinstance(value, tirx.LE) else (value.a, value.b)
            value = self._analyzer.simplify(tirx.Not(self._analyzer.simplify(a < b)))
        return None if self._has_lane(value) else value

    def _lane_by_lane(self, expr: Any) -> Expr:
        value = construct([self._scalar(expr, lane) for lane in range(LANES)])
        # Naming it would read what a condition guards.
        return value if self._conditions else self._statements.let(value)

    # What is known

    def _look_up(self, var: Expr, lane: int | None) -> Expr:
        for known, value in self._env:
            if known.same_as(var):
                if lane is None:
                    return value
                fixed = _fix(value, self._lane, lane)
                # What lies beyond the last channel is never stored, but must not be read either.
                beyond = 0 < self._channels % LANES <= lane
                if beyond and known.same_as(self._channel_var):
                    return tirx.Min(fixed, iconst(self._channels - 1))
                return fixed
        return var

    def _source(self, buffer: Any) -> Access | Texel:
        for known, source in self._reads.items():
            if known.same_as(buffer):
                return source
        raise KeyError(f"the body reads {buffer}, which is none of its sources")

    def _dtype(self, dtype: str) -> str:
        if dtype == "int64" and self._indices:
            return "int32"
        return self._statements.compute if dtype in ("float32", "float16") else dtype

    def _varies(self, expr: Any) -> bool:
        """Return whether lanes can differ: it reads the lane, or the four channels at hand."""
        return any_part(expr, self._part_varies)

    def _part_varies(self, part: Any) -> bool:
        if isinstance(part, Var):
            return self._has_lane(self._look_up(part, None))
        if isinstance(part, tvm.ir.TensorLoad):
            return not isinstance(self._source(part.source), Access)
        return False

    def _has_lane(self, expr: Any) -> bool:
        return any_part(expr, lambda part: part.same_as(self._lane))

    def _loads(self, expr: Any) -> bool:
        return any_part(expr, lambda part: isinstance(part, tvm.ir.TensorLoad))

    @staticmethod
    def _has_vector_form(call: Any) -> bool:
        name = call.op.name
        return (
            dtype_of(call).startswith("float")
            and name not in _SCALAR_CALLS
            and all(dtype_of(a).startswith("float") for a in call.args)
        )


def _is_whole(expr: Any) -> bool:
    """Tell whether it is a rounded number within bounds: the quanta of a quantised tensor."""
    if isinstance(expr, tirx.Max | tirx.Min | tirx.Add | tirx.Sub):
        return _is_whole(expr.a) or _is_whole(expr.b)
    return isinstance(expr, tvm.ir.Call) and expr.op.name in _ROUNDED


def _alike(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return two integers in one dtype: an int32 that meets an int64 is widened."""
    if {dtype_of(a), dtype_of(b)} == {"int32", "int64"}:
        return cast(a, "int64"), cast(b, "int64")
    return a, b


def know_position(
    evaluator: Evaluator, spec: OperandSpec, n: Expr, block: Expr, h: Expr, w: Expr
) -> None:
    """Tell an evaluator over which extents a position runs."""
    e = spec.extents
    for var, extent in ((n, e.n), (block, e.blocks), (h, e.h), (w, e.w)):
        evaluator.know(var, extent)
    evaluator.know_channels(e.c)


def _call(call: Any, args: Sequence[Expr], dtype: str) -> Expr:
    if call.op.name in OWN_FUNCTIONS:
        return own_function(call.op.name, args[0], dtype)
    built_in = _BUILT_IN.get(call.op.name)
    if built_in is not None:
        return tirx.call_pure_extern(dtype, built_in, *args)
    return tvm.ir.Call(call.op, list(args), ret_ty=tvm.ir.PrimType(dtype))


def fill_vector(value: Expr) -> Expr:
    """Return a vector of four: a scalar is repeated."""
    return value if lanes_of(value) == LANES else splat(value)


def _same_lanes(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    if lanes_of(a) == lanes_of(b):
        return a, b
    return fill_vector(a), fill_vector(b)


def _fix(value: Expr, var: Expr, lane: int) -> Expr:
    return structural_map(value, (Var, lambda v: iconst(lane) if v.same_as(var) else v))
