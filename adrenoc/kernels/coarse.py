"""Functions as far as halves tell them apart, in place of those that are right to the last bit.

```
exp(x)                 -> native_exp(x)
1 / (1 + exp(0 - x))   -> native_recip(1 + native_exp(0 - x))
tanh(x), erf(x)        -> rational functions that divide by native_recip
expm1(x), log1p(x)     -> near zero a polynomial, else of native_exp(x) and log(1 + x)
x / 6                  -> x * 0.16666667
```

OpenCL promises three units in the last place of `exp` and of a division in float, for which
compilers write some thirty and a dozen instructions beside the one that the GPU has
(`scripts/bench_kernels`: a swish takes 43 instructions an element so, and 6 as it is here).  How
good the GPU's own are is left to it: Direct3D asks for 2^-21 of an exponential, a software driver
gives 2^-12 of a reciprocal, where a half is off by 2^-11.  Other divisions stay: of a divisor
beyond 2^126 the reciprocal is zero, and the quotient need not be.
"""

from __future__ import annotations

from typing import Any

from tvm_ffi.structural import structural_map

from adrenoc.base.tvmapi import (
    OWN_FUNCTIONS,
    Call,
    Expr,
    Stmt,
    StringImm,
    dtype_of,
    iconst,
    own_function,
    tirx,
)
from adrenoc.kernels.expression_parts import number_in, number_like

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
