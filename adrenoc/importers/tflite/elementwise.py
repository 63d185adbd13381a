"""Operators that compute each element by itself.

A quantised operand is read as real numbers and the result is requantised: what LiteRT computes
with tables and fixed point, rounded once.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open.
"""

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant
from adrenoc.importers.tflite.node import QuantisedResult, Result, TfliteNode

Convert = Callable[[TfliteNode], "Result | list[Result]"]


def _unary(op: Callable[[relax.Expr], relax.Expr]) -> Convert:
    return lambda node: op(node.real())


def binary(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    """Return what converts an operator of two tensors of real numbers."""
    return lambda node: node.activate(op(node.real(0), node.real(1)))


def _sum(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    """Sum in quanta of the result: one rounding after the sum."""

    def convert(node: TfliteNode) -> Result:
        if not node.info(0).is_quantised:
            return node.activate(op(node.real(0), node.real(1)))
        unit = node.results[0].scale
        parts = []
        for index in (0, 1):
            factor = make_constant(np.float32(node.info(index).scale / unit))
            parts.append(node.emit(node.data(index) * factor))
        return node.activate(QuantisedResult(expr=op(*parts), scale=np.float32(unit)))

    return convert


def _multiply(node: TfliteNode) -> Result:
    if not node.info(0).is_quantised:
        return node.activate(node.real(0) * node.real(1))
    scale = np.float32(node.info(0).scale * node.info(1).scale)
    return node.activate(QuantisedResult(expr=node.data(0) * node.data(1), scale=scale))


def _divide(node: TfliteNode) -> Result:
    a, b = node.real(0), node.real(1)
    if dtype_of(a).startswith("float"):
        return node.activate(a / b)
    return node.activate(divide_towards_zero(a, b))


def divide_towards_zero(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Divide integers, towards zero."""
    floor = relax.op.floor_divide(a, b)
    rest = a - floor * b
    zero = make_constant(np.zeros((), dtype_of(a)))
    negative = floor < zero
    up = relax.op.logical_and(negative, relax.op.not_equal(rest, zero))
    return floor + up.astype(dtype_of(a))


def _power(node: TfliteNode) -> Result:
    base, exponent = node.real(0), node.real(1)
    if dtype_of(base).startswith("float"):
        return base**exponent
    known = constant_value(exponent)
    if known is not None and known.size == 1 and 0 < known.item() <= 8:
        result = base
        for _ in range(int(known.item()) - 1):
            result = result * base
        return result
    # Exact while the power is below 2^24.
    power = base.astype("float32") ** exponent.astype("float32")
    return relax.op.round(power).astype(dtype_of(base))


def _floor_mod(node: TfliteNode) -> Result:
    """Return a - floor(a / b) * b, which has the sign of b."""
    a, b = node.real(0), node.real(1)
    if not dtype_of(a).startswith("float"):
        return relax.op.floor_mod(a, b)
    return a - relax.op.floor(a / b) * b


def _floor_div(node: TfliteNode) -> Result:
    a, b = node.real(0), node.real(1)
    if not dtype_of(a).startswith("float"):
        return relax.op.floor_divide(a, b)
    return relax.op.floor(a / b)


def _squared_difference(node: TfliteNode) -> Result:
    difference = node.real(0) - node.real(1)
    return difference * difference


def _extreme(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    def convert(node: TfliteNode) -> Result:
        if node.info(0).is_quantised:
            return node.move(op(node.data(0), node.data_like(1, 0)))
        return op(node.real(0), node.real(1))

    return convert


def _compare(op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Convert:
    def convert(node: TfliteNode) -> Result:
        a, b = node.info(0), node.info(1)
        if a.is_quantised and b.is_quantised and a.scale == b.scale and a.zero == b.zero:
            return op(node.data(0), node.data(1))
        return op(node.real(0), node.real(1))

    return convert


def _add_n(node: TfliteNode) -> Result:
    total = node.real(0)
    for index in range(1, len(node.inputs)):
        total = node.emit(total + node.real(index))
    return total


def _clip(low: float, high: float) -> Convert:
    def convert(node: TfliteNode) -> Result:
        if node.info().is_quantised:
            bounds = (low, high)
            return QuantisedResult(
                expr=node.data(), scale=node.info().scales, is_integer=True, bounds=bounds
            )
        if math.isinf(high):
            return relax.op.nn.relu(node.real())
        return relax.op.clip(node.real(), low, high)

    return convert


def _leaky_relu(node: TfliteNode) -> Result:
    x = node.real()
    slope = make_constant(np.float32(node.option("Alpha", 0.0)))
    negative = x * slope
    zero = make_constant(np.float32(0))
    return relax.op.where(x > zero, x, negative)


def _prelu(node: TfliteNode) -> Result:
    x, zero = node.real(0), make_constant(np.float32(0))
    return relax.op.where(x >= zero, x, x * node.real(1))


def _elu(node: TfliteNode) -> Result:
    x, one = node.real(), make_constant(np.float32(1))
    negative = relax.op.exp(relax.op.minimum(x, make_constant(np.float32(0)))) - one
    positive = x >= make_constant(np.float32(0))
    return relax.op.where(positive, x, negative)


def _hard_swish(node: TfliteNode) -> Result:
    x = node.real()
    kept = relax.op.clip(x + make_constant(np.float32(3)), 0.0, 6.0)
    return x * (kept * make_constant(np.float32(1 / 6)))


def _gelu(node: TfliteNode) -> Result:
    op = relax.op.nn.gelu_tanh if node.option("Approximate", False) else relax.op.nn.gelu
    return op(node.real())


def _cast(node: TfliteNode) -> Result:
    """From integers as they are stored: a cast does not look at scales."""
    wanted = node.results[0].dtype
    expr = node.store()
    if wanted == "bool":
        zero = make_constant(np.zeros((), dtype_of(expr)))
        return relax.op.not_equal(expr, zero)
    return expr.astype(wanted)


def _select(node: TfliteNode) -> Result:
    """SELECT lets one condition choose whole rows; SELECT_V2 broadcasts."""
    condition = node.data(0)
    rank, own = len(node.shape(1)), node.shape(0)
    if node.operator.kind == "SELECT" and len(own) == 1 and rank > 1:
        condition = relax.op.reshape(condition, [own[0], *[1] * (rank - 1)])
    if node.info(1).is_quantised:
        return node.move(relax.op.where(condition, node.data(1), node.data_like(2, 1)), 1)
    return relax.op.where(condition, node.real(1), node.real(2))


def _fake_quant(node: TfliteNode) -> Result:
    bits = int(node.option("NumBits", 8))
    low, high = float(node.option("Min", 0.0)), float(node.option("Max", 0.0))
    least = 1 if node.option("NarrowRange", False) else 0
    most = (1 << bits) - 1
    scale = (high - low) / (most - least)
    zero = math.floor(min(max(least - low / scale, least), most) + 0.5)
    low, high = (least - zero) * scale, (most - zero) * scale
    shifted = relax.op.clip(node.real(), low, high) - make_constant(np.float32(low))
    half = shifted * make_constant(np.float32(1 / scale)) + make_constant(np.float32(0.5))
    grown = relax.op.floor(half) * make_constant(np.float32(scale))
    return grown + make_constant(np.float32(low))


def _requantise(node: TfliteNode) -> Result:
    """QUANTIZE takes floats, or integers of another scale."""
    info = node.info()
    if not info.is_quantised:
        return node.real()
    return QuantisedResult(expr=node.data(), scale=info.scales, is_integer=True)


def _real_part(number: int) -> Convert:
    """Complex numbers are at hand as pairs along a further axis."""

    def convert(node: TfliteNode) -> Result:
        axis = len(node.shape()) - 1
        part = relax.op.strided_slice(node.data(), [axis], [number], [number + 1])
        return relax.op.squeeze(part, [axis])

    return convert


_UNARY = "ABS CEIL COS EXP FLOOR LOG LOGICAL_NOT ROUND RSQRT SIGN SIN SQRT TANH"
_BINARY = "ATAN2 BITWISE_XOR LOGICAL_AND LOGICAL_OR"
_COMPARISONS = "EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL NOT_EQUAL"
"""Operators that Relax calls the same."""

ELEMENTWISE_OPS: dict[str, Convert] = {
    **{kind: _unary(getattr(relax.op, kind.lower())) for kind in _UNARY.split()},
    **{kind: binary(getattr(relax.op, kind.lower())) for kind in _BINARY.split()},
    **{kind: _compare(getattr(relax.op, kind.lower())) for kind in _COMPARISONS.split()},
    "ADD": _sum(relax.op.add),
    "ADD_N": _add_n,
    "CAST": _cast,
    "COMPLEX_ABS": lambda node: relax.op.sqrt(relax.op.sum(node.data() * node.data(), [-1])),
    "DEQUANTIZE": lambda node: node.real(),
    "DIV": _divide,
    "ELU": _elu,
    "FAKE_QUANT": _fake_quant,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "GELU": _gelu,
    "HARD_SWISH": _hard_swish,
    "IMAG": _real_part(1),
    "LEAKY_RELU": _leaky_relu,
    "LOGISTIC": _unary(relax.op.sigmoid),
    "MAXIMUM": _extreme(relax.op.maximum),
    "MINIMUM": _extreme(relax.op.minimum),
    "MUL": _multiply,
    "NEG": _unary(relax.op.negative),
    "POW": _power,
    "PRELU": _prelu,
    "QUANTIZE": _requantise,
    "REAL": _real_part(0),
    "RELU": _clip(0.0, math.inf),
    "RELU6": _clip(0.0, 6.0),
    "RELU_0_TO_1": _clip(0.0, 1.0),
    "RELU_N1_TO_1": _clip(-1.0, 1.0),
    "RIGHT_SHIFT": lambda node: relax.op.right_shift(node.data(0), node.data(1)),
    "SELECT": _select,
    "SELECT_V2": _select,
    "SQUARE": lambda node: node.real() * node.real(),
    "SQUARED_DIFFERENCE": _squared_difference,
    "SUB": _sum(relax.op.subtract),
    "ZEROS_LIKE": lambda node: make_constant(np.zeros(node.shape(), node.dtype())),
}
