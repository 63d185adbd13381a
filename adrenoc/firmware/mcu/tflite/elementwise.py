"""Sums, products, means and softmax of TFLite."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.firmware.mcu.exponential import exponentials
from adrenoc.firmware.mcu.fixed_point import INT8, multiplier_of, scale
from adrenoc.firmware.mcu.network import shape4
from adrenoc.firmware.mcu.operators import Mean, Product, Requantise, Reshape, Softmax, Sum
from adrenoc.firmware.mcu.operators import Operator as NetworkOperator
from adrenoc.firmware.mcu.tflite.context import (
    Importing,
    Translation,
    check_one_type,
    check_same_quanta,
)
from adrenoc.firmware.mcu.tflite.filters import activation_bounds
from adrenoc.importers.tflite.file import Operator

_SUM_BITS = 20
"""By which the operands of a sum are enlarged before they are scaled."""
_MOST_WORDS = 1 << 15
"""Numbers of int16 that a sum of 31 bits holds."""
_MOST_SOFTMAX = 4096
"""Exponentials that a sum of 31 bits holds."""


def operands(made: Importing, operator: Operator) -> tuple[int, int, bool]:
    """Return the tensors of two operands, the one of the result's shape first, and whether they
    swapped.

    The other may repeat along leading axes; a constant is repeated beforehand.
    """
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


def one_factor(made: Importing, operator: Operator, real: float) -> Requantise:
    """Return the rule of sums that have one factor, with the operator's activation."""
    result = made.result(operator)
    multiplier, shift = multiplier_of(real)
    low, high = activation_bounds(made, operator)
    return Requantise(
        multipliers=np.array([multiplier]),
        shifts=np.array([shift]),
        zero=result.zero,
        low=low,
        high=high,
    )


def _sum(made: Importing, operator: Operator) -> NetworkOperator:
    infos = [made.info(operator, 0), made.info(operator, 1)]
    result = made.result(operator)
    first, second, swapped = operands(made, operator)
    twice = 2.0 * max(float(info.scale) for info in infos)
    tables = [_scaled_table(float(info.scale) / twice, info.zero) for info in infos]
    if operator.kind == "SUB":
        tables[1] = -tables[1]
    if swapped:
        tables = tables[::-1]
    return Sum(
        sources=(first, second),
        result=operator.outputs[0],
        tables=(tables[0], tables[1]),
        requantise=one_factor(
            made, operator, twice / (float(1 << _SUM_BITS) * float(result.scale))
        ),
    )


def _scaled_table(real: float, zero: int) -> np.ndarray:
    numbers = (np.arange(-128, 128) - zero) << _SUM_BITS
    return scale(numbers, *multiplier_of(real)).astype(np.int32)


def product(made: Importing, operator: Operator) -> NetworkOperator:
    """Two tensors multiplied."""
    infos = [made.info(operator, 0), made.info(operator, 1)]
    check_one_type(*infos, made.result(operator))
    first, second, _ = operands(made, operator)
    # TFLite multiplies and divides the scales in float32.
    real = np.float32(infos[0].scale) * np.float32(infos[1].scale)
    real = real / np.float32(made.result(operator).scale)
    return Product(
        sources=(first, second),
        result=operator.outputs[0],
        zeros=(made.tensors[first].zero, made.tensors[second].zero),
        requantise=one_factor(made, operator, float(real)),
    )


def mean(made: Importing, operator: Operator) -> NetworkOperator:
    """Over axes that lie side by side."""
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
    low, high = made.tensors[operator.outputs[0]].ends
    if source.dtype == "int16" and extents[1] > _MOST_WORDS:
        raise RefusedError(f"a mean of {extents[1]} numbers of int16")
    # The division by the count goes into the multiplier, rounded down.
    by = min(extents[1].bit_length() - 1, 31 + shift)
    multiplier = (multiplier << by) // extents[1]
    return Mean(
        source=made.data(operator),
        result=operator.outputs[0],
        extents=(extents[0], extents[1], extents[2]),
        zero_in=source.zero,
        requantise=Requantise(
            multipliers=np.array([multiplier]),
            shifts=np.array([shift - by]),
            zero=result.zero,
            low=low,
            high=high,
        ),
    )


def _softmax(made: Importing, operator: Operator) -> NetworkOperator:
    source, result = made.info(operator, 0), made.result(operator)
    if result.zero != INT8[0] or abs(result.scale - 1 / 256) > 1e-6:
        raise RefusedError(f"a scale of {result.scale:.6g}, expected 1/256 from -128 on")
    if result.shape[-1] >= _MOST_SOFTMAX:
        raise RefusedError(f"a softmax over {result.shape[-1]} numbers")
    return Softmax(
        source=made.data(operator),
        result=operator.outputs[0],
        exponentials=exponentials(float(source.scale), float(operator.options.get("Beta", 1.0))),
    )


def reshape(made: Importing, operator: Operator) -> NetworkOperator:
    """Return the same numbers under another shape."""
    check_same_quanta(made.info(operator, 0), made.result(operator))
    return Reshape(source=made.data(operator), result=operator.outputs[0])


ELEMENTWISE: dict[str, Translation] = {
    "ADD": _sum,
    "EXPAND_DIMS": reshape,
    "MEAN": mean,
    "MUL": product,
    "RESHAPE": reshape,
    "SOFTMAX": _softmax,
    "SQUEEZE": reshape,
    "SUB": _sum,
}
