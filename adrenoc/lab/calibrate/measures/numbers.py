"""What a device makes of numbers: that round, that are very small, in functions of its own.

OpenCL leaves to each GPU what `native_exp` and its kind give.  Kernels that store halves call three
of them (`adrenoc/kernels/function_digits.py`) and reckon with an error of a half's rounding at
most.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adrenoc.lab.calibrate.measure import (
    THREADS,
    KernelArgument,
    Measure,
    MicroKernel,
    texture,
)
from adrenoc.lab.calibrate.measures.driver import (
    FP16,
    SAMPLER,
    ask_kernel,
    ask_thread,
    lacks_half_images,
    lacks_images,
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


_HALVES = np.array([[[[1.0 + 2 * _STEP, -0.0625, 65504.0, 2.0**-14]]]], np.float16)
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
        lacks_images,
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
        (texture(_HALVES), _FOUR_FLOATS),
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
        lacks_images,
    ),
    ask_thread(
        "denormal.write_imagef",
        "whether floats below 6.1e-5 come into an image of halves",
        _WRITE_IMAGEF,
        (_TINY_FLOATS, _TEXEL),
        find_denormal,
        lacks_images,
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

    Errors are of the result, and of `floor` where it is smaller: around zero a logarithm's
    digits are its argument's.  Each of its `calls` may be off by `MOST_ERROR`.
    """

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
_FAR = np.array([-88.5, -65504.0, 88.5, 65504.0], np.float32)
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
        points=np.concatenate([_space_evenly(-30.0, 30.0)[:-4], _FAR]),
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


def _ask(function: Function) -> Measure:
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


FUNCTION_MEASURES = tuple(map(_ask, CALLED))
