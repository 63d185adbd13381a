"""Devices at work: one lane each, and what comes and goes among them.

A lane is a thread with a worker process (`adrenoc.tune.worker`).  A candidate that breaks the
connection is tried again, for a server may have died of something else; a device that is not there
costs time and no candidate.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adrenoc.device.remote import RemoteAddress
from adrenoc.device.tracker import Tracker
from adrenoc.errors import RemoteError
from adrenoc.tune.lane import Answered, Worker
from adrenoc.tune.variant import Variant
from adrenoc.tuning_log import Device, Status

MOST_ATTEMPTS = 3
"""Connections that break before the candidate is to blame."""
POLL_S = 2.0
LONGEST_PAUSE_S = 10.0
TRACKER_WAIT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a lane measures: variants in turn; the last is compared with the `reference` file.

    `tag` is for the one who asked.
    """

    tag: Any
    variants: tuple[Variant, ...]
    reference: Path
    write_reference: bool = False
    tolerance: float = 0.0
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a job; `times_us` holds the measurements of each variant."""

    job: Job
    status: Status
    device: Device
    detail: str = ""
    times_us: tuple[tuple[float, ...], ...] = ()
    error: float = 0.0


@dataclass(kw_only=True)
class FarmOptions:
    """Where devices are, and how long one candidate may take on them (s).

    `patience_s`: how long to wait where no device is there at all.
    """

    places: tuple[RemoteAddress, ...]
    cl_device: str = ""
    limit_s: float = 20.0
    patience_s: float = 120.0
    on_event: Callable[[str], None] = field(default=lambda text: None)


class Farm:
    """Takes jobs, gives outcomes, in whatever order devices finish; a context manager."""

    def __init__(self, options: FarmOptions) -> None:
        self._options = options
        self._jobs: queue.PriorityQueue[tuple[int, int, Job]] = queue.PriorityQueue()
        self._outcomes: queue.Queue[Outcome] = queue.Queue()
        self._serial = 0
        self._stop = threading.Event()
        self._lanes: list[_Lane] = []
        self._last_seen = time.monotonic()
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
            lane.join(timeout=2)

    @property
    def lanes(self) -> int:
        """Devices at work, or believed to be."""
        return len([lane for lane in self._lanes if lane.is_alive()])

    def submit(self, job: Job, *, first: bool = False) -> None:
        """Queue a job."""
        with self._lock:
            self._serial += 1
            self._jobs.put((0 if first else 1, self._serial, job))

    def next_outcome(self, timeout_s: float) -> Outcome | None:
        """The next finished job, or None in that time.

        Raises:
            RemoteError: no device has been there for long.
        """
        with suppress(queue.Empty):
            return self._outcomes.get(timeout=timeout_s)
        gone_s = time.monotonic() - self._last_seen
        if gone_s > self._options.patience_s + self._options.limit_s:
            raise RemoteError(
                f"no device was there for {gone_s:.0f} s: "
                f"{', '.join(str(p.where) for p in self._options.places)}",
                hint="start adrenoc serve there; the same adrenoc tune command goes on then",
            )
        return None

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            self._adjust()

    def _adjust(self) -> None:
        """Have a lane for each server and for each device that a tracker knows."""
        wanted: list[RemoteAddress] = []
        for place in self._options.places:
            wanted += [place] * (_tracked(place) if place.tracked else 1)
        self._lanes = [lane for lane in self._lanes if lane.is_alive()]
        for place in self._options.places:
            own = [lane for lane in self._lanes if lane.place is place]
            for _ in range(max(1, wanted.count(place)) - len(own)):
                lane = _Lane(self, place, self._options)
                self._lanes.append(lane)
                lane.start()
            for lane in own[max(1, wanted.count(place)) :]:
                lane.leave.set()

    def take(self) -> Job | None:
        """For lanes: the next job, None if there is none now."""
        with suppress(queue.Empty):
            return self._jobs.get(timeout=0.2)[2]
        return None

    def finish(self, outcome: Outcome) -> None:
        """For lanes: a job is done."""
        self._outcomes.put(outcome)

    def seen(self) -> None:
        """For lanes: a device was there."""
        self._last_seen = time.monotonic()

    @property
    def stopping(self) -> threading.Event:
        """Set when all is to end."""
        return self._stop


def _tracked(place: RemoteAddress) -> int:
    """How many devices of its kind a tracker knows, 0 where it does not answer."""
    try:
        tracker = Tracker(place.where, timeout_s=TRACKER_WAIT_S)
    except (RemoteError, OSError):
        return 0
    try:
        return sum(server.key == place.key for server in tracker.servers())
    except (RemoteError, OSError):
        return 0
    finally:
        tracker.close()


class _Lane(threading.Thread):
    def __init__(self, farm: Farm, place: RemoteAddress, options: FarmOptions) -> None:
        super().__init__(daemon=True)
        self.place = place
        self.leave = threading.Event()
        self._farm, self._options = farm, options
        self._worker = Worker()
        self._pause_s = 0.5

    def end(self) -> None:
        """Stop at once, whatever is under way."""
        self.leave.set()
        self._worker.kill()

    def run(self) -> None:
        """Work until told to leave."""
        try:
            while not (self.leave.is_set() or self._farm.stopping.is_set()):
                job = self._farm.take()
                if job is not None:
                    self._do(job)
        finally:
            self._worker.kill()

    def _do(self, job: Job) -> None:
        answered = self._worker.ask(self._request(job), limit_s=self._options.limit_s)
        if self._farm.stopping.is_set():
            return
        if answered.event == "absent":
            self._options.on_event(f"{self.place.where}: {answered.detail}")
            self._farm.submit(job, first=True)
            self._farm.stopping.wait(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        self._pause_s = 0.5
        self._farm.seen()
        if answered.event == "refused" and answered.kind == "lost" and job.attempts < MOST_ATTEMPTS:
            self._options.on_event(f"{self.place.where}: left during a trial, which is repeated")
            self._farm.submit(replace(job, attempts=job.attempts + 1), first=True)
            return
        self._farm.finish(_outcome(job, answered))

    def _request(self, job: Job) -> dict[str, Any]:
        place = self.place
        return {
            "place": {
                "host": place.where.host,
                "port": place.where.port,
                "key": place.key,
                "tracked": place.tracked,
            },
            "device": self._options.cl_device,
            "limit_s": self._options.limit_s,
            "variants": [variant.plain() for variant in job.variants],
            "reference": str(job.reference),
            "write_reference": job.write_reference,
            "tolerance": job.tolerance,
        }


_STATUS_OF_KIND = {
    "wrong": Status.WRONG,
    "unstable": Status.UNSTABLE,
    "build": Status.BUILD,
    "timeout": Status.TIMEOUT,
}


def _outcome(job: Job, answered: Answered) -> Outcome:
    status = Status.OK
    if answered.event != "measured":
        # What fails on the device without more ado (no resources, a bad launch) is no better
        # than a crash.
        status = _STATUS_OF_KIND.get(answered.kind, Status.CRASH)
    return Outcome(
        job=job,
        status=status,
        device=answered.device or Device(name="unknown"),
        detail=answered.detail,
        times_us=answered.times_us,
        error=answered.error,
    )
