"""Devices at work: one lane each, and what comes and goes among them.

A lane is a thread that holds several trials at a time (`adrenoc.lab.tune.trial_queue`): some are
built while one is measured.  A candidate that breaks the connection is tried again: a server may
have died of something else.  A device that is not there costs time and no candidate.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from adrenoc.base.errors import RemoteError
from adrenoc.device.remote import RemoteAddress
from adrenoc.device.tracker import Tracker
from adrenoc.ir.tuning_log import Status, TunedDevice
from adrenoc.lab.tune.session import ABSENT, DevicePlace, MeasureJob, Session, TrialResult
from adrenoc.lab.tune.trial_queue import TrialQueue

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
    """What came of a job: measurements and error of each variant, or which one (`index`) failed."""

    job: MeasureJob
    status: Status
    device: TunedDevice
    detail: str = ""
    index: int = -1
    times_us: tuple[tuple[float, ...], ...] = ()
    errors: tuple[float, ...] = ()


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
        """Stop at once, whatever is under way."""
        self.leave.set()
        self._trials.cut()

    def run(self) -> None:
        """Work until told to leave."""
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
        """Take jobs until the hands are full."""
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
        self._farm.finish(_outcome(job, result, self._device))


_STATUS_OF_KIND = {
    "": Status.OK,
    "wrong": Status.WRONG,
    "unstable": Status.UNSTABLE,
    "build": Status.BUILD,
    "group": Status.BUILD,
    "timeout": Status.TIMEOUT,
}


def _outcome(job: MeasureJob, result: TrialResult, device: TunedDevice) -> MeasureOutcome:
    return MeasureOutcome(
        job=job,
        # What fails on the device without more ado (no resources, a bad launch) is no better
        # than a crash.
        status=_STATUS_OF_KIND.get(result.refused, Status.CRASH),
        device=device,
        detail=result.detail,
        index=result.index,
        times_us=result.times_us,
        errors=result.errors,
    )
