"""Commands that a user types, run by scripts: what they print as JSON, or how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

_LINES = 3
"""Of what a command said before it crashed."""


class CommandError(Exception):
    """A command that refused, with its sentence, or that crashed, with its last words."""


def adrenoc(
    *words: str, until: float | None = None, codes: Sequence[int] = (0,), **variables: str
) -> Any:
    """Run a command with `--json`, and return what it prints.

    `until` is when it is stopped, by `time.monotonic()`; `codes` are the exit codes that are as
    good as 0; `variables` are for its environment.

    Raises:
        CommandError: it ended otherwise.
        subprocess.TimeoutExpired: it was stopped.
    """
    done = subprocess.run(
        [sys.executable, "-m", "adrenoc", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=None if until is None else max(1.0, until - time.monotonic()),
        env={**os.environ, **variables},
    )
    try:
        told = json.loads(done.stdout)
    except ValueError:
        said = " / ".join(map(str.strip, done.stderr.strip().splitlines()[-_LINES:]))
        raise CommandError(f"{describe_end(done.returncode)}: {said}") from None
    if done.returncode not in codes:
        said = told.get("error", {}).get("message", "")
        raise CommandError(f"exit code {done.returncode}: {' '.join(said.split())}")
    return told


def describe_end(code: int) -> str:
    """Tell in words how a process ended."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
