"""Multiply-adds a second, in floats, halves and bytes; eight sums a thread wait for none."""

from __future__ import annotations

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Probe, slope_rate
from adrenoc.lab.calibrate.micro_kernel import THREADS, MicroKernel, Tensor, count

_SUMS, _UNROLL, _GROUPS_A_UNIT = 8, 4, 16
_FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"


def _source(kind: str, lanes: int, header: str) -> str:
    vector = f"{kind}{lanes}" if lanes > 1 else kind
    names = [f"s{i}" for i in range(_SUMS)]
    start = "".join(f"  {vector} {s} = a + ({vector})({i});\n" for i, s in enumerate(names))
    step = "".join(f"    {s} = mad({s}, a, b);\n" for s in names)
    total = " + ".join(names)
    dot = f"dot(convert_float{lanes}({total}), (float{lanes})(1.0f))" if lanes > 1 else total
    return (
        f"{header}__kernel void probe(__global const float* x, __global const int* n, "
        "__global float* out) {\n"
        # Numbers that stay near one, so that no sum becomes slow or infinite.
        f"  {vector} a = ({vector})(({kind})x[0]), b = ({vector})(({kind})x[1]);\n{start}"
        f"  for (int i = 0; i < n[0]; ++i) {{\n{step * _UNROLL}  }}\n"
        f"  out[get_global_id(0)] = (float)({dot});\n}}\n"
    )


_FACTORS = np.array([0.5, 0.5, 0, 0], np.float32)


def _kernels(
    source: str, work: float, device: Device, scale: int, factors: np.ndarray = _FACTORS
) -> tuple[Probe, ...]:
    threads = THREADS * _GROUPS_A_UNIT * device.compute_units
    values = Tensor.from_value(factors)
    output = Tensor(shape=(threads,), dtype=str(factors.dtype))
    return tuple(
        Probe(
            kernel=MicroKernel(
                source=source,
                arguments=(values, count(iterations), output),
                threads=(threads, 1, 1),
            ),
            work=work * _SUMS * _UNROLL * iterations * threads,
        )
        for iterations in (4 * scale, 12 * scale)
    )


def _rate(name: str, kind: str, lanes: int) -> Measure:
    is_half = kind == "half"
    source = _source(kind, lanes, _FP16 if is_half else "")
    return Measure(
        name=name,
        title=f"multiply-adds of {kind}{lanes if lanes > 1 else ''}",
        unit="G mad/s",
        kernels=lambda device, scale: _kernels(source, lanes, device, scale),
        figure=slope_rate,
        lacks=lambda device: device.lacks("cl_khr_fp16") if is_half else "",
    )


_DOT = """{header}__kernel void probe(__global const uint* x, __global const int* n,
                                     __global uint* out) {{
  uint a = x[0], {names};
  for (int i = 0; i < n[0]; ++i) {{
{step}  }}
  out[get_global_id(0)] = {total};
}}
"""


def _dot_kernels(device: Device, scale: int) -> tuple[Probe, ...]:
    names = [f"s{i}" for i in range(_SUMS)]
    if device.has_dot == "cl_qcom_dot_product8":
        header = "#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable\n"
        step = "".join(f"    {s} = qcom_udot8_acc(a, {s}, {s});\n" for s in names)
    else:
        header = ""
        step = "".join(f"    {s} += dot_4x8packed_uu_uint(a, {s});\n" for s in names)
    source = _DOT.format(
        header=header,
        names=", ".join(f"{s} = a + {i}" for i, s in enumerate(names)),
        step=step * _UNROLL,
        total=" ^ ".join(names),
    )
    return _kernels(source, 4, device, scale, np.array([0x01020301, 0, 0, 0], np.uint32))


MEASURES = (
    _rate("mad.float", "float", 1),
    _rate("mad.float4", "float", 4),
    _rate("mad.half", "half", 1),
    _rate("mad.half4", "half", 4),
    Measure(
        name="mad.bytes",
        title="multiply-adds of bytes, by dot products of four",
        unit="G mad/s",
        kernels=_dot_kernels,
        figure=slope_rate,
        lacks=lambda device: "" if device.has_dot else "the driver lists no dot product of bytes",
    ),
)
