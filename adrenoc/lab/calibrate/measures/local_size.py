"""How much of the local memory that a driver says there is one kernel can share.

Some drivers count what a kernel declares at more than its size, or keep a part for themselves: a
kernel that by its text would fit is refused, or runs and is wrong.
"""

from __future__ import annotations

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import THREADS, Measure, MicroKernel, Probe, Tensor, shortest_us

PERCENTS = (100, 94, 75, 50, 25)
"""The shares that are tried."""
_MOST_BYTES = 1 << 20
"""More than any kernel shares; a CPU's driver may tell of all its cache."""
_LEAST_BYTES = 2048
"""Less is no limit that a target file may have."""
_SOURCE = """__kernel void probe(__global const uint* x, __global uint* out) {{
  __local uint kept[{entries}];
  uint t = get_local_id(0), wrong = 0u;
  for (uint i = t; i < {entries}u; i += {threads}u) kept[i] = i ^ x[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = {threads}u - 1u - t; i < {entries}u; i += {threads}u)
    wrong += (uint)(kept[i] != (i ^ x[0]));
  out[get_global_id(0)] = wrong;
}}
"""


def row_name(percent: int) -> str:
    """The name of the row of a share."""
    return f"local.part.{percent}"


def share_bytes(device: Device, percent: int) -> int:
    """So much of the local memory, in whole rows of a work-group."""
    told = min(device.local_memory_bytes, _MOST_BYTES)
    return told * percent // 100 // (4 * THREADS) * (4 * THREADS)


def _measure(percent: int) -> Measure:
    def make(device: Device, _scale: int) -> tuple[Probe, ...]:
        kernel = MicroKernel(
            source=_SOURCE.format(entries=share_bytes(device, percent) // 4, threads=THREADS),
            arguments=(
                Tensor.from_value(np.array([0x5A5A5A5A, 0, 0, 0], np.uint32)),
                Tensor(shape=(THREADS,), dtype="uint32"),
            ),
        )
        return (Probe(kernel=kernel),)

    return Measure(
        name=row_name(percent),
        title=f"whether a kernel can share {percent} % of the local memory that the driver says",
        unit="",
        kernels=make,
        figure=shortest_us,
        of_output=_read,
        lacks=lambda device: (
            ""
            if share_bytes(device, percent) >= _LEAST_BYTES
            else "the driver says that there is none worth it"
        ),
        scales=False,
    )


def _read(output: np.ndarray) -> tuple[float, str]:
    wrong = int(output.sum())
    return (0.0, f"{wrong} of what was stored came back otherwise") if wrong else (1.0, "works")


MEASURES = tuple(map(_measure, PERCENTS))
