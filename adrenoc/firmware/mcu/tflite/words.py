"""Operators of TFLite on activations of int16, whose zero points are zero."""

from __future__ import annotations

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.evaluate import SUM_BITS
from adrenoc.firmware.mcu.fixed_point import activation_range, multiplier_of
from adrenoc.firmware.mcu.operators import Curve, Factor, Rescale, WordSoftmax, WordSum
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.firmware.mcu.tflite.context import TfliteContext, Translation, check_one_type
from adrenoc.firmware.mcu.tflite.elementwise import mean, one_factor, operands, product, reshape
from adrenoc.firmware.mcu.tflite.filters import BATCHES, FILTERS
from adrenoc.firmware.mcu.tflite.moves import MOVES
from adrenoc.importers.tflite.file import OperatorInfo

_ONE = 1.0 / 32768
_FINE = 4096.0 * 3.0
"""In how many parts a unit of a curve's number is counted."""
_MOST_MULTIPLIER = 32767.0 / 2.0
_MOST_SHIFT = 31
_MOST_SOFTMAX = 1 << 15


def _sum(made: TfliteContext, operator: OperatorInfo) -> NetworkOperator:
    infos = [made.info(operator, 0), made.info(operator, 1)]
    result = made.result(operator)
    check_one_type(*infos, result)
    scales = [info.scale for info in (*infos, result)]
    if operator.options.get("PotScaleInt16", True) and all(map(_is_power_of_two, scales)):
        raise RefusedError("a sum of int16 by shifts alone, as older converters wrote it")
    first, second, swapped = operands(made, operator)
    twice = 2.0 * max(float(info.scale) for info in infos)
    factors = [multiplier_of(float(info.scale) / twice) for info in infos]
    signs = [1, -1 if operator.kind == "SUB" else 1]
    order = (1, 0) if swapped else (0, 1)
    real = twice / (float(1 << SUM_BITS) * float(result.scale))
    return WordSum(
        sources=(first, second),
        result=operator.outputs[0],
        factors=(factors[order[0]], factors[order[1]]),
        signs=(signs[order[0]], signs[order[1]]),
        requantise=one_factor(made, operator, real),
    )


def _is_power_of_two(scale: float) -> bool:
    return bool(np.frexp(scale)[0] == 0.5)


def _curve(kind: str) -> Translation:
    def translate(made: TfliteContext, operator: OperatorInfo) -> NetworkOperator:
        result = made.result(operator)
        if abs(result.scale - _ONE) > _ONE * 1e-3 or made.info(operator, 0).dtype != result.dtype:
            raise RefusedError(f"{result.dtype} at a scale of {result.scale:.6g}")
        multiplier, shift = _curve_factor(made.info(operator, 0).scale, kind)
        return Curve(
            source=made.data(operator),
            result=operator.outputs[0],
            kind=kind,
            multiplier=multiplier,
            shift=shift,
        )

    return translate


def _curve_factor(scale: float, kind: str) -> tuple[int, int]:
    """Return the factor to 1/12288: a multiplier of at most 15 bits, and a shift right."""
    fraction, exponent = np.frexp(scale)
    left = 12 + int(exponent) - 1
    if fraction == 0.5 and 0 <= left <= (1 if kind == "tanh" else 0):
        return 3 << left, 0
    real, shift = scale * _FINE, 0
    while real <= _MOST_MULTIPLIER and shift < _MOST_SHIFT:
        real, shift = real * 2.0, shift + 1
    if real >= 1 << 15:
        raise RefusedError(f"an input at a scale of {scale:.6g}")
    return int(real), shift


def _translate_rescale(below_by: str = "") -> Translation:
    """Translate to another scale, type or bound; below zero there may be another factor."""

    def translate(made: TfliteContext, operator: OperatorInfo) -> NetworkOperator:
        source, result = made.info(operator, 0), made.result(operator)
        # TFLite divides in float32 where an activation does it, else in float64.
        real = float(np.float32(source.scale) / np.float32(result.scale))
        if operator.kind == "QUANTIZE":
            real = float(source.scale) / float(result.scale)
        above: Factor = multiplier_of(real)
        below = above
        if below_by:
            flat = np.float32(source.scale) * np.float32(operator.options[below_by])
            below = multiplier_of(float(flat / np.float32(result.scale)))
        ends = made.tensors[operator.outputs[0]].ends
        relu = operator.kind if operator.kind.startswith("RELU") else "NONE"
        low, high = activation_range(relu, result.scale, result.zero, ends)
        return Rescale(
            source=made.data(operator),
            result=operator.outputs[0],
            zero_in=source.zero,
            above=above,
            below=below,
            zero=result.zero,
            low=low,
            high=high,
        )

    return translate


def _softmax(made: TfliteContext, operator: OperatorInfo) -> NetworkOperator:
    source, result = made.info(operator, 0), made.result(operator)
    if result.dtype != "int16" or abs(result.scale - _ONE) > _ONE * 1e-3:
        raise RefusedError(f"{result.dtype} at a scale of {result.scale:.6g}")
    if result.shape[-1] >= _MOST_SOFTMAX:
        raise RefusedError(f"a softmax over {result.shape[-1]} numbers")
    beta = np.float32(operator.options.get("Beta", 1.0))
    real = float(np.float32(source.scale) * beta) / (10.0 / 65535.0)
    return WordSoftmax(
        source=made.data(operator), result=operator.outputs[0], factor=multiplier_of(real)
    )


WORDS: dict[str, Translation] = {
    **BATCHES,
    **FILTERS,
    **MOVES,
    "ADD": _sum,
    "EXPAND_DIMS": reshape,
    "LEAKY_RELU": _translate_rescale("Alpha"),
    "LOGISTIC": _curve("logistic"),
    "MEAN": mean,
    "MUL": product,
    "QUANTIZE": _translate_rescale(),
    "RELU": _translate_rescale(),
    "RELU6": _translate_rescale(),
    "RESHAPE": reshape,
    "SOFTMAX": _softmax,
    "SQUEEZE": reshape,
    "SUB": _sum,
    "TANH": _curve("tanh"),
}
