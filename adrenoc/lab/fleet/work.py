"""What a fleet does: jobs, each one command of adrenoc on one device, and what became of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from adrenoc.base.errors import AdbError, RemoteError

IDENTIFY, COMPILE, RUN = "identify", "compile", "run"
VERIFY, CALIBRATE = "verify", "calibrate"
LEFT_CODES = frozenset({RemoteError.exit_code, AdbError.exit_code})
"""Exit codes of a command whose device went away: the job is done again when it is back."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One command.

    `device` is the id of the device, empty for what runs here; `model` is the path of a model,
    empty where none is meant.  `words` is the command behind `adrenoc` without the options that
    reach the device.  `inputs` are digests of what the command reads: with others it is another
    job.  `progress` is the file in which the command keeps what it has done so far.
    """

    action: str
    device: str = ""
    model: str = ""
    target: str = ""
    words: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    progress: str = ""

    @property
    def key(self) -> str:
        """What tells this job from every other one, as a file name."""
        parts = [self.action, self.device, self.model, self.target, self.words, self.inputs]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


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
        """Whether the command came to its end, rather than lose the device or its own life."""
        return self.exit_code >= 0 and self.exit_code not in LEFT_CODES
