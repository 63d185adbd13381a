"""The folder of a fleet: bundles, results and locks, so that a fleet that died can go on.

A result is written by the process that ran the command, all or nothing, while it holds the job's
lock.  So a job is never measured twice at a time, and none whose result is there is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adrenoc.base.errors import AdbError, InputError, OutputError, RemoteError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.decode import Decoder
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.spelling import quote_word

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


MARKER = "fleet.json"
_MARK = {"adrenoc": "fleet", "version": 1}
_FOLDERS = ("bundles", "devices", "locks", "progress", "results")


class Store:
    """A fleet's folder, made where it is not there.

    Raises:
        OutputError: something else is there, or it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
                raise OutputError(
                    f"{folder} exists and is not the folder of a fleet: it has no {MARKER} that "
                    "adrenoc wrote",
                    hint="name another folder with --output",
                )
            folder.mkdir(exist_ok=True)
            for name in _FOLDERS:
                (folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise output_error(folder, error) from error
        if not _is_ours(folder):
            write_atomically(folder / MARKER, json.dumps(_MARK) + "\n")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The folder for this process alone.

        Raises:
            OutputError: another fleet is at work in it.
        """
        with hold_lock(self.folder / "locks" / "fleet.lock") as lock:
            if lock is None:
                raise OutputError(
                    f"another `adrenoc device fleet` is at work in {self.folder}",
                    hint="wait for it, or name another folder with --output",
                )
            yield

    def result_path(self, job: Job) -> Path:
        """Return where the result of a job goes."""
        return self.folder / "results" / f"{job.key}.json"

    def lock_path(self, job: Job) -> Path:
        """Return what is locked while a job is done, also by a process whose fleet has died."""
        return self.folder / "locks" / f"{job.key}.lock"

    def path_for(self, room: str, target: str, model: Path, made_of: str, suffix: str) -> Path:
        """Return where in a room of the folder something goes that is `made_of` a model, for a
        target."""
        tag = hashlib.sha256(made_of.encode()).hexdigest()[:8]
        name = f"{bundle_name(target)}-{bundle_name(model.stem)}-{tag}{suffix}"
        return self.folder / room / name

    def result_of(self, job: Job) -> Result | None:
        """Return what a job gave, None where it has not been done.

        Raises:
            InputError: what is there is no result.
        """
        return read_result(self.result_path(job))

    def forget(self, job: Job) -> None:
        """Let a job be done again."""
        self.result_path(job).unlink(missing_ok=True)

    def progress_bytes(self, job: Job) -> int:
        """Return how much a job has kept of what it did, that it would go on from."""
        try:
            return Path(job.progress).stat().st_size if job.progress else 0
        except OSError:
            return 0

    def is_busy(self, job: Job) -> bool:
        """Return whether some process does this job now."""
        path = self.lock_path(job)
        if not path.exists():
            return False
        with hold_lock(path) as lock:
            return lock is None


def read_result(path: Path) -> Result | None:
    """Return the result in a file, None where there is none.

    Raises:
        InputError: what is there is no result.
    """
    try:
        plain = read_json(read_plain(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _wrong(path, f"cannot be read: {error}") from error
    found: Result = Decoder(lambda place, what: _wrong(path, f"{place} {what}")).read(
        Result, plain, path.name
    )
    return found


def write_result(path: Path, result: Result) -> None:
    """Write a result, all or nothing.

    Raises:
        OutputError: it cannot be written.
    """
    write_atomically(path, json.dumps(asdict(result), indent=1) + "\n")


@contextmanager
def hold_lock(path: Path) -> Iterator[int | None]:
    """The descriptor of a lock file that this process holds; None where another one does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


def _is_ours(folder: Path) -> bool:
    try:
        return bool(read_json(read_plain(folder / MARKER)) == _MARK)
    except (OSError, ValueError):
        return False


def _wrong(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} is no result of a fleet: {what}",
        hint=f"rm {quote_word(path)}, and the job is done again",
    )
