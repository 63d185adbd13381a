"""Times of launches by the device's own clock, under the model's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.bundle.launches import LaunchInfo

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
        """How long it ran."""
        return (self.end_ns - self.start_ns) / 1e6


def tells_time(launches: Sequence[TimedLaunch]) -> bool:
    """Return whether the device's clock goes: Mesa 22.3 says of each launch that it took one ns."""
    return any(launch.end_ns - launch.start_ns >= LEAST_NS for launch in launches)


def kernel_times(launches: Sequence[TimedLaunch]) -> tuple[KernelTime, ...]:
    """Time in each kernel over its launches, the longest first."""
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
    """Each launch with the node that it computes, in order.

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
