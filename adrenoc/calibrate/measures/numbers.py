"""What a device makes of numbers that round, that are very small, that lie beyond a border."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.calibrate.device import Device
from adrenoc.calibrate.measure import Measure, Probe, shortest_us
from adrenoc.calibrate.micro_kernel import MicroKernel, Tensor, texture

_ONE = (1, 1, 1)
_FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
_SAMPLER = (
    "__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | "
    "CLK_FILTER_NEAREST;\n"
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
_BORDER = (0.0, 0.0, 0.0, 0.0)
_SMALL = np.array([1e-40, 0.5], np.float32)
_SMALL_HALF = np.array([1e-6, 0.5], np.float16)
"""Below the least number that is not denormal, and above nothing."""


def rounding(output: np.ndarray) -> tuple[float, str]:
    """How the ties were rounded: 1 for the nearest even number, which reports reckon with."""
    seen = tuple(float(v) for v in output.reshape(-1)[:4])
    for number, (word, wanted) in enumerate(_ROUNDED.items()):
        if seen == wanted:
            return (1.0 if number == 0 else 0.0), word
    return 0.0, "in a way that no rule describes: " + ", ".join(f"{v:.6g}" for v in seen)


def border(output: np.ndarray) -> tuple[float, str]:
    """Whether reads beyond an image give nothing but zeros."""
    seen = tuple(float(v) for v in output.reshape(-1)[:4])
    text = "zeros" if seen == _BORDER else ", ".join(f"{v:g}" for v in seen)
    return float(seen == _BORDER), text


def find_denormal(output: np.ndarray) -> tuple[float, str]:
    """Whether a denormal number came through arithmetic."""
    is_kept = float(output.reshape(-1)[0]) != 0.0
    return float(is_kept), "kept" if is_kept else "flushed to zero"


def same(output: np.ndarray) -> tuple[float, str]:
    """Whether halves came out of an image as they went in."""
    wanted = np.array([1.0 + 2 * _STEP, -0.0625, 65504.0, 2.0**-14], np.float32)
    is_same = np.array_equal(output.reshape(-1)[:4], wanted)
    return float(is_same), "exact" if is_same else "others: " + str(output.reshape(-1)[:4])


def _asks(
    name: str,
    title: str,
    source: str,
    tensors: tuple[Tensor, ...],
    says: Callable[[np.ndarray], tuple[float, str]],
    lacks: Callable[[Device], str],
) -> Measure:
    kernel = MicroKernel(source=source, arguments=tensors, threads=_ONE, group=_ONE)
    return Measure(
        name=name,
        title=title,
        unit="",
        kernels=lambda *_: (Probe(kernel=kernel),),
        figure=shortest_us,
        of_output=says,
        lacks=lacks,
        scales=False,
    )


def _no_images(device: Device) -> str:
    return "" if device.image_width else "the device has no images"


def _no_halves(device: Device) -> str:
    return device.lacks("cl_khr_fp16")


_HALVES = np.array([[[[1.0 + 2 * _STEP, -0.0625, 65504.0, 2.0**-14]]]], np.float16)

MEASURES = (
    _asks(
        "rounding.write_imageh",
        "how write_imageh stores floats that lie between two halves",
        f"{_FP16}__kernel void probe(__global const float* x, "
        "__write_only image2d_array_t out) {\n"
        "  write_imageh(out, (int4)(0), (half4)(convert_half(x[0]), convert_half(x[1]), "
        "convert_half(x[2]), convert_half(x[3])));\n}\n",
        (
            Tensor.from_value(TIES),
            Tensor(shape=(1, 1, 1, 4), dtype="float16", scope="global.texture"),
        ),
        rounding,
        lambda device: _no_images(device) or _no_halves(device),
    ),
    _asks(
        "rounding.write_imagef",
        "how write_imagef stores them in an image of halves",
        "__kernel void probe(__global const float* x, __write_only image2d_array_t out) {\n"
        "  write_imagef(out, (int4)(0), vload4(0, x));\n}\n",
        (
            Tensor.from_value(TIES),
            Tensor(shape=(1, 1, 1, 4), dtype="float16", scope="global.texture"),
        ),
        rounding,
        _no_images,
    ),
    _asks(
        "rounding.vstore_half",
        "how vstore_half stores them in a buffer",
        "__kernel void probe(__global const float* x, __global half* out) {\n"
        "  vstore_half4(vload4(0, x), 0, out);\n}\n",
        (Tensor.from_value(TIES), Tensor(shape=(4,), dtype="float16")),
        rounding,
        lambda _: "",
    ),
    _asks(
        "rounding.read_imageh",
        "whether read_imageh gives halves as they were stored",
        f"{_FP16}{_SAMPLER}__kernel void probe(__read_only image2d_array_t x, "
        "__global float* out) {\n"
        "  vstore4(convert_float4(read_imageh(x, s, (int4)(0))), 0, out);\n}\n",
        (texture(_HALVES), Tensor(shape=(4,), dtype="float32")),
        same,
        lambda device: _no_images(device) or _no_halves(device),
    ),
    _asks(
        "border",
        "what a read beyond an image gives, with the sampler that pads",
        f"{_SAMPLER}__kernel void probe(__read_only image2d_array_t x, __global float* out) {{\n"
        "  vstore4(read_imagef(x, s, (int4)(-1, 0, 0, 0)) + read_imagef(x, s, (int4)(0, 2, 0, 0)),"
        " 0, out);\n}\n",
        (texture(np.ones((1, 2, 2, 4), np.float16)), Tensor(shape=(4,), dtype="float32")),
        border,
        _no_images,
    ),
    _asks(
        "denormal.float",
        "whether floats below 1.2e-38 come through a multiplication",
        "__kernel void probe(__global const float* x, __global float* out) {\n"
        "  out[0] = x[0] * x[1];\n}\n",
        (
            Tensor.from_value(_SMALL),
            Tensor(shape=(1,), dtype="float32"),
        ),
        find_denormal,
        lambda _: "",
    ),
    _asks(
        "denormal.half",
        "whether halves below 6.1e-5 come through a multiplication",
        f"{_FP16}__kernel void probe(__global const half* x, __global half* out) {{\n"
        "  out[0] = x[0] * x[1];\n}\n",
        (
            Tensor.from_value(_SMALL_HALF),
            Tensor(shape=(1,), dtype="float16"),
        ),
        find_denormal,
        _no_halves,
    ),
)
