"""Arithmetic, tests, norms and reductions that TVM's ONNX frontend lacks or gets wrong.

TVM spells InstanceNormalization out as mean, variance and arithmetic: five kernels, and squares in
half floats, which overflow from 256 on.  Exporters write a group norm as an instance norm between
two reshapes; seen as what it is, a Relax norm with a kernel, it needs neither reshape.

Before -> after:
    Reshape(x, [N, G, -1]) -> InstanceNormalization(s, b)    reshape(group_norm(x, G))

Reductions have NaN, empty axes and integers as onnxruntime has them.  Integers of 32 bits are
folded in 64 and end at the ends of their dtype, where C and TVM wrap.

Source: ONNX operator reference; tvm.relax.frontend.onnx of apache-tvm 0.27.0; what onnxruntime 1.32
computes.
"""

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
from tvm import relax, te, tirx

from adrenoc.base.errors import RefusedError
from adrenoc.importers.imported import check_grown
from adrenoc.importers.onnx.node import OnnxNode
from adrenoc.importers.relax.values import constant_value, dtype_of, make_constant, static_shape


def clip(node: OnnxNode) -> relax.Expr:
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


def _is_inf(node: OnnxNode) -> relax.Expr:
    """TVM: leaves the attributes for the two signs unread."""
    x = node.inputs[0]
    positive = bool(node.attrs.get("detect_positive", 1))
    negative = bool(node.attrs.get("detect_negative", 1))
    if positive and negative:
        return relax.op.isinf(x)
    if positive or negative:
        return relax.op.equal(x, node.like(np.inf if positive else -np.inf))
    return relax.op.zeros(node.shape(), "bool")


def _mod(node: OnnxNode) -> relax.Expr:
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


def _elu(node: OnnxNode) -> relax.Expr:
    """TVM: constants of float32 beside data of another dtype."""
    x, alpha = node.inputs[0], float(node.attrs.get("alpha", 1.0))
    grown = relax.op.exp(relax.op.minimum(x, node.like(0))) - node.like(1)
    return relax.op.nn.relu(x) + grown * node.like(alpha)


def _sign(node: OnnxNode) -> relax.Expr:
    """TVM: zero of NaN."""
    x = node.inputs[0]
    one, zero = node.like(1), node.like(0)
    above = x > zero
    if dtype_of(x).startswith("uint"):
        return relax.op.where(above, one, x)
    below = x < zero
    return relax.op.where(above, one, relax.op.where(below, node.like(-1), x))


def _thresholded_relu(node: OnnxNode) -> relax.Expr:
    """TVM: a product with what is zero, which of -inf and of NaN is NaN."""
    x = node.inputs[0]
    above = x > node.like(float(node.attrs.get("alpha", 1.0)))
    return relax.op.where(above, x, node.like(0))


def _lp_normalization(node: OnnxNode) -> relax.Expr:
    x, axis = node.inputs[0], int(node.attrs.get("axis", -1))
    if int(node.attrs.get("p", 2)) == 1:
        size = relax.op.sum(relax.op.abs(x), [axis], keepdims=True)
    else:
        size = relax.op.sqrt(relax.op.sum(x * x, [axis], keepdims=True))
    # Of zeros ONNX makes zeros: any divisor but zero does.
    return x / relax.op.where(relax.op.equal(size, node.like(0)), node.like(1), size)


def _bit_cast(node: OnnxNode) -> relax.Expr:
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


def _bit_shift(node: OnnxNode) -> relax.Expr:
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


def _eye_like(node: OnnxNode) -> relax.Expr:
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


def _shape(node: OnnxNode) -> relax.Expr:
    """TVM: asks at run time."""
    window = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    return make_constant(np.array(node.shape(), np.int64)[window])


def _reverse_sequence(node: OnnxNode) -> relax.Expr:
    batch, time = int(node.attrs.get("batch_axis", 1)), int(node.attrs.get("time_axis", 0))
    return relax.op.reverse_sequence(node.inputs[0], node.inputs[1].astype("int32"), time, batch)


def _softmax(operator: Callable[..., relax.Expr]) -> Callable[[OnnxNode], relax.Expr]:
    """TVM: two reshapes around it below opset 13, which normalised all axes from one on together.
    Where only one of these is longer than one, that axis is all there is to normalise."""

    def convert(node: OnnxNode) -> relax.Expr:
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


def _unsqueeze(node: OnnxNode) -> relax.Expr:
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


def _instance_norm(node: OnnxNode) -> relax.Expr:
    x, shape = node.inputs[0], node.shape()
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    grouped = _find_ungrouped(node)
    if grouped is None:
        axes = list(range(2, len(shape)))
        return relax.op.nn.instance_norm(
            x, node.inputs[1], node.inputs[2], channel_axis=1, axes=axes, epsilon=epsilon
        )
    whole, scale, offset = grouped
    axes = list(range(2, len(whole.ty.shape)))
    normed = relax.op.nn.group_norm(
        whole,
        make_constant(scale),
        make_constant(offset),
        num_groups=shape[1],
        channel_axis=1,
        axes=axes,
        epsilon=epsilon,
    )
    return relax.op.reshape(node.emit(normed), shape)


def _find_ungrouped(node: OnnxNode) -> tuple[relax.Var, np.ndarray, np.ndarray] | None:
    """Return what was reshaped to one row a group, and scale and offset of each channel."""
    call = node.bb.lookup_binding(node.inputs[0]) if isinstance(node.inputs[0], relax.Var) else None
    if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.reshape":
        return None
    batch, groups = node.shape()[:2]
    shape = static_shape(call.args[0])
    affine = [constant_value(node.inputs[i]) for i in (1, 2)]
    if shape is None or len(shape) < 3 or shape[0] != batch or shape[1] % groups:
        return None
    if affine[0] is None or affine[1] is None:
        return None
    members = shape[1] // groups
    return call.args[0], np.repeat(affine[0], members), np.repeat(affine[1], members)


def _rms_norm(node: OnnxNode) -> relax.Expr:
    """TVM puts conversions around it where data is half: a launch each. Kernels sum in float."""
    axes, epsilon = _normed_axes(node), float(node.attrs.get("epsilon", 1e-5))
    gains = _fitting(node, 1, axes)
    if gains is not None:
        return relax.op.nn.rms_norm(node.inputs[0], gains, axes, epsilon)
    ones = _filled(node, axes, 1.0)
    return relax.op.nn.rms_norm(node.inputs[0], ones, axes, epsilon) * node.inputs[1]


def _layer_norm(node: OnnxNode) -> relax.Expr:
    """TVM takes the axes from the factor's rank: those of a factor that is spread over what is
    normed are others, whose numbers would be wrong."""
    axes, epsilon = _normed_axes(node), float(node.attrs.get("epsilon", 1e-5))
    none = _filled(node, axes, 0.0)
    gains = _fitting(node, 1, axes)
    offsets = none if node.input(2) is None else _fitting(node, 2, axes)
    if gains is not None and offsets is not None:
        return relax.op.nn.layer_norm(node.inputs[0], gains, offsets, axes, epsilon)
    ones = _filled(node, axes, 1.0)
    normed = relax.op.nn.layer_norm(node.inputs[0], ones, none, axes, epsilon)
    scaled = normed * node.inputs[1]
    return scaled if node.input(2) is None else scaled + node.inputs[2]


def _normed_axes(node: OnnxNode) -> list[int]:
    rank = len(node.shape())
    return list(range(int(node.attrs.get("axis", -1)) % rank, rank))


def _fitting(node: OnnxNode, index: int, axes: list[int]) -> relax.Expr | None:
    """Return an input with a number for each of those that are normed together; None where it has
    other ones, which are spread over them."""
    wanted = [node.shape()[axis] for axis in axes]
    shape = list(node.shape(index))
    if shape == wanted:
        return node.inputs[index]
    if shape == [1] * (len(shape) - len(wanted)) + wanted:
        return relax.op.reshape(node.inputs[index], wanted)
    return None


def _filled(node: OnnxNode, axes: list[int], value: float) -> relax.Expr:
    """Return one number for each of those that are normed together."""
    shape = [node.shape()[axis] for axis in axes]
    return make_constant(np.full(shape, value, dtype_of(node.inputs[0])))


Convert = Callable[[OnnxNode], relax.Expr]
Map = Callable[[relax.Expr], relax.Expr]
Fold = Callable[..., relax.Expr]

_ENDS = np.iinfo(np.int32)


def _axes_of(node: OnnxNode) -> list[int]:
    """Return the axes to fold; none where an attribute says that no axes are none."""
    axes = node.ints(1, "axes")
    if axes or node.attrs.get("noop_with_empty_axes", 0):
        return axes or []
    return list(range(len(node.shape())))


def _same(x: relax.Expr) -> relax.Expr:
    return x


def _square(x: relax.Expr) -> relax.Expr:
    return x * x


def _end(x: relax.Expr) -> relax.Expr:
    """End an int64 where an int32 does."""
    least, most = (make_constant(np.array(end, np.int64)) for end in (_ENDS.min, _ENDS.max))
    return relax.op.minimum(relax.op.maximum(x, least), most)


def _fold(fold: Fold, before: Map = _same, after: Map = _same) -> Convert:
    """Fold; TVM wraps integers, and leaves out what comes before and after where no axis is."""

    def convert(node: OnnxNode) -> relax.Expr:
        x, axes, keepdims = node.inputs[0], _axes_of(node), bool(node.attrs.get("keepdims", 1))
        dtype = dtype_of(x)
        if dtype == "int32":
            x = node.emit(x.astype("int64"))
        x = before(x)
        if before is _square and dtype == "int32":  # so that a sum of them stays in 64 bits
            x = _end(x)
        folded = after(fold(x, axes, keepdims) if axes else x)
        return _end(folded).astype(dtype) if dtype == "int32" else folded

    return convert


def _log_sum_exp(node: OnnxNode) -> relax.Expr:
    """Fold; TVM takes an infinite extreme away from itself, which is NaN."""
    x, axes = node.inputs[0], _axes_of(node)
    if not axes:
        return x
    most = relax.op.max(x, axes, True)
    taken = relax.op.where(relax.op.isinf(most), node.like(0), most)
    total = relax.op.log(relax.op.sum(relax.op.exp(x - taken), axes, True))
    result = total + taken
    return result if node.attrs.get("keepdims", 1) else relax.op.squeeze(result, axes)


def _extreme(fold: Fold) -> Convert:
    """Fold; TVM has no extremes of booleans, and refuses axes from an input."""

    def convert(node: OnnxNode) -> relax.Expr:
        x, axes, dtype = node.inputs[0], _axes_of(node), dtype_of(node.inputs[0])
        if not axes:
            return x
        if dtype == "bool":
            x = x.astype("int32")
        result = fold(x, axes, keepdims=bool(node.attrs.get("keepdims", 1)))
        return node.emit(result).astype("bool") if dtype == "bool" else result

    return convert


def _place_of(fold: Fold, loser: float) -> Convert:
    """Find a place; TVM takes the last of equal ones without a look at NaN. onnxruntime keeps one
    that is first and passes over others."""

    def convert(node: OnnxNode) -> relax.Expr:
        x, shape = node.inputs[0], node.shape()
        axis, keepdims = int(node.attrs.get("axis", 0)) % len(shape), node.attrs.get("keepdims", 1)
        if not node.attrs.get("select_last_index", 0):
            return fold(x, axis, bool(keepdims))
        begins = None
        if dtype_of(x).startswith("float"):
            first = relax.op.strided_slice(x, [axis], [0], [1])
            first = first if keepdims else relax.op.squeeze(first, [axis])
            begins = relax.op.isnan(first)
            x = node.emit(relax.op.where(relax.op.isnan(x), node.like(loser), x))
        turned = fold(node.emit(relax.op.flip(x, axis)), axis, bool(keepdims))
        end, begin = (make_constant(np.array(at, np.int64)) for at in (shape[axis] - 1, 0))
        last = end - turned
        return last if begins is None else relax.op.where(begins, begin, node.emit(last))

    return convert


MATH_OPS: dict[str, Callable[[OnnxNode], relax.Expr]] = {
    "ArgMax": _place_of(relax.op.argmax, -np.inf),
    "ArgMin": _place_of(relax.op.argmin, np.inf),
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Clip": clip,
    "Elu": _elu,
    "EyeLike": _eye_like,
    "InstanceNormalization": _instance_norm,
    "IsInf": _is_inf,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _softmax(relax.op.nn.log_softmax),
    "LpNormalization": _lp_normalization,
    "Mod": _mod,
    "RMSNormalization": _rms_norm,
    "ReduceL1": _fold(relax.op.sum, relax.op.abs),
    "ReduceL2": _fold(relax.op.sum, _square, relax.op.sqrt),
    "ReduceLogSum": _fold(relax.op.sum, after=relax.op.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(relax.op.max),
    "ReduceMean": _fold(relax.op.mean),
    "ReduceMin": _extreme(relax.op.min),
    "ReduceProd": _fold(relax.op.prod),
    "ReduceSum": _fold(relax.op.sum),
    "ReduceSumSquare": _fold(relax.op.sum, _square),
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Sign": _sign,
    "Size": lambda node: make_constant(np.array(int(np.prod(node.shape())), np.int64)),
    "Softmax": _softmax(relax.op.nn.softmax),
    "ThresholdedRelu": _thresholded_relu,
    "Unsqueeze": _unsqueeze,
}
