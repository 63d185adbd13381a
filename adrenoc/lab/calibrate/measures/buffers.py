"""Reads of buffers out of a cache: one place for all threads, a place each, halves."""

from __future__ import annotations

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Probe, slope_rate
from adrenoc.lab.calibrate.micro_kernel import THREADS, MicroKernel, Tensor, count

_WORDS = 4096
"""Of 16 bytes: 64 KiB."""
_READS, _GROUPS_A_UNIT = 8, 16
_SOURCE = """__kernel void probe(__global const {kind}* data, __global const int* n,
                                __global float* out) {{
  int g = get_global_id(0);
  float4 sum = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) {{
{reads}  }}
  out[g] = sum.x + sum.y + sum.z + sum.w;
}}
"""


def _kernels(device: Device, scale: int, kind: str, read: str, dtype: str) -> tuple[Probe, ...]:
    reads = "".join(f"    sum += {read.format(k=k)};\n" for k in range(_READS))
    data = Tensor.from_value(np.full((_WORDS * 4,), 0.25, dtype))
    threads = THREADS * _GROUPS_A_UNIT * device.compute_units
    bytes_a_read = 4 * np.dtype(dtype).itemsize
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=_SOURCE.format(kind=kind, reads=reads),
                arguments=(data, count(iterations), Tensor(shape=(threads,), dtype="float32")),
                threads=(threads, 1, 1),
            ),
            work=bytes_a_read * _READS * iterations * threads,
        )
        for iterations in (4 * scale, 12 * scale)
    )


def _rate(name: str, title: str, kind: str, read: str, dtype: str) -> Measure:
    return Measure(
        name=name,
        title=title,
        unit="GB/s",
        kernels=lambda device, scale: _kernels(device, scale, kind, read, dtype),
        figure=slope_rate,
    )


_EACH = f"(g + {{k}} * 64 + i * 512) & {_WORDS - 1}"
_ALL = f"({{k}} + i * 8) & {_WORDS - 1}"

MEASURES = (
    _rate(
        "buffer.thread",
        "reads of 16 bytes by each thread beside its neighbour's, within 64 KiB",
        "float4",
        f"data[{_EACH}]",
        "float32",
    ),
    _rate(
        "buffer.uniform",
        "reads of the same 16 bytes by all threads",
        "float4",
        f"data[{_ALL}]",
        "float32",
    ),
    _rate(
        "buffer.halves",
        "reads of four halves by each thread (vload_half4)",
        "half",
        f"vload_half4({_EACH}, data)",
        "float16",
    ),
)
