"""One measure, its kernels, unit and figure; and the table of all, gone through within a budget of
time, each ending as a row.

A measure is a row of a file of `adrenoc/lab/calibrate/measures/`. `kernels(device, scale)` gives
what runs in turn, and how much work a launch of each does: small kernels with their threads and
tensors, or what the host does beside kernels (`adrenoc/native/src/trials/trial_measure.h`).
`scale` grows until launches take long enough for the clock. `figure` makes one number of one round
of times, so that a measurement of seven rounds is seven samples of it, whose middle is the value
and whose width the spread.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.lab.tune.session import TrialResult

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

    def lacks_images(self) -> str:
        """Return why images cannot be asked about; empty where there are some."""
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
    `value` is uploaded. Without one it holds what kernels of the same request wrote to a tensor of
    this shape and type."""

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
    """What the host does, by the words of `trial_measure.h`: `{"operation": "large", ...}`."""

    words: Mapping[str, str | int]


class ProbeError(Exception):
    """A kernel that did not build, broke the device, or did not end; the text says which. `index`
    is its number among those of the request, -1 where that is not known."""

    def __init__(self, text: str, index: int = -1) -> None:
        super().__init__(text)
        self.index = index


STABLE = 0.02
"""The relative spread of a figure below which it is measured no further."""
MOST_REQUESTS = 10
"""The most requests that one figure may take, beside those that find the scale of its work."""
FEWEST_SAMPLES = 5
FEWEST_TO_TELL = 3
"""The fewest samples whose spread says anything."""
MOST_NOISY = 0.25
"""The largest share of rounds without a figure: the others would be those that chance favours."""
MOST_TIME_US, MOST_CLOCK_MHZ, MOST_CELSIUS = 1e9, 1e5, 1e3
"""Beyond which an answer is none; a server may say anything."""
LONG_ENOUGH_US = 1000.0
"""The microseconds that the largest kernel has to take; where it takes less, the work grows."""
MOST_GROWTH, MOST_SCALE = 32, 1 << 14
SHARE = 2.0
"""How many times its equal share of the time that is left one measure may take."""

MEASURED, SKIPPED, FAILED, LEFT = "measured", "skipped", "failed", "left out"


@dataclass(frozen=True, kw_only=True)
class MeasureRow:
    """What came of one measure; `reason` says why there is no figure. `spread` is the width of the
    middle half of the samples over the value. The clock and the temperature are the last that the
    device told while it was measured, or 0."""

    name: str
    title: str
    unit: str
    status: str
    value: float | None = None
    spread: float = 0.0
    samples: int = 0
    word: str = ""
    reason: str = ""
    clock_mhz: float = 0.0
    temperature_c: float = 0.0
    by_host: bool = False
    time_s: float = 0.0

    @property
    def doubt(self) -> float:
        """Return how far off the value may be, relative, for all that the samples tell."""
        if self.samples < FEWEST_TO_TELL:
            return 1.0
        return doubt_of(self.spread, self.samples)

    @property
    def figure(self) -> str:
        """Return the value with its unit, and the word for it; empty where there is no value."""
        value = "" if self.value is None or not self.unit else f"{self.value:.4g} {self.unit}"
        return "; ".join(filter(None, (value, self.word)))

    @property
    def state(self) -> str:
        """Clock and temperature, where the device told them, and whose times these are."""
        clock = f"{self.clock_mhz:.0f} MHz" if self.clock_mhz else ""
        heat = f"{self.temperature_c:.0f} °C" if self.temperature_c else ""
        whose = "the host's clock" if self.by_host and self.samples > 1 else ""
        return ", ".join(filter(None, (clock, heat, whose)))

    @property
    def is_measured(self) -> bool:
        """Return whether there is a figure."""
        return self.status == MEASURED


class KernelBench(Protocol):
    """Anything that runs kernels: a bench, or a test's own device."""

    def run(
        self, kernels: Sequence[MicroKernel | HostOperation], *, output: bool = False
    ) -> TrialResult:
        """Run the kernels, or do the operations: the times of each."""


def calibrate(
    bench: KernelBench,
    device: DeviceFacts,
    measures: Sequence[Measure],
    *,
    budget_s: float,
    say: Callable[[MeasureRow], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    resume: Resume | None = None,
) -> tuple[MeasureRow, ...]:
    """Measure all that the budget allows, in order; a device that goes away leaves the rest out.
    What `resume` has of this device is not measured again; its time was spent. Raises RemoteError
    where it went away before anything was measured."""
    end = clock() + budget_s
    gone = ""
    rows: list[MeasureRow] = []
    kept = resume or Resume(None)
    decoder = RecordReader(lambda place, what: ValueError(f"{place} {what}"))
    for number, measure in enumerate(measures):
        key = f"{measure.name} on {device.identity}"
        came = kept.take(key)
        if came is not None:
            row: MeasureRow = decoder.read(MeasureRow, read_json(came), measure.name)
            end -= row.time_s
        else:
            left_s = end - clock()
            share_s = SHARE * max(left_s, 0.0) / (len(measures) - number)
            try:
                row = _Measurement(bench, device, measure, clock).row(min(left_s, share_s), gone)
            except RemoteError as error:
                if not any(row.is_measured for row in rows):
                    raise
                gone = error.message
                row = _Measurement(bench, device, measure, clock).row(0.0, gone)
            if row.status != LEFT:  # that may be measured yet
                kept.put(key, json.dumps(asdict(row)))
        rows.append(row)
        say(row)
    return tuple(rows)


class _Measurement:
    """One measure under way on a device."""

    def __init__(
        self, bench: KernelBench, device: DeviceFacts, measure: Measure, clock: Callable[[], float]
    ) -> None:
        self._bench, self._device, self._measure, self._clock = bench, device, measure, clock
        self._began = clock()
        self._figures: list[float] = []
        self._rounds = 0
        self._noisy = self._word = ""
        self._state: dict[str, float] = {}

    def row(self, limit_s: float, gone: str) -> MeasureRow:
        """Measure for so long, unless the device is `gone`; what came of it."""
        lacks = self._measure.lacks(self._device)
        if lacks:
            return self._end(SKIPPED, lacks)
        if gone or limit_s <= 0:
            return self._end(LEFT, gone or "the budget of time was spent before")
        try:
            self._take_samples(self._began + limit_s)
        except ProbeError as error:
            return self._end(FAILED, str(error))
        lost = self._rounds - len(self._figures)
        if lost > MOST_NOISY * self._rounds:
            told = f"too noisy: {lost} of {self._rounds} rounds say nothing; {self._noisy}"
            return self._end(FAILED, told, **self._state)
        return self._end(
            MEASURED,
            "",
            value=statistics.median(self._figures),
            spread=spread_of(self._figures),
            samples=len(self._figures),
            word=self._measure.word or self._word,
            **self._state,
        )

    def _end(self, status: str, reason: str, **more: Any) -> MeasureRow:
        measure, time_s = self._measure, self._clock() - self._began
        row = MeasureRow(name=measure.name, title=measure.title, unit=measure.unit, status=status)
        return replace(row, reason=reason, time_s=time_s, **more)

    def _take_samples(self, end: float) -> None:
        probes = self._measure.kernels(self._device, 1)
        if self._measure.of_output is not None:
            output = self._run(probes, output=True).output
            if output is None:
                raise ProbeError("the device gave no output")
            value, self._word = self._measure.of_output(output)
            self._figures, self._rounds = [value], 1
            return
        scale = 1
        while self._measure.scales and scale < MOST_SCALE and self._clock() < end:
            # Kernels get enough work that the longest takes a while.
            longest_us = max(map(min, self._run(probes).times_us))
            if longest_us >= LONG_ENOUGH_US / 2:
                break
            grows = min(MOST_GROWTH, max(2, round(LONG_ENOUGH_US / max(longest_us, 0.01))))
            scale = min(MOST_SCALE, scale * grows)
            probes = self._measure.kernels(self._device, scale)
        for request in range(MOST_REQUESTS):
            if request > 0 and (self._is_stable() or self._clock() >= end):
                break
            for times in zip(*self._run(probes).times_us, strict=True):
                self._add_round(probes, times)

    def _add_round(self, probes: tuple[TimedWork, ...], times: tuple[float, ...]) -> None:
        self._rounds += 1
        if not all(0 < time <= MOST_TIME_US for time in times):
            self._noisy = "the device's clock told of no time that can be"
            return
        try:
            self._figures.append(self._measure.figure(probes, times))
        except NoisyError as error:
            self._noisy = str(error)

    def _run(self, probes: tuple[TimedWork, ...], *, output: bool = False) -> TrialResult:
        """Run the kernels, and note what the device tells of its state."""
        answers = self._bench.run([probe.kernel for probe in probes], output=output)
        self._state["by_host"] = answers.by_host or self._state.get("by_host", False)
        if 0 < answers.clock_mhz <= MOST_CLOCK_MHZ:
            self._state["clock_mhz"] = answers.clock_mhz
        if 0 < answers.temperature_c <= MOST_CELSIUS:
            self._state["temperature_c"] = answers.temperature_c
        return answers

    def _is_stable(self) -> bool:
        count = len(self._figures)
        known = count >= FEWEST_SAMPLES and count >= (1 - MOST_NOISY) * self._rounds
        return known and doubt_of(spread_of(self._figures), count) <= STABLE
