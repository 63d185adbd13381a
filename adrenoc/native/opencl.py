"""What the loaded OpenCL runtime tells: devices, memory, kernel times, built kernels.

Every function needs `adrenoc.native.load()` before it, and works on TVM's `tvm.opencl(device_id)`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrenoc.base.errors import DeviceError
from adrenoc.base.host.extras import pip_install

_TICK_MS = 500


@dataclass(frozen=True, kw_only=True)
class LaunchTime:
    """One launch of a kernel, by the device's own clock (ns)."""

    kernel: str
    start_ns: int
    end_ns: int


@dataclass(kw_only=True)
class Profile:
    """The launches inside a `profiled` block, in order; filled when the block ends."""

    launches: list[LaunchTime] = field(default_factory=list)

    def total_ns(self) -> dict[str, int]:
        """Time in each kernel, summed over its launches, the longest first."""
        totals: dict[str, int] = {}
        for launch in self.launches:
            elapsed = launch.end_ns - launch.start_ns
            totals[launch.kernel] = totals.get(launch.kernel, 0) + elapsed
        return dict(sorted(totals.items(), key=lambda item: -item[1]))


def devices() -> list[dict[str, Any]]:
    """Describe all OpenCL devices; the place in the list is TVM's device_id.

    Keys of each: name, vendor, platform, version, c_version (300 is OpenCL C 3.0), driver, type
    (gpu, accelerator, cpu, custom), fp16, extensions, images {supported, max_width, max_height,
    max_layers, max_read_arguments, max_write_arguments, pitch_alignment_texels} and limits
    {max_work_group_size, max_work_item_sizes, local_memory_bytes, max_allocation_bytes, ...}.
    Raises DeviceError where there is no OpenCL library, or it fails.
    """
    try:
        found: list[dict[str, Any]] = json.loads(_function("devices")())
    except RuntimeError as error:
        raise DeviceError(
            f"OpenCL devices cannot be listed: {error}",
            hint=f"{pip_install('opencl')} brings a software device for x86-64",
        ) from error
    return found


def absent_devices() -> str:
    """Return why there are no more: drivers missing or broken; empty where none was met."""
    return str(_function("absent_devices")())


def memory_stats(device_id: int = 0) -> dict[str, int]:
    """Bytes of device memory: allocated_bytes (in use), pooled_bytes (kept for reuse), peak_bytes.
    Also `images` and `buffers`, the objects in use, and `reuses`, how often the pool served."""
    stats: dict[str, int] = json.loads(_function("memory_stats")(device_id))
    return stats


def release_pool(device_id: int = 0) -> None:
    """Give the device back what the pool keeps; `peak_bytes` starts anew."""
    _function("release_pool")(device_id)


@contextmanager
def profile_kernels(device_id: int = 0) -> Iterator[Profile]:
    """Record when each kernel runs inside the block."""
    profile = Profile()
    _function("profile_start")(device_id)
    try:
        yield profile
    finally:
        events = json.loads(_function("profile_stop")(device_id))
        profile.launches.extend(
            LaunchTime(kernel=name, start_ns=start, end_ns=end) for name, start, end in events
        )


def build_all(module: Any, device_id: int = 0) -> dict[str, float]:
    """Build every kernel of a loaded TVM module and of what it imports.

    Without it each kernel is built at its first launch. Returns ms for each kernel, 0 for one that
    was built before. Raises DeviceError where the device's compiler refused a kernel; the message
    holds its log.
    """
    try:
        times: dict[str, float] = json.loads(_function("build_all")(module, device_id))
    except RuntimeError as error:
        raise DeviceError(
            str(error), hint="adrenoc inspect BUNDLE shows the source of the kernel"
        ) from error
    return times


def build_cached(module: Any, device_id: int, folder: Path) -> dict[str, int]:
    """Build every kernel of a module, from what is kept in `folder`, and keep there what is new.

    Returns how many programs were there (`hits`) and how many were not (`misses`). Raises
    DeviceError where the device's compiler refused a kernel; the message holds its log.
    """
    try:
        number = _function("build_start")(module, device_id, str(folder), "", False)
        while not _function("build_is_done")(number, _TICK_MS):
            pass
        told: dict[str, int] = json.loads(_function("build_finish")(number))
    except RuntimeError as error:
        raise DeviceError(str(error), hint="adrenoc doctor") from error
    return told


def _function(name: str) -> Any:
    import tvm_ffi

    function = tvm_ffi.get_global_func(f"adrenoc.opencl.{name}", allow_missing=True)
    if function is None:
        raise DeviceError(
            f"adrenoc.opencl.{name} is not there: TVM runs without adrenoc's OpenCL runtime",
            hint="call adrenoc.native.load() first",
        )
    return function
