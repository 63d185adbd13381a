"""What the expression of a body reads and costs."""

from __future__ import annotations

from typing import Any

from tvm_ffi.structural import WalkResult, structural_map, structural_walk

from adrenoc.base.tvmapi import IF_THEN_ELSE, Call, Expr, tirx, tvm
from adrenoc.ir.body import Body

CALL_INSTRUCTIONS = 8
"""Instructions of a function such as exp: the unit for them is a quarter as wide, and there is more
to it."""


def loads_of(expr: Expr) -> list[Any]:
    """All loads of an expression, repeated ones too."""
    found: list[Any] = []

    def note(load: Any) -> Any:
        found.append(load)
        return load

    structural_map(expr, (tvm.ir.TensorLoad, note))
    return found


def parts_of(body: Body) -> int:
    """Parts of the expression of one element, index arithmetic and all."""
    count = 0

    def visit(_: Any) -> WalkResult:
        nonlocal count
        count += 1
        return WalkResult.ADVANCE

    structural_walk(body.value, (tvm.ir.Expr, visit), order="pre")
    return count


_COUNTED = (tvm.ir.prim.BinaryOpExpr, tvm.ir.prim.CmpExpr, tvm.ir.prim.Select, Call)


def body_operations(body: Body) -> int:
    """Operations of one element: arithmetic, comparisons, selections and functions.

    What indexes a load is address arithmetic and does not count.
    """
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
    """Instructions of one element: functions take several, a product that is added none."""
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
    """Instructions that say where an element is read: each part of the indices once."""
    parts: set[str] = set()

    def visit(expr: Any) -> WalkResult:
        if isinstance(expr, _COUNTED):
            parts.add(str(expr))
        return WalkResult.ADVANCE

    for load in loads_of(body.value):
        for index in load.indices:
            structural_walk(index, (tvm.ir.Expr, visit), order="pre")
    return len(parts)
