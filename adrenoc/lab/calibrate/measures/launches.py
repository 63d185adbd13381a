"""What a launch takes, one by one and recorded, what an argument and what a line to build takes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, NoisyError, Probe, Times, shortest_us, slope
from adrenoc.lab.calibrate.micro_kernel import Deed, MicroKernel, Tensor

_LINES = (50, 400)
_LAUNCHES = (64, 1088)
_ARGUMENTS = (1 << 10, 1 << 14)
RECORDINGS = {"recording": "cl_qcom_recordable_queues", "command_buffer": "cl_khr_command_buffer"}
"""The ways to give many launches as one command, and the extension of each."""


def _empty() -> Probe:
    source = "__kernel void probe(__global int* out) { out[get_global_id(0)] = 1; }\n"
    output = Tensor(shape=(64,), dtype="int32")
    return Probe(kernel=MicroKernel(source=source, arguments=(output,)))


def _deeds(deed: str, counts: Sequence[int], **words: str) -> tuple[Probe, ...]:
    return tuple(
        Probe(kernel=Deed(words={"deed": deed, "count": count, **words}), work=count)
        for count in counts
    )


def _microseconds(probes: Sequence[Probe], times: Times) -> float:
    return slope(probes, times) / 1e3


def _measure_launches(way: str, title: str) -> Measure:
    extension = RECORDINGS.get(way)
    return Measure(
        name=f"launch.{way if extension else 'host'}",
        title=f"one more launch by the host's clock, {title}",
        unit="us",
        kernels=lambda *_: _deeds("launches", _LAUNCHES, way=way),
        figure=_microseconds,
        lacks=lambda device: device.lacks(extension) if extension else "",
        scales=False,
    )


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
    return (_empty(),)


def _short_and_long(device: Device, scale: int) -> tuple[Probe, ...]:
    return tuple(_long(lines) for lines in _LINES)


MEASURES = (
    Measure(
        name="launch.queue",
        title="one more launch of a kernel that does nothing, in a queue",
        unit="us",
        kernels=_one,
        figure=shortest_us,
        scales=False,
    ),
    _measure_launches("queue", "given to the queue as it is"),
    _measure_launches("recording", "in a recording of a recordable queue"),
    _measure_launches("command_buffer", "in a command buffer"),
    Measure(
        name="launch.argument",
        title="setting one argument of a kernel, to another memory than before",
        unit="ns",
        kernels=lambda *_: _deeds("arguments", _ARGUMENTS),
        figure=slope,
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
)
