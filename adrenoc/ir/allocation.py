"""What the OpenCL runtime takes from the device for a request: pure arithmetic.

It mirrors `adrenoc/native/src/opencl/memory.cc`, so that planned and allocated bytes are equal; a
test on a device holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.ir.layout import bytes_of

_SMALLEST_STEP_BYTES = 256
_STEPS = 16
"""A size of n steps is a class of its own up to so many; then steps double."""


def buffer_bytes(requested: int) -> int:
    """Bytes of the size class that serves a buffer: at most an eighth more than requested."""
    step = _SMALLEST_STEP_BYTES
    while step * _STEPS <= requested:
        step *= 2
    return max(step, -(-requested // step) * step)


def image_bytes(physical: Sequence[int], bits: int) -> int:
    """Bytes of an image of physical shape [layers, rows, columns, 4]; the driver may pad rows."""
    return bytes_of(physical, bits)


def pitched_image_bytes(physical: Sequence[int], bits: int, align_texels: int) -> int:
    """Bytes of such an image in linear memory, whose rows begin at multiples of `align_texels`."""
    layers, rows, columns, lanes = physical
    padded = -(-columns // align_texels) * align_texels
    return math.prod((layers, rows, padded, lanes)) * bits // 8
