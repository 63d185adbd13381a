"""From rows to the values of a target file, and where a device is not as compilations reckon.

An assumption of kernels (zeros beyond an image, halves below 6.1e-5 kept, an extension that works
since it is listed) holds, or does not; where a compilation can do without it, it makes a quirk of
the target file.  A figure stands beside that of the listed GPU.

Rates are a second; a target's are a clock.  The clock is what the device told while it was
measured; where it tells none, that of the listed GPU, and where there is none either, 1000 MHz: the
products, which are what counts, are right under any.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adrenoc.lab.calibrate.measure import FAILED, DeviceFacts, MeasureRow
from adrenoc.lab.calibrate.measures.driver import CALLED, MOST_ERROR
from adrenoc.lab.calibrate.measures.rates import PERCENTS, row_name
from adrenoc.target.cost import Cost
from adrenoc.target.gpu import HALF_DENORMALS, NATIVE_FUNCTIONS, Performance
from adrenoc.target.target import Target

NOMINAL_MHZ = 1000
_FLOAT4_BYTES = 16
MOST_DOUBT = 0.25
"""The largest relative doubt of a value that a target file gets."""


@dataclass(frozen=True, kw_only=True)
class TargetValue:
    """A value of a target file; `key` is "performance.launch_us", `rows` are what it is from."""

    key: str
    value: float | int | bool
    how: str
    rows: tuple[MeasureRow, ...] = ()

    @property
    def spread(self) -> float:
        """Return the relative spread of the least certain row that the value is from."""
        return max((row.spread for row in self.rows), default=0.0)

    @property
    def doubt(self) -> float:
        """Return how far off it may be, relative: what its rows are off by together."""
        return sum(row.doubt for row in self.rows)

    @property
    def is_certain(self) -> bool:
        """Return whether to reckon with it: else the listed value is better."""
        return self.doubt <= MOST_DOUBT


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a derivation may look at."""

    rows: Mapping[str, MeasureRow]
    clock_mhz: float
    micro_sps: float
    wave: int


_Derived = tuple[float, tuple[str, ...], str]
Derive = Callable[[_Asked], "_Derived | None"]
"""The value, the names of its rows and how it was got; None where a row is missing."""


def derive(
    rows: Sequence[MeasureRow], device: DeviceFacts, listed: Performance, cost: Cost
) -> tuple[TargetValue, ...]:
    """Return the values that these rows give, in the order of a target file."""
    measured = {row.name: row for row in rows if row.is_measured and row.value}
    clock, where = _clock(rows, device, listed)
    units = device.compute_units
    per_unit = listed.micro_sps_per_compute_unit or cost.unstated.micro_sps_per_compute_unit
    asked = _Asked(
        rows=measured,
        clock_mhz=clock,
        micro_sps=float(units * per_unit),
        wave=cost.pipes.wave_threads,
    )
    values = [
        TargetValue(key="performance.compute_units", value=units, how="as the driver says"),
        TargetValue(key="performance.clock_mhz", value=round(clock), how=where),
    ]
    for key, rule in RULES.items():
        found = rule(asked)
        if found is None:
            continue
        value, names, how = found
        used = tuple(measured[name] for name in names)
        whole = key in _WHOLE
        values.append(
            TargetValue(
                key=key,
                value=max(1, round(value)) if whole else float(f"{value:.4g}"),
                how=how,
                rows=used,
            )
        )
    return tuple(values)


def _clock(
    rows: Sequence[MeasureRow], device: DeviceFacts, listed: Performance
) -> tuple[float, str]:
    told = [row.clock_mhz for row in rows if row.clock_mhz > 1]
    if told:
        return max(told), f"the highest that it told, from {min(told):.0f} MHz on"
    if listed.clock_mhz is not None:
        return listed.clock_mhz, "it tells none: the listed GPU's"
    if device.clock_mhz > 1:
        return device.clock_mhz, "as the driver says"
    return NOMINAL_MHZ, "it tells none: rates a clock are for this one, so that products are right"


def _best(asked: _Asked, *names: str) -> MeasureRow | None:
    known = [asked.rows[name] for name in names if name in asked.rows]
    return max(known, key=lambda row: row.value or 0.0) if known else None


def _a_clock(asked: _Asked, row: MeasureRow) -> float:
    """Return a rate in 10^9 a second as one a clock."""
    return (row.value or 0.0) * 1e3 / asked.clock_mhz


def _value(_: _Asked, row: MeasureRow) -> float:
    return row.value or 0.0


def _ns_as_clocks(asked: _Asked, row: MeasureRow) -> float:
    return (row.value or 0.0) * asked.clock_mhz / 1e3


def _by(turn: Callable[[_Asked, MeasureRow], float], how: str, *names: str) -> Derive:
    """Return the rule that turns the best of some rows into a value."""

    def rule(asked: _Asked) -> _Derived | None:
        row = _best(asked, *names)
        return None if row is None else (turn(asked, row), (row.name,), how.format(row.value))

    return rule


def _half_rate(asked: _Asked) -> _Derived | None:
    half, whole = _best(asked, "mad.half", "mad.half4"), _best(asked, "mad.float", "mad.float4")
    if half is None or whole is None:
        return None
    ratio = (half.value or 0.0) / (whole.value or 1.0)
    how = f"{half.value:.4g} over {whole.value:.4g} G multiply-adds a second"
    return ratio, (half.name, whole.name), how


def _local_width(asked: _Asked) -> _Derived | None:
    rows = ("local.half4", "local.float4")
    if not all(name in asked.rows for name in rows):
        return None
    return 1.0, rows, "both widths were measured, so that nothing is left to weigh"


def _local_clocks(asked: _Asked) -> _Derived | None:
    narrow, wide = asked.rows.get("local.half4"), asked.rows.get("local.float4")
    if narrow is None:
        return None
    clocks = _wave_clocks(asked, narrow)
    how = "of four halves a thread"
    if wide is None:
        return clocks, (narrow.name,), how
    more = _wave_clocks(asked, wide) / clocks
    charged = "by bytes" if more > 1.5 else "by reads"
    how += f"; of four floats {more:.3g} times as long, so that it charges {charged}"
    return clocks, (narrow.name, wide.name), how


def _wave_clocks(asked: _Asked, row: MeasureRow) -> float:
    """Clocks of a micro shader processor for one read by each thread of a wave."""
    return asked.wave * asked.micro_sps / _a_clock(asked, row)


RULES: Mapping[str, Derive] = {
    "performance.fp32_fma_lanes": _by(
        _a_clock, "{:.4g} G multiply-adds a second", "mad.float", "mad.float4"
    ),
    "performance.fp16_rate": _half_rate,
    "performance.texels_per_clock": _by(
        _a_clock, "{:.4g} G texels a second", "texel.half4.cached", "texel.float4.cached"
    ),
    "performance.dram_gb_per_s": _by(_value, "reads of 32 MiB", "memory.read"),
    "performance.launch_us": _by(_value, "kernels that do nothing", "launch.queue"),
    "cost.pipes.bytes_per_clock": _by(
        lambda asked, row: _a_clock(asked, row) / asked.micro_sps,
        "buffers of 64 KiB at {:.4g} GB/s",
        "buffer.thread",
    ),
    "cost.pipes.local_read_clocks": _local_clocks,
    # By what makes vectors of four floats take as long as they did.
    "cost.pipes.local_bytes_per_clock": _by(
        lambda asked, row: _FLOAT4_BYTES * asked.wave / _wave_clocks(asked, row),
        "of four floats a thread",
        "local.float4",
    ),
    "cost.pipes.local_by_width": _local_width,
    "cost.pipes.texture_latency_clocks": _by(_ns_as_clocks, "{:.4g} ns", "latency.texel"),
    "cost.pipes.buffer_latency_clocks": _by(_ns_as_clocks, "{:.4g} ns", "latency.buffer.64k"),
}
_WHOLE = frozenset(
    {
        "performance.fp32_fma_lanes",
        "cost.pipes.texture_latency_clocks",
        "cost.pipes.buffer_latency_clocks",
    }
)


EXTENSION = "extension."
_RECORDED = "recordings are not to be trusted: ADRENOC_RECORD=off adrenoc run"
_WITHIN_HALF = f"off by 2^{math.log2(MOST_ERROR):.0f} a call at most"
_FP16 = "no half arithmetic, and floats in buffers: limits.fp16 is false"
_DOT = "quantised models are computed in floats: no bytes are multiplied as they are"


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """What rows are to say for kernels to be right, and what it means where one does not. `avoid`
    is the word of `adrenoc/target/gpu.py` for what compilations then do without."""

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
        rows=tuple(f"function.{function.name}" for function in CALLED),
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
    """What was measured, what stands beside it, and what that means; `means` may be empty. `avoid`
    is what compilations for the target file do without."""

    key: str
    measured: str
    beside: str
    means: str = ""
    avoid: str = ""


def find_facts(rows: Sequence[MeasureRow]) -> tuple[Fact, ...]:
    """Return what these rows say of assumptions."""
    by_name = {row.name: row for row in rows}
    return tuple(fact for a in ASSUMPTIONS for fact in _check_assumption(a, by_name))


def _check_assumption(assumption: Assumption, rows: dict[str, MeasureRow]) -> Iterator[Fact]:
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


def _holds(row: MeasureRow) -> bool:
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
    """A value beside the listed one; `ratio` is theirs, `means` is empty below 20 %. One that
    `is_certain` not is no part of the target file."""

    key: str
    listed: float | None
    listed_source: str
    measured: float
    spread: float
    doubt: float
    is_certain: bool
    ratio: float | None
    means: str


def differences(values: Sequence[TargetValue], listed: Target) -> tuple[Difference, ...]:
    """Return each value beside the listed GPU's, or what stands in where its file has none."""
    return tuple(_difference(value, listed) for value in values)


def _difference(value: TargetValue, listed: Target) -> Difference:
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
