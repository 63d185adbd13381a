"""Differences from one keep their digits.

```
exp(x) - 1             -> expm1(x)
1 - exp(x)             -> -expm1(x)
c * exp(x) - c         -> c * expm1(x)
log(1 + x)             -> log1p(x)
```

What is nearly one has few digits left when one is taken away: an ELU of -1e-6 was off by 3.5 %, a
softplus of -14 by 6 %, and a Mish below -17 was zero.
"""

from __future__ import annotations

from typing import Any

from tvm_ffi.structural import structural_map, structural_walk

from adrenoc.base.tvmapi import Bind, Call, Expr, Stmt, Var, dtype_of, own_function, tirx, tvm
from adrenoc.kernels.expression_parts import any_part, number_in, number_like

_EXP, _LOG = "tirx.exp", "tirx.log"


def keep_digits_near_one(stmt: Stmt) -> Stmt:
    """Replace such differences in a kernel's statements; names are looked through."""
    called: set[str] = set()
    bound: dict[str, Any] = {}

    def note_call(call: Any) -> None:
        called.add(getattr(call.op, "name", ""))

    def note_name(binding: Any) -> None:
        bound[binding.var.name] = binding.value

    structural_walk(stmt, [(Call, note_call), (Bind, note_name)])
    differences = _Differences(bound)
    callbacks: list[Any] = []
    if _EXP in called:
        callbacks += [(tirx.Add, differences.add), (tirx.Sub, differences.subtract)]
    if _LOG in called:
        callbacks += [(Call, differences.take_log)]
    kept: Stmt = structural_map(stmt, callbacks) if callbacks else stmt
    return kept


class _Differences:
    def __init__(self, bound: dict[str, Any]) -> None:
        self._bound = bound

    def add(self, total: Any) -> Expr:
        """Return a sum, or what it is of an exponential and a number that takes it away near
        zero."""
        for power, number in ((total.a, total.b), (total.b, total.a)):
            found = self._find_power(power, number_in(number), -1.0)
            if found is not None:
                return found
        return total

    def subtract(self, difference: Any) -> Expr:
        """Return the same of a difference."""
        found = self._find_power(difference.a, number_in(difference.b), 1.0)
        if found is not None:
            return found
        found = self._find_power(difference.b, number_in(difference.a), 1.0)
        return difference if found is None else number_like(found, 0.0) - found

    def take_log(self, call: Any) -> Expr:
        """Return a logarithm, or what it is of one and something."""
        if getattr(call.op, "name", "") != _LOG:
            return call
        total = self._value(call.args[0])
        if total is None or not isinstance(total, tirx.Add | tirx.Sub):
            return call
        for one, rest in ((total.a, total.b), (total.b, total.a)):
            if isinstance(total, tirx.Add) and number_in(one) == 1.0:
                return own_function("tirx.log1p", rest, dtype_of(call))
        if isinstance(total, tirx.Sub) and number_in(total.a) == 1.0:
            below = number_like(total.b, 0.0) - total.b
            return own_function("tirx.log1p", below, dtype_of(call))
        return call

    def _find_power(self, term: Any, number: float | None, sign: float) -> Expr | None:
        """`factor * expm1(x)`, where the term is `factor * exp(x)` and the number its factor."""
        if not number:
            return None
        power, factor = self._value(term), 1.0
        if isinstance(power, tirx.Mul):
            for a, b in ((power.a, power.b), (power.b, power.a)):
                if (known := number_in(a)) is not None:
                    power, factor = self._value(b), known
                    break
        if not isinstance(power, Call) or getattr(power.op, "name", "") != _EXP:
            return None
        if number * sign != factor:
            return None
        found = own_function("expm1", power.args[0], dtype_of(power))
        return found if factor == 1.0 else number_like(found, factor) * found

    def _value(self, expr: Any) -> Any:
        """Return what an expression is; of a name what was bound to it, if that is the same
        here."""
        if not isinstance(expr, Var):
            return expr
        value = self._bound.get(str(expr.name))
        if value is None or isinstance(value, Var):
            return None if value is None else self._value(value)
        # What lies in registers may have changed since.
        return None if any_part(value, lambda p: isinstance(p, tvm.ir.TensorLoad)) else value
