"""The parts of an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adrenoc.base.tvmapi import Expr, dtype_of, fconst, lanes_of, splat, tirx, tvm


def any_part(expr: Any, holds: Callable[[Any], bool]) -> bool:
    """Return whether a predicate holds for any part of an expression."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if holds(part):
            return True
        stack.extend(part.indices if isinstance(part, tvm.ir.TensorLoad) else operands_of(part))
    return False


def operands_of(part: Any) -> tuple[Any, ...]:
    """Return the expressions that a part is computed of; of a load none, for its indices say
    where."""
    if isinstance(part, tvm.ir.TensorLoad):
        return ()
    if isinstance(part, tvm.ir.Call):
        return tuple(part.args)
    if isinstance(part, tirx.Select):
        return part.condition, part.true_value, part.false_value
    if isinstance(part, tirx.Cast):
        return (part.value,)
    return tuple(getattr(part, side) for side in ("a", "b") if hasattr(part, side))


def number_in(expr: Any) -> float | None:
    """Return the constant that all lanes of an expression are, if they are one."""
    one = expr.value if isinstance(expr, tirx.Broadcast) else expr
    return float(one.value) if isinstance(one, tirx.FloatImm) else None


def number_like(x: Expr, value: float) -> Expr:
    """Return a number of the dtype of x, in as many lanes."""
    number = fconst(value, dtype_of(x).partition("x")[0])
    return splat(number) if lanes_of(x) > 1 else number
