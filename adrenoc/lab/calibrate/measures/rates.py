"""Work a second, waits, and memory: multiply-adds, texels, reads of buffers and of local memory.

Rates are the slope of two launches of unlike length, so that launching is left out.

Of local memory some drivers count what a kernel declares at more than its size, or keep a part for
themselves: a kernel that by its text would fit is refused, or runs and is wrong.
"""

import math
from collections.abc import Callable

import numpy as np

from adrenoc.lab.calibrate.measure import (
    THREADS,
    DeviceFacts,
    KernelArgument,
    Measure,
    MicroKernel,
    Size,
    TimedWork,
    count,
    last_rate,
    shortest_us,
    slope,
    slope_rate,
    texture,
)
from adrenoc.lab.calibrate.measures.driver import FP16

_GROUPS_A_UNIT = 16


def _rate(
    name: str,
    title: str,
    unit: str,
    source: str,
    data: Callable[[], np.ndarray],
    work: float,
    *,
    image_grid: tuple[Size, Size] | None = None,
    lacks: Callable[[DeviceFacts], str] = lambda _: "",
) -> Measure:
    """Return how fast `source` does work, of which a thread does `work` in each pass of its loop.
    The kernel gets `data`, which is an image where it is `image_grid` that says how many threads
    walk over it in which work-groups, then the number of passes, and writes a float a thread."""

    def make(device: DeviceFacts, scale: int) -> tuple[TimedWork, ...]:
        line = (THREADS * _GROUPS_A_UNIT * device.compute_units, 1, 1)
        threads, group = image_grid or (line, (THREADS, 1, 1))
        tensor = texture(data()) if image_grid else KernelArgument.from_value(data())
        output = KernelArgument(shape=(math.prod(threads),), dtype="float32")
        return tuple(
            TimedWork(
                kernel=MicroKernel(
                    source=source,
                    arguments=(tensor, count(passes), output),
                    threads=threads,
                    group=group,
                ),
                work=work * passes * math.prod(threads),
            )
            for passes in (4 * scale, 12 * scale)
        )

    return Measure(name=name, title=title, unit=unit, kernels=make, figure=slope_rate, lacks=lacks)


# Multiply-adds: eight sums a thread wait for none.

_SUMS, _UNROLL = 8, 4


def _mad_source(kind: str, lanes: int) -> str:
    vector = f"{kind}{lanes}" if lanes > 1 else kind
    names = [f"s{i}" for i in range(_SUMS)]
    start = "".join(f"  {vector} {s} = a + ({vector})({i});\n" for i, s in enumerate(names))
    step = "".join(f"    {s} = mad({s}, a, b);\n" for s in names)
    total = " + ".join(names)
    dot = f"dot(convert_float{lanes}({total}), (float{lanes})(1.0f))" if lanes > 1 else total
    return (
        f"{FP16 if kind == 'half' else ''}__kernel void probe(__global const float* x, "
        "__global const int* n, __global float* out) {\n"
        # Numbers that stay near one, so that no sum becomes slow or infinite.
        f"  {vector} a = ({vector})(({kind})x[0]), b = ({vector})(({kind})x[1]);\n{start}"
        f"  for (int i = 0; i < n[0]; ++i) {{\n{step * _UNROLL}  }}\n"
        f"  out[get_global_id(0)] = (float)({dot});\n}}\n"
    )


def _measure_mad(kind: str, lanes: int) -> Measure:
    vector = f"{kind}{lanes if lanes > 1 else ''}"
    is_half = kind == "half"
    return _rate(
        f"mad.{vector}",
        f"multiply-adds of {vector}",
        "G mad/s",
        _mad_source(kind, lanes),
        lambda: np.array([0.5, 0.5, 0, 0], np.float32),
        _SUMS * _UNROLL * lanes,
        lacks=lambda device: device.lacks("cl_khr_fp16") if is_half else "",
    )


# Texels of a few rows of an array of images, again and again

_WIDTH, _HEIGHT, _READS = 1024, 512, 8
_GRID: tuple[Size, Size] = ((256, 64, 1), (16, 4, 1))
_TEXELS = (
    """__constant sampler_t at = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                               CLK_FILTER_NEAREST;
__kernel void probe(__read_only image2d_array_t image, __global const int* n,
                    __global float* out) {
  int x = get_global_id(0), y = get_global_id(1);
  float4 sum = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) {
"""
    + "".join(
        f"    {{ const int k = {k}; sum += read_imagef(image, at, "
        "(int4)((x & 15) + (k & 1), (y & 3) + (k >> 1), 0, 0)); }\n"
        for k in range(_READS)
    )
    + """  }
  out[y * get_global_size(0) + x] = sum.x + sum.y + sum.z + sum.w;
}
"""
)


def _measure_texels(lanes: str, dtype: str) -> Measure:
    return _rate(
        f"texel.{lanes}.cached",
        f"reads of {lanes} texels of a few rows, again and again",
        "G texel/s",
        _TEXELS,
        lambda: np.full((1, _HEIGHT, _WIDTH, 4), 0.25, dtype),
        _READS,
        image_grid=_GRID,
        lacks=lambda device: "" if device.image_width >= _WIDTH else "the device has no images",
    )


# Local memory: reads by width, which tells whether bytes are charged or reads

_ENTRIES = 256
_LOCAL = """__kernel void probe(__global const float* x, __global const int* n,
                                __global float* out) {{
  __local {kind} kept[{entries}];
  int t = get_local_id(0);
  for (int i = t; i < {entries}; i += {threads}) kept[i] = ({kind})((({lane})x[0]) + ({lane})i);
  barrier(CLK_LOCAL_MEM_FENCE);
  {kind} sum = ({kind})(0);
  for (int i = 0; i < n[0]; ++i) {{
{reads}  }}
  out[get_global_id(0)] = (float)(sum.x + sum.y + sum.z + sum.w);
}}
"""


def _measure_local(name: str, kind: str, bytes_: int, op: str) -> Measure:
    return _rate(
        f"local.{name}",
        f"reads of {bytes_} bytes ({kind}) from local memory",
        "G read/s",
        _LOCAL.format(
            kind=kind,
            lane=kind.removesuffix("4"),
            entries=_ENTRIES,
            threads=THREADS,
            reads="".join(
                f"    sum {op}= kept[(t + {k} * 8 + i) & {_ENTRIES - 1}];\n" for k in range(_READS)
            ),
        ),
        lambda: np.zeros(4, np.float32),
        _READS,
    )


# Buffers, out of a cache

_WORDS = 4096
"""Of 16 bytes: 64 KiB."""
_BUFFER = (
    """__kernel void probe(__global const float4* data, __global const int* n,
                                __global float* out) {
  int g = get_global_id(0);
  float4 sum = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) {
"""
    + "".join(f"    sum += data[(g + {k} * 64 + i * 512) & {_WORDS - 1}];\n" for k in range(_READS))
    + """  }
  out[g] = sum.x + sum.y + sum.z + sum.w;
}
"""
)

# Memory: each place is written first, for what nobody wrote may be one page for all.

_BYTES = 32 << 20
_MEMORY_THREADS = 1 << 16
_WALK = f"""  for (uint i = get_global_id(0); i < {_BYTES // 16}u; i += {_MEMORY_THREADS}u)"""
_WRITE = f"""__kernel void probe(__global uint4* out) {{
{_WALK} out[i] = (uint4)(i);
}}
"""
_READ = f"""__kernel void probe(__global const uint4* data, __global uint* out) {{
  uint4 sum = 0;
{_WALK} sum += data[i];
  out[get_global_id(0)] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}}
"""


def _memory_kernels(_device: DeviceFacts, _scale: int) -> tuple[TimedWork, ...]:
    whole = KernelArgument(shape=(_BYTES // 4,), dtype="uint32")
    sums = KernelArgument(shape=(_MEMORY_THREADS,), dtype="uint32")
    kernels = ((_WRITE, (whole,)), (_READ, (whole, sums)))
    return tuple(
        TimedWork(
            kernel=MicroKernel(source=text, arguments=arguments, threads=(_MEMORY_THREADS, 1, 1)),
            work=_BYTES,
        )
        for text, arguments in kernels
    )


_NOTHING = MicroKernel(
    source="__kernel void probe(__global int* out) { out[get_global_id(0)] = 1; }\n",
    arguments=(KernelArgument(shape=(THREADS,), dtype="int32"),),
)

RATE_MEASURES = (
    _measure_mad("float", 1),
    _measure_mad("float", 4),
    _measure_mad("half", 1),
    _measure_mad("half", 4),
    _measure_texels("half4", "float16"),
    _measure_texels("float4", "float32"),
    _measure_local("half4", "ushort4", 8, "^"),
    _measure_local("float4", "float4", 16, "+"),
    Measure(
        name="launch.queue",
        title="one more launch of a kernel that does nothing, in a queue",
        unit="us",
        kernels=lambda *_: (TimedWork(kernel=_NOTHING),),
        figure=shortest_us,
        scales=False,
    ),
    Measure(
        name="memory.read",
        title=f"reads of {_BYTES >> 20} MiB of memory",
        unit="GB/s",
        kernels=_memory_kernels,
        figure=last_rate,
        scales=False,
    ),
    _rate(
        "buffer.thread",
        "reads of 16 bytes by each thread beside its neighbour's, within 64 KiB",
        "GB/s",
        _BUFFER,
        lambda: np.full((_WORDS * 4,), 0.25, np.float32),
        16 * _READS,
    ),
)


_LINE = 16
"""Places of four bytes in a line of 64."""
_LINES = 1024
_SIDE = 64
_CHASE = """__kernel void probe(__global const int* next, __global const int* n,
                                __global int* out) {
  int at = 0;
  for (int i = 0; i < n[0]; ++i) at = next[at];
  out[0] = at;
}
"""
_TEXEL = """__constant sampler_t s = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP |
                              CLK_FILTER_NEAREST;
__kernel void probe(__read_only image2d_array_t next, __global const int* n,
                    __global float* out) {
  float4 at = (float4)(0.0f);
  for (int i = 0; i < n[0]; ++i) at = read_imagef(next, s, (int4)((int)at.x, (int)at.y, 0, 0));
  out[0] = at.x;
}
"""


def chain(lines: int, seed: int = 1) -> np.ndarray:
    """Return where each of so many lines leads: one round through all, in no order."""
    order = np.random.default_rng(seed).permutation(lines)
    following = np.empty(lines, np.int32)
    following[order] = np.roll(order, -1)
    return following


def _probes(
    source: str, data: KernelArgument, dtype: str, lines: int, scale: int
) -> tuple[TimedWork, ...]:
    """Return a chain of so many lines, walked through at least once, beyond a cache."""
    return tuple(
        TimedWork(
            kernel=MicroKernel(
                source=source,
                # The whole of the output is to be alike in every run: one place is enough.
                arguments=(data, count(iterations), KernelArgument(shape=(1,), dtype=dtype)),
                threads=(1, 1, 1),
                group=(1, 1, 1),
            ),
            work=iterations,
        )
        for iterations in (max(64 * scale, lines), max(256 * scale, 2 * lines))
    )


def _chase_buffer(_: DeviceFacts, scale: int) -> tuple[TimedWork, ...]:
    places = np.zeros(_LINES * _LINE, np.int32)
    places[::_LINE] = chain(_LINES) * _LINE
    return _probes(_CHASE, KernelArgument.from_value(places), "int32", _LINES, scale)


def _chase_texels(_: DeviceFacts, scale: int) -> tuple[TimedWork, ...]:
    following = chain(_SIDE * _SIDE)
    image = np.zeros((1, _SIDE, _SIDE, 4), np.float32)
    image[..., 0] = (following % _SIDE).reshape(_SIDE, _SIDE)
    image[..., 1] = (following // _SIDE).reshape(_SIDE, _SIDE)
    return _probes(_TEXEL, texture(image), "float32", _SIDE * _SIDE, scale)


LATENCY_MEASURES = (
    Measure(
        name="latency.texel",
        title="a read of a float texel, out of 64 KiB, that the next waits for",
        unit="ns",
        kernels=_chase_texels,
        figure=slope,
        lacks=DeviceFacts.lacks_images,
    ),
    Measure(
        name="latency.buffer.64k",
        title="a read of a buffer of 64 KiB that the next waits for",
        unit="ns",
        kernels=_chase_buffer,
        figure=slope,
    ),
)


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
    """Return the name of the row of a share."""
    return f"local.part.{percent}"


def share_bytes(device: DeviceFacts, percent: int) -> int:
    """Return so much of the local memory, in whole rows of a work-group."""
    told = min(device.local_memory_bytes, _MOST_BYTES)
    return told * percent // 100 // (4 * THREADS) * (4 * THREADS)


def _measure(percent: int) -> Measure:
    def make(device: DeviceFacts, _scale: int) -> tuple[TimedWork, ...]:
        kernel = MicroKernel(
            source=_SOURCE.format(entries=share_bytes(device, percent) // 4, threads=THREADS),
            arguments=(
                KernelArgument.from_value(np.array([0x5A5A5A5A, 0, 0, 0], np.uint32)),
                KernelArgument(shape=(THREADS,), dtype="uint32"),
            ),
        )
        return (TimedWork(kernel=kernel),)

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


LOCAL_SIZE_MEASURES = tuple(map(_measure, PERCENTS))
