"""Functions of one number: tables of 256, with the rounding of TFLite's kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.fixed_point import activation_range, multiplier_of, scale, shifted_right
from adrenoc.firmware.mcu.operators import Lookup
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.firmware.mcu.tflite.context import Importing, Translation
from adrenoc.importers.tflite.file import Operator, TensorInfo

_NUMBERS = np.arange(-128, 128, dtype=np.int64)
_MOST16 = (1 << 15) - 1

Table = Callable[[TensorInfo, TensorInfo, Operator], np.ndarray]


def _table(make: Table) -> Translation:
    def translate(made: Importing, operator: Operator) -> NetworkOperator:
        source, result = made.info(operator, 0), made.result(operator)
        table = make(source, result, operator)
        return Lookup(
            source=made.data(operator),
            result=operator.outputs[0],
            table=np.clip(table, -128, 127).astype(np.int8),
        )

    return translate


def _tabulate_floats(function: Callable[[np.ndarray], np.ndarray]) -> Table:
    """Return a function that TFLite computes in float32 for each number."""

    def make(source: TensorInfo, result: TensorInfo, operator: Operator) -> np.ndarray:
        inverse = np.float32(1) / np.float32(result.scale)
        real = np.float32(source.scale) * (_NUMBERS - source.zero).astype(np.float32)
        found = function(real).astype(np.float32) * inverse
        return (np.sign(found) * np.floor(np.abs(found) + 0.5)).astype(np.int64) + result.zero

    return make


def _logistic(real: np.ndarray) -> np.ndarray:
    one = np.float32(1)
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is 0, as it is in C
        return one / (one + np.exp(-real.astype(np.float64)).astype(np.float32))


def _tanh(real: np.ndarray) -> np.ndarray:
    return np.tanh(real.astype(np.float64))


def _tabulate_clamp(name: str) -> Table:
    def make(source: TensorInfo, result: TensorInfo, operator: Operator) -> np.ndarray:
        low, high = activation_range(name, result.scale, result.zero)
        real = float(np.float32(source.scale) / np.float32(result.scale))
        moved = scale(_NUMBERS - source.zero, *multiplier_of(real)) + result.zero
        return np.clip(moved, low, high)

    return make


def _tabulate_scale(source: TensorInfo, result: TensorInfo, operator: Operator) -> np.ndarray:
    real = float(source.scale) / float(result.scale)
    return scale(_NUMBERS - source.zero, *multiplier_of(real)) + result.zero


def _leaky(source: TensorInfo, result: TensorInfo, operator: Operator) -> np.ndarray:
    alpha = np.float32(operator.options["Alpha"])
    steep = np.float32(source.scale) / np.float32(result.scale)
    flat = np.float32(source.scale) * alpha / np.float32(result.scale)
    numbers = _NUMBERS - source.zero
    above = scale(numbers, *multiplier_of(float(steep)))
    below = scale(numbers, *multiplier_of(float(flat)))
    return np.where(numbers >= 0, above, below) + result.zero


def _hard_swish(source: TensorInfo, result: TensorInfo, operator: Operator) -> np.ndarray:
    """x * relu6(x + 3) / 6 in numbers of 16 bits, as TFLite rounds them."""
    fine = np.float32(1 / 128) * np.float32(source.scale)
    out, out_shift = multiplier_of(float(fine / np.float32(result.scale)))
    gate, gate_shift = multiplier_of(float(fine / np.float32(3.0 / 32768.0)))
    numbers = (_NUMBERS - source.zero) << 7
    moved = _high16(numbers, _upper16(out))
    share = numbers
    if gate_shift > 0:
        share = _limited16(share << (gate_shift - 1))
    share = _high16(share, _upper16(gate))
    if gate_shift > 0:
        share = _limited16(share << 1)
    elif gate_shift < 0:
        share = _shifted16(share, -gate_shift)
    share = (share + (1 << 15)) >> 1
    product = share * moved
    # Rounded towards zero.
    high = np.sign(product) * (np.abs(product) >> 15)
    if out_shift > 0:
        raise RefusedError("an output much finer than its input")
    return _shifted16(_limited16(high), -out_shift) + result.zero


def _upper16(multiplier: int) -> int:
    return min((multiplier + (1 << 15)) >> 16, _MOST16)


def _high16(a: np.ndarray, b: int) -> np.ndarray:
    return np.minimum((a * b + (1 << 14)) >> 15, _MOST16)


def _limited16(value: np.ndarray) -> np.ndarray:
    return np.clip(value, -_MOST16 - 1, _MOST16)


def _shifted16(value: np.ndarray, bits: int) -> np.ndarray:
    return shifted_right(value, bits)


TABLES: dict[str, Translation] = {
    "HARD_SWISH": _table(_hard_swish),
    "LEAKY_RELU": _table(_leaky),
    "LOGISTIC": _table(_tabulate_floats(_logistic)),
    "QUANTIZE": _table(_tabulate_scale),
    "RELU": _table(_tabulate_clamp("RELU")),
    "RELU6": _table(_tabulate_clamp("RELU6")),
    "RELU_N1_TO_1": _table(_tabulate_clamp("RELU_N1_TO_1")),
    "TANH": _table(_tabulate_floats(_tanh)),
}
