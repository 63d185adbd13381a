"""Softmax of quantised ONNX models, in the float32 of onnxruntime's kernel for bytes."""

from __future__ import annotations

import math

import numpy as np
import onnx

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.onnx.context import Importing, Translation, options
from adrenoc.firmware.mcu.operators import FloatSoftmax

_LEFT_BITS = 5.0
"""Of the exponent, which that kernel leaves free above a sum."""
_PER_AXIS_OPSET = 13
_MOST_FLOAT = np.finfo(np.float32).max


def _exponentials(scale: np.float32, depth: int) -> np.ndarray:
    """e to the power of -255 ... 0 quanta, all enlarged as far as a sum of them allows."""
    room = math.log(float(_MOST_FLOAT / np.float32(depth)))
    enlarged = max(0.0, room - _LEFT_BITS) / float(scale)
    powers = (np.arange(256, dtype=np.float64) - 255 + enlarged) * float(scale)
    return np.exp(powers).astype(np.float32)


def _softmax(made: Importing, node: onnx.NodeProto) -> None:
    given = options(node)
    shape = made.shape(node.input[0])
    per_axis = int(given.get("opset", _PER_AXIS_OPSET)) >= _PER_AXIS_OPSET
    axis = int(given.get("axis", -1 if per_axis else 1)) % len(shape)
    source = made.data(node, 0)
    scale, zero = np.float32(made.number(node, 3)), int(made.number(node, 4))
    last = len(shape) - 1
    if len(shape) == 4:
        last = 1 if per_axis else last  # channels lie last here
    if axis != last:
        raise RefusedError(f"a softmax over axis {axis} of {list(shape)}")
    made.operators.append(
        FloatSoftmax(
            source=source,
            result=made.make(node.output[0], float(scale), zero),
            exponentials=_exponentials(np.float32(made.number(node, 1)), shape[axis]),
            scale=np.floor(np.float32(1) / scale),
            zero=zero - made.offset(node.output[0]),
        )
    )


SOFTMAX: dict[str, Translation] = {"QLinearSoftmax": _softmax}
