"""Numbers at a model's borders: firmware has integers where the file says float32 or uint8.

A file that quantises its input itself, and turns its output back into floats, is computed without
either: firmware has sensors' numbers, and does that better where it reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.firmware.mcu.network import WIDTHS, Tensor

_UNSIGNED = 128
DTYPES = (*WIDTHS, "uint8", "float32")


@dataclass(frozen=True, kw_only=True)
class Border:
    """An input or output: real = scale * (stored - zero) of `stored`; `dtype` is the file's own."""

    scale: float
    zero: int
    dtype: str = "int8"
    stored: str = "int8"

    def to_model(self, stored: np.ndarray) -> np.ndarray:
        """Return what the model itself has for numbers of the firmware."""
        if self.dtype == "float32":
            # As runtimes dequantise: one product in float32.
            return (stored.astype(np.int32) - self.zero).astype(np.float32) * np.float32(self.scale)
        if self.dtype == "uint8":
            return (stored.astype(np.int32) + _UNSIGNED).astype(np.uint8)
        return stored

    def to_firmware(self, numbers: np.ndarray) -> np.ndarray:
        """Return what the firmware has for numbers of the model; exact for what it could have
        stored."""
        if self.dtype == "float32":
            near = np.rint(numbers.astype(np.float64) / self.scale) + self.zero
            ends = np.iinfo(self.stored)
            return np.clip(near, ends.min, ends.max).astype(self.stored)
        if self.dtype == "uint8":
            return (numbers.astype(np.int32) - _UNSIGNED).astype(np.int8)
        return numbers


def border_decision(tensor: Tensor, dtype: str) -> Decision:
    """Return the Decision that a border's own type is not what firmware has."""
    why = f"{dtype} in the model: the header's SCALE and ZERO_POINT convert"
    if dtype == "uint8":
        why = "uint8 in the model: each number less 128"
    return Decision(subject=tensor.name, taken=tensor.dtype, reason=why)
