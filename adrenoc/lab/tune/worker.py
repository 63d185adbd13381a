"""A process that takes trials to a device, many a session, and measures one at a time there.

`python -m adrenoc.lab.tune.worker PLACE` reads a JSON request a line, each with an `id`, and
answers with JSON lines: `connected` when a session is open, `begin` before a trial runs, and one
`end` for each request.  Kernels are built on the server while earlier ones are measured, unless the
device is a CPU.  After a session broke, what was under way is gone through one by one, so that the
next break names the one to blame.  The tuner ends this process when an answer is late.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, TextIO

from adrenoc.base.errors import AdrenocError
from adrenoc.lab.tune.session import Answer, Request, Session, TunerAddress, read_failure

LATE = 0.9
"""The share of a trial's limit after which a session that breaks was ended for being late."""
BUILD_TICK_MS = 100
BROKEN = (AdrenocError, RuntimeError, ValueError, AttributeError, OSError, MemoryError)
"""The exceptions of a session or a device that fails."""


@dataclass(kw_only=True)
class _Trial:
    """A request on its way; `number` is the server's, 0 before it knows of it."""

    request: Request
    number: int = 0
    careful: bool = False
    """Nothing else is built or measured beside it."""
    doubted: bool = False
    """It was refused once, where another one may be to blame."""
    started: float = 0.0
    build_ms: float = 0.0

    @property
    def id(self) -> int:
        """The tuner's number."""
        return int(self.request["id"])


class Desk:
    """Trials that wait, trials that are being built, and the session that they are built in."""

    def __init__(self, place: TunerAddress, inbox: queue.Queue[Request | None], tell: Any) -> None:
        self._place, self._inbox, self._tell = place, inbox, tell
        self._open = True
        self._waiting: deque[_Trial] = deque()
        self._started: deque[_Trial] = deque()
        self._session: Session | None = None

    def run(self) -> None:
        """Work until the tuner closes the input."""
        while self._take():
            self._step()
        self._close()

    def _take(self, *, busy: bool = False) -> bool:
        """Fetch what the tuner sent, waiting where there is nothing to do; False at the end."""
        while self._open:
            idle = not (busy or self._waiting or self._started)
            try:
                request = self._inbox.get(block=idle)
            except queue.Empty:
                break
            if request is None:
                self._open = False
                return False
            self._waiting.append(_Trial(request=request, careful=request["careful"]))
        return self._open

    def _step(self) -> None:
        """Open a session, or bring the next trial to its end."""
        if self._session is None:
            try:
                session = Session(self._place)
            except BROKEN as error:
                self._absent(read_failure(error)[1])
                return
            self._session = session
            self._tell({"event": "connected", "device": session.device, "facts": session.facts})
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
            trial.number = session.start(trial.request)
            self._started.append(self._waiting.popleft())

    def _await_kernels(self, session: Session, trial: _Trial) -> None:
        """Wait until the kernels of a trial are built; of all, where they would be in its way."""
        wanted = [trial, *self._started] if session.is_cpu else [trial]
        for other in wanted:
            while not session.is_built(other.number, BUILD_TICK_MS):
                self._take(busy=True)
                if not (session.is_cpu or trial.careful):
                    self._start_more(session)
            other.build_ms = other.build_ms or (time.monotonic() - other.started) * 1e3

    # Ends

    def _measure(self, session: Session, trial: _Trial) -> None:
        try:
            tensors = session.prepare(trial.request)
        except BROKEN as error:
            self._break_outside(trial, error)
            return
        first = session.measured == 0
        self._tell({"event": "begin", "id": trial.id})
        begun = time.monotonic()
        try:
            answer = session.measure(trial.number, trial.request, tensors)
        except BROKEN as error:
            kind, detail = read_failure(error)
            if kind == "lost" and time.monotonic() - begun > LATE * self._place.limit_s:
                kind, detail = "timeout", f"no end within {self._place.limit_s:.0f} s"
            answer = {"event": "refused", "kind": kind, "index": -1, "detail": detail}
        self._judge(session, trial, answer, first=first)

    def _judge(self, session: Session, trial: _Trial, answer: Answer, *, first: bool) -> None:
        """Believe an answer, or doubt it: an earlier candidate may have spoilt what it found."""
        kind = answer.get("kind", "")
        doubts = not (first or trial.doubted)
        if kind in ("wrong", "unstable"):
            session.forget()  # a kernel that goes astray may have written into any tensor
        elif kind in ("failed", "lost", "timeout"):
            self._break()
            doubts = doubts and kind == "failed"
        else:
            doubts = False
        if not doubts:
            self._end(trial, answer)
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
            trial.number = session.start(trial.request)
            self._await_kernels(session, trial)
        except BROKEN as error:
            self._break_outside(trial, error)
            return
        self._measure(session, trial)

    def _break_outside(self, trial: _Trial | None, error: Exception) -> None:
        """The session failed while nothing was measured."""
        kind, detail = read_failure(error)
        alone = trial is not None and trial.careful and not self._started
        self._break(after=trial)
        if trial is not None and alone:
            self._waiting.remove(trial)
            self._end(trial, {"event": "refused", "kind": kind, "index": -1, "detail": detail})

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
            self._end(trial, {"event": "absent", "detail": detail})

    def _end(self, trial: _Trial, answer: Answer) -> None:
        self._tell({"event": "end", "id": trial.id, "answer": answer, "build_ms": trial.build_ms})


def main(place: str) -> int:
    """Serve requests until the tuner closes the input."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    inbox: queue.Queue[Request | None] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            inbox.put(json.loads(line))
        inbox.put(None)

    threading.Thread(target=read, daemon=True).start()
    import tvm  # noqa: F401  (takes a second, best while nobody waits)

    Desk(TunerAddress(**json.loads(place)), inbox, lambda answer: _send(answers, answer)).run()
    return 0


def _send(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
