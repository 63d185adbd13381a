"""Which of the extensions that kernels of ours could use work, and are not only listed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.calibrate.measure import Measure, Probe, shortest_us
from adrenoc.calibrate.micro_kernel import THREADS, MicroKernel, Tensor


@dataclass(frozen=True, kw_only=True)
class _Case:
    """`value` is an expression of x, which is 5, and of g, the thread's number."""

    extension: str
    value: str
    wanted: int
    pragma: bool = True


_CASES = (
    _Case(extension="cl_khr_fp16", value="(uint)((half)x * (half)3.0f)", wanted=15),
    _Case(
        extension="cl_khr_integer_dot_product",
        value="dot_4x8packed_uu_uint(0x01020304u, x * 0x01010101u)",
        wanted=50,
        pragma=False,
    ),
    _Case(
        extension="cl_qcom_dot_product8",
        value="qcom_udot8_acc(0x01020304u, x * 0x01010101u, 1u)",
        wanted=51,
    ),
    _Case(extension="cl_khr_subgroups", value="sub_group_broadcast(x, 0u)", wanted=5),
    _Case(extension="cl_khr_subgroup_shuffle", value="sub_group_shuffle(x + g - g, 0u)", wanted=5),
    _Case(extension="cl_khr_subgroup_ballot", value="(uint)sub_group_elect() * 0u + x", wanted=5),
    _Case(
        extension="cl_qcom_subgroup_shuffle",
        value="qcom_sub_group_shuffle_xor(x, 0u, CLK_SUB_GROUP_SHUFFLE_WIDTH_WAVE_SIZE_QCOM, 0u)",
        wanted=5,
    ),
    _Case(
        extension="cl_khr_extended_bit_ops", value="bitfield_extract_unsigned(x, 2u, 1u)", wanted=1
    ),
    _Case(
        extension="cl_khr_local_int32_base_atomics",
        value="atomic_add(&kept, 0u) * 0u + x",
        wanted=5,
    ),
)


def _measure(case: _Case) -> Measure:
    enabled = f"#pragma OPENCL EXTENSION {case.extension} : enable\n" if case.pragma else ""
    source = (
        f"{enabled}__kernel void probe(__global const uint* in, __global uint* out) {{\n"
        "  __local uint kept;\n  kept = 0;\n"
        "  uint x = in[0], g = get_global_id(0);\n"
        f"  out[g] = {case.value};\n}}\n"
    )
    kernel = MicroKernel(
        source=source,
        arguments=(
            Tensor.from_value(np.array([5, 0, 0, 0], np.uint32)),
            Tensor(shape=(THREADS,), dtype="uint32"),
        ),
    )

    def says(output: np.ndarray) -> tuple[float, str]:
        works = bool((output == case.wanted).all())
        seen = sorted(set(output.tolist()))[:4]
        return float(works), "works" if works else f"gives {seen} for {case.wanted}"

    return Measure(
        name=f"extension.{case.extension}",
        title=f"whether {case.extension} works",
        unit="",
        kernels=lambda *_: (Probe(kernel=kernel),),
        figure=shortest_us,
        of_output=says,
        lacks=lambda device: device.lacks(case.extension),
        scales=False,
    )


def _wave(output: np.ndarray) -> tuple[float, str]:
    size = int(output.reshape(-1)[0])
    return float(size), f"{size} threads"


_WAVE = MicroKernel(
    source="#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n"
    "__kernel void probe(__global uint* out) {\n"
    "  out[get_global_id(0)] = get_max_sub_group_size();\n}\n",
    arguments=(Tensor(shape=(THREADS,), dtype="uint32"),),
)

MEASURES = (
    Measure(
        name="wave",
        title="threads of a sub-group in a small kernel",
        unit="",
        kernels=lambda *_: (Probe(kernel=_WAVE),),
        figure=shortest_us,
        of_output=_wave,
        lacks=lambda device: device.lacks("cl_khr_subgroups"),
        scales=False,
    ),
    *(_measure(case) for case in _CASES),
)
