"""Local memory: reads a second by width, which tells whether bytes are charged or reads, and by the
distance between neighbours' places, which tells of its banks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import (
    Measure,
    Probe,
    last_rate,
    name_steps,
    rates,
    slope,
    slope_rate,
)
from adrenoc.lab.calibrate.micro_kernel import THREADS, MicroKernel, Tensor, count

_ENTRIES, _READS, _GROUPS_A_UNIT = 256, 8, 16
_KINDS = {
    "byte": ("uchar", 1),
    "float": ("float", 4),
    "half4": ("ushort4", 8),
    "float4": ("float4", 16),
}
_SOURCE = """__kernel void probe(__global const float* x, __global const int* n,
                                __global float* out) {{
  __local {kind} kept[{entries}];
  int t = get_local_id(0);
  for (int i = t; i < {entries}; i += {threads}) kept[i] = ({kind})((({lane})x[0]) + ({lane})i);
  barrier(CLK_LOCAL_MEM_FENCE);
  {kind} sum = ({kind})(0);
  for (int i = 0; i < n[0]; ++i) {{
{reads}  }}
  out[get_global_id(0)] = (float)({total});
}}
"""
_STRIDES = (1, 2, 3, 4, 8, 16, 32, 33, 64)
"""Floats from the place of one thread to that of the next."""
_STRIDED_ENTRIES = 4096
"""Of four bytes: no more than the least local memory of a device, and as many as 64 threads are
apart at the longest stride."""
_BARRIERS = """__kernel void probe(__global const float* x, __global const int* n,
                                   __global float* out) {{
  __local float kept[{threads}];
  int t = get_local_id(0);
  float sum = x[0];
  for (int i = 0; i < n[0]; ++i) {{
    kept[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum = kept[(t + 1) & {last}] + 0.5f;
    barrier(CLK_LOCAL_MEM_FENCE);
  }}
  out[get_global_id(0)] = sum;
}}
"""


def _probes(
    source: str, threads: int, iterations: tuple[int, int], work: float
) -> tuple[Probe, ...]:
    values = Tensor.from_value(np.zeros(4, np.float32))
    output = Tensor(shape=(threads,), dtype="float32")
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=source, arguments=(values, count(n), output), threads=(threads, 1, 1)
            ),
            work=work * n,
        )
        for n in iterations
    )


def _kernels(device: Device, scale: int, kind: str) -> tuple[Probe, ...]:
    vector, _ = _KINDS[kind]
    place = f"(t + {{k}} * 8 + i) & {_ENTRIES - 1}"
    op = "^" if vector in ("uchar", "ushort4") else "+"
    reads = "".join(f"    sum {op}= kept[{place.format(k=k)}];\n" for k in range(_READS))
    is_vector = vector.endswith("4")
    source = _SOURCE.format(
        kind=vector,
        lane=vector.removesuffix("4"),
        entries=_ENTRIES,
        threads=THREADS,
        reads=reads,
        total="sum.x + sum.y + sum.z + sum.w" if is_vector else "sum",
    )
    threads = THREADS * _GROUPS_A_UNIT * device.compute_units
    return _probes(source, threads, (4 * scale, 12 * scale), _READS * threads * 1.0)


def _strided_kernels(device: Device, scale: int) -> tuple[Probe, ...]:
    threads = THREADS * _GROUPS_A_UNIT * device.compute_units
    points = []
    for stride in _STRIDES:
        place = f"(t * {stride} + {{k}} + i) & {_STRIDED_ENTRIES - 1}"
        source = _SOURCE.format(
            kind="float",
            lane="float",
            entries=_STRIDED_ENTRIES,
            threads=THREADS,
            reads="".join(f"    sum += kept[{place.format(k=k)}];\n" for k in range(_READS)),
            total="sum",
        )
        # What fills local memory is the same at all strides, and little beside so many reads.
        (probe, _) = _probes(source, threads, (64 * scale, 1), _READS * threads * 1.0)
        points.append(replace(probe, x=stride))
    return tuple(points)


def _barrier_kernels(device: Device, scale: int) -> tuple[Probe, ...]:
    source = _BARRIERS.format(threads=THREADS, last=THREADS - 1)
    return _probes(source, THREADS, (8 * scale, 40 * scale), 2.0)


def _rate(kind: str) -> Measure:
    vector, size = _KINDS[kind]
    return Measure(
        name=f"local.{kind}",
        title=f"reads of {size} bytes ({vector}) from local memory",
        unit="G read/s",
        kernels=lambda device, scale: _kernels(device, scale, kind),
        figure=slope_rate,
    )


MEASURES = (
    *(_rate(kind) for kind in _KINDS),
    Measure(
        name="local.banks",
        title="reads of floats from local memory by how many floats neighbours are apart; the "
        f"figure is that of {_STRIDES[-1]}",
        unit="G read/s",
        kernels=_strided_kernels,
        figure=last_rate,
        curve=rates,
        word=name_steps,
    ),
    Measure(
        name="barrier",
        title=f"a barrier of one group of {THREADS} threads, with a store and a read",
        unit="ns",
        kernels=_barrier_kernels,
        figure=slope,
    ),
)
