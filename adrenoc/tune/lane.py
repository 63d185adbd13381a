"""The tuner's end of a worker process: asks, waits with a limit, starts it anew."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from adrenoc.tuning_log import Device

START_S = 60.0
"""For a worker to load TVM, on a busy machine."""
GRACE_S = 3.0
"""What a worker that noticed a time-out itself may take to say so."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The end of a request: `event` is measured, refused or absent; `kind` says how refused."""

    event: str
    kind: str = ""
    detail: str = ""
    device: Device | None = None
    times_us: tuple[tuple[float, ...], ...] = ()
    error: float = 0.0


class Worker:
    """A worker process, started on first use and again after it died or was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def ask(self, request: dict[str, Any], *, limit_s: float) -> Answered:
        """Have one request served; `limit_s` counts from when a device is there."""
        fresh = self._process is None or self._process.poll() is not None
        process = self._start() if fresh else self._process
        if process is None or process.stdin is None:
            raise ValueError("the worker has no input")
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self.kill()
            return Answered(event="absent", detail="the worker process died")
        greeting = self._answer(limit_s + GRACE_S + (START_S if fresh else 0.0))
        if greeting is None:
            self.kill()
            return Answered(event="absent", detail=f"no device within {limit_s:.0f} s")
        if greeting["event"] != "connected":
            return _answered(greeting, None)
        device = Device(**greeting["device"])
        started = time.monotonic()
        last = self._answer(limit_s + GRACE_S)
        late = time.monotonic() - started > 0.9 * limit_s
        if last is None:
            self.kill()
            if not late:
                return Answered(
                    event="refused", kind="lost", detail="the worker process died", device=device
                )
        if last is None:
            return Answered(
                event="refused",
                kind="timeout",
                detail=f"no end within {limit_s:.0f} s",
                device=device,
            )
        return _answered(last, device)

    def kill(self) -> None:
        """End the process."""
        process, self._process = self._process, None
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

    def _start(self) -> subprocess.Popen[bytes]:
        self.kill()
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "adrenoc.tune.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tuner
        )
        return self._process

    def _answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line, None when it is late or the process is gone."""
        end = time.monotonic() + timeout_s
        process = self._process
        if process is None or process.stdout is None:
            return None
        try:
            while b"\n" not in self._buffer:
                left_s = end - time.monotonic()
                if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                    return None
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    return None
                self._buffer += piece
        except (OSError, ValueError):  # killed by the one who ends the lane
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _answered(answer: dict[str, Any], device: Device | None) -> Answered:
    return Answered(
        event=answer["event"],
        kind=answer.get("kind", ""),
        detail=answer.get("detail", ""),
        device=device,
        times_us=tuple(tuple(times) for times in answer.get("times_us", ())),
        error=float(answer.get("error", 0.0)),
    )
