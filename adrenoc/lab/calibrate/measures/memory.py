"""Bytes a second by how many are touched: where the caches end, and what memory gives beyond."""

from __future__ import annotations

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.measure import Curve, Measure, Probe, last_rate, name_steps, rates
from adrenoc.lab.calibrate.micro_kernel import THREADS, MicroKernel, Tensor

_KIB = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 32768)
_COPIED_KIB = (1024, 4096, 32768)
_MOST_THREADS = 1 << 16
_LEAST_BYTES = 4 << 20
"""That a launch moves, so that it takes longer than launching."""
# Each pass begins elsewhere, so that no compiler keeps a number in a register until the next;
# what a place holds in the end is the same whichever thread was there last.
_WALK = """  uint g = get_global_id(0);
  for (uint pass = 0; pass < {iterations}u; ++pass)
    for (uint i = g; i < {words}u; i += {threads}u) {{
      const uint at = (i + pass * 64u) & {last}u;
      {step}
    }}
"""
_WRITE = (
    "__kernel void probe(__global uint4* out) {{\n" + _WALK + "}}\n",
    "out[at] = (uint4)(at);",
)
_READ = (
    "__kernel void probe(__global const uint4* data, __global uint* out) {{\n  uint4 sum = 0;\n"
    + _WALK
    + "  out[g] = sum.x ^ sum.y ^ sum.z ^ sum.w;\n}}\n",
    "sum += data[at];",
)
_COPY = (
    "__kernel void probe(__global const uint4* data, __global uint4* out) {{\n" + _WALK + "}}\n",
    "out[at] = data[at];",
)


def _point(
    kib: int, text: tuple[str, str], *, moved: int, small: bool, dtype: str = "uint32"
) -> Probe:
    words = kib * 1024 // 16
    threads = max(THREADS, min(words, _MOST_THREADS))
    iterations = max(1, _LEAST_BYTES // (kib * 1024))
    whole = Tensor(shape=(words * 4,), dtype=dtype)
    output = Tensor(shape=(threads,), dtype="uint32") if small else whole
    # Of the same shape and type as what the first kernel wrote, so that it is that tensor.
    inputs = {_WRITE: (), _READ: (whole,), _COPY: (Tensor(shape=(words * 4,), dtype="int32"),)}
    source, step = text
    kernel = MicroKernel(
        source=source.format(
            iterations=iterations, words=words, last=words - 1, threads=threads, step=step
        ),
        arguments=(*inputs[text], output),
        threads=(threads, 1, 1),
    )
    return Probe(kernel=kernel, work=moved * iterations * kib * 1024.0, x=kib)


def _writes(device: Device, scale: int) -> tuple[Probe, ...]:
    return tuple(_point(kib, _WRITE, moved=1, small=False) for kib in _KIB)


def _reads(device: Device, scale: int) -> tuple[Probe, ...]:
    """Each footprint is written first: memory that nobody wrote may be one page for all."""
    points = []
    for kib in _KIB:
        points.append(_point(kib, _WRITE, moved=1, small=False))
        points.append(_point(kib, _READ, moved=1, small=True))
    return tuple(points)


def _copies(device: Device, scale: int) -> tuple[Probe, ...]:
    points = []
    for kib in _COPIED_KIB:
        points.append(_point(kib, _WRITE, moved=1, small=False, dtype="int32"))
        points.append(_point(kib, _COPY, moved=2, small=False))
    return tuple(points)


def _name_ends(curve: Curve) -> str:
    """Where a cache ends; the last place is beyond all."""
    return f"KiB: {name_steps(curve)}"


MEASURES = (
    Measure(
        name="memory.read",
        title="reads of memory by how much is read; the figure is that of 32 MiB",
        unit="GB/s",
        kernels=_reads,
        figure=last_rate,
        curve=rates,
        word=_name_ends,
        every=2,
        scales=False,
    ),
    Measure(
        name="memory.write",
        title="writes of memory by how much is written; the figure is that of 32 MiB",
        unit="GB/s",
        kernels=_writes,
        figure=last_rate,
        curve=rates,
        word=_name_ends,
        scales=False,
    ),
    Measure(
        name="memory.copy",
        title="copies within memory, both ways counted; the figure is that of 32 MiB",
        unit="GB/s",
        kernels=_copies,
        figure=last_rate,
        curve=rates,
        word=_name_ends,
        every=2,
        scales=False,
    ),
)
