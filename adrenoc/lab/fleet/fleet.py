"""A fleet at work: a thread for each device does its jobs, others make bundles, until all is over.

A member says where a device is, and by which options a command reaches it.  Of a kind of devices
that a tracker knows, a thread takes whichever is free, and does the next of its jobs.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adrenoc.base.errors import AdrenocError
from adrenoc.base.host.proc import CommandRunner, Result
from adrenoc.device.peers import HostPort, Tracker
from adrenoc.lab.fleet.jobs import RUN, FleetOptions, Job, JobPlanner, ResultStore, target_of

MOST_ATTEMPTS = 10
"""Times that a job may end too early with nothing done since the last, before it is to blame: its
command died, or lost a device that a tracker knows, which is there again whenever it is met."""
DONE, FAILED, LEFT = "done", "failed", "left"
TRACKER_WAIT_S = 3.0
_TICK_S = 0.2
_ABSENT_S = 2.0
_LIST_S = 2.0
_MOST_THREADS = 4096
_COMPILE_SHARE = 4
"""Of so many commands side by side one may make a bundle: these take a core each."""


@dataclass(frozen=True, kw_only=True)
class FleetMember:
    """A device, and the options by which a command reaches it."""

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TrackedKind:
    """All devices of the kind `key` that TVM's tracker knows."""

    tracker: HostPort
    key: str

    def names(self) -> tuple[str, ...]:
        """Return the devices that are connected now. Raises RemoteError where no tracker is
        there."""
        with closing(Tracker(self.tracker, timeout_s=TRACKER_WAIT_S)) as tracker:
            return tuple(server.address for server in tracker.servers() if server.key == self.key)

    def next_free(self) -> FleetMember:
        """Wait for a device that has nothing to do, and take it. Raises RemoteError where no
        tracker is there, or none becomes free in time."""
        with closing(Tracker(self.tracker, timeout_s=TRACKER_WAIT_S)) as tracker:
            offer = tracker.request(self.key)
        words = ("--on", f"{offer.key}@{offer.address}")
        return FleetMember(name=str(offer.address), options=words)


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """One job as it stands at the end: `state` is DONE, FAILED or LEFT (the device went away)."""

    job: Job
    state: str
    result: Result | None = None
    word: str = ""


@dataclass(kw_only=True)
class _Standing:
    """What is known of one device; `kind` is its key at a tracker."""

    name: str
    kind: str = ""
    target: str = ""
    jobs: tuple[Job, ...] = ()
    results: dict[str, Result] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """How often each job ended too early, with nothing done since the last."""
    progress: dict[str, int] = field(default_factory=dict)
    is_busy: bool = False
    seen_s: float = field(default_factory=time.monotonic)
    is_missed: bool = False
    """Whether it was lost, and has given nothing since."""
    word: str = ""
    is_gone: bool = False


def run_fleet(
    options: FleetOptions,
    members: Sequence[FleetMember],
    tracked: Sequence[TrackedKind],
    store: ResultStore,
    *,
    on_end: Callable[[Job, Result], None] = lambda job, result: None,
) -> tuple[JobRow, ...]:
    """Do all jobs on all devices, going on where an earlier fleet has stopped; a row for each.

    What failed before is done again. `on_end` hears of each job that ends. Raises RemoteError where
    there is no tracker, ModelNotFoundError where a model is not there, OutputError where another
    fleet is at work in the store's folder.
    """
    runner = CommandRunner(options.limit_s)
    with store.hold():
        fleet = Fleet(JobPlanner(options, store.folder), store, runner.run, on_end=on_end)
        try:
            return fleet.run(members, tracked)
        finally:
            fleet.over.set()
            runner.close()
            fleet.close()


class Fleet:
    """Devices and their jobs, for threads; `do` runs the words of a command."""

    def __init__(
        self,
        plan: JobPlanner,
        store: ResultStore,
        do: Callable[[Sequence[str]], Result],
        *,
        on_end: Callable[[Job, Result], None] = lambda job, result: None,
    ) -> None:
        self.over = threading.Event()
        self._plan, self._store, self._do = plan, store, do
        self._on_end = on_end
        self._lock = threading.RLock()
        self._devices: dict[str, _Standing] = {}
        self._bundles: dict[Job, Future[Result]] = {}
        self._room = threading.Semaphore(plan.options.jobs)
        self._compilers = ThreadPoolExecutor(max(1, plan.options.jobs // _COMPILE_SHARE))
        self._lanes = ThreadPoolExecutor(_MOST_THREADS)
        self._work: list[Future[None]] = []

    def run(
        self, members: Sequence[FleetMember], tracked: Sequence[TrackedKind] = ()
    ) -> tuple[JobRow, ...]:
        """Do all that is to be done on these devices; a row for each job."""
        for member in members:
            self._meet(member.name)
        for kind in tracked:
            self._look(kind)
        for member in members:
            self._start(self._serve_member, member)
        for kind in tracked:
            self._start(self._watch, kind)
        while not self._settle():
            threads: list[Future[Any]] = [*self._work, *self._bundles.values()]
            for thread in threads:
                if thread.done():
                    thread.result()  # raises here what ended it
            time.sleep(_TICK_S)
        return self._rows()

    def close(self) -> None:
        """End all threads; commands are ended by who runs them."""
        self.over.set()
        self._compilers.shutdown(cancel_futures=True)
        self._lanes.shutdown()

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._work.append(self._lanes.submit(work, *arguments))

    # Threads

    def _serve(
        self, find: Callable[[], FleetMember | None], is_ready: Callable[[_Standing], bool]
    ) -> None:
        """Do jobs of the devices that are `is_ready`, on the one that is found each time."""
        while not self.over.is_set():
            pause_s = _TICK_S
            with self._room:
                member = find() if self._has_ready(is_ready) else None
                if member is not None:
                    # One that has nothing to do waits for its next client.
                    pause_s = self._do_next(member)
            self.over.wait(pause_s)

    def _serve_member(self, member: FleetMember) -> None:
        self._serve(lambda: member, lambda device: device.name == member.name)

    def _watch(self, kind: TrackedKind) -> None:
        """Have a thread for each device of a kind that the tracker knows."""

        def find() -> FleetMember | None:
            with suppress(AdrenocError, OSError):
                member = kind.next_free()
                self._meet(member.name, kind.key)
                return member
            return None

        lanes = 0
        while not self.over.is_set():
            with suppress(AdrenocError, OSError):
                count = self._look(kind)
                for _ in range(count - lanes):
                    self._start(self._serve, find, lambda device: device.kind == kind.key)
                lanes = max(lanes, count)
            self.over.wait(_LIST_S)

    def _look(self, kind: TrackedKind) -> int:
        """Meet all devices of a kind that are there now; returns how many."""
        names = kind.names()
        for name in names:
            self._meet(name, kind.key)
        return len(names)

    def _do_next(self, member: FleetMember) -> float:
        """Do the next job of a device; how long to wait before another one (s)."""
        with self._lock:
            device = self._devices[member.name]
            job = next(filter(self._is_ready, self._open_jobs(device)), None)
            if job is None or device.is_busy:
                return _TICK_S
            device.is_busy = True
        result = self._do((*job.words, *member.options))
        with self._lock:
            device.is_busy = False
            if self.over.is_set():
                return 0.0
            ended = self._end_of(device, job, result)
        if ended is not None:
            self._on_end(job, ended)
        return 0.0 if result.is_final else _ABSENT_S

    def _make(self, job: Job) -> Result:
        """Make a bundle, where it is not there; one whose command dies is tried again."""
        found = self._store.find(job)
        path = self._plan.bundle_path(job.target, Path(job.model))
        if found is not None and (found.exit_code or path.exists()):
            return found
        for attempt in range(MOST_ATTEMPTS):
            result = self._do(job.words)
            if self.over.is_set():
                return result
            if result.is_final:
                self._store.keep(job, result)
                break
            if attempt == MOST_ATTEMPTS - 1:
                result = _fail(result)
        self._on_end(job, result)
        return result

    # What is known of devices and jobs

    def _meet(self, name: str, kind: str = "") -> None:
        """Note that a device is there: now, and perhaps for the first time."""
        with self._lock:
            device = self._devices.setdefault(name, _Standing(name=name, kind=kind))
            device.seen_s, device.is_gone = time.monotonic(), False
            if not device.target:
                asked = self._plan.identify(name)
                self._recall(device, asked)
                self._learn(device, self._plan.options.target)

    def _recall(self, device: _Standing, *jobs: Job) -> None:
        """Take in what an earlier fleet has done of these jobs."""
        for job in jobs:
            found = self._store.find(job)
            if found is not None:
                device.results[job.key] = found

    def _learn(self, device: _Standing, target: str) -> None:
        """Find out what to compile for, and with it what there is to do."""
        if not target:
            said = device.results.get(self._plan.identify(device.name).key)
            if said is None or said.exit_code:
                return
            target = target_of(said.output)
        device.target = target
        device.jobs = self._plan.list_jobs(device.name, target)
        self._recall(device, *device.jobs)
        for job in device.jobs:
            bundle = self._bundle_of(job)
            if bundle is not None and bundle not in self._bundles:
                self._bundles[bundle] = self._compilers.submit(self._make, bundle)

    def _bundle_of(self, job: Job) -> Job | None:
        return self._plan.compile(job.target, Path(job.model)) if job.action == RUN else None

    def _made(self, job: Job) -> Result | None:
        """Return how the bundle of a job was made, where it has one that was."""
        bundle = self._bundle_of(job)
        made = None if bundle is None else self._bundles[bundle]
        return made.result() if made is not None and made.done() else None

    def _open_jobs(self, device: _Standing) -> list[Job]:
        """Return what may still be done on a device."""
        jobs = device.jobs if device.target else (self._plan.identify(device.name),)
        return [job for job in jobs if job.key not in device.results and not self._has_failed(job)]

    def _has_failed(self, job: Job) -> bool:
        """Return whether the bundle of a job could not be made."""
        made = self._made(job)
        return made is not None and made.exit_code != 0

    def _is_ready(self, job: Job) -> bool:
        return self._bundle_of(job) is None or self._made(job) is not None

    def _has_ready(self, is_meant: Callable[[_Standing], bool]) -> bool:
        """Return whether one of these devices has a job that it could do now."""
        with self._lock:
            return any(
                any(map(self._is_ready, self._open_jobs(device)))
                for device in self._devices.values()
                if is_meant(device) and not device.is_busy
            )

    def _settle(self) -> bool:
        """Give up devices that have been away for too long; whether all is over."""
        with self._lock:
            now = time.monotonic()
            for device in self._devices.values():
                if device.is_busy:
                    continue
                if not any(map(self._is_ready, self._open_jobs(device))):
                    device.seen_s = now  # one that waits for its bundles is not away
                elif now - device.seen_s > self._plan.options.patience_s:
                    device.is_gone = True
            return all(made.done() for made in self._bundles.values()) and not any(
                device.is_busy or (self._open_jobs(device) and not device.is_gone)
                for device in self._devices.values()
            )

    def _end_of(self, device: _Standing, job: Job, result: Result) -> Result | None:
        """Take in how a command ended; what came of the job, None where it is done again."""
        if not (device.is_missed and not result.is_final):
            # One that is lost was there until then, however long ago it last gave something.
            device.seen_s = time.monotonic()
        device.is_missed, device.word = not result.is_final, result.error
        if result.is_final:
            device.is_gone = False
            self._store.keep(job, result)
        elif (failed := self._judge_lost(device, job, result)) is not None:
            result = failed
        else:
            return None
        device.results[job.key] = result
        if not device.target:
            self._learn(device, "")
        return result

    @staticmethod
    def _judge_lost(device: _Standing, job: Job, result: Result) -> Result | None:
        """Return the failure of a job whose command ended too early once too often."""
        if result.exit_code >= 0 and not device.kind:
            return None  # it waits until its device is back, or has been away for too long
        before, device.progress[job.key] = device.progress.get(job.key, 0), job.progress_bytes
        device.attempts[job.key] = device.attempts.get(job.key, 0) + 1
        if device.progress[job.key] > before:
            device.attempts[job.key] = 0
        return None if device.attempts[job.key] < MOST_ATTEMPTS else _fail(result)

    def _rows(self) -> tuple[JobRow, ...]:
        """Return all jobs on devices, device by device, and bundles that could not be made."""
        rows = [
            self._row(job, device)
            for device in sorted(self._devices.values(), key=lambda device: device.name)
            for job in device.jobs or (self._plan.identify(device.name),)
        ]
        made = ((job, made.result()) for job, made in self._bundles.items())
        return (*rows, *(JobRow(job=j, state=FAILED, result=r) for j, r in made if r.exit_code))

    def _row(self, job: Job, device: _Standing) -> JobRow:
        result = device.results.get(job.key)
        if result is not None:
            state = DONE if result.exit_code == 0 or result.output else FAILED
            return JobRow(job=job, state=state, result=result)
        made = self._made(job)
        if made is not None and made.exit_code:
            return JobRow(job=job, state=FAILED, word=f"its bundle was not made: {made.error}")
        return JobRow(job=job, state=LEFT, word=device.word or "it is not there")


def _fail(result: Result) -> Result:
    """Return the failure of a job whose command ended too early so often."""
    told = f"the device was lost {MOST_ATTEMPTS} times in it: {result.error}"
    if result.exit_code < 0:
        told = f"the command died of signal {-result.exit_code}, {MOST_ATTEMPTS} times"
    return replace(result, exit_code=1, output={}, error=told)
