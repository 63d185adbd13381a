"""Whether the extensions that kernels use work, and are not only listed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adrenoc.lab.calibrate.measure import THREADS, Measure, MicroKernel, Tensor
from adrenoc.lab.calibrate.measures.ask import ask_kernel


@dataclass(frozen=True, kw_only=True)
class _Case:
    """`values` are expressions of x, which is 5, each with what it has to be."""

    extension: str
    values: tuple[tuple[str, int], ...]
    pragma: bool = True


_SIGNED = "0x01FF0301u, x * 0x28282828u, 7"
"""1, 3, -1, 1 by 200 each, and 7."""

_CASES = (
    _Case(
        extension="cl_khr_fp16",
        values=(
            ("(uint)((half)x * (half)3.0f)", 15),
            ("(uint)dot((half4)((half)x), convert_half4((float4)(1.0f, 2.0f, 3.0f, 4.0f)))", 50),
            ("(uint)mad((half)x, (half)x, (half)0.5f)", 25),
            ("(uint)convert_float4(as_half4((uint2)(0x40003C00u, 0x44004200u))).w", 4),
        ),
    ),
    _Case(
        extension="cl_khr_integer_dot_product",
        values=(
            ("dot_4x8packed_uu_uint(0x01020304u, x * 0x01010101u)", 50),
            (f"(uint)dot_acc_sat_4x8packed_su_int({_SIGNED})", 807),
        ),
        pragma=False,
    ),
    _Case(
        extension="cl_qcom_dot_product8",
        values=(
            ("qcom_udot8_acc(0x01020304u, x * 0x01010101u, 1u)", 51),
            (f"(uint)qcom_dot8_acc({_SIGNED})", 807),
        ),
    ),
)


def _measure(case: _Case) -> Measure:
    enabled = f"#pragma OPENCL EXTENSION {case.extension} : enable\n" if case.pragma else ""
    stores = "".join(
        f"  out[{THREADS * place}u + g] = {value};\n"
        for place, (value, _) in enumerate(case.values)
    )
    source = (
        f"{enabled}__kernel void probe(__global const uint* in, __global uint* out) {{\n"
        f"  uint x = in[0], g = get_global_id(0);\n{stores}}}\n"
    )
    kernel = MicroKernel(
        source=source,
        arguments=(
            Tensor.from_value(np.array([5, 0, 0, 0], np.uint32)),
            Tensor(shape=(len(case.values) * THREADS,), dtype="uint32"),
        ),
    )

    def says(output: np.ndarray) -> tuple[float, str]:
        for (value, wanted), seen in zip(case.values, output.reshape(-1, THREADS), strict=True):
            if (seen != wanted).any():
                others = sorted(set(seen[seen != wanted].tolist()))[:4]
                return 0.0, f"{value} gives {', '.join(map(str, others))} for {wanted}"
        return 1.0, "works"

    return ask_kernel(
        f"extension.{case.extension}",
        f"whether {case.extension} works",
        kernel,
        says,
        lambda device: device.lacks(case.extension),
    )


MEASURES = tuple(map(_measure, _CASES))
