"""Texels a second: out of a cache, streamed, and in windows as a convolution reads them.

Textures are arrays of images of halves or floats; beside those stand what they might be instead:
bytes, images that are no arrays, and images made from buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Probe, slope_rate
from adrenoc.lab.calibrate.micro_kernel import MicroKernel, Tensor, View, count, image, texture

_WIDTH, _HEIGHT = 1024, 512
_GRID, _GROUP = (256, 64, 1), (16, 4, 1)
_READS = 8
_ROW = 1 << 16
"""Texels of an `image1d_buffer`: the fewest that a device with images has."""
FROM_BUFFER = "cl_khr_image2d_from_buffer"
# Where a thread reads in iteration i, in an image whose extents are powers of two.
_WALKS = {
    "cached": ("(x & 15) + (k & 1), (y & 3) + (k >> 1)", "texels of a few rows, again and again"),
    "window": ("x + (k & 3) + (i & 7), y + (k >> 2)", "windows of 4 x 2 about each thread"),
    "streamed": (
        f"(x + 256 * (k & 3)) & {_WIDTH - 1}, (y + 64 * (i * 2 + (k >> 2))) & {_HEIGHT - 1}",
        "each texel of a large image once",
    ),
}
_ROW_WALKS = {
    "cached": ("(x & 15) + k + 8 * (y & 3)", "a few texels, again and again"),
    "streamed": (
        f"(x + 256 * y + 16384 * k + 64 * i) & {_ROW - 1}",
        f"texels of a row of {_ROW}, beside those of the neighbour",
    ),
}
_SOURCE = """__constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                               CLK_FILTER_NEAREST;
__kernel void probe(__read_only {kind} image, __global const int* n,
                    __global float* out) {{
  int x = get_global_id(0), y = get_global_id(1);
  float4 sum = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) {{
{reads}  }}
  out[y * get_global_size(0) + x] = sum.x + sum.y + sum.z + sum.w;
}}
"""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A kind of image: its type in OpenCL C, how it is read at `{place}`, and one to read."""

    type: str
    read: str
    make: Callable[[str], Tensor]
    walks: dict[str, tuple[str, str]]


def _fill(dtype: str, width: int = _WIDTH, height: int = _HEIGHT) -> np.ndarray:
    return np.full((height, width, 4), 64 if dtype == "uint8" else 0.25, dtype)


def _make_of_buffer(dtype: str) -> Tensor:
    value = _fill(dtype, _ROW, 1)
    view = View(kind="image1d_buffer", format="half" if dtype == "float16" else "float", width=_ROW)
    return Tensor(shape=value.shape, dtype=dtype, value=value, view=view)


def _make_of_rows(dtype: str) -> Tensor:
    value = _fill(dtype)
    seen = View(kind="image2d_of_buffer", format="half", width=_WIDTH, height=_HEIGHT)
    return Tensor(shape=value.shape, dtype=dtype, value=value, view=seen)


_ARRAY = _Kind(
    type="image2d_array_t",
    read="read_imagef(image, at, (int4)({place}, 0, 0))",
    make=lambda dtype: texture(_fill(dtype)[None]),
    walks=_WALKS,
)
_BYTES = _Kind(
    type=_ARRAY.type,
    read=_ARRAY.read,
    make=lambda dtype: image(_fill(dtype), "image2d_array"),
    walks=_WALKS,
)
_SINGLE = _Kind(
    type="image2d_t",
    read="read_imagef(image, at, (int2)({place}))",
    make=lambda dtype: image(_fill(dtype), "image2d"),
    walks=_WALKS,
)
_ROWS = _Kind(type=_SINGLE.type, read=_SINGLE.read, make=_make_of_rows, walks=_WALKS)
_OF_BUFFER = _Kind(
    type="image1d_buffer_t",
    read="read_imagef(image, {place})",
    make=_make_of_buffer,
    walks=_ROW_WALKS,
)


def _kernels(kind: _Kind, dtype: str, walk: str, scale: int) -> tuple[Probe, ...]:
    place, _ = kind.walks[walk]
    read = kind.read.format(place=place)
    reads = "".join(f"    {{ const int k = {k}; sum += {read}; }}\n" for k in range(_READS))
    texels = kind.make(dtype)
    threads = _GRID[0] * _GRID[1]
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=_SOURCE.format(kind=kind.type, reads=reads),
                arguments=(texels, count(iterations), Tensor(shape=(threads,), dtype="float32")),
                threads=_GRID,
                group=_GROUP,
            ),
            work=_READS * iterations * threads,
        )
        for iterations in (2 * scale, 6 * scale)
    )


def _no_images(device: Device) -> str:
    return "" if device.image_width >= _WIDTH else "the device has no images"


def _no_rows(device: Device) -> str:
    align = device.image_pitch_texels
    unfit = align and _WIDTH % align
    return (
        _no_images(device)
        or device.lacks(FROM_BUFFER)
        or (f"rows are multiples of {align} texels" if unfit else "")
    )


def _rate(name: str, title: str, kind: _Kind, dtype: str, walk: str) -> Measure:
    return Measure(
        name=f"texel.{name}.{walk}",
        title=f"reads of {title}: {kind.walks[walk][1]}",
        unit="G texel/s",
        kernels=lambda _, scale: _kernels(kind, dtype, walk, scale),
        figure=slope_rate,
        lacks=_no_rows if kind is _ROWS else _no_images,
    )


MEASURES = (
    *(
        _rate(lanes, f"{lanes} texels", _ARRAY, dtype, walk)
        for walk in _WALKS
        for dtype, lanes in (("float16", "half4"), ("float32", "float4"))
    ),
    *(_rate("bytes", "RGBA8 texels", _BYTES, "uint8", walk) for walk in _WALKS),
    *(
        _rate(f"single.{lanes}", f"{lanes} texels of an image that is no array", _SINGLE, dtype, w)
        for w in _WALKS
        for dtype, lanes in (("float16", "half4"), ("float32", "float4"))
    ),
    *(
        _rate(f"of_buffer.{lanes}", f"{lanes} texels of an image1d_buffer", _OF_BUFFER, dtype, w)
        for w in _ROW_WALKS
        for dtype, lanes in (("float16", "half4"), ("float32", "float4"))
    ),
    *(
        _rate("of_rows", "half4 texels of an image made from a buffer", _ROWS, "float16", walk)
        for walk in _WALKS
    ),
)
