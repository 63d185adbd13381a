"""Operators of TFLite that keep a state between calls."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import INT8, multiplier_of
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.firmware.mcu.operators import Requantise, Svdf
from adrenoc.firmware.mcu.tflite.context import Importing, Translation, activation_of
from adrenoc.firmware.mcu.tflite.filters import bias_of
from adrenoc.firmware.mcu.tflite.lstm import lstm
from adrenoc.importers.tflite.file import Operator

_STATE = 4
"""Which input holds it."""
_MOST_DEPTH = 1 << 15


def _svdf(made: Importing, operator: Operator) -> NetworkOperator:
    source, result = made.info(operator, 0), made.result(operator)
    feature = made.constant(operator, 1, "int8")
    time = made.constant(operator, 2, "int16")
    state = made.info(operator, _STATE)
    filters, depth = feature.shape
    rank = int(operator.options.get("Rank", 1))
    if activation_of(operator) != "RELU":
        raise RefusedError(f"the activation {activation_of(operator)}, expected RELU")
    if len(source.shape) != 2 or source.shape[0] != 1:
        raise RefusedError(f"an input of {list(source.shape)}, expected one row")
    if state.dtype != "int16" or not state.is_variable:
        raise RefusedError(f"a state of {state.dtype}, expected a variable of int16")
    alike = time.shape[0] == filters and source.shape[1] == depth
    if rank < 1 or filters % rank or not alike or time.size != np.prod(state.shape):
        raise RefusedError(f"{filters} filters of rank {rank} for a state of {list(state.shape)}")
    if result.shape != (1, filters // rank):
        raise RefusedError(f"an output of {list(result.shape)} for {filters // rank} sums")
    bias = bias_of(made, operator, filters // rank, index=3)
    if depth > _MOST_DEPTH:
        raise RefusedError(f"sums of {depth} products, which 32 bits may not hold")
    one, two = made.info(operator, 1).scale, made.info(operator, 2).scale
    multiplier, shift = multiplier_of(float(_scale(state.scale, two, result.scale)))
    return Svdf(
        source=made.data(operator),
        result=operator.outputs[0],
        feature=feature,
        time=time,
        bias=bias,
        rank=rank,
        zero_in=source.zero,
        kept=multiplier_of(float(_scale(source.scale, one, state.scale))),
        requantise=Requantise(
            multipliers=np.array([multiplier]),
            shifts=np.array([shift]),
            zero=result.zero,
            low=INT8[0],
            high=INT8[1],
        ),
    )


def _scale(first: float, second: float, result: float) -> np.float32:
    """As TFLite multiplies and divides scales: in float32."""
    return np.float32(np.float32(first) * np.float32(second)) / np.float32(result)


RECURRENT: dict[str, Translation] = {"SVDF": _svdf, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
