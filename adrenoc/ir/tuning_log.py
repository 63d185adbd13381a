"""The tuning log: JSON lines, one for each schedule of a kernel that was tried on a device.

Lines are only ever appended, each in one write, so that whatever dies loses the line in flight
and no other.  Kernels are named by the digest of what they compute (`kernel_digest`), so that a
log serves every model that holds such a kernel.
"""

import errno
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from adrenoc.base.errors import TuningLogError
from adrenoc.base.files.outputs import check_file_can_be_written, output_error
from adrenoc.base.files.read import data_folder, read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import quote_word

VERSION = 1
SUFFIX = ".tune.json"
MOST_LOG_BYTES = 1 << 30
MOST_TIME_US = 3.6e9
"""An hour: no kernel takes as long."""
_MOST_RUNS = 10**9
_MOST_CLOCK_MHZ = 10**5
_LINE_BEGIN = b'{"actions":'

WORTH = 0.98
"""The share of the untuned schedule's time, measured in turn, above which nothing is gained."""
WORTH_UNCONFIRMED = 0.9
"""The same, where they were measured apart."""

Actions = Mapping[str, Any]
"""One schedule of a family as JSON values."""


class Status(str, Enum):
    """How a trial ended."""

    OK = "ok"
    WRONG = "wrong"
    """Its numbers are not those of the untuned kernel."""
    UNSTABLE = "unstable"
    """Its numbers differ between runs on the same input."""
    BUILD = "build"
    """The device's compiler refused it."""
    CRASH = "crash"
    """The process on the device died of it, each time that it was tried."""
    TIMEOUT = "timeout"
    """It did not end in time."""


@dataclass(frozen=True, kw_only=True)
class TunedDevice:
    """What a trial ran on; `clock_mhz` 0 where the device does not tell."""

    name: str
    driver: str = ""
    platform: str = ""
    clock_mhz: int = 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One line: a kernel, one schedule of it, and what came of it on a device.

    `work` is what `kernel` is the digest of.  Times are of `runs` measurements; `spread_us` is
    the distance between their quartiles.  `error` is the largest difference to the untuned
    kernel's output, relative to that output's largest value.  `untuned`: the schedule that the
    cost model picks; `confirmed`: measured again in turn with the untuned one.
    """

    kernel: str
    family: str
    work: Mapping[str, Any]
    actions: Actions
    status: Status
    median_us: float = 0.0
    spread_us: float = 0.0
    runs: int = 0
    error: float = 0.0
    detail: str = ""
    untuned: bool = False
    confirmed: bool = False
    target: str
    gpu: str
    device: TunedDevice
    tools: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    at: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Kernel and schedule."""
        return self.kernel, actions_key(self.actions)

    def encode_line(self) -> str:
        """Return the line of the log."""
        plain = {"version": VERSION, **asdict(self), "status": self.status.value}
        return json.dumps(plain, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a log says about the kernels of a target.  `actions`: digest -> the schedule to take.
    `refused`: digest -> schedules that failed there.  `banned`: work-groups that no kernel may
    have."""

    actions: Mapping[str, Actions] = field(default_factory=dict)
    refused: Mapping[str, tuple[Actions, ...]] = field(default_factory=dict)
    banned: frozenset[tuple[int, int, int]] = frozenset()


def kernel_digest(family: str, work: Any) -> str:
    """Names a kernel by what it does: 16 hexadecimal digits, the same in every model."""
    text = json.dumps([family, work], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def actions_key(actions: Actions) -> str:
    """Return a schedule as text that is equal for equal schedules."""
    return json.dumps(actions, sort_keys=True)


def find_log(name: str) -> Path:
    """Return a log by its path, or by its name where it is `presets/NAME.tune.json`."""
    path = Path(name)
    shipped = data_folder("presets") / f"{name}{SUFFIX}"
    is_shipped = path.name == name and not os.path.lexists(path) and shipped.is_file()
    return shipped if is_shipped else path


def read_log(path: Path) -> tuple[Trial, ...]:
    """Return all trials of a log; a last line that a crash cut off is left out."""
    try:
        text = read_plain(path, MOST_LOG_BYTES)
    except OSError as error:
        raise TuningLogError(
            f"the tuning log {path} cannot be read: {error.strerror or error}",
            hint=f"adrenoc tune run MODEL -o {quote_word(path)} makes one",
        ) from error
    lines = text.split(b"\n")
    whole = lines[:-1]  # what follows the last line end was cut off
    return tuple(
        _parse(line, f"{path}:{number}") for number, line in enumerate(whole, 1) if line.strip()
    )


def _parse(line: bytes, where: str) -> Trial:
    hint = "adrenoc tune log show FILE checks a log; delete the line if it is damaged"
    try:
        plain = read_json(line)
    except ValueError as error:
        raise TuningLogError(f"{where}: not a JSON line ({error})", hint=hint) from error
    version = plain.pop("version", None) if isinstance(plain, dict) else None
    if version != VERSION:
        raise TuningLogError(
            f"{where}: version {version!r} of the tuning log, expected {VERSION}", hint=hint
        )

    def wrong(place: str, what: str) -> TuningLogError:
        return TuningLogError(f"{place} {what}", hint=hint)

    trial: Trial = RecordReader(wrong, defaults=True).read(Trial, plain, where)
    group = trial.actions.get("work_group", [1, 1, 1])
    if not isinstance(group, list) or [type(extent) for extent in group] != [int] * 3:
        raise wrong(f"{where}: actions.work_group", f"is {group!r}, expected three numbers")
    measured = {
        "median_us": (trial.median_us, MOST_TIME_US),
        "spread_us": (trial.spread_us, MOST_TIME_US),
        "runs": (trial.runs, _MOST_RUNS),
        "error": (trial.error, sys.float_info.max),
        "device.clock_mhz": (trial.device.clock_mhz, _MOST_CLOCK_MHZ),
    }
    for key, (value, most) in measured.items():
        if not 0 <= value <= most:
            raise wrong(f"{where}: {key}", f"is {value:g}, expected 0 to {most:g}")
    if trial.status is Status.OK and not trial.median_us:
        raise wrong(f"{where}: median_us", "is 0, expected more than 0 of a schedule that ran")
    return trial


def best_trials(trials: Iterable[Trial]) -> dict[str, Trial]:
    """Return the fastest right schedule of each kernel.  Trials that were measured in turn with the
    untuned schedule outweigh all others; of those of one schedule the last counts.  A schedule that
    ever failed is out, and so is one that beats the untuned schedule of the same GPU by less than
    measurements are worth."""
    last: dict[tuple[str, str], Trial] = {}
    failed: set[tuple[str, str]] = set()
    for trial in trials:
        if trial.status is not Status.OK:
            failed.add(trial.key)
        elif trial.confirmed or not (trial.key in last and last[trial.key].confirmed):
            last[trial.key] = trial
    best: dict[str, Trial] = {}
    untuned: dict[str, Trial] = {}
    for key, trial in last.items():
        if key in failed:
            continue
        if trial.untuned:
            untuned[trial.kernel] = trial
        known = best.get(trial.kernel)
        if known is None or _rank(trial) < _rank(known):
            best[trial.kernel] = trial
    for kernel, usual in untuned.items():
        if usual.gpu == best[kernel].gpu and not _is_worth_it(best[kernel], usual):
            best[kernel] = usual
    return best


def _is_worth_it(trial: Trial, usual: Trial) -> bool:
    """Return whether a schedule is faster than the untuned one by more than luck."""
    sure = trial.confirmed and usual.confirmed
    return trial.median_us < usual.median_us * (WORTH if sure else WORTH_UNCONFIRMED)


def _rank(trial: Trial) -> tuple[bool, float]:
    return not trial.confirmed, trial.median_us


def tuning_of(trials: Iterable[Trial]) -> Tuning:
    """Return what a compilation takes from these trials."""
    kept = tuple(trials)
    refused: dict[str, list[Actions]] = {}
    banned: set[tuple[int, int, int]] = set()
    for trial in kept:
        if trial.status is Status.OK:
            continue
        refused.setdefault(trial.kernel, []).append(trial.actions)
        group = trial.actions.get("work_group")
        if trial.status is Status.UNSTABLE and group is not None:
            banned.add((group[0], group[1], group[2]))
    return Tuning(
        actions={kernel: trial.actions for kernel, trial in best_trials(kept).items()},
        refused={kernel: tuple(actions) for kernel, actions in refused.items()},
        banned=frozenset(banned),
    )


def choose_trials(trials: tuple[Trial, ...], gpu: str, where: str) -> tuple[tuple[Trial, ...], str]:
    """Return the trials that serve a GPU, and what to warn of ("" for nothing).  Those of another
    GPU serve where there are none of this one."""
    own = tuple(t for t in trials if t.gpu == gpu)
    if trials and not own:
        others = ", ".join(sorted({t.gpu for t in trials}))
        return trials, f"{where} was measured on {others}, not on {gpu}: its schedules are guesses"
    drivers = sorted({t.device.driver for t in own if t.status is Status.OK})
    if len(drivers) > 1:
        return own, f"{where} holds times of several drivers: {', '.join(drivers)}"
    return own, ""


class LogWriter:
    """Appends trials to a log; holds a lock, for two writers would measure the same twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        place = check_file_can_be_written(path)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(place, flags, 0o644)
        except OSError as error:
            raise output_error(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise TuningLogError(
                f"another tuner writes to {path}",
                hint="wait for it, or give another file with -o and merge: adrenoc tune log merge",
            ) from error
        with ExitStack() as stack:
            stack.callback(self.close)
            read_log(place)  # whatever else it is, it is the user's
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size, 0)
            end = data.rfind(b"\n") + 1
            torn = data[end:]
            if not (torn.startswith(_LINE_BEGIN) or _LINE_BEGIN.startswith(torn)):
                raise TuningLogError(
                    f"{self._path} ends with something else than a line of a log: {torn[:40]!r}",
                    hint="name another file with -o",
                )
            if torn:
                os.ftruncate(self._file, end)
            stack.pop_all()

    def append(self, trial: Trial) -> None:
        """Write one line, to the disk."""
        try:
            before = os.fstat(self._file).st_size
            line = (trial.encode_line() + "\n").encode()
            if os.write(self._file, line) != len(line):
                os.ftruncate(self._file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
        except OSError as error:
            raise output_error(self._path, error) from error

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._file)
