"""Devices at work, a lane each, and trials on their way at one: many a session are built, and one
at a time is measured.

Kernels are built on the server while earlier ones are measured, unless the device is a CPU. After a
session broke, what was under way is gone through one by one, so that the next break names the one
to blame; that one is tried again: a server may have died of something else. Every wait has a limit,
which the relay of the session keeps (`adrenoc.device.remote`). A device that is not there costs
time and no candidate.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from adrenoc.base.errors import AdrenocError, RemoteError
from adrenoc.device.peers import Tracker
from adrenoc.device.remote import RemoteAddress
from adrenoc.ir.tuning_log import Status, TunedDevice
from adrenoc.lab.tune.session import (
    ABSENT,
    START_S,
    DevicePlace,
    MeasureJob,
    Session,
    TrialResult,
    read_failure,
)

LATE = 0.9
"""The share of a trial's limit after which a session that breaks was ended for being late."""
BUILD_TICK_MS = 100
BROKEN = (AdrenocError, RuntimeError, ValueError, TypeError, AttributeError, OSError, MemoryError)
"""The exceptions of a session or a device that fails."""


@dataclass(kw_only=True, eq=False)
class _Trial:
    """A job on its way; `number` is the server's, 0 before it knows of it."""

    job: MeasureJob
    number: int = 0
    careful: bool = False
    doubted: bool = False
    """It was refused once, where another one may be to blame."""
    started: float = 0.0
    build_ms: float = 0.0


class TrialQueue:
    """Trials that wait, trials that are being built, and the session that they are built in.
    `fetch` gives what is to be done beside so many that are held; `ended` hears of each end, and
    `connected` of each session."""

    def __init__(
        self,
        place: DevicePlace,
        *,
        fetch: Callable[[int], Sequence[MeasureJob]] = lambda held: (),
        ended: Callable[[MeasureJob, TrialResult], None],
        connected: Callable[[Session], None],
    ) -> None:
        self._place = place
        self._fetch, self._ended, self._connected = fetch, ended, connected
        self._waiting: deque[_Trial] = deque()
        self._started: deque[_Trial] = deque()
        self._session: Session | None = None

    @property
    def held(self) -> int:
        """Return how many trials have not come to their end."""
        return len(self._waiting) + len(self._started)

    def add(self, job: MeasureJob) -> None:
        """Take a job in."""
        self._waiting.append(_Trial(job=job, careful=job.careful))

    def work(self) -> None:
        """Bring the next trial to its end, where there is one."""
        self._take()
        if self.held:
            self._step()

    def cut(self) -> None:
        """End what is under way, for another thread than the one that works."""
        session = self._session
        if session is not None:
            session.cut()

    def close(self) -> tuple[MeasureJob, ...]:
        """End the session; gives the jobs that have no end."""
        left = tuple(trial.job for trial in (*self._started, *self._waiting))
        self._started.clear()
        self._waiting.clear()
        self._close()
        return left

    def _take(self) -> None:
        for job in self._fetch(self.held):
            self.add(job)

    def _step(self) -> None:
        """Open a session, or bring the next trial to its end."""
        if self._session is None:
            try:
                self._session = Session(self._place)
            except BROKEN as error:
                self._absent(read_failure(error)[1])
                return
            self._connected(self._session)
        trial: _Trial | None = None
        try:
            self._start_more(self._session)
            if not self._started:  # it has grown old
                self._close()
                return
            trial = self._started.popleft()
            self._await_kernels(self._session, trial)
        except BROKEN as error:
            self._break_outside(trial, error)
            return
        self._measure(self._session, trial)

    # Builds

    def _start_more(self, session: Session) -> None:
        """Begin to build what waits: all of it, or what may not have company."""
        batch = session.is_cpu and self._started
        while self._waiting and not (batch or session.is_old):
            careful = self._waiting[0].careful
            if self._started and (careful or self._started[0].careful):
                return
            trial = self._waiting[0]
            trial.started = time.monotonic()
            trial.number = session.start(trial.job)
            self._started.append(self._waiting.popleft())

    def _await_kernels(self, session: Session, trial: _Trial) -> None:
        """Wait until the kernels of a trial are built; of all, where they would be in its way."""
        wanted = [trial, *self._started] if session.is_cpu else [trial]
        for other in wanted:
            while not session.is_built(other.number, BUILD_TICK_MS):
                if time.monotonic() - other.started > START_S + self._place.limit_s:
                    raise TimeoutError(f"no kernel within {self._place.limit_s:.0f} s")
                self._take()
                if not (session.is_cpu or trial.careful):
                    self._start_more(session)
            other.build_ms = other.build_ms or (time.monotonic() - other.started) * 1e3

    # Ends

    def _measure(self, session: Session, trial: _Trial) -> None:
        try:
            tensors = session.prepare(trial.job)
        except BROKEN as error:
            self._break_outside(trial, error)
            return
        first = session.measured == 0
        begun = time.monotonic()
        try:
            result = session.measure(trial.number, trial.job, tensors)
        except BROKEN as error:
            kind, detail = read_failure(error)
            if kind == "lost" and time.monotonic() - begun > LATE * self._place.limit_s:
                kind, detail = "timeout", f"no end within {self._place.limit_s:.0f} s"
            result = TrialResult(refused=kind, detail=detail)
        self._judge(session, trial, result, first=first)

    def _judge(self, session: Session, trial: _Trial, result: TrialResult, *, first: bool) -> None:
        """Believe a result, or doubt it: an earlier candidate may have spoilt what it found."""
        kind = result.refused
        doubts = not (first or trial.doubted)
        if kind in ("wrong", "unstable"):
            session.forget()  # a kernel that goes astray may have written into any tensor
        elif kind in ("failed", "lost", "timeout"):
            self._break()
            doubts = doubts and kind == "failed"
        else:
            doubts = False
        if not doubts:
            self._end(trial, result)
            return
        trial.doubted = trial.careful = True
        # What was begun stays begun; it comes after.
        self._waiting.appendleft(trial)
        if self._session is not None:
            self._careful_now(session)

    def _careful_now(self, session: Session) -> None:
        """Build the first of those that wait at once, before what is built already."""
        trial = self._waiting.popleft()
        try:
            trial.started = time.monotonic()
            trial.number = session.start(trial.job)
            self._await_kernels(session, trial)
        except BROKEN as error:
            self._break_outside(trial, error)
            return
        self._measure(session, trial)

    def _break_outside(self, trial: _Trial | None, error: Exception) -> None:
        """Leave a session that failed while nothing was measured."""
        kind, detail = read_failure(error)
        alone = trial is not None and trial.careful and not self._started
        self._break(after=trial)
        if trial is not None and alone:
            self._waiting.remove(trial)
            self._end(trial, TrialResult(refused=kind, detail=detail))

    def _break(self, after: _Trial | None = None) -> None:
        """Leave a session that is no good; what was under way is tried one by one."""
        again = [*([after] if after is not None else []), *self._started]
        for trial in again:
            trial.careful = True
        self._waiting.extendleft(reversed(again))
        self._started.clear()
        self._close()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
            del session
            gc.collect()  # the last references of a session keep the server busy

    def _absent(self, detail: str) -> None:
        while self._waiting:
            trial = self._waiting.popleft()
            self._end(trial, TrialResult(refused=ABSENT, detail=detail))

    def _end(self, trial: _Trial, result: TrialResult) -> None:
        self._ended(trial.job, replace(result, build_ms=trial.build_ms))


MOST_ATTEMPTS = 3
"""Connections that break before the candidate is to blame."""
WINDOW = 12
"""Trials that a lane holds: enough that building never waits for measuring, nor the other way."""
POLL_S = 2.0
TAKE_S = 0.2
SHORTEST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
TRACKER_WAIT_S = 5.0
_MOST_END_S = 5.0
"""What a lane takes at most whose session was cut."""


@dataclass(frozen=True, kw_only=True)
class MeasureOutcome:
    """What came of a job, and on which device."""

    job: MeasureJob
    status: Status
    device: TunedDevice
    result: TrialResult


class Farm:
    """Takes jobs, gives outcomes, in whatever order devices finish; a context manager.
    `patience_s`: how long to wait where no device is there at all."""

    def __init__(
        self,
        places: Sequence[DevicePlace],
        *,
        patience_s: float = 120.0,
        on_event: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._places, self._patience_s, self.on_event = places, patience_s, on_event
        self._jobs: queue.PriorityQueue[tuple[int, int, MeasureJob]] = queue.PriorityQueue()
        self._outcomes: queue.Queue[MeasureOutcome] = queue.Queue()
        self._serial = 0
        self._stop = threading.Event()
        self._lanes: list[_Lane] = []
        self._absent_since: float | None = None
        self._last_word = ""
        self._lock = threading.Lock()

    def __enter__(self) -> Farm:
        self._adjust()
        self._monitor = threading.Thread(target=self._watch, daemon=True)
        self._monitor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for lane in list(self._lanes):
            lane.end()
        for lane in list(self._lanes):
            lane.join(timeout=_MOST_END_S)

    @property
    def lanes(self) -> int:
        """Devices at work, or believed to be."""
        return len([lane for lane in self._lanes if lane.is_alive()])

    @property
    def capacity(self) -> int:
        """Jobs that keep all devices busy, with some to spare."""
        return (WINDOW + 2) * max(1, self.lanes)

    def submit(self, job: MeasureJob, *, first: bool = False) -> None:
        """Queue a job."""
        with self._lock:
            self._serial += 1
            self._jobs.put((0 if first else 1, self._serial, job))

    def next_outcome(self, timeout_s: float) -> MeasureOutcome | None:
        """Return the next finished job, or None in that time. Raises RemoteError where no device
        has been there for long."""
        with suppress(queue.Empty):
            return self._outcomes.get(timeout=timeout_s)
        self.check_presence(self._patience_s + max(place.limit_s for place in self._places))
        return None

    def check_presence(self, patience_s: float = 0.0) -> None:
        """See whether a device is there, or was within that time. Raises RemoteError where none
        was."""
        since = self._absent_since
        gone_s = 0.0 if since is None else time.monotonic() - since
        if gone_s > patience_s:
            raise RemoteError(
                f"no device was there for {gone_s:.0f} s: "
                f"{', '.join(str(p.server.where) for p in self._places)}"
                f"{self._last_word and f' ({self._last_word})'}",
                hint="start adrenoc runtime serve there; the same adrenoc tune run goes on then",
            )

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            self._adjust()

    def _adjust(self) -> None:
        """Have a lane for each server and for each device that a tracker knows."""
        self._lanes = [lane for lane in self._lanes if lane.is_alive()]
        for place in self._places:
            wanted = max(1, _count_tracked(place.server)) if place.server.tracked else 1
            own = [lane for lane in self._lanes if lane.place is place]
            for _ in range(wanted - len(own)):
                lane = _Lane(self, place)
                self._lanes.append(lane)
                lane.start()
            for lane in own[wanted:]:
                lane.leave.set()

    def take(self, wait_s: float) -> MeasureJob | None:
        """Hand a lane the next job, or None if there is none in that time."""
        with suppress(queue.Empty):
            return self._jobs.get(block=wait_s > 0, timeout=wait_s or None)[2]
        return None

    def finish(self, outcome: MeasureOutcome) -> None:
        """Note, for a lane, that a job is done."""
        self._outcomes.put(outcome)

    def note_seen(self) -> None:
        """Note, for a lane, that a device was there."""
        self._absent_since = None

    def absent(self, word: str) -> None:
        """Note, for a lane, that a device was not there, and why."""
        self._last_word = word
        if self._absent_since is None:
            self._absent_since = time.monotonic()
        self.on_event(word)

    @property
    def stopping(self) -> threading.Event:
        """Set when all is to end."""
        return self._stop


def _count_tracked(place: RemoteAddress) -> int:
    """Return how many devices of its kind a tracker knows, 0 where it does not answer."""
    with (
        suppress(RemoteError, OSError),
        closing(Tracker(place.where, timeout_s=TRACKER_WAIT_S)) as tracker,
    ):
        return sum(server.key == place.key for server in tracker.servers())
    return 0


_BY_HOST = "its events tell of no time, so the host's clock does"


class _Lane(threading.Thread):
    def __init__(self, farm: Farm, place: DevicePlace) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.leave = threading.Event()
        self._farm = farm
        self._trials = TrialQueue(
            place, fetch=self._fetch, ended=self._end_of, connected=self._note_device
        )
        self._device = TunedDevice(name="unknown")
        self._pause_s = SHORTEST_PAUSE_S
        self._by_host = False

    def end(self) -> None:
        self.leave.set()
        self._trials.cut()

    def run(self) -> None:
        try:
            while not self._ending:
                self._trials.work()
        finally:
            for job in self._trials.close():
                self._farm.submit(job, first=True)

    @property
    def _ending(self) -> bool:
        return self.leave.is_set() or self._farm.stopping.is_set()

    def _fetch(self, held: int) -> list[MeasureJob]:
        jobs: list[MeasureJob] = []
        while held + len(jobs) < WINDOW and not self._ending:
            job = self._farm.take(0.0 if held + len(jobs) else TAKE_S)
            if job is None:
                break
            jobs.append(job)
        return jobs

    def _note_device(self, session: Session) -> None:
        self._device = session.device
        self._pause_s = SHORTEST_PAUSE_S
        self._farm.note_seen()

    def _end_of(self, job: MeasureJob, result: TrialResult) -> None:
        """Hand on the result of a trial, or have it repeated."""
        if result.refused == ABSENT or self._ending:
            self._farm.submit(job, first=True)
            if not (self._trials.held or self._ending):  # the last of them
                self._farm.absent(f"{self.place.server.where}: {result.detail}")
                self._farm.stopping.wait(self._pause_s)
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        self._farm.note_seen()
        if result.refused == "lost" and job.attempts < MOST_ATTEMPTS:
            self._farm.on_event(
                f"{self.place.server.where}: left during a trial, which is repeated"
            )
            again = replace(job, attempts=job.attempts + 1, careful=True)
            self._farm.submit(again, first=True)
            return
        if result.by_host and not self._by_host:
            self._by_host = True
            self._farm.on_event(f"{self.place.server.where}: {_BY_HOST}")
        # What fails on the device without more ado (no resources, a bad launch) is no better than
        # a crash.
        status = _STATUS_OF_KIND.get(result.refused, Status.CRASH)
        self._farm.finish(
            MeasureOutcome(job=job, status=status, device=self._device, result=result)
        )


_STATUS_OF_KIND = {
    "": Status.OK,
    "wrong": Status.WRONG,
    "unstable": Status.UNSTABLE,
    "build": Status.BUILD,
    "group": Status.BUILD,
    "timeout": Status.TIMEOUT,
}
