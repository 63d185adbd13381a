"""The table of all operators of TFLite that are translated."""

from __future__ import annotations

from adrenoc.importers.tflite_conv import CONV_OPS
from adrenoc.importers.tflite_elementwise import ELEMENTWISE_OPS, Convert
from adrenoc.importers.tflite_move import MOVE_OPS
from adrenoc.importers.tflite_reduce import REDUCE_OPS
from adrenoc.importers.tflite_slice import SLICE_OPS

OPS: dict[str, Convert] = {**CONV_OPS, **ELEMENTWISE_OPS, **MOVE_OPS, **REDUCE_OPS, **SLICE_OPS}
"""Built-in operators."""

CUSTOM_OPS: dict[str, Convert] = {}
"""Custom operators by their own name."""
