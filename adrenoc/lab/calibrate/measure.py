"""One measure: its kernels, its unit, and how its figure is got from their times.

A measure is a row of a file of `adrenoc/lab/calibrate/measures/`.  `kernels(device, scale)` gives
what runs in turn, and how much work a launch of each does: small kernels with their threads and
tensors, or what the host does beside kernels (`adrenoc/native/src/trials/host_operations.h`).
`scale` grows until launches take long enough for the clock.  `figure` makes one number of one round
of times, so that a measurement of seven rounds is seven samples of it, whose middle is the value
and whose width the spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_MOST_LETTERS = 80
_MOST = 1 << 48


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """Names are in letters that a file and a terminal can hold."""

    name: str
    driver: str
    """Whole, as it says it: the compiler's version comes last, where a name has no room."""
    is_cpu: bool
    c_version: int
    compute_units: int
    clock_mhz: int
    """0 or 1 where the driver does not tell, as Adreno's does not."""
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    """In x, y, z; empty where it does not tell."""
    local_memory_bytes: int
    max_allocation_bytes: int
    max_parameter_bytes: int
    image_width: int
    image_height: int
    image_layers: int
    image_pitch_texels: int
    read_images: int
    write_images: int
    extensions: frozenset[str]
    facts: Mapping[str, Any]
    """All that it said, for `adreno_number` and reports."""

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> DeviceFacts:
        """Read what `adrenoc.opencl.devices` says of one."""
        limits, images = _table(facts, "limits"), _table(facts, "images")
        listed = facts.get("extensions", ())
        names = listed if isinstance(listed, list | tuple) else ()
        return DeviceFacts(
            name=plain(facts.get("name")) or "an OpenCL device",
            driver=str(facts.get("driver") or "unknown"),
            is_cpu=facts.get("type") == "cpu",
            c_version=_number(facts, "c_version"),
            compute_units=max(1, _number(limits, "compute_units")),
            clock_mhz=_number(limits, "clock_mhz"),
            max_work_group_size=_number(limits, "max_work_group_size"),
            max_work_item_sizes=_sides(limits.get("max_work_item_sizes")),
            local_memory_bytes=_number(limits, "local_memory_bytes"),
            max_allocation_bytes=_number(limits, "max_allocation_bytes"),
            max_parameter_bytes=_number(limits, "max_parameter_bytes"),
            image_width=_number(images, "max_width"),
            image_height=_number(images, "max_height"),
            image_layers=_number(images, "max_layers"),
            image_pitch_texels=_number(images, "pitch_alignment_texels"),
            read_images=_number(images, "max_read_arguments"),
            write_images=_number(images, "max_write_arguments"),
            extensions=frozenset(str(name) for name in names),
            facts=facts,
        )

    @property
    def with_driver(self) -> str:
        """Return the device and its driver, as what was seen on them tells of both."""
        return f"{self.name}, driver {self.shown_driver}"

    @property
    def shown_driver(self) -> str:
        """Return what a text has room for of the driver's words."""
        return plain(self.driver)

    @property
    def identity(self) -> str:
        """Return what tells two devices apart, and two drivers of one."""
        return f"{self.name}, driver {self.driver}"

    def lacks(self, extension: str) -> str:
        """Return why an extension cannot be used; empty where it is listed."""
        return "" if extension in self.extensions else f"the driver lists no {extension}"

    @property
    def lacks_images(self) -> str:
        """Why images cannot be asked about; empty where there are some."""
        return "" if self.image_width else "the device has no images"


def plain(text: object) -> str:
    """Return a name in letters that every file, terminal and page holds, others as `?`."""
    letters = " ".join(str(text if text is not None else "").split())[:_MOST_LETTERS]
    return "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\@' else "?" for c in letters
    )


def _sides(told: object) -> tuple[int, ...]:
    sides = tuple(told) if isinstance(told, list | tuple) else ()
    good = len(sides) == 3 and all(type(s) is int and 0 < s <= _MOST for s in sides)
    return sides if good else ()


def _table(facts: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = facts.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    return value if isinstance(value, int) and 0 <= value <= _MOST else 0


Times = Sequence[float]
"""The times of one round, in microseconds, in the order of the kernels."""


@dataclass(frozen=True, kw_only=True)
class TimedWork:
    """A kernel, or an operation of the host, and the work of one launch."""

    kernel: MicroKernel | HostOperation
    work: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured, in `unit`; `lacks` says why a device cannot be asked, or nothing."""

    name: str
    title: str
    unit: str
    kernels: Callable[[DeviceFacts, int], tuple[TimedWork, ...]]
    figure: Callable[[Sequence[TimedWork], Times], float]
    word: str = ""
    """What a figure says in words."""
    of_output: Callable[[np.ndarray], tuple[float, str]] | None = None
    """What the output of the one kernel says: a number, and a word for it."""
    lacks: Callable[[DeviceFacts], str] = field(default=lambda _: "")
    scales: bool = True


class NoisyError(Exception):
    """Times out of which no figure can be made: more work took less time."""


def slope(probes: Sequence[TimedWork], times: Times) -> float:
    """Nanoseconds that one more piece of work takes: what a launch takes anyway is left out. Raises
    NoisyError where the kernel with more work took no longer."""
    work = probes[-1].work - probes[0].work
    more_us = times[-1] - times[0]
    if more_us <= 0:
        raise NoisyError(f"{work:g} more took {-more_us:.3g} us less")
    return more_us / work * 1e3


def slope_rate(probes: Sequence[TimedWork], times: Times) -> float:
    """10^9 pieces of work a second, from what more of it takes. Raises NoisyError where the kernel
    with more work took no longer."""
    return 1.0 / slope(probes, times)


def last_rate(probes: Sequence[TimedWork], times: Times) -> float:
    """Return the work a second of the last kernel, in 10^9; those before write what it reads."""
    return probes[-1].work / times[-1] / 1e3


def shortest_us(probes: Sequence[TimedWork], times: Times) -> float:
    """Return the microseconds of one launch."""
    return min(times)


def spread_of(samples: Sequence[float]) -> float:
    """Return the width of the middle half of samples, over their middle."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    middle = statistics.median(samples)
    return (high - low) / middle if middle else 0.0


def doubt_of(spread: float, samples: int) -> float:
    """Return how far off the middle of so many samples may be, relative: its standard error. That
    of a median is 1.25 times that of a mean, and the middle half is 1.35 deviations wide."""
    return 1.25 / 1.35 * spread / math.sqrt(max(samples, 1))


Size = tuple[int, int, int]
NAME = "probe"
"""The name of every kernel that measures are made with."""
THREADS = 64
"""The threads of a work-group, where a measure is not about them."""


@dataclass(frozen=True, kw_only=True)
class KernelArgument:
    """An argument: a buffer (`global`), or an array of images of four lanes (`global.texture`).

    `value` is uploaded.  Without one it holds what kernels of the same request wrote to a tensor of
    this shape and type.
    """

    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    value: np.ndarray | None = field(default=None, compare=False)

    @staticmethod
    def from_value(value: np.ndarray, scope: str = "global") -> KernelArgument:
        """Return the tensor that holds `value`."""
        return KernelArgument(shape=value.shape, dtype=str(value.dtype), scope=scope, value=value)


def texture(value: np.ndarray) -> KernelArgument:
    """Return an array of images of these texels: [layers, height, width, 4]."""
    return KernelArgument.from_value(value, "global.texture")


def count(number: int) -> KernelArgument:
    """Return the argument that says how often a loop runs, which no compiler is to know."""
    return KernelArgument.from_value(np.array([number, 0, 0, 0], np.int32))


@dataclass(frozen=True, kw_only=True)
class MicroKernel:
    """One kernel; the last argument is its output, all of which every run writes alike."""

    source: str
    arguments: tuple[KernelArgument, ...]
    threads: Size = (THREADS, 1, 1)
    group: Size = (THREADS, 1, 1)


@dataclass(frozen=True, kw_only=True)
class HostOperation:
    """What the host does, by the words of `host_operations.h`: `{"operation": "large", ...}`."""

    words: Mapping[str, str | int]


class ProbeError(Exception):
    """A kernel that did not build, broke the device, or did not end; the text says which. `index`
    is its number among those of the request, -1 where that is not known."""

    def __init__(self, text: str, index: int = -1) -> None:
        super().__init__(text)
        self.index = index
