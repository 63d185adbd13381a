"""Texels a second: out of a cache, streamed, and in windows as a convolution reads them."""

from __future__ import annotations

import numpy as np

from adrenoc.calibrate.device import Device
from adrenoc.calibrate.measure import Measure, Probe, slope_rate
from adrenoc.calibrate.micro_kernel import MicroKernel, Tensor, count, texture

_WIDTH, _HEIGHT = 1024, 512
_GRID, _GROUP = (256, 64, 1), (16, 4, 1)
_READS = 8
# Where a thread reads in iteration i, in an image whose extents are powers of two.
_WALKS = {
    "cached": ("(x & 15) + (k & 1), (y & 3) + (k >> 1)", "texels of a few rows, again and again"),
    "window": ("x + (k & 3) + (i & 7), y + (k >> 2)", "windows of 4 x 2 about each thread"),
    "streamed": (
        f"(x + 256 * (k & 3)) & {_WIDTH - 1}, (y + 64 * (i * 2 + (k >> 2))) & {_HEIGHT - 1}",
        "each texel of a large image once",
    ),
}
_SOURCE = """__constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                               CLK_FILTER_NEAREST;
__kernel void probe(__read_only image2d_array_t image, __global const int* n,
                    __global float* out) {{
  int x = get_global_id(0), y = get_global_id(1);
  float4 sum = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) {{
{reads}  }}
  out[y * get_global_size(0) + x] = sum.x + sum.y + sum.z + sum.w;
}}
"""
_READ = "    {{ const int k = {k}; sum += read_imagef(image, at, (int4)({place}, 0, 0)); }}\n"


def _kernels(dtype: str, walk: str, scale: int) -> tuple[Probe, ...]:
    place, _ = _WALKS[walk]
    reads = "".join(_READ.format(k=k, place=place) for k in range(_READS))
    image = texture(np.full((1, _HEIGHT, _WIDTH, 4), 0.25, dtype))
    threads = _GRID[0] * _GRID[1]
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=_SOURCE.format(reads=reads),
                arguments=(image, count(iterations), Tensor(shape=(threads,), dtype="float32")),
                threads=_GRID,
                group=_GROUP,
            ),
            work=_READS * iterations * threads,
        )
        for iterations in (2 * scale, 6 * scale)
    )


def _no_images(device: Device) -> str:
    return "" if device.image_width >= _WIDTH else "the device has no images"


def _rate(dtype: str, lanes: str, walk: str) -> Measure:
    return Measure(
        name=f"texel.{lanes}.{walk}",
        title=f"reads of {lanes} texels: {_WALKS[walk][1]}",
        unit="G texel/s",
        kernels=lambda _, scale: _kernels(dtype, walk, scale),
        figure=slope_rate,
        lacks=_no_images,
    )


def _not_made(name: str, title: str, what: str) -> Measure:
    return Measure(
        name=name,
        title=title,
        unit="G texel/s",
        kernels=lambda *_: (),
        figure=slope_rate,
        lacks=lambda _: f"the runtime's textures are arrays of half and float texels, {what}",
    )


MEASURES = (
    *(
        _rate(dtype, lanes, walk)
        for walk in _WALKS
        for dtype, lanes in (("float16", "half4"), ("float32", "float4"))
    ),
    _not_made("texel.bytes", "reads of RGBA8 texels", "not of bytes"),
    _not_made("texel.single", "reads of an image that is no array", "not single images"),
    _not_made("texel.of_buffer", "reads of an image1d_buffer", "not images of buffers"),
)
