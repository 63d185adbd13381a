"""Quantised numbers of TFLite as floats that hold integers.

A product of two 8-bit values is below 2^16, so sums of 256 products and more come out exactly;
longer ones are off by less than one part in 2^24, which can move a result that lies on the
border between two quanta by one.

Source: TFLite 8-bit quantization specification.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from adrenoc.importers.tflite.file import TensorInfo

QUANTISED_RANGES = {
    "int4": (-8, 7),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
}
"""dtype -> the least and the greatest integer that it stores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Quanta:
    """A result in units of `scale`: real = scale * expr.

    `scale` has one value, or one for each channel of the last axis.  `is_integer` says that
    `expr` holds integers already.  `bounds` are real numbers that a fused activation keeps to.
    `by_fifteen_bits` says that LiteRT scales these by a multiplier of so many bits, as it does
    sums of 64 bits: a fiftieth of all words is a quantum off by any other.  `copied` is the tensor
    whose integers these are, as LiteRT copies them: whatever the result's scale is, it holds them.
    """

    expr: relax.Expr
    scale: np.ndarray | np.float32
    is_integer: bool = False
    bounds: tuple[float, float] | None = None
    by_fifteen_bits: bool = False
    copied: TensorInfo | None = None

    def factor(self, unit: float) -> np.ndarray:
        """What turns `expr` into multiples of `unit`, rounded once."""
        ratio = np.asarray(self.scale, np.float64) / np.float64(unit)
        if self.by_fifteen_bits:
            ratio = _cut_to_fifteen_bits(ratio)
        return np.asarray(ratio if ratio.size > 1 else ratio.reshape(()), np.float32)


def _cut_to_fifteen_bits(ratio: np.ndarray) -> np.ndarray:
    """The multipliers that LiteRT has for sums of 64 bits: 31 bits of each ratio, then 15."""
    mantissa, exponent = np.frexp(ratio)
    whole = np.rint(mantissa * 2.0**31)
    short = np.minimum(np.floor((whole + 2.0**15) / 2.0**16), 2.0**15 - 1)
    return np.ldexp(short, exponent - 15)


def subtract_zeros(info: TensorInfo) -> np.ndarray:
    """A quantised constant less its zero points, in float32."""
    value = np.asarray(info.value).astype(np.float32)
    return np.asarray(value - info.lay_along(info.zeros).astype(np.float32))


def round_to_even(emit: Callable[[relax.Expr], relax.Expr], expr: relax.Expr) -> relax.Expr:
    """`expr` to the nearest integer, ties to even, as LiteRT with XNNPACK rounds."""
    return relax.op.round(emit(expr))
