"""The tuner's end of a worker process: sends trials, hears what comes of them, starts it anew."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import suppress
from typing import Any

from adrenoc.base.host.proc import own_module
from adrenoc.lab.tune.session import SERVER_GRACE_S, START_S, TunerAddress

GRACE_S = 6.0
"""Seconds that a worker which noticed a time-out itself may take to say so."""

Event = dict[str, Any]


class Worker:
    """A worker process, started ahead and again after it died or was killed.

    `begun` is the trial that the device has, by its number; `overdue` tells that an answer is late.
    """

    def __init__(self, place: TunerAddress) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._due = time.monotonic()
        self.begun: int | None = None

    def start(self) -> None:
        """Start a process where none runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        place = json.dumps(self._place.__dict__)
        self._process = subprocess.Popen(
            own_module("adrenoc.lab.tune.worker", place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tuner
        )
        self._await()

    def send(self, request: dict[str, Any]) -> bool:
        """Hand over a trial; False where the process is gone."""
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def event(self, timeout_s: float) -> Event | None:
        """Return the next event that the worker tells; None where there is none in that time.

        Raises:
            EOFError: the process is gone.
        """
        line = self._line(timeout_s)
        if line is None:
            return None
        event: Event = json.loads(line)
        self.begun = event["id"] if event["event"] == "begin" else None
        self._await()
        return event

    @property
    def overdue(self) -> bool:
        """Whether an answer of the worker is late."""
        return time.monotonic() > self._due

    def rest(self) -> None:
        """Tell the worker that it has had nothing to do: what it says next is not late."""
        self._await()

    def kill(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._buffer, self.begun = b"", None
        if process is None:
            return
        with suppress(OSError):
            process.kill()
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()

    def _await(self) -> None:
        limit_s = self._place.limit_s + SERVER_GRACE_S + GRACE_S
        self._due = time.monotonic() + limit_s + (START_S if self.begun is None else 0.0)

    def _line(self, timeout_s: float) -> bytes | None:
        end = time.monotonic() + timeout_s
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        try:
            while b"\n" not in self._buffer:
                left_s = max(0.0, end - time.monotonic())
                if not select.select([process.stdout], [], [], left_s)[0]:
                    return None
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise EOFError
                self._buffer += piece
        except (OSError, ValueError) as error:  # killed by the one who ends the lane
            raise EOFError from error
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
