"""Element-wise operators and tests that TVM's ONNX frontend lacks or gets wrong.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from tvm import relax, te, tirx

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.node import Node
from adrenoc.importers.relax.fold import check_grown
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant


def clip(node: Node) -> relax.Expr:
    """TVM: TIR functions and a NaN test on the bounds, even where they are constants."""
    x = node.inputs[0]
    bounds = [node.input(index) for index in (1, 2)]
    if any(b is not None and constant_value(b) is None for b in bounds):
        if bounds[0] is not None:
            x = node.emit(relax.op.maximum(x, bounds[0]))
        return x if bounds[1] is None else relax.op.minimum(x, bounds[1])
    integer = not dtype_of(x).startswith("float")
    values = []
    for index, key, missing in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = node.number(index)
        bound = node.attrs.get(key, missing) if value is None else value
        values.append(missing if np.isnan(bound) else bound)
    low, high = values
    if np.isinf(low) and np.isinf(high):
        return x
    if np.isinf(high):
        return (
            relax.op.nn.relu(x) if low == 0 and not integer else relax.op.maximum(x, node.like(low))
        )
    if np.isinf(low):
        return relax.op.minimum(x, node.like(high))
    if integer:
        return relax.op.minimum(relax.op.maximum(x, node.like(low)), node.like(high))
    # With low > high, ONNX defines the result as high everywhere.
    return relax.op.clip(x, min(low, high), high)


def _is_inf(node: Node) -> relax.Expr:
    """TVM: leaves the attributes for the two signs unread."""
    x = node.inputs[0]
    positive = bool(node.attrs.get("detect_positive", 1))
    negative = bool(node.attrs.get("detect_negative", 1))
    if positive and negative:
        return relax.op.isinf(x)
    if positive or negative:
        return relax.op.equal(x, node.like(np.inf if positive else -np.inf))
    return relax.op.zeros(node.shape(), "bool")


def _mod(node: Node) -> relax.Expr:
    """TVM: divides, floors and multiplies floats, which gives NaN beside infinities."""
    x, y = node.inputs[0], node.inputs[1]
    if not dtype_of(x).startswith("float"):
        if node.attrs.get("fmod", 0):
            return relax.op.mod(x, y)
        # As unsigned or wide as C promotes it: OpenCL has no remainder of chars and shorts.
        if dtype_of(x) in ("int8", "int16"):
            wide = relax.op.floor_mod(x.astype("int32"), y.astype("int32"))
            return wide.astype(dtype_of(x))
        return relax.op.floor_mod(x, y)
    rest = relax.op.mod(x, y)
    if node.attrs.get("fmod", 0):
        return rest
    zero = node.like(0)
    opposed = relax.op.not_equal(rest < zero, y < zero)
    wrong = relax.op.logical_and(opposed, relax.op.not_equal(rest, zero))
    return relax.op.where(wrong, rest + y, rest)


def _elu(node: Node) -> relax.Expr:
    """TVM: constants of float32 beside data of another dtype."""
    x, alpha = node.inputs[0], float(node.attrs.get("alpha", 1.0))
    grown = relax.op.exp(relax.op.minimum(x, node.like(0))) - node.like(1)
    return relax.op.nn.relu(x) + grown * node.like(alpha)


def _celu(node: Node) -> relax.Expr:
    x, alpha = node.inputs[0], float(node.attrs.get("alpha", 1.0))
    ratio = relax.op.minimum(x, node.like(0)) / node.like(alpha)
    return relax.op.nn.relu(x) + (relax.op.exp(ratio) - node.like(1)) * node.like(alpha)


def _sign(node: Node) -> relax.Expr:
    """TVM: zero of NaN."""
    x = node.inputs[0]
    one, zero = node.like(1), node.like(0)
    above = x > zero
    if dtype_of(x).startswith("uint"):
        return relax.op.where(above, one, x)
    below = x < zero
    return relax.op.where(above, one, relax.op.where(below, node.like(-1), x))


def _thresholded_relu(node: Node) -> relax.Expr:
    """TVM: a product with what is zero, which of -inf and of NaN is NaN."""
    x = node.inputs[0]
    above = x > node.like(float(node.attrs.get("alpha", 1.0)))
    return relax.op.where(above, x, node.like(0))


def _lp_normalization(node: Node) -> relax.Expr:
    x, axis = node.inputs[0], int(node.attrs.get("axis", -1))
    if int(node.attrs.get("p", 2)) == 1:
        size = relax.op.sum(relax.op.abs(x), [axis], keepdims=True)
    else:
        size = relax.op.sqrt(relax.op.sum(x * x, [axis], keepdims=True))
    # Of zeros ONNX makes zeros: any divisor but zero does.
    return x / relax.op.where(relax.op.equal(size, node.like(0)), node.like(1), size)


def _bit_cast(node: Node) -> relax.Expr:
    x = node.inputs[0]
    target = str(onnx.helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])))
    if target == dtype_of(x):
        return x
    if "bool" in (target, dtype_of(x)):
        return x.astype(target)

    def element(source: te.Tensor) -> te.Tensor:
        return te.compute(
            source.shape, lambda *i: tirx.reinterpret(target, source(*i)), name="bits"
        )

    return node.bb.call_te(element, x, primfunc_name_hint="bit_cast")


def _bit_shift(node: Node) -> relax.Expr:
    """TVM: shifts by the width and more, which C leaves undefined and ONNX defines as zero."""
    x, by = node.inputs[0], node.inputs[1]
    left = node.text("direction", "LEFT") == "LEFT"
    shift = relax.op.left_shift if left else relax.op.right_shift
    bits = np.dtype(dtype_of(x)).itemsize * 8
    valid = by < node.like(bits)
    if dtype_of(x).startswith("int"):
        positive = by >= node.like(0)
        valid = relax.op.logical_and(valid, positive)
    amount = relax.op.where(valid, by, node.like(0))
    rest = node.like(0)
    if not left and dtype_of(x).startswith("int"):  # what is shifted in is the sign
        negative = x < node.like(0)
        rest = relax.op.where(negative, node.like(-1), node.like(0))
    return relax.op.where(valid, shift(x, amount), rest)


def _eye_like(node: Node) -> relax.Expr:
    """TVM: refuses another dtype than that of its input."""
    rows, columns = node.shape()
    element = node.attrs.get("dtype")
    dtype = (
        dtype_of(node.inputs[0])
        if element is None
        else onnx.helper.tensor_dtype_to_np_dtype(int(element))
    )
    check_grown(rows * columns)
    return make_constant(np.eye(rows, columns, int(node.attrs.get("k", 0)), dtype=dtype))


def _shape(node: Node) -> relax.Expr:
    """TVM: asks at run time."""
    window = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    return make_constant(np.array(node.shape(), np.int64)[window])


def _reverse_sequence(node: Node) -> relax.Expr:
    x, lengths = node.inputs[0], node.inputs[1]
    batch, time = int(node.attrs.get("batch_axis", 1)), int(node.attrs.get("time_axis", 0))

    def reverse(source: te.Tensor, length: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Expr) -> tirx.Expr:
            end = length(index[batch]).astype("int32")
            mirrored = tirx.Select(index[time] < end, end - 1 - index[time], index[time])
            return source(*(mirrored if a == time else i for a, i in enumerate(index)))

        return te.compute(source.shape, element, name="reversed")

    return node.bb.call_te(reverse, x, lengths, primfunc_name_hint="reverse_sequence")


def _softmax(operator: Callable[..., relax.Expr]) -> Callable[[Node], relax.Expr]:
    """TVM: two reshapes around it below opset 13, which normalised all axes from one on together.

    Where only one of these is longer than one, that axis is all there is to normalise.
    """

    def convert(node: Node) -> relax.Expr:
        x, shape = node.inputs[0], node.shape()
        if node.opset >= 13:
            return operator(x, axis=int(node.attrs.get("axis", -1)))
        first = int(node.attrs.get("axis", 1)) % max(len(shape), 1)
        long = [axis for axis in range(first, len(shape)) if shape[axis] != 1]
        if len(long) <= 1:
            return operator(x, axis=long[0] if long else -1)
        rows = relax.op.reshape(x, [prod(shape[:first]), prod(shape[first:])])
        return relax.op.reshape(operator(rows, axis=-1), shape)

    return convert


def _unsqueeze(node: Node) -> relax.Expr:
    """TVM: fails on axes that are one number without a dimension."""
    axes = node.ints(1, "axes")
    if axes is None:
        raise RefusedError("the axes are missing")
    x = node.inputs[0]
    value = constant_value(x)
    rank = len(node.shape()) + len(axes)
    inserted = sorted(axis % rank for axis in axes)
    if value is not None:
        return make_constant(np.expand_dims(value, tuple(inserted)))
    return relax.op.expand_dims(x, inserted)


MATH_OPS: dict[str, Callable[[Node], relax.Expr]] = {
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Celu": _celu,
    "Clip": clip,
    "Elu": _elu,
    "EyeLike": _eye_like,
    "IsInf": _is_inf,
    "LpNormalization": _lp_normalization,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "Mod": _mod,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Sign": _sign,
    "Size": lambda node: make_constant(np.array(int(np.prod(node.shape())), np.int64)),
    "Softmax": _softmax(relax.op.nn.softmax),
    "ThresholdedRelu": _thresholded_relu,
    "Unsqueeze": _unsqueeze,
}
