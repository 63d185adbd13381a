"""Commands of adrenoc that print JSON, each a process of its own that ends with this one."""

import datetime
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from adrenoc.base.errors import AdbError, RemoteError
from adrenoc.base.host.proc import ending_with_us, own_module
from adrenoc.base.text.json_text import read_json

_LEFT_CODES = frozenset({RemoteError.exit_code, AdbError.exit_code})
"""Exit codes of a command whose device went away: the job is done again when it is back."""
TIMEOUT_CODE = 124
"""What stands for the exit code of a command that was stopped: it is the job that is to blame."""
_GENTLE_S = 10.0
_LONGEST_ERROR = 2000


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a command ended: what it printed as JSON, or its error; `ended` is UTC in ISO 8601."""

    exit_code: int
    took_s: float
    ended: str
    output: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    hint: str = ""

    @property
    def is_final(self) -> bool:
        """Return whether the command came to its end, and lost neither device nor its life."""
        return self.exit_code >= 0 and self.exit_code not in _LEFT_CODES


class CommandRunner:
    """Runs commands of adrenoc, from any thread, each for at most `limit_s`; and ends them."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def run(self, words: Sequence[str]) -> Result:
        """Run a command; it ends with this process, however that ends."""
        started = time.monotonic()
        with subprocess.Popen(
            own_module("adrenoc", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this one
        ) as process:
            with self._lock:
                self._processes.add(process)
                if self._is_over:
                    process.terminate()
            with ending_with_us(process.pid):
                code, said, aside = self._wait(process)
            with self._lock:
                self._processes.discard(process)
        return read_result(code, said, aside, time.monotonic() - started)

    def _wait(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Return the exit code and what a command said; one that is late is ended."""
        try:
            said, aside = process.communicate(timeout=self._limit_s)
            return process.returncode, said, aside
        except subprocess.TimeoutExpired:
            process.terminate()  # gently first: it may have half-written files to remove
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GENTLE_S)
        process.kill()
        process.communicate()
        told = f"it took longer than the limit of {self._limit_s or 0:.0f} s and was stopped"
        return TIMEOUT_CODE, "", told

    def close(self) -> None:
        """End what runs, and what is begun from now on."""
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.terminate()


def read_result(code: int, said: str, aside: str, took_s: float) -> Result:
    """Return how a command ended that said this on stdout and that on stderr."""
    output = _last_object(said)
    told = output.pop("error") if isinstance(output.get("error"), dict) else {}
    plain = (aside.strip() or f"it ended with code {code}") if code else ""
    return Result(
        exit_code=code,
        took_s=took_s,
        ended=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        output=output,
        error=str(told.get("message") or plain)[-_LONGEST_ERROR:],
        hint=str(told.get("hint", "")),
    )


def _last_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a command printed, or of one a line the last."""
    for piece in (text, *reversed(text.strip().splitlines())):
        with suppress(ValueError):
            found = read_json(piece)
            if isinstance(found, dict):
                return found
    return {}
