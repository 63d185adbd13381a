"""What a tuner tells while it works and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class KernelProgress:
    """One kernel: times of one launch in microseconds, 0 where nothing is measured yet."""

    kernel: str
    title: str
    calls: int
    untuned_us: float
    best_us: float
    trials: int
    failed: int
    actions: str = ""


@dataclass(frozen=True, kw_only=True)
class TuneProgress:
    """Where a tuner is; `gain` is the time of all launches untuned over that with the best.

    `references`: kernels whose untuned schedule was measured, which comes before its trials.
    """

    phase: str
    references: int
    trials: int
    wanted: int
    failed: int
    resumed: int
    devices: int
    trials_per_s: float
    elapsed_s: float
    left_s: float
    gain: float
    kernels: tuple[KernelProgress, ...]


class TuneObserver(Protocol):
    """Is told of all that happens; the command line draws it."""

    def progress(self, progress: TuneProgress) -> None:
        """Hear that something changed."""

    def event(self, text: str) -> None:
        """Hear a remark worth one line: a failed candidate, a lost device."""


class SilentObserver:
    """A TuneObserver that says nothing."""

    def progress(self, progress: TuneProgress) -> None:
        """Ignore that something changed."""

    def event(self, text: str) -> None:
        """Ignore the remark."""
