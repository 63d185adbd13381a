"""Commands that a user types, run by scripts: what they print as JSON, or how they ended."""

import time
from collections.abc import Sequence
from typing import Any

from adrenoc.base.host.proc import CommandRunner


class CommandError(Exception):
    """A command that refused, with its sentence, or that crashed, with its last words."""


def adrenoc(*words: str, until: float | None = None, codes: Sequence[int] = (0,)) -> Any:
    """Run a command with `--json`, and return what it prints.

    `until` is when it is stopped, by `time.monotonic()`; `codes` are the exit codes that are as
    good as 0.

    Raises:
        CommandError: it ended otherwise.
    """
    limit_s = None if until is None else max(1.0, until - time.monotonic())
    result = CommandRunner(limit_s).run((*words, "--json"))
    if result.exit_code not in codes:
        raise CommandError(f"exit code {result.exit_code}: {' '.join(result.error.split())}")
    return result.output
