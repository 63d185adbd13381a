"""Operators of TFLite that go through tensors number by number, and softmax, of int8 and int16.
Functions of one number of int8 are tables of 256, with the rounding of TFLite's kernels."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from adrenoc.base.errors import RefusedError
from adrenoc.firmware.mcu import operators as op
from adrenoc.firmware.mcu.evaluate import SUM_BITS
from adrenoc.firmware.mcu.fixed_point import (
    INT8,
    activation_range,
    exponentials,
    multiplier_of,
    scale,
    shifted_right,
)
from adrenoc.firmware.mcu.network import shape4
from adrenoc.firmware.mcu.tflite.context import (
    TfliteContext,
    Translation,
    check_one_type,
    check_same_quanta,
)
from adrenoc.firmware.mcu.tflite.filters import BATCHES, FILTERS, activation_bounds
from adrenoc.firmware.mcu.tflite.moves import MOVES
from adrenoc.importers.tflite.file import OperatorInfo, TensorInfo

_SUM_BITS = 20
"""By which the operands of a sum are enlarged before they are scaled."""
_MOST_WORDS = 1 << 15
"""Numbers of int16 that a sum of 31 bits holds."""
_MOST_SOFTMAX = 4096
"""Exponentials that a sum of 31 bits holds."""


def operands(made: TfliteContext, operator: OperatorInfo) -> tuple[int, int, bool]:
    """Return both operands, the one of the result's shape first, and whether they swapped. The
    other may repeat along leading axes; a constant is repeated beforehand."""
    places = [made.operand(operator, index) for index in (0, 1)]
    target = shape4(made.result(operator).shape)
    shapes = [shape4(made.tensors[place].shape) for place in places]
    if all(place in made.constants for place in places):
        raise RefusedError("two constants")
    swapped = shapes[0] != target or places[0] in made.constants
    if swapped:
        places, shapes = places[::-1], shapes[::-1]
    if shapes[0] != target:
        raise RefusedError(f"{list(shapes[1])} and {list(shapes[0])}, which both repeat")
    leading = next((a for a, d in enumerate(shapes[1]) if d != 1), 3)
    if shapes[1][leading:] != target[leading:] and shapes[1] != (1, 1, 1, target[3]):
        value = made.constants.get(places[1])
        if value is None:
            raise RefusedError(f"{list(shapes[1])}, repeated to {list(target)}")
        # Others may read the constant as it is, or repeat it to another shape.
        grown = replace(made.tensors[places[1]], shape=target)
        places[1] = made.new_tensor(grown)
        made.constants[places[1]] = np.broadcast_to(value.reshape(shapes[1]), target)
    return places[0], places[1], swapped


def one_factor(made: TfliteContext, operator: OperatorInfo, real: float) -> op.Requantise:
    """Return the rule of sums that have one factor, with the operator's activation."""
    bounds = activation_bounds(made, operator)
    return op.Requantise.by_one(multiplier_of(real), made.result(operator).zero, bounds)


def _sum(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    infos = [made.info(operator, 0), made.info(operator, 1)]
    result = made.result(operator)
    first, second, swapped = operands(made, operator)
    twice = 2.0 * max(float(info.scale) for info in infos)
    tables = [_scaled_table(float(info.scale) / twice, info.zero) for info in infos]
    if operator.kind == "SUB":
        tables[1] = -tables[1]
    if swapped:
        tables = tables[::-1]
    real = twice / (float(1 << _SUM_BITS) * float(result.scale))
    return op.Sum(
        sources=(first, second),
        result=operator.outputs[0],
        tables=(tables[0], tables[1]),
        requantise=one_factor(made, operator, real),
    )


def _scaled_table(real: float, zero: int) -> np.ndarray:
    numbers = (np.arange(-128, 128) - zero) << _SUM_BITS
    return scale(numbers, *multiplier_of(real)).astype(np.int32)


def product(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Return two tensors multiplied."""
    infos = [made.info(operator, 0), made.info(operator, 1)]
    check_one_type(*infos, made.result(operator))
    first, second, _ = operands(made, operator)
    # TFLite multiplies and divides the scales in float32.
    real = np.float32(infos[0].scale) * np.float32(infos[1].scale)
    real = real / np.float32(made.result(operator).scale)
    return op.Product(
        sources=(first, second),
        result=operator.outputs[0],
        zeros=(made.tensors[first].zero, made.tensors[second].zero),
        requantise=one_factor(made, operator, float(real)),
    )


def mean(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Take the mean over axes that lie side by side."""
    source, result = made.info(operator, 0), made.result(operator)
    check_one_type(source, result)
    rank = len(source.shape)
    axes = sorted({int(a) % rank for a in made.constant(operator, 1, "int32").reshape(-1)})
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        raise RefusedError(f"axes {axes}, which are not next to each other")
    extents = tuple(
        math.prod(source.shape[a:b])
        for a, b in ((0, axes[0]), (axes[0], axes[-1] + 1), (axes[-1] + 1, rank))
    )
    multiplier, shift = multiplier_of(float(source.scale) / float(result.scale))
    if source.dtype == "int16" and extents[1] > _MOST_WORDS:
        raise RefusedError(f"a mean of {extents[1]} numbers of int16")
    # The division by the count goes into the multiplier, rounded down.
    by = min(extents[1].bit_length() - 1, 31 + shift)
    factor = (multiplier << by) // extents[1], shift - by
    ends = made.tensors[operator.outputs[0]].ends
    return op.Mean(
        source=made.data(operator),
        result=operator.outputs[0],
        extents=(extents[0], extents[1], extents[2]),
        zero_in=source.zero,
        requantise=op.Requantise.by_one(factor, result.zero, ends),
    )


def _softmax(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source, result = made.info(operator, 0), made.result(operator)
    if result.zero != INT8[0] or abs(result.scale - 1 / 256) > 1e-6:
        raise RefusedError(f"a scale of {result.scale:.6g}, expected 1/256 from -128 on")
    if result.shape[-1] >= _MOST_SOFTMAX:
        raise RefusedError(f"a softmax over {result.shape[-1]} numbers")
    return op.Softmax(
        source=made.data(operator),
        result=operator.outputs[0],
        exponentials=exponentials(float(source.scale), float(operator.options.get("Beta", 1.0))),
    )


def reshape(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    """Return the same numbers under another shape."""
    check_same_quanta(made.info(operator, 0), made.result(operator))
    return op.Reshape(source=made.data(operator), result=operator.outputs[0])


_SHAPES = dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), reshape)
ELEMENTWISE: dict[str, Translation] = {
    **_SHAPES,
    **dict.fromkeys(("ADD", "SUB"), _sum),
    "MEAN": mean,
    "MUL": product,
    "SOFTMAX": _softmax,
}


_NUMBERS = np.arange(-128, 128, dtype=np.int64)
_MOST16 = (1 << 15) - 1

Table = Callable[[TensorInfo, TensorInfo, OperatorInfo], np.ndarray]


def _table(make: Table) -> Translation:
    def translate(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
        source, result = made.info(operator, 0), made.result(operator)
        table = make(source, result, operator)
        return op.Lookup(
            source=made.data(operator),
            result=operator.outputs[0],
            table=np.clip(table, -128, 127).astype(np.int8),
        )

    return translate


def _tabulate_floats(function: Callable[[np.ndarray], np.ndarray]) -> Table:
    """Return a function that TFLite computes in float32 for each number."""

    def make(source: TensorInfo, result: TensorInfo, operator: OperatorInfo) -> np.ndarray:
        inverse = np.float32(1) / np.float32(result.scale)
        real = np.float32(source.scale) * (_NUMBERS - source.zero).astype(np.float32)
        found = function(real).astype(np.float32) * inverse
        return (np.sign(found) * np.floor(np.abs(found) + 0.5)).astype(np.int64) + result.zero

    return make


def _logistic(real: np.ndarray) -> np.ndarray:
    one = np.float32(1)
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is 0, as it is in C
        return one / (one + np.exp(-real.astype(np.float64)).astype(np.float32))


def _tabulate_clamp(name: str) -> Table:
    def make(source: TensorInfo, result: TensorInfo, operator: OperatorInfo) -> np.ndarray:
        low, high = activation_range(name, result.scale, result.zero)
        real = float(np.float32(source.scale) / np.float32(result.scale))
        moved = scale(_NUMBERS - source.zero, *multiplier_of(real)) + result.zero
        return np.clip(moved, low, high)

    return make


def _tabulate_scale(source: TensorInfo, result: TensorInfo, operator: OperatorInfo) -> np.ndarray:
    real = float(source.scale) / float(result.scale)
    return scale(_NUMBERS - source.zero, *multiplier_of(real)) + result.zero


def _leaky(source: TensorInfo, result: TensorInfo, operator: OperatorInfo) -> np.ndarray:
    alpha = np.float32(operator.options["Alpha"])
    steep = np.float32(source.scale) / np.float32(result.scale)
    flat = np.float32(source.scale) * alpha / np.float32(result.scale)
    numbers = _NUMBERS - source.zero
    above = scale(numbers, *multiplier_of(float(steep)))
    below = scale(numbers, *multiplier_of(float(flat)))
    return np.where(numbers >= 0, above, below) + result.zero


def _hard_swish(source: TensorInfo, result: TensorInfo, operator: OperatorInfo) -> np.ndarray:
    """Return x * relu6(x + 3) / 6 in numbers of 16 bits, as TFLite rounds them."""
    fine = np.float32(1 / 128) * np.float32(source.scale)
    out, out_shift = multiplier_of(float(fine / np.float32(result.scale)))
    gate, gate_shift = multiplier_of(float(fine / np.float32(3.0 / 32768.0)))
    share = numbers = (_NUMBERS - source.zero) << 7
    if gate_shift > 0:
        share = _limited16(share << (gate_shift - 1))
    share = _high16(share, gate)
    if gate_shift > 0:
        share = _limited16(share << 1)
    elif gate_shift < 0:
        share = shifted_right(share, -gate_shift)
    product = ((share + (1 << 15)) >> 1) * _high16(numbers, out)
    # Rounded towards zero.
    high = np.sign(product) * (np.abs(product) >> 15)
    if out_shift > 0:
        raise RefusedError("an output much finer than its input")
    return shifted_right(_limited16(high), -out_shift) + result.zero


def _high16(a: np.ndarray, multiplier: int) -> np.ndarray:
    """Multiply by the upper half of a multiplier, and round."""
    upper = min((multiplier + (1 << 15)) >> 16, _MOST16)
    return np.minimum((a * upper + (1 << 14)) >> 15, _MOST16)


def _limited16(value: np.ndarray) -> np.ndarray:
    return np.clip(value, -_MOST16 - 1, _MOST16)


TABLES: dict[str, Translation] = {
    "HARD_SWISH": _table(_hard_swish),
    "LEAKY_RELU": _table(_leaky),
    "LOGISTIC": _table(_tabulate_floats(_logistic)),
    "QUANTIZE": _table(_tabulate_scale),
    "RELU": _table(_tabulate_clamp("RELU")),
    "RELU6": _table(_tabulate_clamp("RELU6")),
    "RELU_N1_TO_1": _table(_tabulate_clamp("RELU_N1_TO_1")),
    "TANH": _table(_tabulate_floats(lambda real: np.tanh(real.astype(np.float64)))),
}


_ONE = 1.0 / 32768
_FINE = 4096.0 * 3.0
"""In how many parts a unit of a curve's number is counted."""
_MOST_MULTIPLIER = 32767.0 / 2.0
_MOST_SHIFT = 31
_MOST_WORD_SOFTMAX = 1 << 15


def _sum_words(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    infos = [made.info(operator, 0), made.info(operator, 1)]
    result = made.result(operator)
    check_one_type(*infos, result)
    scales = [info.scale for info in (*infos, result)]
    if operator.options.get("PotScaleInt16", True) and all(
        np.frexp(scale)[0] == 0.5 for scale in scales
    ):
        raise RefusedError("a sum of int16 by shifts alone, as older converters wrote it")
    first, second, swapped = operands(made, operator)
    twice = 2.0 * max(float(info.scale) for info in infos)
    factors = [multiplier_of(float(info.scale) / twice) for info in infos]
    signs = [1, -1 if operator.kind == "SUB" else 1]
    order = (1, 0) if swapped else (0, 1)
    real = twice / (float(1 << SUM_BITS) * float(result.scale))
    return op.WordSum(
        sources=(first, second),
        result=operator.outputs[0],
        factors=(factors[order[0]], factors[order[1]]),
        signs=(signs[order[0]], signs[order[1]]),
        requantise=one_factor(made, operator, real),
    )


def _curve(kind: str) -> Translation:
    def translate(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
        result = made.result(operator)
        if abs(result.scale - _ONE) > _ONE * 1e-3 or made.info(operator, 0).dtype != result.dtype:
            raise RefusedError(f"{result.dtype} at a scale of {result.scale:.6g}")
        multiplier, shift = _curve_factor(made.info(operator, 0).scale, kind)
        return op.Curve(
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

    def translate(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
        source, result = made.info(operator, 0), made.result(operator)
        # TFLite divides in float32 where an activation does it, else in float64.
        real = float(np.float32(source.scale) / np.float32(result.scale))
        if operator.kind == "QUANTIZE":
            real = float(source.scale) / float(result.scale)
        above: op.Factor = multiplier_of(real)
        below = above
        if below_by:
            flat = np.float32(source.scale) * np.float32(operator.options[below_by])
            below = multiplier_of(float(flat / np.float32(result.scale)))
        ends = made.tensors[operator.outputs[0]].ends
        relu = operator.kind if operator.kind.startswith("RELU") else "NONE"
        low, high = activation_range(relu, result.scale, result.zero, ends)
        return op.Rescale(
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


def _softmax_words(made: TfliteContext, operator: OperatorInfo) -> op.Operator:
    source, result = made.info(operator, 0), made.result(operator)
    if result.dtype != "int16" or abs(result.scale - _ONE) > _ONE * 1e-3:
        raise RefusedError(f"{result.dtype} at a scale of {result.scale:.6g}")
    if result.shape[-1] >= _MOST_WORD_SOFTMAX:
        raise RefusedError(f"a softmax over {result.shape[-1]} numbers")
    beta = np.float32(operator.options.get("Beta", 1.0))
    real = float(np.float32(source.scale) * beta) / (10.0 / 65535.0)
    return op.WordSoftmax(
        source=made.data(operator), result=operator.outputs[0], factor=multiplier_of(real)
    )


WORDS: dict[str, Translation] = {
    **BATCHES,
    **FILTERS,
    **MOVES,
    **_SHAPES,
    **dict.fromkeys(("ADD", "SUB"), _sum_words),
    **dict.fromkeys(("QUANTIZE", "RELU", "RELU6"), _translate_rescale()),
    "LEAKY_RELU": _translate_rescale("Alpha"),
    "LOGISTIC": _curve("logistic"),
    "MEAN": mean,
    "MUL": product,
    "SOFTMAX": _softmax_words,
    "TANH": _curve("tanh"),
}
