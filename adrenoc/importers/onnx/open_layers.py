"""Recurrent layers of bytes as layers of floats: what onnxruntime is to compute of them.

Before -> after:
    y = com.microsoft.DynamicQuantizeLSTM(x, W, R, ...)     y = LSTM(x, (W - zero) * scale, ...)

onnxruntime rounds the data, and the state of each step, to bytes whose range is that of all their
numbers.  The GPU computes all steps in one kernel and keeps both as they are, which is nearer to
the model that was trained, and off from onnxruntime by that rounding: a check against its own
result would tell nothing of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPENED = "DynamicQuantizeLSTM"
_WEIGHTS = ((1, 8, 9), (2, 10, 11))
"""Weights and recurrence: the inputs that are their quanta, scales and zero points."""


@dataclass(frozen=True, kw_only=True)
class Quanta:
    """Constant weights [directions, rows, columns] in bytes, with a scale and a zero point for a
    direction or for each of its columns."""

    values: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None

    def open(self) -> np.ndarray:
        """Return the floats that they stand for, as LSTM takes them: [directions, columns,
        rows]."""

        def spread(values: np.ndarray) -> np.ndarray:
            return values.astype(np.float32).reshape(*values.shape[:1], 1, -1)

        floats = self.values.astype(np.float32)
        if self.zeros is not None:
            floats = floats - spread(self.zeros)
        return np.ascontiguousarray(np.swapaxes(floats * spread(self.scales), 1, 2))


def open_layers(model: onnx.ModelProto) -> None:
    """Put layers of floats in place of those of bytes whose weights are initialisers."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != OPENED:
            continue
        floats = [_open(node, held, *places) for places in _WEIGHTS]
        weights = [array for array in floats if array is not None]
        if len(weights) == len(_WEIGHTS):
            model.graph.initializer.extend(_take_floats(node, weights))


def _take_floats(node: onnx.NodeProto, weights: list[np.ndarray]) -> Iterator[onnx.TensorProto]:
    """Make `node` an LSTM over new constants."""
    names = [f"{node.output[0] or node.output[-1]}/floats{place}" for place in range(len(weights))]
    rest = list(node.input[3:8])
    made = helper.make_node("LSTM", [node.input[0], *names, *rest], list(node.output))
    made.attribute.extend(node.attribute)
    node.CopyFrom(made)
    for name, array in zip(names, weights, strict=True):
        yield numpy_helper.from_array(array, name)


def _open(
    node: onnx.NodeProto, held: dict[str, onnx.TensorProto], values: int, scales: int, zeros: int
) -> np.ndarray | None:
    named = [node.input[i] if i < len(node.input) else "" for i in (values, scales, zeros)]
    if not all(name in held for name in named if name) or not all(named[:2]):
        return None
    arrays = [numpy_helper.to_array(held[name]) if name else None for name in named]
    quanta, steps, offsets = arrays
    if quanta is None or steps is None:
        return None
    return Quanta(values=quanta, scales=steps, zeros=offsets).open()
