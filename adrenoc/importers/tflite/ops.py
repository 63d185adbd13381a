"""The table of all operators of TFLite that are translated."""

from __future__ import annotations

from adrenoc.importers.tflite.control import CONTROL_OPS
from adrenoc.importers.tflite.conv import CONV_OPS
from adrenoc.importers.tflite.elementwise import ELEMENTWISE_OPS, Convert
from adrenoc.importers.tflite.index import INDEX_OPS
from adrenoc.importers.tflite.mediapipe import MEDIAPIPE_OPS
from adrenoc.importers.tflite.move import MOVE_OPS
from adrenoc.importers.tflite.recurrent import RECURRENT_OPS
from adrenoc.importers.tflite.reduce import REDUCE_OPS
from adrenoc.importers.tflite.resize import RESIZE_OPS
from adrenoc.importers.tflite.select import SELECT_CUSTOM_OPS, SELECT_OPS
from adrenoc.importers.tflite.slice import SLICE_OPS
from adrenoc.importers.tflite.states import STATE_OPS
from adrenoc.importers.tflite.transform import TRANSFORM_OPS

OPS: dict[str, Convert] = {
    **CONTROL_OPS,
    **CONV_OPS,
    **ELEMENTWISE_OPS,
    **INDEX_OPS,
    **MOVE_OPS,
    **RECURRENT_OPS,
    **REDUCE_OPS,
    **RESIZE_OPS,
    **SELECT_OPS,
    **SLICE_OPS,
    **TRANSFORM_OPS,
}
"""Built-in operators."""

CUSTOM_OPS: dict[str, Convert] = {**MEDIAPIPE_OPS, **SELECT_CUSTOM_OPS, **STATE_OPS}
"""Custom operators by their own name."""
