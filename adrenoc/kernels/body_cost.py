"""What the expression of a body is made of, what it reads and what it costs."""

from collections.abc import Callable
from functools import cache
from typing import Any

from tvm_ffi.structural import WalkResult, structural_map, structural_walk

from adrenoc.base.tvmapi import (
    IF_THEN_ELSE,
    Call,
    Expr,
    dtype_of,
    fconst,
    lanes_of,
    splat,
    tirx,
    tvm,
)
from adrenoc.ir.graph import Body


def any_part(expr: Any, holds: Callable[[Any], bool]) -> bool:
    """Return whether a predicate holds for any part of an expression."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if holds(part):
            return True
        stack.extend(part.indices if _is_load(part.__class__) else operands_of(part))
    return False


def operands_of(part: Any) -> tuple[Any, ...]:
    """Return the expressions that a part is computed of; of a load none: indices say where."""
    names = _operand_names(part.__class__)
    if names == _ARGUMENTS:
        return tuple(part.args)
    return tuple(getattr(part, name) for name in names)


_ARGUMENTS = ("args",)


# By class, and once each: TVM's are abstract, so that asking each part is most of a walk.
@cache
def _is_load(kind: type) -> bool:
    return issubclass(kind, tvm.ir.TensorLoad)


@cache
def _operand_names(kind: type) -> tuple[str, ...]:
    """Return the attributes of a class that hold operands."""
    if _is_load(kind):
        return ()
    if issubclass(kind, tvm.ir.Call):
        return _ARGUMENTS
    if issubclass(kind, tirx.Select):
        return "condition", "true_value", "false_value"
    if issubclass(kind, tirx.Cast):
        return ("value",)
    return tuple(side for side in ("a", "b") if hasattr(kind, side))


def number_in(expr: Any) -> float | None:
    """Return the constant that all lanes of an expression are, if they are one."""
    one = expr.value if isinstance(expr, tirx.Broadcast) else expr
    return float(one.value) if isinstance(one, tirx.FloatImm) else None


def number_like(x: Expr, value: float) -> Expr:
    """Return a number of the dtype of x, in as many lanes."""
    number = fconst(value, dtype_of(x).partition("x")[0])
    return splat(number) if lanes_of(x) > 1 else number


CALL_INSTRUCTIONS = 8
"""Instructions of a function such as exp: the unit for them is a quarter as wide, and there is more
to it."""


def loads_of(expr: Expr) -> list[Any]:
    """Return all loads of an expression, repeated ones too."""
    return parts_of_kind(expr, tvm.ir.TensorLoad)


def parts_of_kind(value: Expr, kind: Any) -> list[Any]:
    """Return the parts of an expression that are of a kind, or of one of several."""
    found: list[Any] = []

    def note(part: Any) -> Any:
        found.append(part)
        return part

    structural_map(value, (kind, note))
    return found


def parts_of(body: Body) -> int:
    """Return parts of the expression of one element, index arithmetic and all."""
    count = 0

    def visit(_: Any) -> WalkResult:
        nonlocal count
        count += 1
        return WalkResult.ADVANCE

    structural_walk(body.value, (tvm.ir.Expr, visit), order="pre")
    return count


_COUNTED = (tvm.ir.prim.BinaryOpExpr, tvm.ir.prim.CmpExpr, tvm.ir.prim.Select, Call)


def body_operations(body: Body) -> int:
    """Return operations of one element: arithmetic, comparisons, selections and functions.  What
    indexes a load is address arithmetic and does not count."""
    count = 0

    def visit(expr: Any) -> WalkResult:
        nonlocal count
        if isinstance(expr, tvm.ir.TensorLoad):
            return WalkResult.SKIP
        count += isinstance(expr, _COUNTED)
        return WalkResult.ADVANCE

    structural_walk(body.value, (tvm.ir.Expr, visit), order="pre")
    return count


def body_instructions(body: Body) -> int:
    """Return instructions of one element: functions take several, a product that is added none."""
    calls, merged = 0, []

    def visit(expr: Any) -> WalkResult:
        nonlocal calls
        if isinstance(expr, tvm.ir.TensorLoad):
            return WalkResult.SKIP
        calls += isinstance(expr, Call) and expr.op.name != IF_THEN_ELSE
        if isinstance(expr, tirx.Add | tirx.Sub):
            merged.append(isinstance(expr.a, tirx.Mul) or isinstance(expr.b, tirx.Mul))
        return WalkResult.ADVANCE

    structural_walk(body.value, (tvm.ir.Expr, visit), order="pre")
    return body_operations(body) + calls * (CALL_INSTRUCTIONS - 1) - sum(merged)


def index_instructions(body: Body) -> int:
    """Return instructions that say where an element is read: each part of the indices once."""
    parts: set[str] = set()

    def visit(expr: Any) -> WalkResult:
        if isinstance(expr, _COUNTED):
            parts.add(str(expr))
        return WalkResult.ADVANCE

    for load in loads_of(body.value):
        for index in load.indices:
            structural_walk(index, (tvm.ir.Expr, visit), order="pre")
    return len(parts)
