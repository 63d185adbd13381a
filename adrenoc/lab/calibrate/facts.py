"""What a device does otherwise than compilations reckon with, and what that means for choices.

A fact of the first kind is yes or no: an assumption of kernels (zeros beyond an image, halves
below 6.1e-5 kept, an extension that works since it is listed) holds, or does not.  Where a
compilation can do without it, it makes a quirk of the target file.  One of the second kind is a
figure beside another one of the same device: the way that kernels take beside one that they might
take.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adrenoc.lab.calibrate.calibrate import FAILED, Row
from adrenoc.lab.calibrate.derive import MOST_DOUBT
from adrenoc.lab.calibrate.differences import NAMED
from adrenoc.lab.calibrate.measures import functions
from adrenoc.lab.calibrate.measures.local_size import PERCENTS, row_name
from adrenoc.target.avoid import HALF_DENORMALS, NATIVE_FUNCTIONS

EXTENSION = "extension."
_RECORDED = "recordings are not to be trusted: ADRENOC_RECORD=off adrenoc run"
_WITHIN_HALF = f"off by 2^{math.log2(functions.MOST_ERROR):.0f} a call at most"
_UNUSED = "no kernel uses it"
_FP16 = "no half arithmetic, and floats in buffers: limits.fp16 is false"
_DOT = "quantised models are computed in floats: no bytes are multiplied as they are"


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What rows are to say for kernels to be right, and what it means where one does not.

    `avoid` is the word of `adrenoc/target/avoid.py` for what compilations then do without.
    """

    rows: tuple[str, ...]
    expected: str
    means: str
    avoid: str = ""


ASSUMPTIONS = (
    Assumption(
        rows=("border", "border.float4", "border.read_imageh"),
        expected="zeros",
        means="no textures: kernels read beyond images for zeros",
        avoid="textures",
    ),
    Assumption(rows=("border.bytes", "border.single"), expected="zeros", means=_UNUSED),
    Assumption(
        rows=("rounding.read_imageh",),
        expected="exact",
        means="no halves: what is read is not what was stored",
        avoid="half-storage",
    ),
    Assumption(
        rows=("rounding.write_imageh", "rounding.write_imagef", "rounding.vstore_half"),
        expected="to the nearest, ties to even",
        means="stored halves may be off by twice what check-accuracy reckons with",
    ),
    Assumption(
        rows=(
            "denormal.half",
            "denormal.vload_half",
            "denormal.vstore_half",
            "denormal.read_imagef",
            "denormal.write_imagef",
        ),
        expected="kept",
        means="halves below 6.1e-5 are zeros: what hangs on them stays in float32",
        avoid=HALF_DENORMALS,
    ),
    Assumption(
        rows=("denormal.float",), expected="kept", means="nothing: no kernel counts on such floats"
    ),
    Assumption(
        rows=tuple(f"function.{function.name}" for function in functions.CALLED),
        expected=_WITHIN_HALF,
        means="kernels that store halves call OpenCL's own functions, which take longer",
        avoid=NATIVE_FUNCTIONS,
    ),
    Assumption(
        rows=tuple(f"function.{function.name}" for function in functions.OTHERS),
        expected=_WITHIN_HALF,
        means=_UNUSED,
    ),
    Assumption(rows=(f"{EXTENSION}cl_khr_fp16",), expected="works", means=_FP16),
    Assumption(
        rows=(f"{EXTENSION}cl_khr_integer_dot_product", f"{EXTENSION}cl_qcom_dot_product8"),
        expected="works",
        means=_DOT,
    ),
    Assumption(
        rows=(f"{EXTENSION}cl_khr_command_buffer", f"{EXTENSION}cl_qcom_recordable_queues"),
        expected="works",
        means=_RECORDED,
    ),
    Assumption(
        rows=(
            f"{EXTENSION}cl_qcom_perf_hint",
            f"{EXTENSION}cl_qcom_priority_hint",
            f"{EXTENSION}cl_khr_priority_hints",
        ),
        expected="works",
        means="such hints change nothing: run does not ask for them unless told to",
    ),
    Assumption(
        rows=(row_name(PERCENTS[0]),),
        expected="works",
        means="kernels share less: limits.local_mem_bytes is what one was seen to share",
    ),
    Assumption(
        rows=("buffer.largest",),
        expected="",
        means="large tensors may fail: limits.max_alloc_bytes stays as listed",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A way that kernels might take beside the one that they take, by figures of the device.

    `more` and `less` say what a ratio of more than 1.2 or less than 1 / 1.2 means.
    """

    row: str
    beside: str
    more: str
    less: str


def _compare_textures(row: str, beside: str, what: str) -> Comparison:
    return Comparison(
        row=row,
        beside=beside,
        more=f"{what} are read faster than the arrays that kernels read",
        less=f"{what} would be read more slowly than the arrays that kernels read",
    )


_SLOWER, _FASTER = "is slower than what the runtime does", "is faster than what the runtime does"
COMPARISONS = (
    Comparison(
        row="texel.float4.cached",
        beside="texel.half4.cached",
        more="float texels come faster than half ones",
        less="float texels cost more than half ones: --preset fp32 waits longer for textures",
    ),
    _compare_textures("texel.bytes.window", "texel.half4.window", "images of bytes"),
    _compare_textures("texel.bytes.streamed", "texel.half4.streamed", "images of bytes"),
    _compare_textures("texel.single.half4.window", "texel.half4.window", "single images"),
    _compare_textures("texel.single.half4.streamed", "texel.half4.streamed", "single images"),
    _compare_textures("texel.of_buffer.half4.cached", "texel.half4.cached", "image1d_buffers"),
    _compare_textures("texel.of_rows.window", "texel.half4.window", "images of buffers"),
    Comparison(
        row="buffer.uniform",
        beside="buffer.thread",
        more="one place read by all threads is cheap: weights in buffers cost less",
        less="one place read by all threads is dear: weights by textures or local memory win",
    ),
    Comparison(
        row="local.banks",
        beside="local.float",
        more="places far apart are read faster than neighbours",
        less="places 64 floats apart share a bank: rows in local memory are better of odd length",
    ),
    Comparison(
        row="mad.bytes",
        beside="mad.float4",
        more="products of bytes are faster than of floats: quantised models gain",
        less="products of bytes are slower than of floats: quantised models save memory alone",
    ),
    Comparison(
        row="launch.recording",
        beside="launch.host",
        more="a recorded launch costs more than a plain one: runs take plain ones",
        less="a recorded launch costs less: runs record",
    ),
    Comparison(
        row="launch.command_buffer",
        beside="launch.host",
        more="a launch in a command buffer costs more than a plain one: runs take plain ones",
        less="a launch in a command buffer costs less: runs record",
    ),
    *(
        Comparison(
            row=f"copy.{way}_{end}",
            beside=f"copy.{end}",
            more=f"{what} {_FASTER}",
            less=f"{what} {_SLOWER}",
        )
        for way, what in (
            ("map", "mapping the driver's memory"),
            ("own", "sharing the host's own memory"),
        )
        for end in ("write", "read")
    ),
)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What was measured, what stands beside it, and what that means; `means` may be empty.

    `ratio` is of two figures.  `avoid` is what compilations for the target file do without.
    """

    key: str
    measured: str
    beside: str
    ratio: float | None = None
    means: str = ""
    avoid: str = ""


def find_facts(rows: Sequence[Row]) -> tuple[Fact, ...]:
    """What these rows say of assumptions, and of ways that kernels might take."""
    by_name = {row.name: row for row in rows}
    return (
        *(fact for a in ASSUMPTIONS for fact in _check_assumption(a, by_name)),
        *(fact for row in rows if (fact := _check_other_extension(row)) is not None),
        *(fact for c in COMPARISONS if (fact := _compare(c, by_name)) is not None),
    )


def _check_assumption(assumption: Assumption, rows: dict[str, Row]) -> Iterator[Fact]:
    for name in assumption.rows:
        row = rows.get(name)
        if row is None or not (row.is_measured or row.status == FAILED):
            continue
        is_asked = row.is_measured or name.startswith(EXTENSION)
        means = "" if _holds(row) else assumption.means
        yield Fact(
            key=name,
            measured=row.figure or row.reason,
            beside=assumption.expected,
            means=means if is_asked or not assumption.avoid else "it could not be asked",
            avoid=assumption.avoid if means and is_asked else "",
        )


def _holds(row: Row) -> bool:
    return row.is_measured and (bool(row.unit) or row.value == 1.0)


def _check_other_extension(row: Row) -> Fact | None:
    """An extension that no assumption is about."""
    known = any(row.name in assumption.rows for assumption in ASSUMPTIONS)
    tried = row.is_measured or row.status == FAILED
    if known or not tried or not row.name.startswith(EXTENSION):
        return None
    means = "" if _holds(row) else _UNUSED
    return Fact(key=row.name, measured=row.word or row.reason, beside="works", means=means)


def _compare(comparison: Comparison, rows: dict[str, Row]) -> Fact | None:
    row, other = rows.get(comparison.row), rows.get(comparison.beside)
    if row is None or other is None or not (row.value and other.value):
        return None
    ratio = row.value / other.value
    doubt = row.doubt + other.doubt
    means = ""
    if doubt > MOST_DOUBT:
        means = f"may be off by {100 * doubt:.0f} %"
    elif ratio > 1 + NAMED:
        means = comparison.more
    elif ratio < 1 / (1 + NAMED):
        means = comparison.less
    beside = f"{comparison.beside} {other.figure}"
    return Fact(key=row.name, measured=row.figure, beside=beside, ratio=ratio, means=means)
