"""Go through the table of measures within a budget of time; each ends as a row."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.decode import RecordReader
from adrenoc.base.text.json_text import read_json
from adrenoc.lab.calibrate.measure import (
    DeviceFacts,
    HostOperation,
    Measure,
    MicroKernel,
    NoisyError,
    ProbeError,
    TimedWork,
    doubt_of,
    spread_of,
)
from adrenoc.lab.tune.session import TrialResult

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
    """What came of one measure; `reason` says why there is no figure.

    `spread` is the width of the middle half of the samples over the value.
    The clock and the temperature are the last that the device told while it was measured, or 0.
    """

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


@dataclass(kw_only=True)
class _Samples:
    figures: list[float] = field(default_factory=list)
    rounds: int = 0
    noisy: str = ""
    word: str = ""
    clock_mhz: float = 0.0
    temperature_c: float = 0.0
    by_host: bool = False


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

    What `resume` has of this device is not measured again; its time was spent.

    Raises:
        RemoteError: it went away before anything was measured.
    """
    end = clock() + budget_s
    gone = ""
    rows: list[MeasureRow] = []
    kept = KeptRows(resume or Resume(None), device)
    for number, measure in enumerate(measures):
        known = kept.take(measure)
        if known is not None:
            end -= known.time_s
            rows.append(known)
            say(known)
            continue
        left_s = end - clock()
        share_s = SHARE * max(left_s, 0.0) / (len(measures) - number)
        try:
            row = _row(bench, device, measure, min(left_s, share_s), clock, gone)
        except RemoteError as error:
            if not any(row.is_measured for row in rows):
                raise
            gone = error.message
            row = _row(bench, device, measure, 0.0, clock, gone)
        rows.append(row)
        kept.put(row)
        say(row)
    return tuple(rows)


class KeptRows:
    """The rows of a device in the file of a calibration that was interrupted."""

    def __init__(self, resume: Resume, device: DeviceFacts) -> None:
        self._resume, self._device = resume, device.identity

    def take(self, measure: Measure) -> MeasureRow | None:
        """Return the row of a measure, where it is there."""
        came = self._resume.take(f"{measure.name} on {self._device}")
        if came is None:
            return None
        row: MeasureRow = RecordReader(lambda place, what: ValueError(f"{place} {what}")).read(
            MeasureRow, read_json(came), measure.name
        )
        return row

    def put(self, row: MeasureRow) -> None:
        """Keep a row, but for one that may be measured yet."""
        if row.status != LEFT:
            self._resume.put(f"{row.name} on {self._device}", json.dumps(asdict(row)))


def _row(
    bench: KernelBench,
    device: DeviceFacts,
    measure: Measure,
    limit_s: float,
    clock: Callable[[], float],
    gone: str,
) -> MeasureRow:
    started = clock()

    def end_row(status: str, reason: str, **more: object) -> MeasureRow:
        return MeasureRow(
            name=measure.name,
            title=measure.title,
            unit=measure.unit,
            status=status,
            reason=reason,
            time_s=clock() - started,
            **more,  # type: ignore[arg-type]
        )

    lacks = measure.lacks(device)
    if lacks:
        return end_row(SKIPPED, lacks)
    if gone:
        return end_row(LEFT, gone)
    if limit_s <= 0:
        return end_row(LEFT, "the budget of time was spent before")
    try:
        samples = _take_samples(bench, device, measure, started + limit_s, clock)
    except ProbeError as error:
        return end_row(FAILED, str(error))
    state = {
        "clock_mhz": samples.clock_mhz,
        "temperature_c": samples.temperature_c,
        "by_host": samples.by_host,
    }
    lost = samples.rounds - len(samples.figures)
    if lost > MOST_NOISY * samples.rounds:
        reason = f"too noisy: {lost} of {samples.rounds} rounds say nothing; {samples.noisy}"
        return end_row(FAILED, reason, **state)
    return end_row(
        MEASURED,
        "",
        value=statistics.median(samples.figures),
        spread=spread_of(samples.figures),
        samples=len(samples.figures),
        word=measure.word or samples.word,
        **state,
    )


def _take_samples(
    bench: KernelBench,
    device: DeviceFacts,
    measure: Measure,
    end: float,
    clock: Callable[[], float],
) -> _Samples:
    samples = _Samples()
    probes = measure.kernels(device, 1)
    if measure.of_output is not None:
        answers = bench.run([probe.kernel for probe in probes], output=True)
        _note(samples, answers)
        if answers.output is None:
            raise ProbeError("the device gave no output")
        value, samples.word = measure.of_output(answers.output)
        samples.figures.append(value)
        samples.rounds = 1
        return samples
    if measure.scales:
        probes = _scale_work(bench, device, measure, probes, end, clock)
    for request in range(MOST_REQUESTS):
        if request > 0 and (_is_stable(samples) or clock() >= end):
            break
        answers = bench.run([probe.kernel for probe in probes])
        _note(samples, answers)
        _add(samples, measure, probes, answers.times_us)
    return samples


def _scale_work(
    bench: KernelBench,
    device: DeviceFacts,
    measure: Measure,
    probes: tuple[TimedWork, ...],
    end: float,
    clock: Callable[[], float],
) -> tuple[TimedWork, ...]:
    """Return kernels with enough work that the longest takes a while."""
    scale = 1
    while scale < MOST_SCALE and clock() < end:
        longest_us = max(min(times) for times in bench.run([p.kernel for p in probes]).times_us)
        if longest_us >= LONG_ENOUGH_US / 2:
            break
        grows = min(MOST_GROWTH, max(2, round(LONG_ENOUGH_US / max(longest_us, 0.01))))
        scale = min(MOST_SCALE, scale * grows)
        probes = measure.kernels(device, scale)
    return probes


def _add(
    samples: _Samples,
    measure: Measure,
    probes: tuple[TimedWork, ...],
    times_us: tuple[tuple[float, ...], ...],
) -> None:
    """Make a figure of each round."""
    for times in zip(*times_us, strict=True):
        samples.rounds += 1
        if not all(0 < time <= MOST_TIME_US for time in times):
            samples.noisy = "the device's clock told of no time that can be"
            continue
        try:
            samples.figures.append(measure.figure(probes, times))
        except NoisyError as error:
            samples.noisy = str(error)


def _note(samples: _Samples, answers: TrialResult) -> None:
    samples.by_host |= answers.by_host
    if 0 < answers.clock_mhz <= MOST_CLOCK_MHZ:
        samples.clock_mhz = answers.clock_mhz
    if 0 < answers.temperature_c <= MOST_CELSIUS:
        samples.temperature_c = answers.temperature_c


def _is_stable(samples: _Samples) -> bool:
    count = len(samples.figures)
    known = count >= FEWEST_SAMPLES and count >= (1 - MOST_NOISY) * samples.rounds
    return known and doubt_of(spread_of(samples.figures), count) <= STABLE
