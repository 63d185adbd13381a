"""What a model computes in double precision, by onnx's own reference: a second opinion.

onnxruntime adds up long sums in floats: means of a hundred thousand numbers of both signs, or of
twenty thousand that are alike, it has with three digits.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class GatherElements(OpRun):  # type: ignore[misc]
    """onnx's own takes axes of 64 elements at most."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray, ...]:
        return (np.take_along_axis(data, indices % data.shape[axis], axis),)


def in_doubles(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """The outputs by name; None where onnx's reference cannot compute the model."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for constant in made.graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            exact = numpy_helper.to_array(constant).astype(np.float64)
            constant.CopyFrom(numpy_helper.from_array(exact, constant.name))
    data = {
        name: value.astype(np.float64) if value.dtype == np.float32 else value
        for name, value in inputs.items()
    }
    names = [output.name for output in made.graph.output]
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(made, new_ops=[GatherElements]).run(None, data)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        LookupError,
    ):  # of all kinds, where it lacks something
        return None
    return dict(zip(names, values, strict=True))
