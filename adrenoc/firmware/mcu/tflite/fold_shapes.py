"""Takes arithmetic of shapes out of a TFLite graph, as converters write it for an open batch.

*Before -> after*: SHAPE(x) -> STRIDED_SLICE -> PACK -> RESHAPE becomes RESHAPE to a constant: the
batch is one here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from adrenoc.importers.tflite.file import GraphInfo, Operator, TensorInfo


def fold_shapes(graph: GraphInfo) -> GraphInfo:
    """Return the graph without operators on whole numbers that are known."""
    tensors, left = list(graph.tensors), []
    for operator in graph.operators:
        value = _value(operator, [tensors[i] for i in operator.inputs if i >= 0])
        if value is None or operator.outputs[0] in graph.outputs:
            left.append(operator)
            continue
        made = tensors[operator.outputs[0]]
        tensors[operator.outputs[0]] = replace(
            made, value=value.astype(made.dtype), shape=value.shape
        )
    return replace(graph, tensors=tuple(tensors), operators=tuple(left))


def _value(operator: Operator, inputs: Sequence[TensorInfo]) -> np.ndarray | None:
    """Return what an operator makes, where it is one of these and that is known."""
    if operator.custom or len(operator.outputs) != 1:
        return None
    if operator.kind == "SHAPE":
        return np.array(inputs[0].shape, np.int64)
    compute = _ARITHMETIC.get(operator.kind)
    values = [i.value for i in inputs if i.value is not None and i.dtype in ("int32", "int64")]
    if compute is None or len(values) < len(inputs):
        return None
    return compute(operator, values)


def _slice(operator: Operator, values: Sequence[np.ndarray]) -> np.ndarray | None:
    option = operator.options.get
    data, *parts = values
    if data.ndim != 1 or option("EllipsisMask") or option("NewAxisMask"):
        return None
    begin, end, step = (int(part.reshape(-1)[0]) for part in parts)
    if option("ShrinkAxisMask"):
        return np.asarray(data[begin])
    return data[None if option("BeginMask") else begin : None if option("EndMask") else end : step]


def _pack(operator: Operator, values: Sequence[np.ndarray]) -> np.ndarray | None:
    return np.stack(values, int(operator.options.get("Axis", 0)))


_ARITHMETIC: dict[str, Callable[[Operator, Sequence[np.ndarray]], np.ndarray | None]] = {
    "MUL": lambda operator, values: values[0] * values[1],
    "PACK": _pack,
    "STRIDED_SLICE": _slice,
}
