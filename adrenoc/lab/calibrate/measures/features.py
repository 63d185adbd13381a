"""The size of sub-groups; recordings, hints and large buffers: which of them work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import (
    THREADS,
    HostOperation,
    Measure,
    MicroKernel,
    Probe,
    Tensor,
)
from adrenoc.lab.calibrate.measures.ask import ask_kernel

_SUBGROUPS = "cl_khr_subgroups"
_MOST_BYTES = 1 << 30
_RECORDINGS = {"recording": "cl_qcom_recordable_queues", "command_buffer": "cl_khr_command_buffer"}
"""The ways to give many launches as one command, and the extension of each."""
_WAVE = MicroKernel(
    source=f"#pragma OPENCL EXTENSION {_SUBGROUPS} : enable\n"
    "__kernel void probe(__global uint* out) {\n"
    "  out[get_global_id(0)] = get_max_sub_group_size();\n}\n",
    arguments=(Tensor(shape=(THREADS,), dtype="uint32"),),
)


def _read_size(output: np.ndarray) -> tuple[float, str]:
    size = int(output.reshape(-1)[0])
    return float(size), f"{size} threads"


def _lacks_subgroups(device: Device) -> str:
    """OpenCL 3.0 has sub-groups without the extension's name, and lists what builds on them."""
    is_there = any(name.startswith(_SUBGROUPS.rstrip("s")) for name in device.extensions)
    return "" if is_there else device.lacks(_SUBGROUPS)


def _try_extension(
    extension: str, lacks: Callable[[Device], str] = lambda _: "", **words: str | int
) -> Measure:
    """Whether an operation of the host works, which itself refuses what it brings wrongly."""
    return Measure(
        name=f"extension.{extension}",
        title=f"whether {extension} works",
        unit="",
        kernels=lambda *_: (Probe(kernel=HostOperation(words=words)),),
        figure=lambda *_: 1.0,
        word="works",
        lacks=lambda device: device.lacks(extension) or lacks(device),
        scales=False,
    )


def _has_qcom_priority(device: Device) -> str:
    used = "cl_qcom_priority_hint"
    return f"where {used} is listed the runtime takes that" if used in device.extensions else ""


def _largest_bytes(device: Device) -> int:
    return max(1, min(device.max_allocation_bytes, _MOST_BYTES) // 4096) * 4096


MEASURES = (
    ask_kernel(
        "wave", "threads of a sub-group in a small kernel", _WAVE, _read_size, _lacks_subgroups
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
            Probe(
                kernel=HostOperation(words={"operation": "large", "bytes": _largest_bytes(device)}),
                work=_largest_bytes(device) / 2**20,
            ),
        ),
        figure=lambda probes, _: probes[0].work,
        scales=False,
    ),
)
