"""What reads beyond an image give, with the one sampler that kernels have: zeros pad for nothing.

TVM prints `CLK_ADDRESS_CLAMP` and no other address mode; the border colour of texels with alpha is
zero in all four lanes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Tensor, texture
from adrenoc.lab.calibrate.measures.ask import (
    FP16,
    SAMPLER,
    ask_thread,
    lacks_half_images,
    lacks_images,
)

_SIDE = 5
"""No power of two, and no multiple of any block that an image is stored in."""
_FAR = 20_000
_BEYOND = (
    (-1, 0),
    (_SIDE, 0),
    (0, -1),
    (0, _SIDE),
    (-1, -1),
    (_SIDE, _SIDE),
    (-3, 2),
    (2, _SIDE + 7),
    (-_FAR, 0),
    (_FAR, _FAR),
)


def describe_border(output: np.ndarray) -> tuple[float, str]:
    """Whether all reads beyond an image gave zeros, and the last texel what it holds."""
    seen = output.reshape(-1, 4).astype(np.float32)
    if not (seen[-1] == 1.0).all():
        return 0.0, f"within the image it reads {_show(seen[-1])} for 1, 1, 1, 1"
    for (x, y), texel in zip(_BEYOND, seen, strict=False):
        if texel.any():
            return 0.0, f"{_show(texel)} at ({x}, {y}) of {_SIDE} x {_SIDE} texels"
    return 1.0, "zeros"


def _show(texel: np.ndarray) -> str:
    return ", ".join(f"{value:g}" for value in texel)


def _source(function: str, header: str) -> str:
    # Places that no compiler knows, as a kernel's are.
    reads = "".join(
        f"  vstore4(convert_float4({function}(x, s, (int4)(o + {a}, o + {b}, 0, 0))), {i}, out);\n"
        for i, (a, b) in enumerate((*_BEYOND, (_SIDE - 1, _SIDE - 1)))
    )
    return (
        f"{header}__kernel void probe(__read_only image2d_array_t x, __global const int* zero,\n"
        f"                                      __global float* out) {{\n"
        f"{SAMPLER}  const int o = zero[0];\n{reads}}}\n"
    )


def _ask(
    name: str,
    title: str,
    source: str,
    texels: Tensor,
    lacks: Callable[[Device], str] = lacks_images,
) -> Measure:
    zero = Tensor.from_value(np.zeros(4, np.int32))
    output = Tensor(shape=(4 * (len(_BEYOND) + 1),), dtype="float32")
    asked = f"what reads beyond {title} give"
    return ask_thread(name, asked, source, (texels, zero, output), describe_border, lacks)


def _ones(dtype: str) -> np.ndarray:
    return np.ones((1, _SIDE, _SIDE, 4), dtype)


_ARRAY = _source("read_imagef", "")

MEASURES = (
    _ask("border", "an array of half images", _ARRAY, texture(_ones("float16"))),
    _ask("border.float4", "an array of float images", _ARRAY, texture(_ones("float32"))),
    _ask(
        "border.read_imageh",
        "an array of half images, read as halves,",
        _source("read_imageh", FP16),
        texture(_ones("float16")),
        lacks_half_images,
    ),
)
