"""Sub-groups' sizes, images of buffers, recordings, hints, large buffers: which of them work.

What the driver lists and an app alone can try is named too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Measure, Probe
from adrenoc.lab.calibrate.measures.ask import ask_kernel, ask_thread
from adrenoc.lab.calibrate.measures.launches import RECORDINGS
from adrenoc.lab.calibrate.measures.texels import FROM_BUFFER
from adrenoc.lab.calibrate.micro_kernel import THREADS, Deed, MicroKernel, Tensor, View

_SUBGROUPS, _SIZED = "cl_khr_subgroups", "cl_qcom_reqd_sub_group_size"
_MANY_REGISTERS = 48
"""Of four floats: of so many an Adreno keeps half as many threads beside each other."""
_MOST_BYTES = 1 << 30
_PITCH = 64
"""Texels that rows of images made from buffers are a multiple of on all listed GPUs."""


def _wave_kernel(attribute: str = "", registers: int = 0) -> MicroKernel:
    """Stores its sub-group's size; with `registers` of four floats that it keeps in a loop."""
    keep = "".join(f"  float4 r{i} = x[{i}] * (float)g;\n" for i in range(registers))
    each = range(registers)
    mix = "".join(f"    r{i} = mad(r{i}, r{(i + 1) % registers}, x[i]);\n" for i in each)
    loop = f"  for (int i = 0; i < n[0]; ++i) {{\n{mix}  }}\n" if registers else ""
    kept = "".join(f" + r{i}.x" for i in range(registers))  # zeros, which no compiler knows
    return MicroKernel(
        source=f"#pragma OPENCL EXTENSION {_SUBGROUPS} : enable\n"
        f"{attribute}__kernel void probe(__global const float4* x, __global const int* n,\n"
        "                    __global uint* out) {\n"
        f"  uint g = get_global_id(0);\n{keep}{loop}"
        f"  out[g] = get_max_sub_group_size() + (uint)(0.0f{kept});\n}}\n",
        arguments=(
            Tensor.from_value(np.zeros((THREADS, 4), np.float32)),
            Tensor.from_value(np.zeros(4, np.int32)),
            Tensor(shape=(THREADS,), dtype="uint32"),
        ),
    )


def _read_size(output: np.ndarray) -> tuple[float, str]:
    size = int(output.reshape(-1)[0])
    return float(size), f"{size} threads"


def _lacks_subgroups(device: Device) -> str:
    """OpenCL 3.0 has sub-groups without the extension's name, and lists what builds on them."""
    is_there = any(name.startswith(_SUBGROUPS.rstrip("s")) for name in device.extensions)
    return "" if is_there else device.lacks(_SUBGROUPS)


def _lacks_sizes(device: Device) -> str:
    return _lacks_subgroups(device) or device.lacks(_SIZED)


def _ask_size(name: str, title: str, kernel: MicroKernel, *, sized: bool = False) -> Measure:
    lacks = _lacks_sizes if sized else _lacks_subgroups
    return ask_kernel(name, title, kernel, _read_size, lacks)


def _read_sized(output: np.ndarray) -> tuple[float, str]:
    """Whether half of a sub-group is one of the sizes that an Adreno's has."""
    size = int(output.reshape(-1)[0])
    works = size in (16, 32, 64)
    return float(works), f"half is {size} threads" if works else f"gives {size} threads for half"


def _size_attribute(word: str) -> str:
    return (
        f"#pragma OPENCL EXTENSION {_SIZED} : enable\n"
        f'__attribute__((qcom_reqd_sub_group_size("{word}")))\n'
    )


# Images of buffers

_ROWS = np.arange(3 * _PITCH * 4, dtype=np.float32).reshape(3, _PITCH, 4)
"""Each lane is its own place: exact in halves up to 2048."""
_OF_ROWS = """__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                              CLK_FILTER_NEAREST;
__kernel void probe(__read_only image2d_t x, __global float* out) {
  const int last = get_image_width(x) - 1;
  vstore4(read_imagef(x, s, (int2)(0, 0)), 0, out);
  vstore4(read_imagef(x, s, (int2)(last, 0)), 1, out);
  vstore4(read_imagef(x, s, (int2)(0, 1)), 2, out);
  vstore4(read_imagef(x, s, (int2)(last, 2)), 3, out);
}
"""


def _read_rows(output: np.ndarray) -> tuple[float, str]:
    wanted = np.stack([_ROWS[0, 0], _ROWS[0, -1], _ROWS[1, 0], _ROWS[2, -1]])
    seen = output.reshape(-1, 4)
    if np.array_equal(seen, wanted):
        return 1.0, "works"
    place = int((seen != wanted).any(axis=1).argmax())
    return 0.0, f"reads {seen[place].tolist()} for {wanted[place].tolist()}"


def _image_of_buffer() -> Measure:
    value = _ROWS.astype(np.float16)
    seen = View(kind="image2d_of_buffer", format="half", width=_PITCH, height=len(_ROWS))
    tensor = Tensor(shape=value.shape, dtype="float16", value=value, view=seen)
    return ask_thread(
        f"extension.{FROM_BUFFER}",
        f"whether {FROM_BUFFER} works",
        _OF_ROWS,
        (tensor, Tensor(shape=(16,), dtype="float32")),
        _read_rows,
        lambda device: device.lacks_images or device.lacks(FROM_BUFFER),
    )


# Deeds


def _try_deed(
    name: str, title: str, words: dict[str, str | int], lacks: Callable[[Device], str]
) -> Measure:
    """Whether a deed works, which itself refuses what it brings wrongly."""
    return Measure(
        name=name,
        title=title,
        unit="",
        kernels=lambda *_: (Probe(kernel=Deed(words=words)),),
        figure=lambda *_: 1.0,
        word=lambda _: "works",
        lacks=lacks,
        scales=False,
    )


def _try_extension(
    extension: str, lacks: Callable[[Device], str] = lambda _: "", **words: str | int
) -> Measure:
    return _try_deed(
        f"extension.{extension}",
        f"whether {extension} works",
        words,
        lambda device: device.lacks(extension) or lacks(device),
    )


def _has_qcom_priority(device: Device) -> str:
    used = "cl_qcom_priority_hint"
    return f"where {used} is listed the runtime takes that" if used in device.extensions else ""


def _largest_bytes(device: Device) -> int:
    return max(1, min(device.max_allocation_bytes, _MOST_BYTES) // 4096) * 4096


def _leave_to_others(extension: str, why: str) -> Measure:
    return Measure(
        name=f"extension.{extension}",
        title=f"whether {extension} works",
        unit="",
        kernels=lambda *_: (),
        figure=lambda *_: 0.0,
        lacks=lambda device: device.lacks(extension) or why,
    )


_APPS = "it takes memory of an app, which alone can try it"

MEASURES = (
    _ask_size("wave", "threads of a sub-group in a small kernel", _wave_kernel()),
    _ask_size(
        "wave.registers",
        f"threads of a sub-group in a kernel that keeps {_MANY_REGISTERS} registers of four floats",
        _wave_kernel(registers=_MANY_REGISTERS),
    ),
    _ask_size(
        "wave.full",
        "threads of a sub-group where a kernel asks for a full one",
        _wave_kernel(_size_attribute("full")),
        sized=True,
    ),
    ask_kernel(
        f"extension.{_SIZED}",
        f"whether {_SIZED} works",
        _wave_kernel(_size_attribute("half")),
        _read_sized,
        _lacks_sizes,
    ),
    _image_of_buffer(),
    *(
        _try_extension(extension, deed="launches", way=way, count=24)
        for way, extension in RECORDINGS.items()
    ),
    _try_extension("cl_qcom_perf_hint", deed="hint", hint="performance"),
    _try_extension("cl_qcom_priority_hint", deed="hint", hint="priority"),
    _try_extension("cl_khr_priority_hints", _has_qcom_priority, deed="hint", hint="priority"),
    Measure(
        name="buffer.largest",
        title="the largest buffer that the driver promises, 1 GiB at most, used at both ends",
        unit="MiB",
        kernels=lambda device, _: (
            Probe(
                kernel=Deed(words={"deed": "large", "bytes": _largest_bytes(device)}),
                work=_largest_bytes(device) / 2**20,
            ),
        ),
        figure=lambda probes, _: probes[0].work,
        scales=False,
    ),
    _leave_to_others("cl_qcom_android_ahardwarebuffer_host_ptr", _APPS),
    _leave_to_others("cl_khr_external_memory_android_hardware_buffer", _APPS),
    _leave_to_others(
        "cl_qcom_ml_ops", "adrenoc tune run --clml all tries it on a model's operators"
    ),
)
