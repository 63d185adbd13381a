"""Quantised products: integers as floats, which is exact up to sums of 2^24.

A product of two 8-bit values is below 2^16, so sums of 256 products and more come out exactly;
longer ones are off by less than one part in 2^24, which can move a result that lies on the
border between two quanta by one.

Source: ONNX operator reference: QLinearConv-10, QLinearMatMul-21, ConvInteger-10,
DynamicQuantizeLinear-11.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from tvm import relax

from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.onnx.ops import OWN
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, static_shape


def _cast_to_float(node: OnnxNode, expr: relax.Expr) -> relax.Expr:
    value = constant_value(expr)
    if value is not None:
        return make_constant(value.astype(np.float32))
    return expr if dtype_of(expr) == "float32" else node.emit(expr.astype("float32"))


def _subtract_zero(
    node: OnnxNode, index: int, zero_index: int, axis: int | None = None
) -> relax.Expr:
    """Return an input minus its zero point, in float; `axis` is that of a zero point a channel."""
    x, zero = node.inputs[index], node.input(zero_index)
    if zero is None:
        return _cast_to_float(node, x)
    rank = len(node.shape(index))
    value, zero_value = constant_value(x), constant_value(zero)
    if value is not None and zero_value is not None:
        zeros = _lay_along(zero_value.astype(np.float32), axis, rank)
        return make_constant(value.astype(np.float32) - zeros)
    return node.emit(_cast_to_float(node, x) - _spread(_cast_to_float(node, zero), axis, rank))


def _lay_along(values: np.ndarray, axis: int | None, rank: int) -> np.ndarray:
    if axis is None or values.ndim != 1 or values.size == 1:
        return values.reshape([]) if values.size == 1 else values
    return values.reshape([-1 if a == axis % rank else 1 for a in range(rank)])


def _spread(expr: relax.Expr, axis: int | None, rank: int) -> relax.Expr:
    """Return a vector of one value a channel, shaped to meet a tensor of this rank."""
    shape = static_shape(expr) or ()
    if int(np.prod(shape)) == 1:
        return expr if not shape else relax.op.reshape(expr, [])
    if axis is None or len(shape) != 1:
        return expr
    along = [shape[0] if a == axis % rank else 1 for a in range(rank)]
    return relax.op.reshape(expr, along)


def _requantise(
    node: OnnxNode, total: relax.Expr, factor: relax.Expr, scale: int, zero: int
) -> relax.Expr:
    """Return round(total * factor / scale) + zero, kept within the zero point's dtype."""
    dtype = dtype_of(node.inputs[zero])
    rounded = relax.op.round(total * (factor / _cast_to_float(node, node.inputs[scale])))
    shifted = rounded + _cast_to_float(node, node.inputs[zero])
    bounds = np.iinfo(dtype)
    kept = relax.op.clip(shifted, float(bounds.min), float(bounds.max))
    return kept.astype(dtype)


def _conv(node: OnnxNode, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return OWN["Conv"](replace(node, inputs=inputs))


def _qlinear_conv(node: OnnxNode) -> relax.Expr:
    rank = len(node.shape())
    bias = node.input(8)
    total = _conv(
        node,
        _subtract_zero(node, 0, 2),
        _subtract_zero(node, 3, 5, axis=0),
        None if bias is None else _cast_to_float(node, bias),
    )
    scale = _spread(_cast_to_float(node, node.inputs[4]), 1, rank)
    factor = _cast_to_float(node, node.inputs[1]) * scale
    return _requantise(node, total, factor, 6, 7)


def _conv_integer(node: OnnxNode) -> relax.Expr:
    total = _conv(node, _subtract_zero(node, 0, 2), _subtract_zero(node, 1, 3, axis=0), None)
    return total.astype("int32")


def _matmul_integer(node: OnnxNode) -> relax.Expr:
    a, b = _subtract_zero(node, 0, 2, axis=-2), _subtract_zero(node, 1, 3, axis=-1)
    return node.emit(relax.op.matmul(a, b)).astype("int32")


def _qlinear_matmul(node: OnnxNode) -> relax.Expr:
    a, b = _subtract_zero(node, 0, 2, axis=-2), _subtract_zero(node, 3, 5, axis=-1)
    total = node.emit(relax.op.matmul(a, b))
    rank = len(static_shape(total) or ())
    by_row = _spread(_cast_to_float(node, node.inputs[1]), -2, rank)
    factor = by_row * _spread(_cast_to_float(node, node.inputs[4]), -1, rank)
    return _requantise(node, total, factor, 6, 7)


def _blocks(node: OnnxNode, expr: relax.Expr) -> relax.Expr:
    """Return scales or zero points, one for each element of the first input."""
    shape, block = node.shape(), int(node.attrs.get("block_size", 0))
    axis = int(node.attrs.get("axis", 1))
    own = static_shape(expr) or ()
    if block:
        numbers = make_constant((np.arange(shape[axis]) // block).astype(np.int32))
        return relax.op.take(expr, numbers, axis=axis % len(shape), mode="clip")
    return _spread(expr, axis if len(own) == 1 else None, len(shape))


def dequantize(node: OnnxNode) -> relax.Expr:
    """Return (x - zero) * scale, with a scale for all, a channel or a block."""
    x = _cast_to_float(node, node.inputs[0])
    if node.input(2) is not None:
        zero = _blocks(node, _cast_to_float(node, node.inputs[2]))
        x = x - zero
    result = x * _blocks(node, _cast_to_float(node, node.inputs[1]))
    dtype = dtype_of(node.inputs[1])
    return result if dtype == "float32" else node.emit(result).astype(dtype)


def quantize(node: OnnxNode) -> relax.Expr:
    """Return round(x / scale) + zero, kept within the dtype of the zero point."""
    scale = _blocks(node, _cast_to_float(node, node.inputs[1]))
    quotient = _cast_to_float(node, node.inputs[0])
    value = constant_value(scale)
    if value is None or (value != 1).any():
        quotient = quotient / scale
    rounded = relax.op.round(quotient)
    dtype = "uint8"
    if node.attrs.get("output_dtype"):
        kind = onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["output_dtype"]))
        dtype = str(kind)
    if node.input(2) is not None:
        dtype = dtype_of(node.inputs[2])
        zero = _blocks(node, _cast_to_float(node, node.inputs[2]))
        rounded = rounded + zero
    bounds = np.iinfo(dtype)
    kept = relax.op.clip(rounded, float(bounds.min), float(bounds.max))
    return kept.astype(dtype)


def _dynamic_quantize(node: OnnxNode) -> relax.Expr:
    """Return bytes, scale and zero point by the largest and the smallest number. Numbers that are
    all zero have a scale of one, as onnxruntime says: TVM divides by their range."""
    x = _cast_to_float(node, node.inputs[0])
    zero, most = make_constant(np.float32(0)), float(np.iinfo(np.uint8).max)
    top = relax.op.maximum(relax.op.max(x), zero)
    bottom = relax.op.minimum(relax.op.min(x), zero)
    span = top - bottom
    step = span / make_constant(np.float32(most))
    is_wide = span > zero
    scale = relax.op.where(is_wide, step, make_constant(np.float32(1)))
    whole = relax.op.clip(relax.op.round(-(bottom / scale)), 0.0, most)
    quanta = relax.op.clip(relax.op.round(x / scale) + whole, 0.0, most)
    byte = [part.astype("uint8") for part in (quanta, whole)]
    return relax.Tuple([byte[0], scale, byte[1]])


QUANTISED_OPS: dict[str, Callable[[OnnxNode], relax.Expr]] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": quantize,
}
