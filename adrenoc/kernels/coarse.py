"""Functions as far as halves tell them apart, in place of those that are right to the last bit.

```
exp(x)                 -> native_exp(x)
1 / (1 + exp(0 - x))   -> native_recip(1 + native_exp(0 - x))
tanh(x), erf(x)        -> rational functions that divide by native_recip
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

from adrenoc.tvmapi import (
    RATIONAL_FUNCTIONS,
    Call,
    Expr,
    Stmt,
    StringImm,
    dtype_of,
    fconst,
    iconst,
    lanes_of,
    rational_function,
    splat,
    tirx,
)

_FLOAT = "float32"
_EXPONENTIALS = {"tirx.exp": "native_exp", "tirx.exp2": "native_exp2"}
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
    if any(_is_extern(call, rational) for rational in RATIONAL_FUNCTIONS.values()):
        return _call_extern(first.value, call.args[1], iconst(0))
    if name in RATIONAL_FUNCTIONS:
        return rational_function(name, first, dtype_of(call), exact=False)
    if name in _EXPONENTIALS:
        return _call_extern(_EXPONENTIALS[name], first)
    if name == "tirx.sigmoid":
        power = _call_extern("native_exp", _like(first, 0.0) - first)
        return _call_extern("native_recip", _like(first, 1.0) + power)
    return call


def _coarsen_division(quotient: Any) -> Expr:
    """Functions within it are replaced already."""
    if not dtype_of(quotient).startswith(_FLOAT):
        return quotient
    if _number_in(quotient.a) == 1.0 and _grows_from_one(quotient.b):
        return _call_extern("native_recip", quotient.b)
    divisor = _number_in(quotient.b)
    if divisor is not None and 1 / _LARGEST_DIVISOR <= abs(divisor) <= _LARGEST_DIVISOR:
        return quotient.a * _like(quotient.a, 1 / divisor)
    return quotient


def _grows_from_one(expr: Any) -> bool:
    """Whether it is one and an exponential."""
    if not isinstance(expr, tirx.Add):
        return False
    return any(
        _number_in(one) == 1.0 and _is_extern(power, "native_exp")
        for one, power in ((expr.a, expr.b), (expr.b, expr.a))
    )


def _is_extern(expr: Any, name: str) -> bool:
    """Whether it calls a function of OpenCL C whose name begins so."""
    called = expr.args[0] if isinstance(expr, Call) and expr.args else None
    return isinstance(called, StringImm) and str(called.value).startswith(name)


def _number_in(expr: Any) -> float | None:
    """The constant that all lanes of an expression are, if they are one."""
    one = expr.value if isinstance(expr, tirx.Broadcast) else expr
    return float(one.value) if isinstance(one, tirx.FloatImm) else None


def _call_extern(name: str, x: Expr, *more: Expr) -> Expr:
    return tirx.call_pure_extern(dtype_of(x), name, x, *more)


def _like(x: Expr, value: float) -> Expr:
    """A number, in as many lanes as x."""
    number = fconst(value, _FLOAT)
    return splat(number) if lanes_of(x) > 1 else number
