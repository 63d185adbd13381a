"""What the host did when in a run, and what was read of the device: for a viewer of traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adrenoc.device.gpu_state import GpuState
from adrenoc.device.profile import TimedLaunch

_MOST_SPANS = 50_000
"""Of a long `--sustain`: what viewers open, and memory holds."""


@dataclass(frozen=True, kw_only=True)
class Span:
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

    spans: tuple[Span, ...] = ()
    readings: tuple[Reading, ...] = ()
    launches: tuple[TimedLaunch, ...] = ()
    profiled: Span | None = None
    left_out: int = 0


class Tracer:
    """Notes spans and readings from now on."""

    def __init__(self) -> None:
        self._zero = time.perf_counter()
        self._spans: list[Span] = []
        self._readings: list[Reading] = []
        self._launches: tuple[TimedLaunch, ...] = ()
        self._profiled: Span | None = None
        self._left_out = 0

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Note the block, if it ends well."""
        start_ms = self._now_ms()
        yield
        if len(self._spans) >= _MOST_SPANS:
            self._left_out += 1
            return
        self._spans.append(Span(name=name, start_ms=start_ms, end_ms=self._now_ms()))

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
        """All that was noted."""
        return RunTrace(
            spans=tuple(self._spans),
            readings=tuple(self._readings),
            launches=self._launches,
            profiled=self._profiled,
            left_out=self._left_out,
        )

    def _now_ms(self) -> float:
        return (time.perf_counter() - self._zero) * 1000
