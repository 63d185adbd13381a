"""The table of all operators of TFLite that are translated."""

from __future__ import annotations

from adrenoc.importers.tflite_control import CONTROL_OPS
from adrenoc.importers.tflite_conv import CONV_OPS
from adrenoc.importers.tflite_elementwise import ELEMENTWISE_OPS, Convert
from adrenoc.importers.tflite_index import INDEX_OPS
from adrenoc.importers.tflite_move import MOVE_OPS
from adrenoc.importers.tflite_recurrent import RECURRENT_OPS
from adrenoc.importers.tflite_reduce import REDUCE_OPS
from adrenoc.importers.tflite_select import SELECT_CUSTOM_OPS, SELECT_OPS
from adrenoc.importers.tflite_slice import SLICE_OPS
from adrenoc.importers.tflite_transform import TRANSFORM_OPS

OPS: dict[str, Convert] = {
    **CONTROL_OPS,
    **CONV_OPS,
    **ELEMENTWISE_OPS,
    **INDEX_OPS,
    **MOVE_OPS,
    **RECURRENT_OPS,
    **REDUCE_OPS,
    **SELECT_OPS,
    **SLICE_OPS,
    **TRANSFORM_OPS,
}
"""Built-in operators."""

CUSTOM_OPS: dict[str, Convert] = {**SELECT_CUSTOM_OPS}
"""Custom operators by their own name."""
