"""What a run gave: outputs, times, those of launches by the device's own clock, its state, a
trace."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adrenoc.base.decision import Decision
from adrenoc.bundle.bundle import LaunchInfo

if TYPE_CHECKING:
    import numpy as np


LEAST_NS = 10
"""The time that some launch of a run takes at least, by a clock that goes."""


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """Time that one kernel took on the device in one run, over all of its calls."""

    name: str
    calls: int
    time_ms: float


@dataclass(frozen=True, kw_only=True)
class NodeTime:
    """Time that the device needed for one node of the model, in one run. `gflops` and `gb_per_s`
    are what it reached, each tensor counted once; `of_roofline` is the share of the fastest that
    the target's figures allow, None where they do not tell."""

    node: str
    kernel: str
    time_ms: float
    gflops: float
    gb_per_s: float
    of_roofline: float | None
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimedLaunch:
    """One launch of a kernel, by the device's own clock (ns)."""

    kernel: str
    start_ns: int
    end_ns: int

    @property
    def time_ms(self) -> float:
        """Return how long it ran."""
        return (self.end_ns - self.start_ns) / 1e6


def tells_time(launches: Sequence[TimedLaunch]) -> bool:
    """Return whether the device's clock goes: Mesa 22.3 says of each launch that it took one ns."""
    return any(launch.end_ns - launch.start_ns >= LEAST_NS for launch in launches)


def kernel_times(launches: Sequence[TimedLaunch]) -> tuple[KernelTime, ...]:
    """Return time in each kernel over its launches, the longest first."""
    calls = Counter(launch.kernel for launch in launches)
    total_ms: Counter[str] = Counter()
    for launch in launches:
        total_ms[launch.kernel] += launch.time_ms  # type: ignore[assignment]
    return tuple(
        KernelTime(name=name, calls=calls[name], time_ms=time_ms)
        for name, time_ms in total_ms.most_common()
    )


def node_times(
    launches: Sequence[TimedLaunch], infos: Sequence[LaunchInfo]
) -> tuple[NodeTime, ...]:
    """Return each launch with the node that it computes, in order. Nothing where the kernels that
    ran are not those that the bundle lists (branches that were not taken, or a bundle without a
    list): a wrong name is worse than none."""
    if [launch.kernel for launch in launches] != [info.kernel for info in infos]:
        return ()
    return tuple(_node_time(launch, info) for launch, info in zip(launches, infos, strict=True))


def _node_time(launch: TimedLaunch, info: LaunchInfo) -> NodeTime:
    time_ms = launch.time_ms
    seconds = max(time_ms / 1e3, 1e-9)  # some clocks count in steps of a microsecond
    floor_ms = None if info.floor_us is None else info.floor_us / 1e3
    return NodeTime(
        node=info.node,
        kernel=info.kernel,
        time_ms=time_ms,
        gflops=info.flops / seconds / 1e9,
        gb_per_s=info.bytes / seconds / 1e9,
        of_roofline=None if floor_ms is None else floor_ms / 1e3 / seconds,
        tensors=info.tensors,
    )


SYSFS = "/sys"
# A clock moves a little between two readings at the same level of its table.
CLOCK_TOLERANCE = 0.05


@dataclass(frozen=True, kw_only=True)
class GpuState:
    """What the phone's kernel says of its GPU at one moment; empty or 0 where it cannot be read."""

    model: str = ""
    clock_mhz: float = 0.0
    max_clock_mhz: float = 0.0
    governor: str = ""
    temperature_c: float = 0.0

    @property
    def is_known(self) -> bool:
        """Return whether anything could be read: only on a phone, and often only for its shell."""
        return self != GpuState()

    def __str__(self) -> str:
        facts = (
            f"{self.clock_mhz:.0f} MHz" if self.clock_mhz else "",
            f"of {self.max_clock_mhz:.0f} MHz" if self.max_clock_mhz else "",
            f"governor {self.governor}" if self.governor else "",
            f"{self.temperature_c:.1f} °C" if self.temperature_c else "",
        )
        return ", ".join(fact for fact in facts if fact) or "unknown"


def parse_gpu_state(text: str) -> GpuState:
    """Read what `adrenoc.runtime.gpu_state` answers."""
    facts = json.loads(text)
    return GpuState(
        model=str(facts.get("model", "")),
        clock_mhz=float(facts.get("clock_hz", 0)) / 1e6,
        max_clock_mhz=float(facts.get("max_clock_hz", 0)) / 1e6,
        governor=str(facts.get("governor", "")),
        temperature_c=float(facts.get("temperature_mc", 0)) / 1e3,
    )


def read_gpu_state(function: Callable[[str], str]) -> GpuState:
    """Ask the runtime, which may be a remote one."""
    return parse_gpu_state(function(SYSFS))


def clock_notes(states: Sequence[GpuState], facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader of the times of one run should know of the clocks that it ran at.
    `facts` are the device's (`adrenoc.opencl.devices`): a CPU has no such clock."""
    if reason := why_not_comparable(states):
        return (f"not comparable with other runs: {reason}",)
    if facts.get("type") == "gpu" and not all(state.clock_mhz for state in states):
        return ("the GPU's clock could not be read: other runs may have been at another one",)
    return ()


def why_not_comparable(states: Sequence[GpuState]) -> str:
    """Return why times at these states cannot be compared; empty where they can."""
    known = [state for state in states if state.is_known]
    governors = sorted({state.governor for state in known})
    if len(governors) > 1:
        return f"the GPU's governor changed: {', '.join(governors)}"
    clocks = [state.clock_mhz for state in known if state.clock_mhz]
    if clocks and max(clocks) > min(clocks) * (1 + CLOCK_TOLERANCE):
        return f"the GPU's clock changed from {clocks[0]:.0f} to {clocks[-1]:.0f} MHz"
    return ""


_MOST_SPANS = 50_000
"""Of a long `--sustain`: what viewers open, and memory holds."""


@dataclass(frozen=True, kw_only=True)
class TraceSpan:
    """What took from `start_ms` to `end_ms`, since the begin of the trace."""

    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A value that was read at a moment, such as a clock or the memory held."""

    name: str
    at_ms: float
    value: float


@dataclass(frozen=True, kw_only=True)
class RunTrace:
    """A run on the host's clock; spans lie beside or within each other, in the order of their ends.
    `launches` are those of the span `profiled`, by the device's own clock. `left_out` counts spans
    that were too many to keep."""

    spans: tuple[TraceSpan, ...] = ()
    readings: tuple[Reading, ...] = ()
    launches: tuple[TimedLaunch, ...] = ()
    profiled: TraceSpan | None = None
    left_out: int = 0


class Tracer:
    """Notes spans and readings from now on."""

    def __init__(self) -> None:
        self._zero = time.perf_counter()
        self._spans: list[TraceSpan] = []
        self._readings: list[Reading] = []
        self._launches: tuple[TimedLaunch, ...] = ()
        self._profiled: TraceSpan | None = None
        self._left_out = 0

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Note the block, if it ends well."""
        start_ms = self._now_ms()
        yield
        if len(self._spans) >= _MOST_SPANS:
            self._left_out += 1
            return
        self._spans.append(TraceSpan(name=name, start_ms=start_ms, end_ms=self._now_ms()))

    def read(self, name: str, value: float | None) -> None:
        """Note a value, where it could be read."""
        if value:
            self._readings.append(Reading(name=name, at_ms=self._now_ms(), value=value))

    def read_gpu(self, state: GpuState) -> None:
        """Note the GPU's clock and heat, where they could be read."""
        self.read("GPU clock, MHz", state.clock_mhz)
        self.read("GPU temperature, °C", state.temperature_c)

    def note_launches(self, launches: list[TimedLaunch]) -> None:
        """Note the kernels of the run that ended last, if it is the first that was profiled."""
        if self._launches:
            return
        self._launches = tuple(launches)
        self._profiled = self._spans[-1] if self._spans and not self._left_out else None

    def finish(self) -> RunTrace:
        """Return all that was noted."""
        return RunTrace(
            spans=tuple(self._spans),
            readings=tuple(self._readings),
            launches=self._launches,
            profiled=self._profiled,
            left_out=self._left_out,
        )

    def _now_ms(self) -> float:
        return (time.perf_counter() - self._zero) * 1000


@dataclass(frozen=True, kw_only=True)
class RegionRun:
    """One region on one device.

    `used` says that CLML runs it; else `reason` tells why its texture kernels do. `library` is what
    runs it and `versions` its interfaces; `border_copies` and `inner_copies` are commands that only
    convert layouts, `shared` the tensors at the border that CLML works on where they lie. `clml_ms`
    and `textures_ms` are of one profiled run each, without the kernels around the region.
    """

    symbol: str
    used: bool
    reason: str
    library: str
    versions: str
    operators: int
    border_copies: int
    inner_copies: int
    memory_bytes: int
    recorded: bool
    tuning: str
    shared: int = 0
    clml_ms: float | None = None
    textures_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """Where built kernels are kept: `folder`, empty for the one that the server has.
    `qualcomm_rule` lets a Qualcomm driver run what an older build of it, or another of the same
    branch, has built."""

    folder: str = ""
    qualcomm_rule: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run and time.

    `device` is a number or a part of a name, empty for the first with images.  After the first run
    come `warmup` runs that are not counted and `repeat` (at least 1) that are; then, where
    `sustain_s` is not 0, runs for that many seconds with `pause_ms` between them.  `profile` adds
    one run that tells the time of each kernel.  Runs after the first repeat its launches as
    `recording` says: "best" (recorded by the driver, where it can and a trial does not show that to
    be slower), "always" (without the trial), "kept" (launched one by one, arguments set once) or
    "off" (by TVM's virtual machine, like the first).  `perf_hint` and `priority` ("low", "normal",
    "high" or nothing) are asked of the driver, where it has an extension for that.
    """

    device: str = ""
    repeat: int = 10
    warmup: int = 1
    sustain_s: float = 0.0
    pause_ms: float = 0.0
    profile: bool = False
    recording: str = "best"
    programs: ProgramOptions | None = None
    perf_hint: str = ""
    priority: str = ""
    threads: int = 0
    """Threads of the CPU, where a bundle's code for it stands in for a device; 0 takes as many as
    it has."""


@dataclass(frozen=True, kw_only=True)
class ProgramReport:
    """How many kernels came built (`hits`) and how many were compiled (`misses`).

    `damaged` counts those of the misses whose entry was there and could not be used; `unsaved`
    tells why what was built is not kept for the next start, and is empty where it is.
    `built_ins` tells what became of built-ins that kernels are written for and drivers do not tell
    of, such as the constant file; empty where there are none.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    unsaved: str = ""
    built_ins: str = ""

    def plus(self, other: ProgramReport) -> ProgramReport:
        """Return both together."""
        return ProgramReport(
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            damaged=self.damaged + other.damaged,
            unsaved=self.unsaved or other.unsaved,
            built_ins=self.built_ins or other.built_ins,
        )

    def notes(self) -> tuple[str, ...]:
        """Return what whoever waits for kernels should know."""
        notes = [self.built_ins] if self.built_ins else []
        if self.unsaved:
            again = "the built kernels are not kept, so the next start builds them again"
            notes.append(f"{again}: {self.unsaved}")
        return tuple(notes)


@dataclass(frozen=True, kw_only=True)
class HintUse:
    """A wish to the driver (`hint`: "performance" or "priority") and what became of it. `given_by`
    is the extension that passed it on; empty where `reason` tells why none did."""

    hint: str
    asked: str
    given_by: str
    reason: str

    def __str__(self) -> str:
        if self.given_by:
            return f"{self.hint} {self.asked} was asked of the driver by {self.given_by}"
        return f"{self.hint} {self.asked} was not asked of the driver: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class LaunchReport:
    """How the kernels of the last run reached the device.

    `mode` is "the virtual machine", "kept arguments", "a command buffer" or "a recordable queue";
    `reason` tells why it is no better one, and is empty where it is the best.  `launches` counts
    its kernels, `api_calls` the OpenCL calls of a run.  `host_ms` is how
    long the host needs to give a run to the device, the median over the runs in that mode.
    """

    mode: str
    reason: str
    launches: int
    api_calls: int
    host_ms: float


@dataclass(frozen=True, kw_only=True)
class Sustained:
    """Runs for `seconds`, with `pause_ms` between them; a hot device gets slower by the end.
    `begin_p50_ms` and `end_p50_ms` are of the first and of the last tenth of the `runs`."""

    seconds: float
    pause_ms: float
    runs: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    begin_p50_ms: float
    end_p50_ms: float

    @staticmethod
    def from_runs(run_ms: Sequence[float], *, seconds: float, pause_ms: float) -> Sustained:
        """Sum up the times of runs, in the order in which they ran; at least one."""
        tenth = max(1, len(run_ms) // 10)
        return Sustained(
            seconds=seconds,
            pause_ms=pause_ms,
            runs=len(run_ms),
            p50_ms=percentile(run_ms, 50),
            p90_ms=percentile(run_ms, 90),
            p99_ms=percentile(run_ms, 99),
            begin_p50_ms=percentile(run_ms[:tenth], 50),
            end_p50_ms=percentile(run_ms[-tenth:], 50),
        )


@dataclass(frozen=True, kw_only=True)
class Times:
    """Milliseconds of wall clock; runs are timed from inputs on the device to outputs there.

    `load_ms`: open the library and move the constants to the device, while kernels are built.
    `build_ms`: wait for those that were not ready then.  `first_ms`: the first run.  `cold_ms`: the
    three together.  `p50_ms`, `p90_ms`, `p99_ms`: of `runs` warm runs.
    """

    load_ms: float
    build_ms: float
    first_ms: float
    cold_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int

    @staticmethod
    def from_runs(
        *, load_ms: float, build_ms: float, first_ms: float, warm_ms: Sequence[float]
    ) -> Times:
        """Sum up the times of runs; without warm runs the first stands for them, as 0 runs."""
        timed = warm_ms or [first_ms]
        return Times(
            load_ms=load_ms,
            build_ms=build_ms,
            first_ms=first_ms,
            cold_ms=load_ms + build_ms + first_ms,
            p50_ms=percentile(timed, 50),
            p90_ms=percentile(timed, 90),
            p99_ms=percentile(timed, 99),
            runs=len(warm_ms),
        )


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What a run gave: outputs by the model's own names, times, and kernel times if asked for.

    `memory_bytes` is the most that the runtime held on the device up to the end of the first run:
    what the manifest plans as `memory.peak_bytes`; None where the runtime does not tell. `outputs`
    are those of the last run; a note says so where the first gave others. `among_others` are those
    of runs of other inputs and of the runs after these, in pairs, where that was asked. `warm_ms`
    are the warm runs one by one. `gpu` holds the state of the GPU before and after the runs, where
    it can be read; `notes` say what a reader of the times should know. `edition` tells which GPU's
    kernels of the bundle ran, and why; None where it has those of one alone.
    """

    device: str
    driver: str = ""
    outputs: dict[str, np.ndarray]
    among_others: tuple[tuple[dict[str, np.ndarray], dict[str, np.ndarray]], ...] = ()
    times: Times
    memory_bytes: int | None = None
    sustained: Sustained | None = None
    programs: ProgramReport | None = None
    hints: tuple[HintUse, ...] = ()
    launching: LaunchReport | None = None
    regions: tuple[RegionRun, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    nodes: tuple[NodeTime, ...] = ()
    gpu: tuple[GpuState, ...] = ()
    notes: tuple[str, ...] = ()
    edition: Decision | None = None
    warm_ms: tuple[float, ...] = ()
    trace: RunTrace = field(default_factory=RunTrace)


class Progress:
    """What is known of a run so far, for when it fails half-way."""

    def __init__(self) -> None:
        self.outputs: dict[str, np.ndarray] = {}
        self.first_ms: float | None = None
        self.warm_ms: list[float] = []
        self.tracer = Tracer()

    def __str__(self) -> str:
        if self.first_ms is None:
            return "nothing ran"
        said = f"the first run took {self.first_ms:.1f} ms"
        if self.warm_ms:
            middle = percentile(self.warm_ms, 50)
            said += f", {len(self.warm_ms)} warm runs {middle:.1f} ms (p50)"
        return said


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile of values in any order."""
    rank = -(-percent * len(values) // 100)
    return sorted(values)[max(0, rank - 1)]
