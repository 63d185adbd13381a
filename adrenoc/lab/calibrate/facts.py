"""Tell where a device is not as compilations reckon, and what that means for choices.

An assumption of kernels (zeros beyond an image, halves below 6.1e-5 kept, an extension that works
since it is listed) holds, or does not; where a compilation can do without it, it makes a quirk of
the target file.  A figure stands beside that of the listed GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adrenoc.lab.calibrate.calibrate import FAILED, Row
from adrenoc.lab.calibrate.derive import Value
from adrenoc.lab.calibrate.measures import functions
from adrenoc.lab.calibrate.measures.local_size import PERCENTS, row_name
from adrenoc.target.avoid import HALF_DENORMALS, NATIVE_FUNCTIONS
from adrenoc.target.target import Target

EXTENSION = "extension."
_RECORDED = "recordings are not to be trusted: ADRENOC_RECORD=off adrenoc run"
_WITHIN_HALF = f"off by 2^{math.log2(functions.MOST_ERROR):.0f} a call at most"
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
class Fact:
    """What was measured, what stands beside it, and what that means; `means` may be empty.

    `avoid` is what compilations for the target file do without.
    """

    key: str
    measured: str
    beside: str
    means: str = ""
    avoid: str = ""


def find_facts(rows: Sequence[Row]) -> tuple[Fact, ...]:
    """What these rows say of assumptions."""
    by_name = {row.name: row for row in rows}
    return tuple(fact for a in ASSUMPTIONS for fact in _check_assumption(a, by_name))


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


NAMED = 0.2
"""The relative difference from the listed value from which on a measured one is named."""

_MEANS = {
    "compute_units": ("work is spread over more processors", "large tiles leave processors idle"),
    "clock_mhz": ("every estimate is shorter", "every estimate is longer"),
    "fp32_fma_lanes": (
        "kernels wait for texels and memory sooner: more results a thread win",
        "arithmetic bounds more kernels: Winograd wins more often",
    ),
    "fp16_rate": ("halves pay more than was reckoned", "halves save memory more than time"),
    "texels_per_clock": (
        "weights in textures and small tiles lose less",
        "texels bound more kernels: weights by local memory and larger tiles win",
    ),
    "dram_gb_per_s": (
        "planes between kernels cost less: joins win less often",
        "planes between kernels cost more: joins win more often",
    ),
    "launch_us": (
        "a launch costs more: joined kernels win more often",
        "a launch costs less: split kernels, such as Winograd's three, win more often",
    ),
    "bytes_per_clock": ("weights by buffers cost less", "weights by buffers cost more"),
    "local_read_clocks": (
        "local memory is slower than reckoned: kernels that read it less win",
        "local memory is faster than reckoned: kernels that share through it win",
    ),
    "local_bytes_per_clock": (
        "wide reads of local memory cost less: float and larger tiles through it win",
        "wide reads of local memory cost more: kernels that read it less win",
    ),
    "local_by_width": (
        "wide reads of local memory are sure to cost more, which was weighed with the contrary",
        "wide reads of local memory cost no more, which was weighed with the contrary",
    ),
    "texture_latency_clocks": ("more texels at once win", "fewer texels at once are enough"),
    "buffer_latency_clocks": ("more loads at once win", "fewer loads at once are enough"),
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A value beside the listed one; `ratio` is theirs, `means` is empty below 20 %.

    One that `is_certain` not is no part of the target file.
    """

    key: str
    listed: float | None
    listed_source: str
    measured: float
    spread: float
    doubt: float
    is_certain: bool
    ratio: float | None
    means: str


def differences(values: Sequence[Value], listed: Target) -> tuple[Difference, ...]:
    """Each value beside that of the listed GPU, or what stands in where its file has none."""
    return tuple(_difference(value, listed) for value in values)


def _difference(value: Value, listed: Target) -> Difference:
    section, _, name = value.key.rpartition(".")
    if section == "performance":
        known = getattr(listed.performance, name)
    else:
        known = getattr(getattr(listed.cost, section.removeprefix("cost.")), name)
    ratio = float(value.value) / float(known) if known else None
    means = ""
    if not value.is_certain:
        means = f"may be off by {100 * value.doubt:.0f} %: the listed value stands"
    elif ratio is not None and (ratio > 1 + NAMED or ratio < 1 / (1 + NAMED)):
        more, less = _MEANS[name]
        means = more if ratio > 1 else less
    return Difference(
        key=value.key,
        listed=known,
        listed_source=listed.source_of(value.key) or "",
        measured=float(value.value),
        spread=value.spread,
        doubt=value.doubt,
        is_certain=value.is_certain,
        ratio=ratio,
        means=means,
    )
