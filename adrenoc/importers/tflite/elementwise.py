"""Operators that compute each element by itself, convolutions and products.

A quantised operand is read as real numbers and the result is requantised: what LiteRT computes
with tables and fixed point, rounded once.  Data times constant weights is in quanta where both are
integers; weights in integers with data in float ("dynamic range") are read as the real numbers that
they stand for.  LiteRT rounds the data to 8 bits there, row by row, to multiply integers: what
comes out here is closer to the model that was trained.

Source: TFLite operator reference; the kernels of LiteRT for what it leaves open.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from adrenoc.base.errors import RefusedError
from adrenoc.importers.relax.spatial import Window
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant
from adrenoc.importers.tflite.node import Ints, QuantisedResult, Result, TfliteNode

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
    """Cast integers as they are stored, without a look at scales."""
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

_SAME_PADS = 0


def pads_of(
    node: TfliteNode, extents: Ints, kernel: Ints, strides: Ints, dilations: Ints
) -> list[int]:
    """Return the pads that SAME or VALID mean: all beginnings, then all ends."""
    window = Window(extents=extents, kernel=kernel, strides=strides, dilations=dilations)
    return window.pads("SAME_UPPER" if node.option("Padding") == _SAME_PADS else "VALID")


def _operands(node: TfliteNode, x: int, weight: int) -> tuple[relax.Expr, relax.Expr, Any]:
    """Return data and weights in one form, and the scale of their product (None: real numbers)."""
    data, weights = node.value(x), node.value(weight)
    if data.info.is_quantised and weights.info.is_quantised:
        # In floats, as LiteRT does: the last digit of a factor moves what lies half way.
        scale = np.float32(data.info.scale) * weights.info.scales
        if data.info.dtype == "int16":  # by its own kernels, and not by XNNPACK's
            scale = np.float64(data.info.scale) * weights.info.scales
        return data.expr, weights.expr, scale
    if weights.info.is_quantised and not data.info.is_quantised:
        key = (
            "weights from 8 bits as floats",
            "the data is float: their product is computed in float, which is more exact than "
            "rounding the data to 8 bits as LiteRT does",
        )
        node.emit.decisions.setdefault(key, []).append(node.results[0].name)
    return node.real(x), node.real(weight), None


def _finish(node: TfliteNode, total: relax.Expr, scale: Any, bias_index: int) -> Result:
    """Add bias and activation; `scale` is that of the product, for all or by channel."""
    total = node.emit(total)
    if node.has(bias_index):
        bias = node.value(bias_index).expr
        if scale is not None:
            value = constant_value(bias)
            if value is None:
                raise RefusedError("a computed bias of quantised data, expected a constant")
            bias = make_constant(value.astype(np.float32))
        elif not dtype_of(bias).startswith("float"):
            raise RefusedError(f"a bias of {dtype_of(bias)}, expected float as the data")
        else:
            bias = node.real(bias_index)
        total = total + bias
    if scale is None:
        return node.activate(total)
    return node.activate(_quanta(node, total, scale, bias_index))


def _quanta(node: TfliteNode, total: relax.Expr, scale: Any, bias_index: int) -> QuantisedResult:
    """Return sums of products; LiteRT adds up those of words in 64 bits, but where a bias has 32.
    Its fully connected layers scale such sums by all 31 bits of a multiplier."""
    words = node.results[0].dtype == "int16" and node.operator.kind != "FULLY_CONNECTED"
    short = node.has(bias_index) and node.info(bias_index).dtype == "int32"
    return QuantisedResult(expr=total, scale=scale, by_fifteen_bits=words and not short)


def _convolution(node: TfliteNode, axes: list[int], groups: int) -> Result:
    """Return a convolution whose filter's `axes` are those of HWIO. That of a depthwise one is [1,
    h, w, c * m]: m results in a row for each of c channels."""
    x, weight, scale = _operands(node, 0, 1)
    strides, dilations = node.steps("Stride{}"), node.steps("Dilation{}Factor")
    pads = pads_of(node, node.shape()[1:3], node.shape(1)[1:3], strides, dilations)
    total = relax.op.nn.conv2d(
        x,
        relax.op.permute_dims(weight, axes),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    return _finish(node, total, scale, 2)


def compute_transposed_pads(
    node: TfliteNode,
    result: Sequence[int],
    source: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] = (1, 1, 1),
) -> tuple[list[int], list[int], list[int]]:
    """Return pads before and after, and what is added at the end, for each spatial axis."""
    begin, end, extra = [], [], []
    for axis, extent in enumerate(result):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        full = (source[axis] - 1) * strides[axis] + span
        before = 0
        if node.option("Padding") == _SAME_PADS:
            outputs = -(-extent // strides[axis])
            total = max((outputs - 1) * strides[axis] + span - extent, 0)
            before = total // 2
        after = full - before - extent
        begin.append(before)
        end.append(max(after, 0))
        extra.append(max(-after, 0))
    return begin, end, extra


def _transpose_conv(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 2, 1)
    _out, *kernel, _ = node.shape(1)
    strides = node.steps("Stride{}")
    result = node.ints(0)
    begin, end, extra = compute_transposed_pads(
        node, result[1:3], node.shape(2)[1:3], kernel, strides
    )
    missing = [max(0, e - s + 1) for e, s in zip(extra, strides, strict=True)]
    total = relax.op.nn.conv2d_transpose(
        x,
        relax.op.permute_dims(weight, [3, 0, 1, 2]),  # OHWI to IOHW
        strides=strides,
        padding=[*begin, *end],
        output_padding=[e - m for e, m in zip(extra, missing, strict=True)],
        data_layout="NHWC",
        kernel_layout="IOHW",
    )
    if any(missing):
        total = relax.op.nn.pad(node.emit(total), [0, 0, 0, missing[0], 0, missing[1], 0, 0])
    return _finish(node, total, scale, 3)


def _conv3d(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 0, 1)
    strides, dilations = node.steps("Stride{}", "DHW"), node.steps("Dilation{}Factor", "DHW")
    *kernel, per_group, _ = node.shape(1)
    shape = node.shape()
    pads = pads_of(node, shape[1:4], kernel, strides, dilations)
    total = relax.op.nn.conv3d(
        relax.op.permute_dims(x, [0, 4, 1, 2, 3]),
        relax.op.permute_dims(weight, [4, 3, 0, 1, 2]),
        strides=strides,
        padding=pads,
        dilation=dilations,
        groups=shape[4] // per_group,
    )
    total = relax.op.permute_dims(node.emit(total), [0, 2, 3, 4, 1])
    return _finish(node, total, scale, 2)


def _conv3d_transpose(node: TfliteNode) -> Result:
    x, weight, scale = _operands(node, 2, 1)
    strides, dilations = node.steps("Stride{}", "DHW"), node.steps("Dilation{}Factor", "DHW")
    *kernel, _, _ = node.shape(1)
    begin, end, extra = compute_transposed_pads(
        node, node.ints(0)[1:4], node.shape(2)[1:4], kernel, strides, dilations
    )
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise RefusedError("an output larger than its windows reach")
    total = relax.op.nn.conv3d_transpose(
        relax.op.permute_dims(x, [0, 4, 1, 2, 3]),
        relax.op.permute_dims(weight, [4, 3, 0, 1, 2]),  # DHWOI to IODHW
        strides=strides,
        padding=[*begin, *end],
        output_padding=extra,
        dilation=dilations,
    )
    total = relax.op.permute_dims(node.emit(total), [0, 2, 3, 4, 1])
    return _finish(node, total, scale, 3)


def _fully_connected(node: TfliteNode) -> Result:
    """Return rows of the data, however they are arranged, times the weights [units, depth]."""
    x, weight, scale = _operands(node, 0, 1)
    units, depth = node.shape(1)
    shape = node.shape()
    keep = bool(node.option("KeepNumDims", False))
    rows = int(np.prod(shape)) // depth
    if not keep or shape[-1] != depth:
        x = relax.op.reshape(x, [rows, depth])
    total = relax.op.matmul(x, relax.op.permute_dims(weight, [1, 0]))
    result = _finish(node, total, scale, 2)
    wanted = [*shape[:-1], units] if keep else [rows, units]
    if not keep and tuple(node.results[0].shape) == (rows, units):
        return result
    return _reshape(node, result, wanted)


def _reshape(node: TfliteNode, result: Result, shape: Sequence[int]) -> Result:
    if isinstance(result, QuantisedResult):
        expr = relax.op.reshape(node.emit(result.expr), list(shape))
        return replace(result, expr=expr)
    return relax.op.reshape(node.emit(result), list(shape))


def _batch_matmul(node: TfliteNode) -> Result:
    a, b, scale = _operands(node, 0, 1)
    for index, option in ((0, "AdjX"), (1, "AdjY")):
        if node.option(option, False):
            rank = len(node.shape(index))
            axes = [*range(rank - 2), rank - 1, rank - 2]
            turned = relax.op.permute_dims((a, b)[index], axes)
            a, b = (turned, b) if index == 0 else (a, turned)
    total = node.emit(relax.op.matmul(a, b))
    return total if scale is None else _quanta(node, total, scale, 2)


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
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": lambda node: _convolution(node, [1, 2, 3, 0], node.shape()[3] // node.shape(1)[3]),
    "CONV_3D": _conv3d,
    "CONV_3D_TRANSPOSE": _conv3d_transpose,
    "DEPTHWISE_CONV_2D": lambda node: _convolution(node, [1, 2, 0, 3], node.shape()[3]),
    "FULLY_CONNECTED": _fully_connected,
    "TRANSPOSE_CONV": _transpose_conv,
}
