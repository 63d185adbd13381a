"""What MNN's OpenCL kernels for images would take for a convolution, by the same outside tools.

The text of the kernels is MNN's own, read from a folder and never kept here (`conv_2d.cl`,
`depthwise_conv2d.cl`, `gemm.cl` and the two transforms of Winograd's algorithm, which MNN has in
`source/backend/opencl/execution/cl`).  A launch has as many threads as MNN starts, loops run as
often as its arguments say, and of several kernels for one layer its tuner is believed to find the
fastest.  A 3x3 convolution of stride 1 with at least 32 channels on both sides goes by Winograd's
algorithm there, and no other way.

A product by a matrix is a 1x1 convolution of an image of one column there (a token is a row), so
that kernels of several pixels along a row make one.  Of products, unlike of other layers, its
kernels for buffers (`conv_2d_buf.cl`) count too, if they are faster: that is the better of its two
modes for networks of tokens.  The analyser's compiler takes four numbers apart that are read of a
buffer of halves, so these kernels get a read of eight bytes in place of that.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fitting.machine_code import FLOAT_TEXEL_BYTES, HALF_TEXEL_BYTES, WAVE, AnalyserError

LANES, FLOAT_BYTES = 4, 4
MS_PER_S, BYTES_PER_GB = 1e3, 1e9
TAPS, OUTPUTS, PLANES = 3, 2, 16
"""Of Winograd's algorithm as MNN has it: the kernel's side, a tile's outputs and its planes."""
WINOGRAD_LEAST = 32
"""Channels on both sides from which on MNN takes that algorithm without a trial."""
PIXELS = 4
PRODUCT_WAYS = ((4, 4), (4, 2), (4, 1))
WIDE_PRODUCT_WAYS = ((8, 4), (8, 2))
"""Channels and pixels of a thread of the kernels for buffers that MNN tries."""
WIDE_LEAST_RESULTS, WIDE_LEAST_ROWS, WIDE_LEAST_CHANNELS = 65536, 16, 16
"""From how many numbers, rows and channels of a product on it takes the wider ones."""
GEMM_LEAST_ROWS, GEMM_LEAST_MULTIPLIES = 128, 512 * 512 * 256
"""From how many rows and multiply-adds on it multiplies packed matrices instead."""
GEMM_LEAST_CHANNELS = 32, 64
"""Of the input and of the output, which have to be more."""
WIDE_LOADS = """\
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
inline half4 __attribute__((overloadable)) load_wide(int i, const __global half *p)
{ return as_half4(*(const __global uint2 *)(p + 4 * i)); }
inline float4 __attribute__((overloadable)) load_wide(int i, const __global float *p)
{ return *(const __global float4 *)(p + 4 * i); }
#define vload4 load_wide
"""
SIZES = ("", "2", "3", "4", "8", "16")
HALF_NAMES = {
    **{f"{kind}FLOAT{n}": f"half{n}" for kind in ("", "COMPUTE_") for n in SIZES},
    **{f"CONVERT_{kind}FLOAT{n}": f"convert_half{n}" for kind in ("", "COMPUTE_") for n in SIZES},
    **{name: "read_imageh" for name in ("RI_F", "RI_DATA")},
    **{name: "write_imageh" for name in ("WI_F", "WI_DATA")},
    "OUTPUT_TYPE_I4": "half4",
    "CONVERT_OUTPUT_I4": "convert_half4",
    "MNN_SUPPORT_FP16": "1",
}
FLOAT_NAMES = {
    **{f"{kind}FLOAT{n}": f"float{n}" for kind in ("", "COMPUTE_") for n in SIZES},
    **{f"CONVERT_{kind}FLOAT{n}": f"convert_float{n}" for kind in ("", "COMPUTE_") for n in SIZES},
    **{name: "read_imagef" for name in ("RI_F", "RI_DATA")},
    **{name: "write_imagef" for name in ("WI_F", "WI_DATA")},
    "OUTPUT_TYPE_I4": "float4",
    "CONVERT_OUTPUT_I4": "convert_float4",
}


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution as a network has it; a product by a matrix is one of 1x1, a row a pixel."""

    channels: int
    out_channels: int
    size: tuple[int, int]
    """Rows and columns of the input."""
    out_size: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    images: int = 1
    given: bool = False
    """Whether it reads what the model is given, of which MNN makes an image first."""
    product: bool = False
    """Whether it is a product by a matrix."""

    def __str__(self) -> str:
        kind = "dw" if self.is_depthwise else ""
        kernel, sizes = "x".join(map(str, self.kernel)), "x".join(map(str, self.size))
        return f"{kind}{kernel} s{self.strides[0]} {self.channels}-{self.out_channels}@{sizes}"

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is convolved by itself."""
        return self.groups == self.channels == self.out_channels > 1

    @property
    def is_plain(self) -> bool:
        """Whether it has neither strides nor dilation."""
        return self.strides == self.dilation == (1, 1)

    @property
    def by_packed_product(self) -> bool:
        """Whether MNN multiplies packed matrices, where it has buffers."""
        rows = self.images * math.prod(self.out_size)
        least_in, least_out = GEMM_LEAST_CHANNELS
        long = rows >= GEMM_LEAST_ROWS and rows * self.multiplies >= GEMM_LEAST_MULTIPLIES
        return long and self.channels > least_in and self.out_channels > least_out

    @property
    def multiplies(self) -> int:
        """Multiply-adds of one pixel of a product."""
        return self.channels * self.out_channels

    @property
    def by_winograd(self) -> bool:
        """Whether MNN takes Winograd's algorithm."""
        fewest = min(self.channels, self.out_channels)
        return self.is_plain and self.kernel == (TAPS, TAPS) and fewest >= WINOGRAD_LEAST


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One kernel as MNN starts it: trips are those of its loops, outermost first."""

    file: str
    kernel: str
    threads: int
    trips: tuple[int, ...]
    texels: int
    """Texels that memory has to move: each one of what it reads and writes, once."""
    defines: tuple[str, ...] = ()
    buffers: bool = False
    """Whether it is one of those for buffers."""


def mnn_ms(conv: Convolution, folder: Path, gpu: str, half: bool, estimator: Any) -> float | None:
    """Milliseconds of MNN's fastest way; None where it has no kernel for images."""
    if conv.groups > 1 and not conv.is_depthwise:
        return None
    least_ms = sum(
        min(launch_ms(launch, folder, gpu, half, estimator) for launch in ways)
        for ways in _launches(conv)
    )
    if conv.given:
        pixels = conv.images * math.prod(conv.size)
        least_ms += copy_ms(pixels, conv.channels, half, estimator.GPUS[gpu])
    if conv.product and conv.by_packed_product:
        return min(least_ms, _packed_product_ms(conv, half, estimator.GPUS[gpu]))
    return least_ms


def _packed_product_ms(conv: Convolution, half: bool, rates: Any) -> float:
    """What arithmetic and memory alone take for it: MNN's three kernels are not estimated."""
    rows = conv.images * math.prod(conv.out_size)
    lanes = rates["fp16" if half else "fp32"] * rates["sp"] * rates["usptp"] * rates["clk"] * 1e9
    texel_bytes = HALF_TEXEL_BYTES if half else FLOAT_TEXEL_BYTES
    memory_s = _moved(conv) * texel_bytes / (rates["dram"] * BYTES_PER_GB)
    return float(max(rows * conv.multiplies / lanes, memory_s) * MS_PER_S)


def copy_ms(pixels: int, channels: int, half: bool, rates: Any) -> float:
    """What memory takes to make an image of the model's floats, or floats of an image."""
    texel_bytes = HALF_TEXEL_BYTES if half else FLOAT_TEXEL_BYTES
    moved = pixels * (channels * FLOAT_BYTES + _blocks(channels) * texel_bytes)
    return float(moved / rates["dram"] * MS_PER_S / BYTES_PER_GB)


def launch_ms(launch: Launch, folder: Path, gpu: str, half: bool, estimator: Any) -> float:
    """One launch's estimate; none of these kernels reads local memory."""
    names = HALF_NAMES if half else FLOAT_NAMES
    defines = [f"-D{name}={value}" for name, value in names.items()]
    options = " ".join(["-cl-mad-enable", *defines, *(f"-D{name}" for name in launch.defines)])
    path = str(folder / launch.file)
    facts, wrong = _analyse(estimator, path, launch.kernel, options, gpu, launch.buffers)
    if facts is None:
        raise AnalyserError(f"the analyser failed on MNN's {launch.kernel} for {gpu}:\n{wrong}")
    texel_bytes = HALF_TEXEL_BYTES if half else FLOAT_TEXEL_BYTES
    found = estimator.estimate(
        facts,
        facts["disasm"],
        estimator.GPUS[gpu],
        {
            "_gpu": gpu,
            "trips": ",".join(map(str, launch.trips)),
            "mac": 64,
            "threads": -(-launch.threads // WAVE) * WAVE,
            "texel_bytes": texel_bytes,
            "dram_bytes": launch.texels * texel_bytes,
        },
    )
    return float(found["est_ms"])


@lru_cache(maxsize=256)
def _analyse(
    estimator: Any, path: str, kernel: str, options: str, gpu: str, buffers: bool
) -> tuple[Any, Any]:
    """The machine code of a kernel: of a file without the others, which may not compile."""
    with tempfile.TemporaryDirectory() as scratch:
        if buffers:
            wide = Path(scratch) / Path(path).name
            wide.write_text(WIDE_LOADS + Path(path).read_text())
            path = str(wide)
        facts, wrong = estimator.stats(path, kernel, options, gpu, None)
        if facts is None:
            alone = Path(estimator.only_kernel(path, kernel))
            facts, wrong = estimator.stats(str(alone), kernel, options, gpu, None)
            if str(alone) != path:
                alone.unlink()
    return facts, wrong


def _launches(conv: Convolution) -> Iterator[list[Launch]]:
    """The kernels of a convolution, one after the other: of each the ways that MNN may take."""
    if conv.is_depthwise:
        yield [_depthwise(conv)]
    elif conv.by_winograd:
        yield from _winograd(conv)
    elif conv.kernel == (1, 1):
        yield [_dense(conv, "conv_2d_1x1", (LANES, 1, PIXELS)), *_products(conv)]
    else:
        yield [
            _dense(conv, f"conv_2d_c{channels}h{rows}w{columns}", (channels, rows, columns))
            for channels, rows, columns in ((4, 1, 4), (4, 4, 1), (8, 4, 1))
        ]


def _blocks(channels: int) -> int:
    return -(-channels // LANES)


def _moved(conv: Convolution) -> int:
    """Texels of input, output and weights of a dense convolution."""
    weights = _blocks(conv.out_channels) * conv.channels * math.prod(conv.kernel)
    return _images(conv) + weights


def _images(conv: Convolution) -> int:
    """Texels of input and output."""
    read = _blocks(conv.channels) * math.prod(conv.size)
    written = _blocks(conv.out_channels) * math.prod(conv.out_size)
    return conv.images * (read + written)


def _dense(conv: Convolution, kernel: str, made: tuple[int, int, int]) -> Launch:
    """A thread makes so many channels, rows and columns."""
    (height, width), (channels, rows, columns) = conv.out_size, made
    of_image = -(-conv.out_channels // channels) * -(-height // rows) * -(-width // columns)
    kh, kw = conv.kernel
    if conv.is_plain and columns > 1:  # the first tap of a row comes before its loop
        kw = max(1, kw - 1)
    taps = () if conv.kernel == (1, 1) else (kh, kw)
    return Launch(
        file="conv_2d.cl",
        kernel=kernel,
        threads=conv.images * of_image,
        trips=(_blocks(conv.channels), *taps),
        texels=_moved(conv),
        defines=("BIAS", "RELU", *(("MNN_CONV_S1D1",) if conv.is_plain else ())),
    )


def _products(conv: Convolution) -> Iterator[Launch]:
    """The kernels for buffers of a product: a thread makes so many channels and pixels of a row."""
    if not conv.product:
        return
    rows = conv.images * math.prod(conv.out_size)
    wide = min(rows * conv.out_channels / WIDE_LEAST_RESULTS, rows / WIDE_LEAST_ROWS) >= 1
    wide = wide and conv.out_channels >= WIDE_LEAST_CHANNELS
    height, width = conv.out_size
    for channels, pixels in WIDE_PRODUCT_WAYS if wide else PRODUCT_WAYS:
        of_image = -(-conv.out_channels // channels) * height * -(-width // pixels)
        yield Launch(
            file="conv_2d_buf.cl",
            kernel=f"conv_2d_1x1_c{channels}h1w{pixels}",
            threads=conv.images * of_image,
            trips=(_blocks(conv.channels),),
            texels=_moved(conv),
            defines=("BLOCK_LEAVE",) if width % pixels else (),
            buffers=True,
        )


def _depthwise(conv: Convolution) -> Launch:
    height, width = conv.out_size
    return Launch(
        file="depthwise_conv2d.cl",
        kernel="depthwise_conv2d_s1" if conv.is_plain else "depthwise_conv2d",
        threads=conv.images * _blocks(conv.channels) * height * -(-width // PIXELS),
        trips=conv.kernel,
        texels=_images(conv) + _blocks(conv.channels) * math.prod(conv.kernel),
        defines=("RELU",),
    )


def _winograd(conv: Convolution) -> Iterator[list[Launch]]:
    """To planes, the product, and back."""
    down, across = (-(-extent // OUTPUTS) for extent in conv.out_size)
    tiles = conv.images * down * across
    source, result = _blocks(conv.channels), _blocks(conv.out_channels)
    image_in = conv.images * source * math.prod(conv.size)
    image_out = conv.images * result * math.prod(conv.out_size)
    planes_in, planes_out = PLANES * source * tiles, PLANES * result * tiles
    yield [
        Launch(
            file="winogradTransformSource2_3_1.cl",
            kernel="winogradTransformSource",
            threads=tiles * source,
            trips=(),
            texels=image_in + planes_in,
        )
    ]
    yield [
        Launch(
            file="gemm.cl",
            kernel=kernel,
            threads=conv.images * -(-across // columns) * down * PLANES * result,
            trips=(source,),
            texels=planes_in + planes_out + PLANES * result * conv.channels,
        )
        for kernel, columns in (("gemmWinograd", 4), ("gemmWinogradW2", 8))
    ]
    yield [
        Launch(
            file="winogradTransformDest2_3_1.cl",
            kernel="winogradTransformDest",
            threads=tiles * result,
            trips=(),
            texels=planes_out + image_out,
            defines=("RELU",),
        )
    ]
