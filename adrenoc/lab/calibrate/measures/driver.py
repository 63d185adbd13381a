"""What a driver does: with reads beyond an image, with extensions that it lists, with other
features.

The one sampler that kernels have gives zeros there, and they pad for nothing: TVM prints
`CLK_ADDRESS_CLAMP` and no other address mode; the border colour of texels with alpha is zero in all
four lanes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.lab.calibrate.measure import (
    THREADS,
    DeviceFacts,
    HostOperation,
    KernelArgument,
    Measure,
    MicroKernel,
    TimedWork,
    shortest_us,
    texture,
)

FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
SAMPLER = (
    "  const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
)
"""The one that all kernels have, within them, as TVM prints it."""
_ONE = (1, 1, 1)

Says = Callable[[np.ndarray], tuple[float, str]]
"""From an output to a number, which is 1 for what compilations reckon with, and a word."""


def ask_kernel(
    name: str, title: str, kernel: MicroKernel, says: Says, lacks: Callable[[DeviceFacts], str]
) -> Measure:
    """Return the measure that is what `says` reads in the output of a kernel."""
    return Measure(
        name=name,
        title=title,
        unit="",
        kernels=lambda *_: (TimedWork(kernel=kernel),),
        figure=shortest_us,
        of_output=says,
        lacks=lacks,
        scales=False,
    )


def ask_thread(
    name: str,
    title: str,
    source: str,
    tensors: tuple[KernelArgument, ...],
    says: Says,
    lacks: Callable[[DeviceFacts], str] = lambda _: "",
) -> Measure:
    """Return the measure that is what `says` reads in the output of one thread."""
    kernel = MicroKernel(source=source, arguments=tensors, threads=_ONE, group=_ONE)
    return ask_kernel(name, title, kernel, says, lacks)


def lacks_images(device: DeviceFacts) -> str:
    """Return why nothing about images can be asked."""
    return device.lacks_images


def lacks_half_images(device: DeviceFacts) -> str:
    """Return why nothing about images that are read as halves can be asked."""
    return device.lacks_images or device.lacks("cl_khr_fp16")


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
            KernelArgument.from_value(np.array([5, 0, 0, 0], np.uint32)),
            KernelArgument(shape=(len(case.values) * THREADS,), dtype="uint32"),
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


EXTENSION_MEASURES = tuple(map(_measure, _CASES))


_SUBGROUPS = "cl_khr_subgroups"
_MOST_BYTES = 1 << 30
_RECORDINGS = {"recording": "cl_qcom_recordable_queues", "command_buffer": "cl_khr_command_buffer"}
"""The ways to give many launches as one command, and the extension of each."""
_WAVE = MicroKernel(
    source=f"#pragma OPENCL EXTENSION {_SUBGROUPS} : enable\n"
    "__kernel void probe(__global uint* out) {\n"
    "  out[get_global_id(0)] = get_max_sub_group_size();\n}\n",
    arguments=(KernelArgument(shape=(THREADS,), dtype="uint32"),),
)


def _lacks_subgroups(device: DeviceFacts) -> str:
    """OpenCL 3.0 has sub-groups without the extension's name, and lists what builds on them."""
    is_there = any(name.startswith(_SUBGROUPS.rstrip("s")) for name in device.extensions)
    return "" if is_there else device.lacks(_SUBGROUPS)


def _try_extension(
    extension: str, lacks: Callable[[DeviceFacts], str] = lambda _: "", **words: str | int
) -> Measure:
    """Return whether an operation of the host works, which refuses wrong results itself."""
    return Measure(
        name=f"extension.{extension}",
        title=f"whether {extension} works",
        unit="",
        kernels=lambda *_: (TimedWork(kernel=HostOperation(words=words)),),
        figure=lambda *_: 1.0,
        word="works",
        lacks=lambda device: device.lacks(extension) or lacks(device),
        scales=False,
    )


def _has_qcom_priority(device: DeviceFacts) -> str:
    used = "cl_qcom_priority_hint"
    return f"where {used} is listed the runtime takes that" if used in device.extensions else ""


def _largest_bytes(device: DeviceFacts) -> int:
    return max(1, min(device.max_allocation_bytes, _MOST_BYTES) // 4096) * 4096


FEATURE_MEASURES = (
    ask_kernel(
        "wave",
        "threads of a sub-group in a small kernel",
        _WAVE,
        lambda output: (float(output.flat[0]), f"{output.flat[0]} threads"),
        _lacks_subgroups,
    ),
    *(
        _try_extension(extension, operation="launches", way=way, count=24)
        for way, extension in _RECORDINGS.items()
    ),
    _try_extension("cl_qcom_perf_hint", operation="hint", hint="performance"),
    _try_extension("cl_qcom_priority_hint", operation="hint", hint="priority"),
    _try_extension("cl_khr_priority_hints", _has_qcom_priority, operation="hint", hint="priority"),
    Measure(
        name="buffer.largest",
        title="the largest buffer that the driver promises, 1 GiB at most, used at both ends",
        unit="MiB",
        kernels=lambda device, _: (
            TimedWork(
                kernel=HostOperation(words={"operation": "large", "bytes": _largest_bytes(device)}),
                work=_largest_bytes(device) / 2**20,
            ),
        ),
        figure=lambda probes, _: probes[0].work,
        scales=False,
    ),
)


_SIDE = 5
"""No power of two, and no multiple of any block that an image is stored in."""
_FAR = 20_000
_BEYOND = (
    *((-1, 0), (_SIDE, 0), (0, -1), (0, _SIDE), (-1, -1), (_SIDE, _SIDE)),
    *((-3, 2), (2, _SIDE + 7), (-_FAR, 0), (_FAR, _FAR)),
)


def describe_border(output: np.ndarray) -> tuple[float, str]:
    """Return whether all reads beyond an image gave zeros, and the last texel what it holds."""
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
    texels: KernelArgument,
    lacks: Callable[[DeviceFacts], str] = lacks_images,
) -> Measure:
    zero = KernelArgument.from_value(np.zeros(4, np.int32))
    output = KernelArgument(shape=(4 * (len(_BEYOND) + 1),), dtype="float32")
    asked = f"what reads beyond {title} give"
    return ask_thread(name, asked, source, (texels, zero, output), describe_border, lacks)


_ARRAY = _source("read_imagef", "")
_HALVES, _FLOATS = (
    texture(np.ones((1, _SIDE, _SIDE, 4), dtype)) for dtype in ("float16", "float32")
)

BORDER_MEASURES = (
    _ask("border", "an array of half images", _ARRAY, _HALVES),
    _ask("border.float4", "an array of float images", _ARRAY, _FLOATS),
    _ask(
        "border.read_imageh",
        "an array of half images, read as halves,",
        _source("read_imageh", FP16),
        _HALVES,
        lacks_half_images,
    ),
)
