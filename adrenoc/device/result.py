"""What a run gave: outputs, times, kernel times, the state of the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adrenoc.base.decision import Decision
from adrenoc.device.profile import GpuState, KernelTime, NodeTime, RunTrace, Tracer

if TYPE_CHECKING:
    import numpy as np


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
    branch, has built.
    """

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
