"""Trials on their way at one device: many a session are built, and one at a time is measured.

Kernels are built on the server while earlier ones are measured, unless the device is a CPU.  After
a session broke, what was under way is gone through one by one, so that the next break names the one
to blame.  Every wait has a limit, which the relay of the session keeps (`adrenoc.device.remote`).
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from adrenoc.base.errors import AdrenocError
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
    `connected` of each session.
    """

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
