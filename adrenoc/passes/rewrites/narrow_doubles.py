"""Products in double that are rounded to whole numbers next, in single precision: for the GPU.

Before -> after:
    y = astype(round(astype(x, "float64") * m / 2^e), "float32")      y = round(x * (m / 2^e))

No Adreno computes in double, so that each such operator runs on the CPU, with a copy there and one
back.  Quantised networks write the factor between two scales so (I-BERT, HAWQ: an integer over a
power of two).  Constants become one factor, rounded once to single precision.  A product of a few
numbers of single precision is off by less than one part in 2^21, which decides otherwise only where
it lies that near to half way between two quanta, and so is one sum of two such numbers.  All else
in double stays: sums of products may cancel, for which single precision is no match.
"""

from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import (
    Binding,
    FlatFunction,
    constant_value,
    dtype_of,
    make_constant,
    op_name,
    static_shape,
    substitute,
    variables,
)

_DOUBLE, _SINGLE = "float64", "float32"
_EXACT = ("float32", "float16", "bfloat16", "int8", "int16", "uint8", "uint16")
"""What single precision holds as it is."""
_MOST_BASES = 3


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A variable in double that is the product of `bases` and a constant.  The bases are of
    `_EXACT`; or, where it is `made`, the one is the variable itself: a rounding or a sum, which is
    computed in single precision.  `adds`: a sum of two such is off by its own rounding alone."""

    bases: tuple[relax.Expr, ...]
    factor: np.ndarray
    made: bool = False
    adds: bool = False


_Found = dict[relax.Var, _Product]


def narrow_doubles(flat: FlatFunction) -> None:
    """Compute what is described above in single precision, in place."""
    found = _find(flat)
    count = -1
    while count != len(found):
        count = len(found)
        kept = set(variables(flat.result))
        for binding in reversed(flat.bindings):
            var, reads = binding.var, list(variables(binding.value))
            left = any(_is_double(v) and v not in found for v in reads)
            if var in found and (var in kept or left):
                del found[var]
            if var not in found:
                ends = op_name(binding.value) == "relax.astype" and dtype_of(var) in _EXACT
                kept.update(v for v in reads if not (ends and v in found and found[v].made))
    rounds = [b.var for b in flat.bindings if b.var in found and op_name(b.value) == "relax.round"]
    if not rounds:
        return
    _rewrite(flat, found)
    flat.drop_unused()
    flat.log.add(
        flat.name(rounds[0]),
        f"{len(found)} operators in double computed in float32",
        "they scale and round to whole numbers, where a result may be one off if it lies half "
        "way; the GPU has no doubles",
    )


def _find(flat: FlatFunction) -> _Found:
    """Return all such variables, whatever reads them."""
    found: _Found = {}
    for binding in flat.bindings:
        if isinstance(binding.value, relax.Call) and _is_double(binding.var):
            known = _read(binding, found)
            if known is not None:
                found[binding.var] = known
    return found


def _is_double(var: relax.Var) -> bool:
    return isinstance(var.ty, relax.TensorType) and dtype_of(var) == _DOUBLE


def _read(binding: Binding, found: _Found) -> _Product | None:
    call, kind = binding.value, op_name(binding.value)
    one, itself = np.array(1.0), (binding.var,)
    if kind == "relax.astype":
        exact = dtype_of(call.args[0]) in _EXACT and constant_value(call.args[0]) is None
        return _Product(bases=(call.args[0],), factor=one, adds=True) if exact else None
    if kind == "relax.round" and call.args[0] in found:
        return _Product(bases=itself, factor=one, made=True, adds=True)
    if kind in ("relax.add", "relax.subtract"):
        adds = all(_can_add(arg, found) for arg in call.args)
        return _Product(bases=itself, factor=one, made=True) if adds else None
    if kind in ("relax.multiply", "relax.divide"):
        return _multiply(call, found)
    return None


def _can_add(expr: relax.Expr, found: _Found) -> bool:
    constant = constant_value(expr)
    if constant is not None:
        with np.errstate(all="ignore"):
            return np.array_equal(constant.astype(np.float32).astype(np.float64), constant)
    return expr in found and found[expr].adds


def _multiply(call: relax.Call, found: _Found) -> _Product | None:
    """Return a product, or a quotient by a constant, whose factor single precision holds, too."""

    def read_operand(expr: relax.Expr) -> _Product | None:
        constant = constant_value(expr)
        return found.get(expr) if constant is None else _Product(bases=(), factor=constant)

    one, other = map(read_operand, call.args)
    if one is None or other is None:
        return None
    divides = op_name(call) == "relax.divide"
    bases = one.bases + other.bases
    if (divides and other.bases) or not 0 < len(bases) <= _MOST_BASES:
        return None
    with np.errstate(all="ignore"):
        factor = one.factor / other.factor if divides else one.factor * other.factor
    limits = np.finfo(np.float32)
    size = np.abs(factor[factor != 0])
    held = np.isfinite(factor).all() and ((size > limits.tiny) & (size < limits.max)).all()
    return _Product(bases=bases, factor=np.asarray(factor)) if held else None


def _rewrite(flat: FlatFunction, found: _Found) -> None:
    """Put calls in single precision in the place of those that make what was found."""
    env: dict[relax.Var, relax.Expr] = {}
    made: list[Binding] = []

    def emit(like: relax.Var, value: relax.Expr, shape: tuple[int, ...] | None) -> relax.Var:
        var = flat.new_var(like.name, relax.TensorType(shape, _SINGLE))
        made.append(Binding(var=var, value=value))
        return var

    def multiply(var: relax.Var, known: _Product) -> relax.Expr:
        scales = known.factor.shape or known.factor != 1
        value = make_constant(known.factor.astype(np.float32)) if scales else None
        shape = known.factor.shape
        for given in known.bases:
            base = substitute(given, env)
            own = static_shape(base) or ()
            if dtype_of(base) != _SINGLE:
                base = emit(var, relax.op.astype(base, _SINGLE), own)
            shape = np.broadcast_shapes(shape, own)
            value = base if value is None else emit(var, relax.op.multiply(base, value), shape)
        return value

    for binding in flat.bindings:
        var, call = binding.var, substitute(binding.value, env)
        ends = op_name(call) == "relax.astype" and binding.value.args[0] in found
        if var in found and found[var].made:
            value = relax.Call(call.op, [_narrow(arg) for arg in call.args], call.attrs)
            env[var] = emit(var, value, static_shape(var))
        elif var in found:
            env[var] = multiply(var, found[var])
        elif ends and dtype_of(var) == _SINGLE:
            env[var] = call.args[0]
        else:
            made.append(Binding(var=var, value=call))
    flat.bindings = made
    flat.result = substitute(flat.result, env)


def _narrow(expr: relax.Expr) -> relax.Expr:
    constant = constant_value(expr)
    return expr if constant is None else make_constant(constant.astype(np.float32))
