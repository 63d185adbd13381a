"""Which job comes next on a device, what is under way, and what came of all of them.

Threads take jobs from the board and bring results back; the board alone decides what is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adrenoc.base.text.names import bundle_name
from adrenoc.device.fit import adreno_number
from adrenoc.importers.formats import find_model_files
from adrenoc.lab.fleet.store import CALIBRATE, COMPILE, IDENTIFY, RUN, VERIFY, Job, Result, Store
from adrenoc.target.device_report import load_listed


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """What is to be done with each device.

    `target` is what to compile for, empty to ask each device; `actions` are of RUN, VERIFY
    and CALIBRATE.  `check` holds outputs against the reference on this computer.  `budget_s`
    bounds one calibration, `limit_s` any job, and `patience_s` how long a device may be
    away.  `jobs` commands run side by side on this computer, some 0.5 GB each.
    """

    models: tuple[Path, ...]
    actions: tuple[str, ...] = (RUN,)
    target: str = ""
    preset: str = ""
    check: bool = True
    repeat: int = 10
    budget_s: float = 300.0
    limit_s: float = 1800.0
    patience_s: float = 60.0
    jobs: int = 8


class Plan:
    """Makes the jobs; models are hashed once, when it is made.

    Raises:
        ModelNotFoundError: a model is not there.
    """

    def __init__(self, options: FleetOptions, store: Store) -> None:
        self.options, self._store = options, store
        self._digests = {model: find_model_files(model).sha256() for model in options.models}

    def identify(self, device: str) -> Job:
        """Ask a device what it is."""
        return Job(action=IDENTIFY, device=device, words=("device", "list", "--json"))

    def compile(self, target: str, model: Path) -> Job:
        """Make the bundle of a model, for all devices of a target."""
        bundle = self.bundle_path(target, model)
        words = ("compile", str(model), "--device", target, *self._preset())
        words += ("-o", str(bundle), "--json")
        return Job(
            action=COMPILE,
            model=str(model),
            target=target,
            words=words,
            inputs=(self._digests[model],),
        )

    def list_jobs(self, device: str, target: str) -> tuple[Job, ...]:
        """What is to be done on one device of a known target, in this order."""
        jobs: list[Job] = []
        if RUN in self.options.actions:
            jobs += [self._run(device, target, model) for model in self.options.models]
        if VERIFY in self.options.actions:
            jobs.append(self._verify(device, target))
        if CALIBRATE in self.options.actions:
            jobs.append(self._calibrate(device))
        return tuple(jobs)

    def bundle_path(self, target: str, model: Path) -> Path:
        """Where the bundle of a model for a target goes."""
        return self._path("bundles", target, model, ".adrenoc")

    def _path(self, room: str, target: str, model: Path, suffix: str) -> Path:
        made_of, devices = f"{self._digests[model]} {self.options.preset}", target.split(",")
        if len(devices) > 1:  # all together would be too long for a file's name
            made_of, target = f"{made_of} {target}", f"{len(devices)} devices"
        return self._store.path_for(room, target, model, made_of, suffix)

    def _preset(self) -> tuple[str, ...]:
        return ("--preset", self.options.preset) if self.options.preset else ()

    def _run(self, device: str, target: str, model: Path) -> Job:
        options, bundle = self.options, self.bundle_path(target, model)
        words = ["run", str(bundle), "--repeat", str(options.repeat), "--json"]
        words += ["--check", str(model)] if options.check else []
        return Job(
            action=RUN,
            device=device,
            model=str(model),
            target=target,
            words=tuple(words),
            inputs=(self._digests[model], options.preset),
        )

    def _verify(self, device: str, target: str) -> Job:
        """Every kernel family on a device; what the driver gets wrong goes into a file."""
        file = self._store.folder / "devices" / f"{bundle_name(device)}.json"
        kept = self._progress(VERIFY, device)
        words = [
            "device",
            "verify",
            "--device",
            target,
            "-o",
            str(file),
            "--json",
            "--resume",
            kept,
        ]
        return Job(action=VERIFY, device=device, target=target, words=tuple(words), progress=kept)

    def _calibrate(self, device: str) -> Job:
        file = self._store.folder / "devices" / f"{bundle_name(device)}.toml"
        budget = f"{self.options.budget_s:.0f}s"
        kept = self._progress(CALIBRATE, device)
        words = [
            "device",
            "calibrate",
            "--budget",
            budget,
            "-o",
            str(file),
            "--json",
            "--resume",
            kept,
        ]
        return Job(action=CALIBRATE, device=device, words=tuple(words), progress=kept)

    def _progress(self, action: str, device: str) -> str:
        return str(self._store.folder / "progress" / f"{bundle_name(device)}.{action}")


def target_of(output: Mapping[str, Any]) -> str:
    """What to compile for a device that says so of itself (`adrenoc device list --on --json`)."""
    told = output.get("server", {})
    facts: Any = next(iter(told.get("devices") or ()), {})
    number = adreno_number(facts if isinstance(facts, dict) else {})
    is_arm = str(told.get("machine", "")).startswith("aarch64")
    common = "adreno" if is_arm else "host"
    name = load_listed(number).name
    if name == "adreno":
        return common
    return name if is_arm else name.replace("adreno:", "host:")


MOST_ATTEMPTS = 3
"""Commands that die of themselves, with nothing done since the last, before the job has failed."""
MOST_LOSSES = 10
"""Times that a device which a tracker knows may be lost in one job, with nothing done since the
last, before that job is to blame."""
FAILED, LEFT, WAITING, DONE = "failed", "left", "waiting", "done"


@dataclass(kw_only=True)
class DeviceStanding:
    """What is known of one device; `kind` is its key at a tracker."""

    name: str
    kind: str = ""
    target: str = ""
    jobs: tuple[Job, ...] = ()
    at_work: int = 0
    seen_s: float = field(default_factory=time.monotonic)
    is_missed: bool = False
    """Whether it was lost, and has given nothing since."""
    word: str = ""
    is_gone: bool = False


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job as it stands at the end: `state` is DONE, FAILED, LEFT or WAITING."""

    job: Job
    state: str
    result: Result | None = None
    word: str = ""


class Board:
    """The state of a fleet, for threads."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        again: bool = False,
        on_end: Callable[[Job, Result], None] = lambda job, result: None,
    ) -> None:
        self._plan, self._store, self._on_end = plan, store, on_end
        self._again = again
        self._lock = threading.RLock()
        self._devices: dict[str, DeviceStanding] = {}
        self._compiles: dict[str, Job] = {}
        self._results: dict[str, Result | None] = {}
        self._under_way: set[str] = set()
        self._attempts: dict[str, int] = {}
        self._losses: dict[str, int] = {}
        self._progress: dict[str, int] = {}

    def meet(self, name: str, *, kind: str = "") -> DeviceStanding:
        """A device is there: now, and perhaps for the first time."""
        with self._lock:
            found = self._devices.setdefault(name, DeviceStanding(name=name, kind=kind))
            found.seen_s, found.is_gone = time.monotonic(), False
            if not found.target:
                self._learn(found, self._plan.options.target)
            return found

    def take(self, name: str) -> Job | None:
        """Return the next job for a device; None while there is none, or it is at work."""
        with self._lock:
            device = self._devices[name]
            job = next((job for job in self._open_jobs(device) if self._is_ready(job)), None)
            if job is None or self._is_at_work(device):
                return None
            self._under_way.add(job.key)
            device.at_work += 1
            return job

    def take_compile(self) -> Job | None:
        """Return the next bundle to make."""
        with self._lock:
            for job in self._compiles.values():
                if self._find_result(job) is None and self._is_ready(job):
                    self._under_way.add(job.key)
                    return job
            return None

    def has_ready(self) -> bool:
        """Return whether any device has a job that it could do now."""
        with self._lock:
            return any(
                self._is_ready(job)
                for device in self._devices.values()
                if not self._is_at_work(device)
                for job in self._open_jobs(device)
            )

    def finish(self, job: Job, result: Result | None, word: str = "") -> None:
        """What became of a job; None where its device was lost, or another process has it."""
        with self._lock:
            self._under_way.discard(job.key)
            device = self._devices.get(job.device)
            if device is not None:
                device.at_work -= 1
                device.word = word
                if result is not None:
                    self._note_presence(device, is_lost=not result.is_final)
            if result is None:
                return
            if not result.is_final:
                result = self._judge_lost(job, result, device)
            if result is None:
                return
            self._results[job.key] = result
            if device is not None and not device.target:
                self._learn(device, "")
        self._on_end(job, result)

    def is_over(self, name: str) -> bool:
        """Return whether nothing is left to do on a device, now or later."""
        with self._lock:
            device = self._devices.get(name)
            return device is not None and (device.is_gone or not self._open_jobs(device))

    def settle(self) -> bool:
        """Give up devices that have been away for too long; whether all is over."""
        with self._lock:
            now = time.monotonic()
            for device in self._devices.values():
                if self._is_at_work(device):
                    continue
                if not any(self._is_ready(job) for job in self._open_jobs(device)):
                    device.seen_s = now  # one that waits for its bundles is not away
                elif now - device.seen_s > self._plan.options.patience_s:
                    device.is_gone = True
            return not self._under_way and all(self.is_over(name) for name in self._devices)

    def rows(self) -> tuple[JobRow, ...]:
        """All jobs on devices, device by device, and bundles that could not be made."""
        with self._lock:
            rows = [
                self._row(job, device)
                for device in sorted(self._devices.values(), key=lambda d: d.name)
                for job in device.jobs or (self._plan.identify(device.name),)
            ]
            made = [self._row(job, None) for job in self._compiles.values()]
            return (*rows, *(row for row in made if row.state != DONE))

    def targets(self) -> dict[str, str]:
        """Return the target of each device that has said what it is."""
        with self._lock:
            return {d.name: d.target for d in self._devices.values() if d.target}

    def _row(self, job: Job, device: DeviceStanding | None) -> JobRow:
        result = self._find_result(job)
        if result is not None:
            state = DONE if result.exit_code == 0 or result.output else FAILED
            return JobRow(job=job, state=state, result=result)
        if (bundle := self._bundle(job)) is not None:
            made = self._find_result(bundle)
            if made is not None and made.exit_code:
                return JobRow(job=job, state=FAILED, word=f"its bundle was not made: {made.error}")
        if device is not None and device.is_gone:
            return JobRow(job=job, state=LEFT, word=device.word or "it is not there")
        return JobRow(job=job, state=WAITING, word=device.word if device is not None else "")

    def _open_jobs(self, device: DeviceStanding) -> list[Job]:
        """Return what may still be done on a device."""
        if not device.target:
            job = self._plan.identify(device.name)
            return [] if self._find_result(job) is not None else [job]
        return [
            job for job in device.jobs if self._find_result(job) is None and not self._is_lost(job)
        ]

    def _is_ready(self, job: Job) -> bool:
        bundle = self._bundle(job)
        made = None if bundle is None else self._find_result(bundle)
        can_run = bundle is None or (made is not None and made.exit_code == 0)
        return can_run and job.key not in self._under_way and not self._store.is_busy(job)

    def _is_at_work(self, device: DeviceStanding) -> bool:
        """Return whether a job is done there now, by this process or by one whose fleet has died.

        Between the sessions of a job a tracker takes its device for free.
        """
        return device.at_work > 0 or any(self._store.is_busy(job) for job in device.jobs)

    def _is_lost(self, job: Job) -> bool:
        """Return whether the bundle of a job could not be made."""
        bundle = self._bundle(job)
        made = None if bundle is None else self._find_result(bundle)
        return made is not None and made.exit_code != 0

    def _bundle(self, job: Job) -> Job | None:
        return self._plan.compile(job.target, Path(job.model)) if job.action == RUN else None

    def _find_result(self, job: Job) -> Result | None:
        """Return the result of a job; looked for on disk once.

        One that another process writes after that is found by the runner of the same job.
        """
        if job.key not in self._results:
            found = self._store.result_of(job)
            if found is not None and not self._counts(job, found):
                self._store.forget(job)
                found = None
            self._results[job.key] = found
        return self._results[job.key]

    def _counts(self, job: Job, found: Result) -> bool:
        """Return whether a result of an earlier fleet stands: not where it failed and is to be
        redone."""
        if found.exit_code:
            return not self._again
        return job.action != COMPILE or self._plan.bundle_path(job.target, Path(job.model)).exists()

    def _learn(self, device: DeviceStanding, target: str) -> None:
        """Find out what to compile for, and with it what there is to do."""
        if not target:
            said = self._find_result(self._plan.identify(device.name))
            if said is None or said.exit_code:
                return
            target = target_of(said.output)
        device.target = target
        device.jobs = self._plan.list_jobs(device.name, target)
        for job in device.jobs:
            if (bundle := self._bundle(job)) is not None:
                self._compiles.setdefault(bundle.key, bundle)

    @staticmethod
    def _note_presence(device: DeviceStanding, *, is_lost: bool) -> None:
        """One that is lost was there until then, however long ago it last gave something."""
        if not (is_lost and device.is_missed):
            device.seen_s = time.monotonic()
        device.is_missed = is_lost

    def _has_gone_on(self, job: Job) -> bool:
        """Return whether a job has done more than when its command last ended too early."""
        before, now = self._progress.get(job.key, 0), self._store.progress_bytes(job)
        self._progress[job.key] = now
        return now > before

    def _judge_lost(self, job: Job, result: Result, device: DeviceStanding | None) -> Result | None:
        """Return a command without an end: the device left, or it ended so once too often.

        A device that a tracker knows is there again whenever it is met: only the count ends that.
        """
        has_died = result.exit_code < 0
        if device is not None and not has_died:
            device.word = result.error
            if not device.kind:
                return None
        if self._has_gone_on(job):
            self._attempts[job.key] = self._losses[job.key] = 0
            return None
        counts = self._attempts if has_died else self._losses
        most = MOST_ATTEMPTS if has_died else MOST_LOSSES
        counts[job.key] = counts.get(job.key, 0) + 1
        if counts[job.key] < most:
            return None
        told = f"the device was lost {most} times in it: {result.error}"
        if has_died:
            told = f"the command died of signal {-result.exit_code}, {most} times"
        return Result(exit_code=1, took_s=result.took_s, ended=result.ended, error=told)
