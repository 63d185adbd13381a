"""Go through the table of measures within a budget of time; each ends as a row."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.json_text import RecordReader, read_json
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
    where it went away before anything was measured.
    """
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
        self,
        bench: KernelBench,
        device: DeviceFacts,
        measure: Measure,
        clock: Callable[[], float],
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
        """Make a figure of the times of a round."""
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
