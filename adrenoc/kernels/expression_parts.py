"""The parts of an expression."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from adrenoc.base.tvmapi import Expr, dtype_of, fconst, lanes_of, splat, tirx, tvm


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
    """Return the expressions that a part is computed of; of a load none, for its indices say
    where."""
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
