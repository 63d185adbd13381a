"""Functions with as many digits as are needed: fewer where halves are stored, more near one.

```
exp(x)                 -> native_exp(x)
1 / (1 + exp(0 - x))   -> native_recip(1 + native_exp(0 - x))
tanh(x), erf(x)        -> rational functions that divide by native_recip
expm1(x), log1p(x)     -> near zero a polynomial, else of native_exp(x) and log(1 + x)
x / 6                  -> x * 0.16666667
```

OpenCL promises three units in the last place of `exp` and of a division in float, for which
compilers write some thirty and a dozen instructions beside the one that the GPU has
(a swish takes 43 instructions of an Adreno an element so, and 6 as it is here).  How
good the GPU's own are is left to it: Direct3D asks for 2^-21 of an exponential, a software driver
gives 2^-12 of a reciprocal, where a half is off by 2^-11.  Other divisions stay: of a divisor
beyond 2^126 the reciprocal is zero, and the quotient need not be.

Differences from one keep their digits:

```
exp(x) - 1             -> expm1(x)
1 - exp(x)             -> -expm1(x)
c * exp(x) - c         -> c * expm1(x)
log(1 + x)             -> log1p(x)
```

What is nearly one has few digits left when one is taken away: an ELU of -1e-6 was off by 3.5 %, a
softplus of -14 by 6 %, and a Mish below -17 was zero.
"""

from typing import Any

from tvm_ffi.structural import structural_map, structural_walk

from adrenoc.base.tvmapi import (
    OWN_FUNCTIONS,
    Bind,
    Call,
    Expr,
    Stmt,
    StringImm,
    Var,
    dtype_of,
    iconst,
    own_function,
    tirx,
    tvm,
)
from adrenoc.kernels.body_cost import any_part, number_in, number_like

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
        """Return a sum, or an exponential less a number that takes it away near zero."""
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
        """Return what an expression is; of a name what was bound to it, if still the same."""
        if not isinstance(expr, Var):
            return expr
        value = self._bound.get(str(expr.name))
        if value is None or isinstance(value, Var):
            return None if value is None else self._value(value)
        # What lies in registers may have changed since.
        return None if any_part(value, lambda p: isinstance(p, tvm.ir.TensorLoad)) else value


_FLOAT = "float32"
_EXPONENTIALS = {"tirx.exp": "native_exp", "tirx.exp2": "native_exp2"}
_OWN_NAMES = tuple(OWN_FUNCTIONS.values())
_LARGEST_DIVISOR = 2.0**126
"""Up to here a reciprocal is no denormal number."""


def coarsen(stmt: Stmt) -> Stmt:
    """Replace the functions of a kernel's statements."""
    coarse: Stmt = structural_map(stmt, [(Call, _coarsen_call), (tirx.Div, _coarsen_division)])
    return coarse


def _coarsen_call(call: Any) -> Expr:
    if not dtype_of(call).startswith(_FLOAT) or not call.args:
        return call
    name, first = getattr(call.op, "name", ""), call.args[0]
    if isinstance(first, StringImm) and str(first.value).startswith(_OWN_NAMES):
        return _call_extern(first.value, call.args[1], iconst(0))
    if name in OWN_FUNCTIONS:
        return own_function(name, first, dtype_of(call), exact=False)
    if name in _EXPONENTIALS:
        return _call_extern(_EXPONENTIALS[name], first)
    if name == "tirx.sigmoid":
        power = _call_extern("native_exp", number_like(first, 0.0) - first)
        return _call_extern("native_recip", number_like(first, 1.0) + power)
    return call


def _coarsen_division(quotient: Any) -> Expr:
    """Functions within it are replaced already."""
    if not dtype_of(quotient).startswith(_FLOAT):
        return quotient
    if number_in(quotient.a) == 1.0 and _grows_from_one(quotient.b):
        return _call_extern("native_recip", quotient.b)
    divisor = number_in(quotient.b)
    if divisor is not None and 1 / _LARGEST_DIVISOR <= abs(divisor) <= _LARGEST_DIVISOR:
        return quotient.a * number_like(quotient.a, 1 / divisor)
    return quotient


def _grows_from_one(expr: Any) -> bool:
    """Return whether it is one and an exponential."""
    if not isinstance(expr, tirx.Add):
        return False
    return any(
        number_in(one) == 1.0 and _is_extern(power, "native_exp")
        for one, power in ((expr.a, expr.b), (expr.b, expr.a))
    )


def _is_extern(expr: Any, name: str) -> bool:
    """Return whether it calls a function of OpenCL C whose name begins so."""
    called = expr.args[0] if isinstance(expr, Call) and expr.args else None
    return isinstance(called, StringImm) and str(called.value).startswith(name)


def _call_extern(name: str, x: Expr, *more: Expr) -> Expr:
    return tirx.call_pure_extern(dtype_of(x), name, x, *more)
