"""How long one read takes that the next waits for: one thread follows a chain of places."""

from __future__ import annotations

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, MicroKernel, Probe, Tensor, count, slope, texture

_LINE = 16
"""Places of four bytes in a line of 64."""
_LINES = 1024
_SIDE = 64
_BUFFER = """__kernel void probe(__global const int* next, __global const int* n,
                                __global int* out) {
  int at = 0;
  for (int i = 0; i < n[0]; ++i) at = next[at];
  out[0] = at;
}
"""
_TEXEL = """__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                              CLK_FILTER_NEAREST;
__kernel void probe(__read_only image2d_array_t next, __global const int* n,
                    __global float* out) {
  float4 at = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) at = read_imagef(next, s, (int4)((int)at.x, (int)at.y, 0, 0));
  out[0] = at.x;
}
"""


def chain(lines: int, seed: int = 1) -> np.ndarray:
    """Where each of so many lines leads: one round through all, in no order."""
    order = np.random.default_rng(seed).permutation(lines)
    following = np.empty(lines, np.int32)
    following[order] = np.roll(order, -1)
    return following


def _chain_of_buffer() -> np.ndarray:
    places = np.zeros(_LINES * _LINE, np.int32)
    places[::_LINE] = chain(_LINES) * _LINE
    return places


def _chain_of_texels() -> np.ndarray:
    following = chain(_SIDE * _SIDE)
    image = np.zeros((1, _SIDE, _SIDE, 4), np.float32)
    flat = image.reshape(-1, 4)
    flat[:, 0], flat[:, 1] = following % _SIDE, following // _SIDE
    return image


def _probes(source: str, data: Tensor, dtype: str, lines: int, scale: int) -> tuple[Probe, ...]:
    """A chain of so many lines, walked through once at least: less of it would stay in a cache."""
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=source,
                # The whole of the output is to be alike in every run: one place is enough.
                arguments=(data, count(iterations), Tensor(shape=(1,), dtype=dtype)),
                threads=(1, 1, 1),
                group=(1, 1, 1),
            ),
            work=iterations,
        )
        for iterations in (max(64 * scale, lines), max(256 * scale, 2 * lines))
    )


def _buffer_probes(_: Device, scale: int) -> tuple[Probe, ...]:
    data = Tensor.from_value(_chain_of_buffer())
    return _probes(_BUFFER, data, "int32", _LINES, scale)


MEASURES = (
    Measure(
        name="latency.texel",
        title="a read of a float texel, out of 64 KiB, that the next waits for",
        unit="ns",
        kernels=lambda _, scale: _probes(
            _TEXEL, texture(_chain_of_texels()), "float32", _SIDE * _SIDE, scale
        ),
        figure=slope,
        lacks=lambda device: device.lacks_images,
    ),
    Measure(
        name="latency.buffer.64k",
        title="a read of a buffer of 64 KiB that the next waits for",
        unit="ns",
        kernels=_buffer_probes,
        figure=slope,
    ),
)
