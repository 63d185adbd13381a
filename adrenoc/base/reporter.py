"""How the layers below the command line tell of their progress without printing."""

import time
from typing import Protocol


class Reporter(Protocol):
    """Receives progress; the command line draws it, tests and libraries stay silent."""

    def working(self, what: str, done: int, total: int) -> None:
        """Long work goes on with `what`, after `done` of `total` parts."""

    def part(self, name: str, time_ms: float, note: str) -> None:
        """One of the many parts of a stage has ended: for who wants to see them all."""

    def stage(self, name: str, time_ms: float, note: str) -> None:
        """A stage of long work has ended; of a compilation it is a phase."""

    def note(self, text: str) -> None:
        """A remark worth one line."""

    def warn(self, text: str) -> None:
        """Something the user should look at."""


class SilentReporter:
    """A Reporter that says nothing."""

    def working(self, what: str, done: int, total: int) -> None:
        """Ignore it."""

    def part(self, name: str, time_ms: float, note: str) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""

    stage, warn = part, note


class PartReporter:
    """Reports one of several compilations: its stages are parts of a larger stage, `name`."""

    def __init__(self, reporter: Reporter, name: str) -> None:
        self._reporter, self._name = reporter, name
        self.note, self.warn = reporter.note, reporter.warn
        self.part = self.stage = reporter.part

    def working(self, what: str, done: int, total: int) -> None:
        """Tell which of the compilations it is, too."""
        self._reporter.working(f"{self._name}, {what}", done, total)


def ms_since(started: float) -> float:
    """Return milliseconds since `started`, a value of `time.perf_counter`."""
    return (time.perf_counter() - started) * 1000
