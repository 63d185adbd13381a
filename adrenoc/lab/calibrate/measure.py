"""One measure: its kernels, its unit, and how its figure is got from their times.

A measure is a row of a file of `adrenoc/lab/calibrate/measures/`.  `kernels(device, scale)` gives
what runs in turn, and how much work a launch of each does; `scale` grows until launches take long
enough for the clock.  `figure` makes one number of one round of times, so that a measurement of
seven rounds is seven samples of it, whose middle is the value and whose width the spread.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.calibrate.micro_kernel import Deed, MicroKernel

Times = Sequence[float]
"""The times of one round, in microseconds, in the order of the kernels."""


Curve = Sequence[tuple[float, float]]
"""Places and heights."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A kernel and the work of one launch; `x` is its place on a curve.  Or a deed and its work."""

    kernel: MicroKernel | Deed
    work: float = 0.0
    x: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured, in `unit`; `lacks` says why a device cannot be asked, or nothing."""

    name: str
    title: str
    unit: str
    kernels: Callable[[Device, int], tuple[Probe, ...]]
    figure: Callable[[Sequence[Probe], Times], float]
    curve: Callable[[Sequence[Probe], Times], tuple[float, ...]] | None = None
    """The height at each place, where it is a curve; the figure is one number of it.  Kernels at
    one place make one height together."""
    word: Callable[[Curve], str] | None = None
    """What a curve says in words."""
    every: int = 1
    """Every so many kernels one is timed; those before it write what it reads."""
    of_builds: bool = False
    """The times are those of the builds, each kernel by itself."""
    of_output: Callable[[np.ndarray], tuple[float, str]] | None = None
    """What the output of the one kernel says: a number, and a word for it."""
    lacks: Callable[[Device], str] = field(default=lambda _: "")
    scales: bool = True


class NoisyError(Exception):
    """Times out of which no figure can be made: more work took less time."""


def rate(probes: Sequence[Probe], times: Times) -> float:
    """The most work a second of any kernel, in 10^9 pieces."""
    return max(probe.work / time / 1e3 for probe, time in zip(probes, times, strict=True))


def rates(probes: Sequence[Probe], times: Times) -> tuple[float, ...]:
    """The work a second of each kernel, in 10^9 pieces."""
    return tuple(probe.work / time / 1e3 for probe, time in zip(probes, times, strict=True))


def slope(probes: Sequence[Probe], times: Times) -> float:
    """Nanoseconds that one more piece of work takes: what a launch takes anyway is left out.

    Raises:
        NoisyError: the kernel with more work took no longer.
    """
    work = probes[-1].work - probes[0].work
    more_us = times[-1] - times[0]
    if more_us <= 0:
        raise NoisyError(f"{work:g} more took {-more_us:.3g} us less")
    return more_us / work * 1e3


def slope_rate(probes: Sequence[Probe], times: Times) -> float:
    """10^9 pieces of work a second, from what more of it takes.

    Raises:
        NoisyError: the kernel with more work took no longer.
    """
    return 1.0 / slope(probes, times)


def last_rate(probes: Sequence[Probe], times: Times) -> float:
    """The rate at the end of a curve."""
    return rates(probes, times)[-1]


def slopes(probes: Sequence[Probe], times: Times) -> tuple[float, ...]:
    """The slope of each pair of kernels.

    Raises:
        NoisyError: of one the kernel with more work took no longer.
    """
    pairs = range(0, len(probes), 2)
    return tuple(slope(probes[at : at + 2], times[at : at + 2]) for at in pairs)


def last_slope(probes: Sequence[Probe], times: Times) -> float:
    """The slope at the end of a curve.

    Raises:
        NoisyError: the kernel with more work took no longer.
    """
    return slope(probes[-2:], times[-2:])


STEP = 1.2
"""The factor between neighbours of a curve from which on a step is one."""


def name_steps(curve: Curve) -> str:
    """Behind which places a curve falls or rises, steps that follow each other as one."""
    found: dict[str, list[float]] = {"falls": [], "rises": []}
    last = ""
    for (place, height), (_, following) in itertools.pairwise(curve):
        step = ""
        if height > STEP * following:
            step = "falls"
        elif following > STEP * height:
            step = "rises"
        if step and step != last:
            found[step].append(place)
        last = step
    told = [
        f"{word} after {', '.join(f'{place:g}' for place in places)}"
        for word, places in found.items()
        if places
    ]
    return "; ".join(told) or "no step"


def shortest_us(probes: Sequence[Probe], times: Times) -> float:
    """The microseconds of one launch."""
    return min(times)


def spread_of(samples: Sequence[float]) -> float:
    """The width of the middle half of samples, over their middle."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    middle = statistics.median(samples)
    return (high - low) / middle if middle else 0.0


def doubt_of(spread: float, samples: int) -> float:
    """How far off the middle of so many samples may be, relative: its standard error.

    That of a median is 1.25 times that of a mean, and the middle half is 1.35 deviations wide.
    """
    return 1.25 / 1.35 * spread / math.sqrt(max(samples, 1))
