"""What a driver does with reads beyond an image and extensions that it lists, and what a device
makes of numbers that round, are very small, or go through functions of its own.

The one sampler that kernels have gives zeros beyond an image, and they pad for nothing: TVM prints
`CLK_ADDRESS_CLAMP` and no other address mode; the border colour of texels with alpha is zero in all
four lanes. OpenCL leaves to each GPU what `native_exp` and its kind give: kernels that store halves
call three of them (`adrenoc/kernels/function_digits.py`) and reckon with an error of a half's
rounding at most.
"""

from __future__ import annotations

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


def lacks_half_images(device: DeviceFacts) -> str:
    """Return why nothing about images that are read as halves can be asked."""
    return device.lacks_images() or device.lacks("cl_khr_fp16")


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
    lacks: Callable[[DeviceFacts], str] = DeviceFacts.lacks_images,
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


_STEP = 2.0**-11
"""Half of the distance between halves beyond one."""
TIES = np.array([1 + _STEP, 1 + 3 * _STEP, -1 - _STEP, 1 + 1.5 * _STEP], np.float32)
"""Two numbers in the middle of two halves, the first of them negative too, and one above it."""
_ROUNDED = {
    "to the nearest, ties to even": (1.0, 1 + 4 * _STEP, -1.0, 1 + 2 * _STEP),
    "towards zero": (1.0, 1 + 2 * _STEP, -1.0, 1.0),
    "to the nearest, ties away from zero": (
        1 + 2 * _STEP,
        1 + 4 * _STEP,
        -1 - 2 * _STEP,
        1 + 2 * _STEP,
    ),
    "down": (1.0, 1 + 2 * _STEP, -1 - 2 * _STEP, 1.0),
    "up": (1 + 2 * _STEP, 1 + 4 * _STEP, -1.0, 1 + 2 * _STEP),
}
_SMALL_HALF = np.array([1e-6, 0.5, 1e-6], np.float16)
"""Below the least number that is not denormal, and above nothing."""
TINY_HALVES = np.array([2.0**-15, -(2.0**-20), 2.0**-24, 3e-5], np.float16)


def rounding(output: np.ndarray) -> tuple[float, str]:
    """Return how ties were rounded: 1 for the nearest even, which reports reckon with."""
    seen = tuple(float(v) for v in output.reshape(-1)[:4])
    for number, (word, wanted) in enumerate(_ROUNDED.items()):
        if seen == wanted:
            return (1.0 if number == 0 else 0.0), word
    return 0.0, "in a way that no rule describes: " + ", ".join(f"{v:.6g}" for v in seen)


def find_denormal(output: np.ndarray) -> tuple[float, str]:
    """Return whether denormal numbers came through, each of them."""
    lost = int((output.reshape(-1) == 0.0).sum())
    if not lost:
        return 1.0, "kept"
    return 0.0, "flushed to zero" if lost == output.size else f"{lost} of {output.size} flushed"


def same(output: np.ndarray) -> tuple[float, str]:
    """Return whether halves came out of an image as they went in."""
    wanted = np.array([1.0 + 2 * _STEP, -0.0625, 65504.0, 2.0**-14], np.float32)
    is_same = np.array_equal(output.reshape(-1)[:4], wanted)
    return float(is_same), "exact" if is_same else "others: " + str(output.reshape(-1)[:4])


_HALF_PAIRS = np.array([[[[1.0 + 2 * _STEP, -0.0625, 65504.0, 2.0**-14]]]], np.float16)
_TEXEL = KernelArgument(shape=(1, 1, 1, 4), dtype="float16", scope="global.texture")
_FOUR_HALVES = KernelArgument(shape=(4,), dtype="float16")
_FOUR_FLOATS = KernelArgument(shape=(4,), dtype="float32")
_TIES_GIVEN = KernelArgument.from_value(TIES)
_TINY_FLOATS = KernelArgument.from_value(TINY_HALVES.astype(np.float32))
_WRITE_IMAGEF = (
    "__kernel void probe(__global const float* x, __write_only image2d_array_t out) {\n"
    "  write_imagef(out, (int4)(0), vload4(0, x));\n}\n"
)
_VSTORE_HALF = (
    "__kernel void probe(__global const float* x, __global half* out) {\n"
    "  vstore_half4(vload4(0, x), 0, out);\n}\n"
)

NUMBER_MEASURES = (
    ask_thread(
        "rounding.write_imageh",
        "how write_imageh stores floats that lie between two halves",
        f"{FP16}__kernel void probe(__global const float* x, "
        "__write_only image2d_array_t out) {\n"
        "  write_imageh(out, (int4)(0), (half4)(convert_half(x[0]), convert_half(x[1]), "
        "convert_half(x[2]), convert_half(x[3])));\n}\n",
        (_TIES_GIVEN, _TEXEL),
        rounding,
        lacks_half_images,
    ),
    ask_thread(
        "rounding.write_imagef",
        "how write_imagef stores them in an image of halves",
        _WRITE_IMAGEF,
        (_TIES_GIVEN, _TEXEL),
        rounding,
        DeviceFacts.lacks_images,
    ),
    ask_thread(
        "rounding.vstore_half",
        "how vstore_half stores them in a buffer",
        _VSTORE_HALF,
        (_TIES_GIVEN, _FOUR_HALVES),
        rounding,
    ),
    ask_thread(
        "rounding.read_imageh",
        "whether read_imageh gives halves as they were stored",
        f"{FP16}__kernel void probe(__read_only image2d_array_t x, "
        f"__global float* out) {{\n{SAMPLER}"
        "  vstore4(convert_float4(read_imageh(x, s, (int4)(0))), 0, out);\n}\n",
        (texture(_HALF_PAIRS), _FOUR_FLOATS),
        same,
        lacks_half_images,
    ),
    ask_thread(
        "denormal.half",
        "whether halves below 6.1e-5 come through a multiplication and a multiply-add",
        f"{FP16}__kernel void probe(__global const half* x, __global half* out) {{\n"
        "  out[0] = x[0] * x[1];\n  out[1] = mad(x[0], x[1], x[2]);\n}\n",
        (KernelArgument.from_value(_SMALL_HALF), KernelArgument(shape=(2,), dtype="float16")),
        find_denormal,
        lambda device: device.lacks("cl_khr_fp16"),
    ),
    ask_thread(
        "denormal.vload_half",
        "whether halves below 6.1e-5 come out of a buffer as floats",
        "__kernel void probe(__global const half* x, __global float* out) {\n"
        "  vstore4(vload_half4(0, x), 0, out);\n}\n",
        (KernelArgument.from_value(TINY_HALVES), _FOUR_FLOATS),
        find_denormal,
    ),
    ask_thread(
        "denormal.vstore_half",
        "whether floats below 6.1e-5 come into a buffer as halves",
        _VSTORE_HALF,
        (_TINY_FLOATS, _FOUR_HALVES),
        find_denormal,
    ),
    ask_thread(
        "denormal.read_imagef",
        "whether halves below 6.1e-5 come out of an image",
        "__kernel void probe(__read_only image2d_array_t x, "
        f"__global float* out) {{\n{SAMPLER}"
        "  vstore4(read_imagef(x, s, (int4)(0)), 0, out);\n}\n",
        (texture(TINY_HALVES.reshape(1, 1, 1, 4)), _FOUR_FLOATS),
        find_denormal,
        DeviceFacts.lacks_images,
    ),
    ask_thread(
        "denormal.write_imagef",
        "whether floats below 6.1e-5 come into an image of halves",
        _WRITE_IMAGEF,
        (_TINY_FLOATS, _TEXEL),
        find_denormal,
        DeviceFacts.lacks_images,
    ),
)


MOST_ERROR = 2.0**-11
"""Of a function's result: as much as storing it as a half may be off."""
_GROUPS = 64
POINTS = _GROUPS * THREADS
_LEAST = 2.0**-126
"""The least float that is not denormal: GPUs may take what is smaller for zero."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function as OpenCL C has it (of `x`), and as NumPy, with the numbers that it is given.
    Errors are of the result, and of `floor` where it is smaller: around zero a logarithm's digits
    are its argument's. Each of its `calls` may be off by `MOST_ERROR`."""

    name: str
    text: str
    exact: Callable[[np.ndarray], np.ndarray]
    points: np.ndarray
    floor: float = _LEAST
    calls: int = 1


def _space_evenly(first: float, last: float) -> np.ndarray:
    """Return numbers at equal distances, by no step that a short table of a driver's has."""
    return np.linspace(first, last, POINTS).astype(np.float32)


def _logistic(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


_SIGNED_POWERS = np.where(np.arange(POINTS) % 2, -1, 1) * 2.0 ** np.linspace(-20.0, 125.0, POINTS)
_FAR_APART = np.array([-88.5, -65504.0, 88.5, 65504.0], np.float32)
"""Where the exponential is beyond every float the reciprocal has to be zero."""

CALLED = (
    Function(name="exp", text="native_exp(x)", exact=np.exp, points=_space_evenly(-87.0, 88.0)),
    Function(
        name="exp2", text="native_exp2(x)", exact=np.exp2, points=_space_evenly(-125.0, 127.0)
    ),
    Function(
        name="recip",
        text="native_recip(x)",
        exact=lambda x: 1.0 / x,
        points=_SIGNED_POWERS.astype(np.float32),
    ),
    Function(
        name="logistic",
        text="native_recip(1.0f + native_exp(0.0f - x))",
        exact=_logistic,
        points=np.concatenate([_space_evenly(-30.0, 30.0)[:-4], _FAR_APART]),
        floor=2.0**-14,
        calls=2,
    ),
)
"""What kernels that store halves call."""


def find_error(function: Function, output: np.ndarray) -> tuple[float, str]:
    """Return the largest error over the result: 1 where a half does not tell it."""
    x = function.points.astype(np.float64)
    right = function.exact(x)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(output.reshape(-1).astype(np.float64) - right)
        off = off / np.maximum(np.abs(right), function.floor)
    off = np.where(np.isnan(off), np.inf, off)
    worst = int(np.argmax(off))
    at = f"at {function.points[worst]:.6g}"
    if not np.isfinite(off[worst]):
        return 0.0, f"{output.reshape(-1)[worst]:g} for {right[worst]:.6g} {at}"
    error = float(off[worst])
    told = f"off by 2^{np.log2(error):.1f} of the result {at}" if error else "exact"
    return float(error <= function.calls * MOST_ERROR), told


def _ask_number(function: Function) -> Measure:
    source = (
        "__kernel void probe(__global const float* in, __global float* out) {\n"
        "  const int i = get_global_id(0);\n  const float x = in[i];\n"
        f"  out[i] = {function.text};\n}}\n"
    )
    kernel = MicroKernel(
        source=source,
        arguments=(
            KernelArgument.from_value(function.points),
            KernelArgument(shape=(POINTS,), dtype="float32"),
        ),
        threads=(POINTS, 1, 1),
        group=(THREADS, 1, 1),
    )
    return ask_kernel(
        f"function.{function.name}",
        f"how far {function.text} is off, from {function.points.min():g} "
        f"to {function.points.max():g}",
        kernel,
        lambda output: find_error(function, output),
        lambda _: "",
    )


FUNCTION_MEASURES = tuple(map(_ask_number, CALLED))
