"""Signals that ask the process to end: the work stops, what is half done is removed.

Python hears of a signal between two steps of its own.  A step may be a call of C++ that takes
minutes, or the wait for a thread that makes one: who waits longer than `GRACE_S` is not waited for.
A thread then removes what is half done and ends the process.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from adrenoc.base.files.aside import remove_held
from adrenoc.cli.early import end_interrupted

GRACE_S = 1.5
_CLEANING_S = 10.0
"""For who has noticed: a phone that a server is taken from answers slowly."""
_ASKED = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGXCPU") if hasattr(signal, name)
)
# What goes through the pipe beside the numbers of signals.
_STOP, _NOTICED = 0, 255
_SHOW_CURSOR = b"\x1b[?25h"


class Terminated(BaseException):
    """The process was asked to end; no `except Exception` holds it up."""


class Interrupts:
    """Whether a signal asked the process to end, and which one."""

    def __init__(self) -> None:
        self.number = 0
        self.is_interrupted = False
        self._tells = -1

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the work where it is; while that is cleaned up, further signals change nothing."""
        self._tell(_NOTICED)
        if number == signal.SIGINT:
            self.is_interrupted = True
            raise KeyboardInterrupt
        if not self.number:
            self.number = number
            raise Terminated

    @property
    def exit_code(self) -> int:
        """Return the code that shells make of a process that a signal ended."""
        return 128 + self.number

    @contextmanager
    def alone(self) -> Iterator[None]:
        """End as a signal asked: what it became on its way through C++ is no fault of its own."""
        try:
            yield
        finally:
            if isinstance(sys.exc_info()[1], Exception):
                if self.number:
                    raise Terminated
                if self.is_interrupted:
                    raise KeyboardInterrupt

    @contextmanager
    def watch_signals(self, numbers: Sequence[int]) -> Iterator[None]:
        """Hear of these signals as they come, too, and end the process where nobody else does."""
        try:
            told, self._tells = os.pipe()
        except OSError:  # no descriptors are left: it goes without
            yield
            return
        os.set_blocking(self._tells, False)
        watcher = threading.Thread(target=self._watch, args=[told, numbers], daemon=True)
        earlier = signal.set_wakeup_fd(self._tells, warn_on_full_buffer=False)
        try:
            with suppress(RuntimeError):  # there is no room for a thread
                watcher.start()
            yield
        finally:
            signal.set_wakeup_fd(earlier)
            self._tell(_STOP)
            if watcher.ident is not None:
                watcher.join()
            os.close(told)
            os.close(self._tells)

    def _tell(self, what: int) -> None:
        with suppress(OSError):
            os.write(self._tells, bytes([what]))

    def _watch(self, told: int, numbers: Sequence[int]) -> None:
        asked, end = 0, None
        waiting = select.poll()
        waiting.register(told, select.POLLIN)
        while True:
            left_ms = None if end is None else max(0.0, end - time.monotonic()) * 1000
            if not waiting.poll(left_ms):
                _end_now(asked)
            heard = os.read(told, 1)[0]
            if heard == _STOP:
                return
            if heard == _NOTICED:
                # An interruption may take its time to sum up: it can be repeated.
                is_gentle = asked in (0, signal.SIGINT)
                end = None if is_gentle else time.monotonic() + _CLEANING_S
            elif end is None and heard in numbers:
                asked, end = heard, time.monotonic() + GRACE_S


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Let those signals raise `Terminated` while the block runs, and end the process if need be.
    Signals that the process was started to ignore (`nohup`) stay ignored."""
    found = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    expected: dict[int, tuple[object, ...]] = dict.fromkeys(_ASKED, (signal.SIG_DFL,))
    expected[signal.SIGINT] = (signal.default_int_handler, end_interrupted)
    before = {number: signal.getsignal(number) for number in expected}
    ours = [number for number, usual in expected.items() if before[number] in usual]
    with found.watch_signals(ours):
        for number in ours:
            signal.signal(number, found)
        try:
            yield found
        finally:
            for number in ours:
                signal.signal(number, before[number])


def end_process(code: int) -> NoReturn:
    """End with `code`, and without what libraries do when a process ends. Work that a signal has
    interrupted goes on in threads of drivers, which crash when what they use is taken down."""
    remove_held()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _end_now(number: int) -> None:
    """Remove what is half done and end, whatever the main thread does."""
    for child in _children():
        with suppress(OSError):
            # A tool leads a group of its own, with all that it has started.
            leads = os.getpgid(child) == child
            (os.killpg if leads else os.kill)(child, signal.SIGKILL)
    remove_held()
    said = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    with suppress(OSError, ValueError, AttributeError):
        if sys.stdout.isatty():
            os.write(1, _SHOW_CURSOR)
        os.write(2, f"{said}; nothing half-written was left\n".encode())
    os._exit(128 + number)


def _children() -> list[int]:
    with suppress(OSError):
        lists = Path("/proc/self/task").glob("*/children")
        return [int(child) for text in lists for child in text.read_text().split()]
    return []
