"""What a model computes in double precision, by onnx's own reference: a second opinion.

onnxruntime adds up long sums in floats: means of a hundred thousand numbers of both signs, or of
twenty thousand that are alike, it has with three digits.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class GatherElements(OpRun):
    """onnx's own takes axes of 64 elements at most."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
        return (np.take_along_axis(data, indices % data.shape[axis], axis),)


class GroupNormalization(OpRun):
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
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """The outputs by name; None where onnx's reference cannot compute the model."""
    made = _to_doubles(model)
    data = {
        name: value.astype(np.float64) if value.dtype == np.float32 else value
        for name, value in inputs.items()
    }
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(made, new_ops=list(_OWN)).run(None, data)
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
