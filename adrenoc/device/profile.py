"""What a device tells of a run: times of launches by its own clock, its state, a trace."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adrenoc.bundle.bundle import LaunchInfo

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
    """Time that the device needed for one node of the model, in one run.

    `gflops` and `gb_per_s` are what it reached, each tensor counted once; `of_roofline` is the
    share of the fastest that the target's figures allow, None where they do not tell.
    """

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
    """Return each launch with the node that it computes, in order.

    Nothing where the kernels that ran are not those that the bundle lists (branches that were not
    taken, or a bundle without a list): a wrong name is worse than none.
    """
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

    `launches` are those of the span `profiled`, by the device's own clock.  `left_out` counts spans
    that were too many to keep.
    """

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
