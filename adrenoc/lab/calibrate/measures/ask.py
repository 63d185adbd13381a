"""A question that one run of one kernel answers: its output says what the device does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, MicroKernel, Probe, Tensor, shortest_us

FP16 = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
SAMPLER = (
    "  const sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
)
"""The one that all kernels have, within them, as TVM prints it."""
_ONE = (1, 1, 1)

Says = Callable[[np.ndarray], tuple[float, str]]
"""From an output to a number, which is 1 for what compilations reckon with, and a word."""


def ask_kernel(
    name: str, title: str, kernel: MicroKernel, says: Says, lacks: Callable[[Device], str]
) -> Measure:
    """The measure that is what `says` reads in the output of a kernel."""
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


def ask_thread(
    name: str,
    title: str,
    source: str,
    tensors: tuple[Tensor, ...],
    says: Says,
    lacks: Callable[[Device], str] = lambda _: "",
) -> Measure:
    """The same of a kernel that is one thread."""
    kernel = MicroKernel(source=source, arguments=tensors, threads=_ONE, group=_ONE)
    return ask_kernel(name, title, kernel, says, lacks)


def lacks_images(device: Device) -> str:
    """Why nothing about images can be asked."""
    return device.lacks_images


def lacks_half_images(device: Device) -> str:
    """Why nothing about images that are read as halves can be asked."""
    return device.lacks_images or device.lacks("cl_khr_fp16")
