"""TFLite's fixed-point arithmetic on arrays, bit for bit: what kernels have to reproduce.

A real factor is a multiplier of 31 bits and a shift. A product is rounded twice: half up where its
upper half is taken, half away from zero where that is shifted right. That rule, from sums to
numbers of a tensor, is a staircase that never falls, so it is known by its thresholds: the least
sum that gives each output. Any arithmetic with the same thresholds, over all sums that can occur,
is the same rule. That is how one multiplication replaces two roundings without changing a bit.

What is computed is (((sum + nudge) * multiplier + offset * 2^32 + 2^31) >> 32) >> shift, which the
DSP extension has in two instructions. The staircase bounds the constant part of that; a nudge of
the bias moves it between the steps of `offset`. A rule in floats is one product in 64 bits, a sum
of two tensors (a x + b y + c) >> shift, proven on all pairs of numbers.

Functions of 16 bits go by lines between points of tables; exp(-x) of softmax is a polynomial on a
quarter, times a constant for each bit above it, in fractions of 31 bits.

Source: TFLite 8-bit quantization specification; the numbers of LiteRT's reference kernels;
gemmlowp's fixed-point exponential, whose constants are exp(-1/8), 1/3 and exp(-2^n).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from adrenoc.base.errors import CompileError, RefusedError
from adrenoc.firmware.mcu.operators import Filter, Requantise, Sum

INT8 = (-128, 127)
INT16 = (-(1 << 15), (1 << 15) - 1)
INT32 = (-(1 << 31), (1 << 31) - 1)
_ONE = 1 << 31


def multiplier_of(real: float) -> tuple[int, int]:
    """Return a factor as (multiplier, shift): multiplier / 2^31 * 2^shift, zero below 2^-32."""
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    # Halves go away from zero; the product is exact in float64.
    multiplier = math.floor(fraction * _ONE + 0.5)
    if multiplier == _ONE:
        multiplier //= 2
        shift += 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def doubling_high_product(a: np.ndarray, b: np.ndarray | int) -> np.ndarray:
    """Return the upper half of 2ab, rounded, of numbers of 32 bits; (-2^31)^2 saturates."""
    wide = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    return np.minimum((wide + (1 << 30)) >> 31, _ONE - 1)


def shifted_right(value: np.ndarray, bits: np.ndarray | int) -> np.ndarray:
    """value / 2^bits, halves away from zero."""
    value = np.asarray(value, np.int64)
    bits = np.asarray(bits, np.int64)
    mask = (np.int64(1) << bits) - 1
    threshold = (mask >> 1) + (value < 0)
    return (value >> bits) + ((value & mask) > threshold)


def scale(value: np.ndarray, multiplier: np.ndarray | int, shift: np.ndarray | int) -> np.ndarray:
    """Return an integer times a factor of `multiplier_of`."""
    shift = np.asarray(shift, np.int64)
    left = np.asarray(value, np.int64) << np.maximum(shift, 0)
    left = left.astype(np.int32).astype(np.int64)  # what 32 bits keep
    return shifted_right(doubling_high_product(left, multiplier), np.maximum(-shift, 0))


def reduced_factor(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what is left of a factor: 15 bits, and a shift to the right."""
    multiplier = np.asarray(multiplier, np.int64)
    rounded = np.minimum((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)
    return rounded, 15 - np.asarray(shift, np.int64)


def activation_range(
    name: str, scale: float, zero: int, ends: tuple[int, int] = INT8
) -> tuple[int, int]:
    """Return the integers that a fused activation keeps, of those between the ends. Raises
    RefusedError where the activation is not one that clamps."""
    low, high = ends

    def quantum(real: float) -> int:
        # TFLite divides and rounds in float32.
        ratio = float(np.float32(real) / np.float32(scale))
        return zero + int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))

    bounds: dict[str, tuple[float | None, float | None]] = {
        "NONE": (None, None),
        "RELU": (0.0, None),
        "RELU6": (0.0, 6.0),
        "RELU_N1_TO_1": (-1.0, 1.0),
    }
    if name not in bounds:
        raise RefusedError(f"the fused activation {name}")
    least, most = bounds[name]
    low = low if least is None else max(low, quantum(least))
    high = high if most is None else min(high, quantum(most))
    return low, high


_NOWHERE = 1 << 61
_TILT = 4
_MOST_TILT = 100


def requantise(sums: np.ndarray, rule: Requantise) -> np.ndarray:
    """Sums with channels last as numbers of a tensor."""
    if not rule.wide:
        sums = sums.astype(np.int32).astype(np.int64)  # they go around, as in the kernels
    if rule.reals.dtype == np.float32:
        out = np.rint(sums.astype(np.float32) * rule.reals)
        out = np.clip(out, *INT32).astype(np.int64)
    elif rule.reals.size:
        real = sums.astype(np.float64) * rule.reals
        whole = np.trunc(real)
        out = whole + np.sign(real) * (np.abs(real - whole) >= 0.5)
        out = np.clip(out, *INT32).astype(np.int64)
    elif rule.wide:
        # Of the factor 15 bits count, and halves go up.
        reduced, right = reduced_factor(rule.multipliers, rule.shifts)
        out = (np.asarray(sums, np.int64) * reduced + (np.int64(1) << (right - 1))) >> right
    else:
        out = scale(sums, rule.multipliers, rule.shifts)
    return np.clip(out + rule.zero, rule.low, rule.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Staircase:
    """The rule of each channel, over the sums that can occur there.

    `thresholds[c, k]` is the least sum from `least[c]` on that gives `low + 1 + k` or more in
    channel c, and `most[c] + 1` where none does.
    """

    thresholds: np.ndarray
    least: np.ndarray
    most: np.ndarray
    low: int


def staircase(rule: Requantise, least: np.ndarray, most: np.ndarray) -> Staircase:
    """Return the thresholds of a rule, by bisection, for the sums of each channel."""
    steps = np.arange(rule.low + 1, rule.high + 1)
    bottom = np.tile(least.astype(np.int64), (len(steps), 1))
    top = np.tile(most.astype(np.int64) + 1, (len(steps), 1))
    while (bottom < top).any():
        middle = (bottom + top) >> 1
        reached = requantise(middle, rule) >= steps[:, None]
        going = bottom < top
        top = np.where(going & reached, middle, top)
        bottom = np.where(going & ~reached, middle + 1, bottom)
    return Staircase(thresholds=bottom.T, least=least, most=most, low=rule.low)


def _fitted_slopes(
    stairs: Staircase, multipliers: np.ndarray, shift: np.ndarray | int
) -> np.ndarray:
    """Return the multipliers, moved where no offset fits: float32 rounds halves unevenly."""
    found = multipliers.astype(np.int64).copy()
    for reach in range(1, _MOST_TILT + 1):
        first, below = _offsets_for(stairs, found, shift)
        misfit = first >= below
        if not misfit.any():
            break
        # 1, -1, 2, -2 ... units from the nearest multiplier.
        step = (reach + 1) // 2 * (1 if reach % 2 else -1)
        found = np.where(misfit, np.maximum(multipliers + step * _TILT, 0), found)
    return found


def _offsets_for(
    stairs: Staircase, multipliers: np.ndarray, shift: np.ndarray | int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets, from the first to below the second, whose products take equal steps.

    The product is (sum * multiplier + r) >> shift of each channel, then clamped.  Nothing fits a
    channel where the first is not below the second.  `shift` is at most 54.
    """
    count = stairs.thresholds.shape[1]
    steps = np.arange(stairs.low + 1, stairs.low + 1 + count, dtype=np.int64)[None, :]
    edges = steps << np.asarray(shift, np.int64).reshape(-1, 1)
    factors = multipliers.astype(np.int64)[:, None]
    met = stairs.thresholds <= stairs.most[:, None]
    missed = stairs.thresholds > stairs.least[:, None]
    from_ = np.where(met, edges - factors * stairs.thresholds, -_NOWHERE)
    below = np.where(missed, edges - factors * (stairs.thresholds - 1), _NOWHERE)
    return from_.max(1, initial=-_NOWHERE), below.min(1, initial=_NOWHERE)


_HIGH = 32
_MOST_UPPER_SHIFT = 20
_WINDOW = 1 << 40
"""Of an interval of offsets that is open on one side, or on both, so much is looked at."""
_LEAST_FACTOR = 2.0**-60
_NUDGES = (1 << 9, 1 << 13, 1 << 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class HighProduct:
    """Constants for each channel; `nudges` are to be added to the bias."""

    multipliers: np.ndarray
    offsets: np.ndarray
    nudges: np.ndarray
    shifts: np.ndarray


def high_product(operator: Filter, *, one_shift: bool) -> HighProduct:
    """Return the constants for a filter's rule, with one shift for all channels or one for each.
    Raises RefusedError where there are none, with the reason."""
    rule = operator.requantise
    least, most = sum_range(operator)
    factors = np.maximum(_factors_of(rule), _LEAST_FACTOR)
    shifts = np.minimum(_MOST_UPPER_SHIFT, -1 - np.frexp(factors)[1]).astype(np.int64)
    shifts = shifts - (np.round(np.ldexp(factors, _HIGH + shifts)) >= 1 << 31)
    if one_shift:
        shifts = np.full_like(shifts, shifts.min(initial=_MOST_UPPER_SHIFT))
    if (shifts < 1).any():
        raise RefusedError(f"a factor of {factors.max():.3g} leaves no bits to shift")
    multipliers = np.round(np.ldexp(_factors_of(rule), _HIGH + shifts)).astype(np.int64)
    stairs = staircase(rule, least, most)
    multipliers = _fitted_slopes(stairs, multipliers, _HIGH + shifts)
    from_, below = _offsets_for(stairs, multipliers, _HIGH + shifts)
    from_ = np.where(below - from_ > 1 << 61, 0, np.maximum(from_, below - _WINDOW))
    below = np.minimum(below, from_ + _WINDOW)
    if (from_ >= below).any():
        raise RefusedError("no single product takes the same steps in each channel")
    nudges, offsets = _nudge(multipliers, from_, below)
    largest = np.maximum(np.abs(least + nudges), np.abs(most + nudges))
    high = (largest * multipliers >> _HIGH) + np.abs(offsets) + 1
    if (high >= 1 << 31).any() or (largest >= 1 << 31).any():
        raise RefusedError("sums that leave 32 bits")
    return HighProduct(multipliers=multipliers, offsets=offsets, nudges=nudges, shifts=shifts)


def _factors_of(rule: Requantise) -> np.ndarray:
    """Return the real factors that a rule rounds in its way."""
    if rule.reals.size:
        return rule.reals.astype(np.float64)
    return np.ldexp(rule.multipliers.astype(np.float64), (rule.shifts - 31).astype(np.int32))


def _nudge(
    multipliers: np.ndarray, from_: np.ndarray, below: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest nudge of each channel with which a whole offset meets its interval."""
    nudges = np.zeros_like(multipliers)
    offsets = np.zeros_like(multipliers)
    open_ = np.ones(len(multipliers), bool)
    for reach in _NUDGES:
        tried = np.arange(1, 2 * reach + 2) // 2 * np.where(np.arange(2 * reach + 1) % 2, -1, 1)
        for channel in np.nonzero(open_)[0]:
            moved = multipliers[channel] * tried + (1 << 31)
            offset = -((moved - from_[channel]) >> _HIGH)
            fits = (offset << _HIGH) + moved < below[channel]
            fits &= (offset << _HIGH) + moved >= from_[channel]
            if fits.any():
                first = int(fits.argmax())
                nudges[channel], offsets[channel] = tried[first], offset[first]
                open_[channel] = False
    if open_.any():
        raise RefusedError("no nudge of the bias meets the steps of each channel")
    return nudges, offsets


def sum_range(operator: Filter) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the greatest sum of each channel, with its bias, borders included.
    Raises CompileError where a sum may overflow 32 bits."""
    weights = operator.rows
    # A tap outside of the image adds nothing: as if it read the zero point, which is in range.
    low, high = -128 - operator.zero_in, 127 - operator.zero_in
    up, down = np.maximum(weights, 0).sum(1), np.minimum(weights, 0).sum(1)
    least = up * low + down * high + operator.bias
    most = up * high + down * low + operator.bias
    if max(-int(least.min()), int(most.max())) > INT32[1]:
        raise CompileError(
            "a layer's sums may grow beyond 32 bits, as no converter writes them",
            hint="convert the model again",
        )
    return least, most


_BITS = 31
_MOST_SHIFT = 54


def one_product(
    rule: Requantise, least: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers, shifts and offsets of 64 bits that give a rule, for sums from least to most.
    Raises RefusedError where no product in 64 bits takes the same steps."""
    reals = rule.reals.astype(np.float64)
    _, exponents = np.frexp(reals)
    shifts = np.clip(_BITS - exponents, 1, _MOST_SHIFT).astype(np.int64)
    multipliers = np.round(np.ldexp(reals, shifts)).astype(np.int64)
    stairs = staircase(rule, least, most)
    multipliers = _fitted_slopes(stairs, multipliers, shifts)
    fits = (multipliers < 1 << _BITS).all()
    first, below = _offsets_for(stairs, multipliers, shifts)
    if not fits or not (first < below).all():
        raise RefusedError("factors whose rounding no product of 64 bits gives")
    # Near the middle of what fits, and small where that is open.
    middle = np.where(below > 1 << 60, first, (first + below - 1) >> 1)
    return multipliers, shifts, np.where(first < -(1 << 60), below - 1, middle)


_SHIFTS = tuple(range(23, 11, -1))
_OPEN = 1 << 40
_FAR = 1 << 12


@dataclass(frozen=True, kw_only=True)
class SumProduct:
    """(first x + second y + offset) >> shift, clamped, is the sum's own rule."""

    first: int
    second: int
    offset: int
    shift: int


def sum_product(operator: Sum) -> SumProduct:
    """Return the factors of a sum. Raises RefusedError where there are none, as where halves occur
    on both sides of zero."""
    out = results_of(operator)
    scale = float(_factors_of(operator.requantise)[0])
    # A table is a line but for rounding.
    slopes = [float(table[-1] - table[0]) / 255.0 * scale for table in operator.tables]
    for shift in _SHIFTS:
        found = _fit_factors(out, slopes, shift, operator.requantise.low, operator.requantise.high)
        if found is not None:
            return found
    raise RefusedError("no line gives the sum's two roundings")


def results_of(operator: Sum) -> np.ndarray:
    """Return what a sum is for each pair of numbers, from -128 on."""
    if operator.wanted is not None:
        return operator.wanted
    first, second = (table.astype(np.int64) for table in operator.tables)
    return requantise(first[:, None] + second[None, :], operator.requantise)


def _fit_factors(
    out: np.ndarray, slopes: list[float], shift: int, low: int, high: int
) -> SumProduct | None:
    """Return the factors for one shift, and an offset in the middle of those that fit."""
    x = np.arange(-128, 128)
    first, second = (round(slope * 2.0**shift) for slope in slopes)
    sums = first * x[:, None] + second * x[None, :]
    from_ = int(np.max((out << shift) - sums, where=out > low, initial=-_OPEN))
    below = int(np.min((out + 1 << shift) - sums, where=out < high, initial=_OPEN))
    if from_ >= below:
        return None
    from_ = max(from_, below - _FAR)
    offset = (from_ + min(below, from_ + _FAR) - 1) // 2
    if abs(offset) + int(np.abs(sums).max()) >= 1 << 31:
        return None
    return SumProduct(first=first, second=second, offset=offset, shift=shift)


STEPS = 512
"""Lines of a table of softmax."""
_MOST = (1 << 15) - 1
_SPAN = 1 << 16
_ONE_MORE = (
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40),
    *(41, 43, 44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
)
"""Points of the logistic function that LiteRT has one above the nearest number."""


@cache
def logistic_points() -> np.ndarray:
    """65536 / (1 + exp(-x / 24)) for x from 0 to 255, as LiteRT rounds them."""
    near = np.rint(_SPAN / (1 + np.exp(-np.arange(256) / 24.0))).astype(np.int64)
    near[list(_ONE_MORE)] += 1
    return np.minimum(near, _SPAN - 1)


def logistic(numbers: np.ndarray) -> np.ndarray:
    """Return the logistic function of numbers in 1/12288, as int16 where 32768 is one."""
    size = np.abs(numbers)
    points, place = logistic_points(), np.minimum(size >> 9, 254)
    rise = points[place + 1] - points[place]
    up = np.where(size >> 9 >= 255, _MOST << 10, (points[place] << 9) + (size & 511) * rise)
    return np.where(numbers >= 0, up + 512, (1 << 25) - up + 511) >> 10


def tanh(numbers: np.ndarray) -> np.ndarray:
    """Return the hyperbolic tangent of numbers in 1/12288, as int16 where 32768 is one."""
    size = np.abs(numbers)
    points, place = logistic_points(), np.minimum(size >> 8, 254)
    rise = points[place + 1] - points[place]
    up = np.where(size >> 8 >= 255, 0xFFFF << 8, (points[place] << 8) + (size & 255) * rise)
    away = up - (1 << 23)
    return np.where(numbers >= 0, away + 128, 127 - away) >> 8


def _line_points(
    function: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> np.ndarray:
    """513 points, each moved so that the middle of its line errs as little as its ends."""
    step = (high - low) / STEPS
    factor = _SPAN / (2.0 / (_SPAN - 1) * _MOST + 2.0 / (_SPAN - 1) * (_MOST + 1))
    at = low + np.arange(STEPS) * step
    here = _round_away(function(at) * factor)
    next_ = function(low + (np.arange(STEPS) + 1) * step) * factor
    middle = _round_away(function(at + step / 2) * factor)
    error = _round_away((next_ + here) / 2) - middle
    last = _round_away(function(np.array([high])) * factor)
    found = np.concatenate([here - _round_away(error / 2), last])
    return np.clip(found, -_MOST - 1, _MOST).astype(np.int64)


def _round_away(values: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    return np.sign(values) * np.floor(np.abs(values) + 0.5)


@cache
def exponential_points() -> np.ndarray:
    """exp(x) from -10 to 0."""
    step = 10.0 / (_SPAN - 1)
    return _line_points(np.exp, step * -(_SPAN - 1), step * 0)


@cache
def reciprocal_points() -> np.ndarray:
    """1 / (1 + x) from 0 to 1."""
    step = 1.0 / (_SPAN - 1)
    return _line_points(lambda x: 1.0 / (1.0 + x), step * 0, step * (_SPAN - 1))


def interpolate(points: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Interpolate between points of a table, at numbers of 16 bits."""
    place = 256 + (numbers >> 7)
    rise = points[place + 1] - points[place]
    return points[place] + ((rise * (numbers & 127) + 64) >> 7)


_INTEGER_BITS = 5
_LARGEST = (1 << 31) - 1
_QUARTER = 1 << 24
"""In numbers of five bits before the point and 26 behind it."""
_EIGHTH_POWER = 1895147668
_THIRD = 715827883
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-2^n) from n = -2 on."""


def exponentials(scale: float, beta: float) -> np.ndarray:
    """exp(beta * scale * d) for d = 0, -1 ... -255; zero where the reference leaves it out."""
    real = min(beta * scale * float(1 << (31 - _INTEGER_BITS)), float(_LARGEST))
    if real <= 1.0:
        raise RefusedError(f"a softmax of quanta as small as {beta * scale:.3g}")
    multiplier, shift = multiplier_of(real)
    radius = math.floor(float((1 << _INTEGER_BITS) - 1) * float(1 << 26) / float(1 << shift))
    steps = -np.arange(256, dtype=np.int64)
    inputs = doubling_high_product((steps << shift).clip(-(1 << 31)), multiplier)
    return np.where(-steps <= radius, _exponential(inputs), 0).astype(np.int32)


def _exponential(value: np.ndarray) -> np.ndarray:
    """exp of numbers of 26 bits behind the point, none above zero."""
    below = (value & (_QUARTER - 1)) - _QUARTER
    found = _near_zero(below << _INTEGER_BITS)
    left = below - value
    for bit, power in enumerate(_POWERS):
        found = np.where((left >> (24 + bit)) & 1, doubling_high_product(found, power), found)
    return np.where(value == 0, _LARGEST, found)


def _near_zero(value: np.ndarray) -> np.ndarray:
    """exp between -1/4 and 0: Taylor's series around -1/8."""
    x = value + (1 << 28)
    square = doubling_high_product(x, x)
    cube = doubling_high_product(square, x)
    fourth = shifted_right(doubling_high_product(square, square), 2)
    rest = shifted_right(doubling_high_product(fourth + cube, _THIRD) + square, 1)
    return _EIGHTH_POWER + doubling_high_product(x + rest, _EIGHTH_POWER)
