"""What a model computes in double precision, by onnx's own reference: a second opinion.

onnxruntime adds up long sums in floats: means of a hundred thousand numbers of both signs, or of
twenty thousand that are alike, it has with three digits.  How far floats can be from the doubles is
found by the same walk, with each result rounded up or down at random as a float would be.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

_NORMS = ("GroupNormalization", "InstanceNormalization", "LayerNormalization")
_SUMS = frozenset(
    (
        *("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "CumSum", "GRU", "LSTM", "RNN"),
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare", "Softmax", "LogSoftmax", "LpNormalization"),
        *("AveragePool", "GlobalAveragePool", "RMSNormalization", *_NORMS),
    )
)
"""What adds many numbers, so that it rounds on the way, too."""
_FUNCTIONS = frozenset(
    (
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"),
        *("Celu", "Elu", "Erf", "Exp", "Gelu", "Log", "Mish", "Pow", "Selu", "Sigmoid", "Softplus"),
        *("Softsign", "Sqrt", "Tanh"),
    )
)
"""What libraries compute in several steps."""
_OF_FUNCTIONS = 4
"""By how many roundings OpenCL C lets most of them be off; onnxruntime's own are, too."""
_FLOAT_STEP = 2.0**-24


class GatherElements(OpRun):  # type: ignore[misc]
    """onnx's own takes axes of 64 elements at most."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
        return (np.take_along_axis(data, indices % data.shape[axis], axis),)


class GroupNormalization(OpRun):  # type: ignore[misc]
    """onnx's own goes through floats."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        epsilon: float = 1e-5,
        num_groups: int = 1,
        stash_type: int = 1,
    ) -> tuple[np.ndarray, ...]:
        groups = x.reshape(x.shape[0], num_groups, -1)
        centred = groups - groups.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + epsilon)
        channels = (1, -1, *(1,) * (x.ndim - 2))
        of_group = scale.size == num_groups != x.shape[1]  # before version 21
        weights = [np.repeat(w, x.shape[1] // num_groups) if of_group else w for w in (scale, bias)]
        normal = (centred / spread).reshape(x.shape)
        return (normal * weights[0].reshape(channels) + weights[1].reshape(channels),)


_OWN = [GatherElements, GroupNormalization]


def in_doubles(
    model: onnx.ModelProto,
    inputs: Mapping[str, np.ndarray],
    *,
    rounding: np.random.Generator | None = None,
    relative: Mapping[str, float] | None = None,
    nearest: bool = False,
) -> dict[str, np.ndarray] | None:
    """The outputs by name; None where onnx's reference cannot compute the model.

    With `rounding` each result becomes one of the two floats beside it, of functions one of a few;
    the tensors that `relative` names are off by so much more, as a share of the largest number of
    their row.  With `nearest` each becomes the nearer one, as on a CPU.
    """
    made = _to_doubles(model)
    data = {
        name: value.astype(np.float64) if value.dtype == np.float32 else value
        for name, value in inputs.items()
    }
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(made, new_ops=list(_OWN))
            if nearest:
                values = _walk(evaluator, data, None, {})
            elif rounding is None:
                values = evaluator.run(None, data)
            else:
                values = _walk(evaluator, data, rounding, relative or {})
    except (
        RuntimeError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
    ):  # of all kinds, where it lacks something
        return None
    return dict(zip([output.name for output in made.graph.output], values, strict=True))


def _to_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with doubles in place of floats, in constants, casts and declarations."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for constant in made.graph.initializer:
        _widen(constant)
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return made


def _widen(constant: TensorProto) -> None:
    if constant.data_type == TensorProto.FLOAT:
        exact = numpy_helper.to_array(constant).astype(np.float64)
        constant.CopyFrom(numpy_helper.from_array(exact, constant.name))


def _walk(
    evaluator: ReferenceEvaluator,
    data: Mapping[str, np.ndarray],
    random: np.random.Generator | None,
    relative: Mapping[str, float],
) -> list[np.ndarray]:
    """Compute node by node, and round each result, at random where it says how.

    Products of matrices add floats there: halfway their sums may be larger than their results.
    """
    known = {"": None, **evaluator.rt_inits_, **data}
    for node in evaluator.rt_nodes_:
        given = [known[name] for name in node.input]
        if node.op_type in _SUMS and random is not None:
            given = [_shake(value, random) for value in given]
        more = {"context": known} if node.need_context() else {}
        if node.op_type == "MatMul" and random is not None:
            made = (_shake(_add_in_order(*given), random),)
        else:
            made = node.run(*given, **more)
        if node.op_type in _NORMS and random is not None:
            made = (made[0] + _misplace_means(node, given, random), *made[1:])
        if node.op_type in _FUNCTIONS and random is not None:
            made = [_shake(value, random, _OF_FUNCTIONS) for value in made]
        for name, value in zip(node.output, made, strict=False):
            known[name] = _round(value, random, relative.get(name, 0.0))
    return [known[name] for name in evaluator.output_names]


def _shake(
    value: np.ndarray | None, random: np.random.Generator, steps: float = 1.0
) -> np.ndarray | None:
    """Numbers of a sum, each off by a rounding; sums of small whole numbers round nothing."""
    if value is None or value.dtype != np.float64 or not np.any(value % 1):
        return value
    step = steps * _FLOAT_STEP
    return np.asarray(value * (1 + random.uniform(-step, step, value.shape)))


def _add_in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply matrices as a thread does that adds one product after the other, in floats."""
    if a.ndim == 1 or b.ndim == 1 or a.dtype != np.float64:
        return np.asarray(a @ b)
    extents = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*extents, a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total += (a[..., :, k, None] * b[..., None, k, :]).astype(np.float32)
    return total.astype(np.float64)


def _misplace_means(
    node: OpRun, given: list[np.ndarray], random: np.random.Generator
) -> np.ndarray:
    """By how much a norm is off whose means are off by a float step."""
    x, scale = given[:2]
    groups = x.reshape(*x.shape[:2], -1)
    if node.op_type == "LayerNormalization":
        axis = node.axis % x.ndim
        groups = x.reshape(*x.shape[:axis], -1)
        scale = np.broadcast_to(scale, x.shape)
    elif node.op_type == "GroupNormalization":
        groups = x.reshape(x.shape[0], node.num_groups, -1)
        scale = np.repeat(scale, x.shape[1] // scale.size)
    if node.op_type != "LayerNormalization":
        scale = scale.reshape(-1, *(1,) * (x.ndim - 2))
    mean = np.abs(groups.mean(axis=-1, keepdims=True))
    deviation = np.sqrt(groups.var(axis=-1, keepdims=True) + node.epsilon)
    step = random.uniform(-2 * _FLOAT_STEP, 2 * _FLOAT_STEP, mean.shape) * mean / deviation
    return np.broadcast_to(step, groups.shape).reshape(x.shape) * scale


def _round(value: np.ndarray, random: np.random.Generator | None, relative: float) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.float64) or value.dtype != np.float64:
        return value
    value = np.asarray(value)
    if random is None:
        return value.astype(np.float32).astype(np.float64)
    if relative and value.ndim:
        largest = np.abs(value).max(axis=-1, keepdims=True)
        value = value + largest * random.uniform(-relative, relative, value.shape)
    nearest = value.astype(np.float32)
    other = np.nextafter(nearest, np.where(value > nearest, np.inf, -np.inf).astype(np.float32))
    is_exact = (nearest == value) | ~np.isfinite(value)
    up = random.uniform(size=value.shape) < 0.5
    return np.where(is_exact | up, nearest, other).astype(np.float64)
