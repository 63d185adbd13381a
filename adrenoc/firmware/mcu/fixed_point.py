"""TFLite's fixed-point arithmetic on arrays, bit for bit: what kernels have to reproduce.

A real factor is a multiplier of 31 bits and a shift.  A product is rounded twice: half up where
its upper half is taken, half away from zero where that is shifted right.

Source: TFLite 8-bit quantization specification; the numbers of LiteRT's reference kernels.
"""

from __future__ import annotations

import math

import numpy as np

from adrenoc.base.refused import RefusedError

INT8 = (-128, 127)
INT16 = (-(1 << 15), (1 << 15) - 1)
_ONE = 1 << 31


def multiplier_of(real: float) -> tuple[int, int]:
    """Return a factor as (multiplier, shift): real = multiplier / 2^31 * 2^shift, zero below
    2^-32."""
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
    left = _wrap(np.asarray(value, np.int64) << np.maximum(shift, 0))
    return shifted_right(doubling_high_product(left, multiplier), np.maximum(-shift, 0))


def _wrap(value: np.ndarray) -> np.ndarray:
    """Return what 32 bits keep of it."""
    return value.astype(np.int32).astype(np.int64)


def scale_by_fifteen_bits(
    sums: np.ndarray, multiplier: np.ndarray, shift: np.ndarray
) -> np.ndarray:
    """Sums of 64 bits times a factor, of which 15 bits count; halves go up."""
    reduced, right = reduced_factor(multiplier, shift)
    half = np.int64(1) << (right - 1)
    return (np.asarray(sums, np.int64) * reduced + half) >> right


def reduced_factor(multiplier: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what is left of a factor: 15 bits, and a shift to the right."""
    multiplier = np.asarray(multiplier, np.int64)
    rounded = np.minimum((multiplier + (1 << 15)) >> 16, (1 << 15) - 1)
    return rounded, 15 - np.asarray(shift, np.int64)


def activation_range(
    name: str, scale: float, zero: int, ends: tuple[int, int] = INT8
) -> tuple[int, int]:
    """Return the integers that a fused activation keeps, of those between the ends.

    Raises:
        RefusedError: the activation is not one that clamps.
    """
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
