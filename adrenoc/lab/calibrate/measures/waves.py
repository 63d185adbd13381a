"""Texels a second by how many registers a thread takes: fewer waves hide less of the waiting."""

from __future__ import annotations

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Probe, last_rate, name_steps, rates
from adrenoc.lab.calibrate.micro_kernel import THREADS, MicroKernel, Tensor, count, texture

_REGISTERS = (4, 8, 12, 16, 24, 32, 48, 64)
"""Of four floats, that are alive while the thread waits."""
_SIDE, _ITERATIONS, _GROUPS_A_UNIT = 128, 4, 32


def _point(registers: int, device: Device) -> Probe:
    start = "".join(f"  float4 r{i} = (float4)(x[{i & 3}] + g);\n" for i in range(registers))
    step = "".join(f"    r{i} = mad(r{i}, t, r{(i + 1) % registers});\n" for i in range(registers))
    total = " + ".join(f"r{i}.x" for i in range(registers))
    source = (
        "__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |\n"
        "                         CLK_FILTER_NEAREST;\n"
        "__kernel void probe(__read_only image2d_array_t image, __global const float* x,\n"
        "                    __global const int* n, __global float* out) {\n"
        f"  int g = get_global_id(0);\n{start}"
        "  for (int i = 0; i < n[0]; ++i) {\n"
        f"    float4 t = read_imagef(image, s, (int4)((g + i) & {_SIDE - 1}, (g >> 7) & "
        f"{_SIDE - 1}, 0, 0));\n{step}  }}\n  out[g] = {total};\n}}\n"
    )
    image = texture(np.zeros((1, _SIDE, _SIDE, 4), np.float32))
    values = Tensor.from_value(np.zeros(4, np.float32))
    threads = THREADS * _GROUPS_A_UNIT * device.compute_units
    return Probe(
        kernel=MicroKernel(
            source=source,
            arguments=(
                image,
                values,
                count(_ITERATIONS),
                Tensor(shape=(threads,), dtype="float32"),
            ),
            threads=(threads, 1, 1),
        ),
        # What every thread computes grows with its registers; that is no loss.
        work=4.0 * registers * _ITERATIONS * threads,
        x=registers,
    )


MEASURES = (
    Measure(
        name="waves",
        title="multiply-adds between texels, by registers (of four floats) that a thread keeps; "
        "the figure is that of 64",
        unit="G mad/s",
        kernels=lambda device, scale: tuple(_point(r, device) for r in _REGISTERS),
        figure=last_rate,
        curve=rates,
        word=name_steps,
        lacks=lambda device: device.lacks_images,
        scales=False,
    ),
)
