"""How the layers below the command line tell of their progress without printing."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Receives progress; the command line draws it, tests and libraries stay silent."""

    def stage(self, name: str, time_ms: float, note: str) -> None:
        """A stage of long work has ended."""

    def note(self, text: str) -> None:
        """A remark worth one line."""

    def warn(self, text: str) -> None:
        """Something the user should look at."""


class SilentReporter:
    """A Reporter that says nothing."""

    def stage(self, name: str, time_ms: float, note: str) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def warn(self, text: str) -> None:
        """Ignore it."""
