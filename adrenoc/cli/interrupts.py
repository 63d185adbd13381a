"""Signals that ask the process to end: the work stops, what is half done is removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ASKED = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGXCPU") if hasattr(signal, name)
)


class Terminated(BaseException):
    """The process was asked to end; no `except Exception` holds it up."""


class Interrupts:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the work where it is; while that is cleaned up, further signals change nothing."""
        if not self.number:
            self.number = number
            raise Terminated

    @property
    def exit_code(self) -> int:
        """What shells make of a process that a signal ended."""
        return 128 + self.number


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Let those signals raise `Terminated` while the block runs.

    Signals that the process was started to ignore (`nohup`) stay ignored.
    """
    found = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.getsignal(number) for number in _ASKED}
    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, found)
    try:
        yield found
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)
