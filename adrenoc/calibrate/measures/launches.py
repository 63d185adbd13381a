"""What a launch takes in a queue, what an argument adds, and what building a line takes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from adrenoc.calibrate.device import Device
from adrenoc.calibrate.measure import Measure, NoisyError, Probe, Times, shortest_us
from adrenoc.calibrate.micro_kernel import MicroKernel, Tensor

_MANY = 24
_LINES = (50, 400)


def _empty(arguments: int) -> Probe:
    names = ", ".join(f"__global int* a{i}" for i in range(arguments))
    body = " ^ ".join(f"(a{i} == a{i + 1})" for i in range(arguments - 1)) or "1"
    source = f"__kernel void probe({names}) {{ a{arguments - 1}[get_global_id(0)] = {body}; }}\n"
    # Of different types, so that they are different tensors.
    inputs = tuple(Tensor(shape=(64 + i,), dtype="int32") for i in range(1, arguments))
    output = Tensor(shape=(64,), dtype="int32")
    return Probe(kernel=MicroKernel(source=source, arguments=(*inputs, output)), work=arguments)


def _argument_ns(probes: Sequence[Probe], times: Times) -> float:
    more_us = times[-1] - times[0]
    if more_us <= 0:
        raise NoisyError(f"{_MANY - 1} more arguments took {-more_us:.3g} us less")
    return more_us * 1e3 / (probes[-1].work - probes[0].work)


def _long(lines: int) -> Probe:
    """A kernel of so many lines, unlike any that the driver may have kept."""
    salt = secrets.randbits(20)
    body = "".join(
        f"  s = mad(s, (float4)({1 + (salt + 7 * i) % 977}.0f), x[{(i * 13) % 61}]);\n"
        for i in range(lines)
    )
    source = (
        "__kernel void probe(__global const float4* x, __global float* out) {\n"
        f"  float4 s = x[get_local_id(0)];\n{body}  out[get_global_id(0)] = s.x + s.y;\n}}\n"
    )
    data = Tensor.from_value(np.zeros(256, np.float32))
    kernel = MicroKernel(source=source, arguments=(data, Tensor(shape=(64,), dtype="float32")))
    return Probe(kernel=kernel, work=lines)


def _build_us(probes: Sequence[Probe], times: Times) -> float:
    more_us = times[-1] - times[0]
    if more_us <= 0:
        raise NoisyError(f"{_LINES[1] - _LINES[0]} more lines took {-more_us:.3g} us less")
    return more_us / (probes[-1].work - probes[0].work)


def _one(device: Device, scale: int) -> tuple[Probe, ...]:
    return (_empty(1),)


def _few_and_many(device: Device, scale: int) -> tuple[Probe, ...]:
    return (_empty(1), _empty(_MANY))


def _short_and_long(device: Device, scale: int) -> tuple[Probe, ...]:
    return tuple(_long(lines) for lines in _LINES)


def _no_clock_of_copies(device: Device) -> str:
    return "the runtime's trials time kernels, and no copies between the host and the device"


MEASURES = (
    Measure(
        name="launch.queue",
        title="one more launch of a kernel that does nothing, in a queue",
        unit="us",
        kernels=_one,
        figure=shortest_us,
        scales=False,
    ),
    Measure(
        name="launch.argument",
        title="one more argument of a launch, where setting them is what the queue waits for",
        unit="ns",
        kernels=_few_and_many,
        figure=_argument_ns,
        scales=False,
    ),
    Measure(
        name="build.line",
        title="building one more line of a kernel",
        unit="us",
        kernels=_short_and_long,
        figure=_build_us,
        of_builds=True,
        scales=False,
    ),
    Measure(
        name="copy.host",
        title="uploads and downloads, by copies, maps and host pointers",
        unit="GB/s",
        kernels=lambda *_: (),
        figure=shortest_us,
        lacks=_no_clock_of_copies,
    ),
)
