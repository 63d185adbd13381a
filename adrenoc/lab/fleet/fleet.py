"""A fleet at work: a thread for each device, and some that make bundles, until all is over.

A member says where a device is, and by which options a command reaches it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from adrenoc.base.errors import AdrenocError
from adrenoc.base.host.proc import own_module
from adrenoc.device.tracker import HostPort, Tracker
from adrenoc.lab.fleet import runner
from adrenoc.lab.fleet.board import Board, FleetOptions, JobRow, Plan
from adrenoc.lab.fleet.store import Job, Result, Store

TRACKER_WAIT_S = 3.0


@dataclass(frozen=True, kw_only=True)
class FleetMember:
    """A device that is always reached in the same way; `options` are a command's."""

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """All devices of the kind `key` that TVM's tracker knows."""

    tracker: HostPort
    key: str

    def names(self) -> tuple[str, ...]:
        """The devices that are connected now.

        Raises:
            RemoteError: no tracker is there.
        """
        with _connect(self.tracker) as tracker:
            return tuple(server.address for server in tracker.servers() if server.key == self.key)

    def next_free(self) -> FleetMember:
        """Wait for a device that has nothing to do, and take it.

        Raises:
            RemoteError: no tracker is there, or none becomes free in time.
        """
        with _connect(self.tracker) as tracker:
            offer = tracker.request(self.key)
        words = ("--on", f"{offer.key}@{offer.address}")
        return FleetMember(name=str(offer.address), options=words)


def server(address: str, key: str) -> FleetMember:
    """The member of a server at `HOST:PORT`.

    Raises:
        OptionError: the address is of another form.
    """
    where = str(HostPort.parse(address, what="the server", example="--on 127.0.0.1:9090"))
    return FleetMember(name=where, options=("--on", f"{key}@{where}" if key else where))


def phone(serial: str) -> FleetMember:
    """Return the member of a phone that adb knows by its serial number."""
    return FleetMember(name=serial, options=("--on", f"adb:{serial}"))


@contextmanager
def _connect(where: HostPort) -> Iterator[Tracker]:
    tracker = Tracker(where, timeout_s=TRACKER_WAIT_S)
    try:
        yield tracker
    finally:
        tracker.close()


_TICK_S = 0.2
_ABSENT_S = 2.0
_LIST_S = 2.0
_MOST_THREADS = 4096
_COMPILE_SHARE = 4
"""Of so many commands side by side one may make a bundle: these take a core each."""


@dataclass(frozen=True, kw_only=True)
class FleetReport:
    """What came of a fleet: a row for each job, and the target of each device."""

    rows: tuple[JobRow, ...]
    targets: dict[str, str]


def run_fleet(
    options: FleetOptions,
    members: Sequence[FleetMember],
    tracked: Sequence[Tracked],
    store: Store,
    *,
    again: bool = False,
    on_end: Callable[[Job, Result], None] = lambda job, result: None,
) -> FleetReport:
    """Do all jobs of `options` on all devices, going on where an earlier fleet has stopped.

    `again` repeats what failed before.  `on_end` hears of each job that ends.

    Raises:
        RemoteError: there is no tracker.
        ModelNotFoundError: a model is not there.
        OutputError: another fleet is at work in the store's folder.
    """
    with store.hold():
        plan = Plan(options, store)
        board = Board(plan, store, again=again, on_end=on_end)
        for member in members:
            board.meet(member.name)
        for kind in tracked:
            for name in kind.names():
                board.meet(name, kind=kind.key)
        workers = _Workers(board, store, options)
        with workers:
            for _ in range(max(1, options.jobs // _COMPILE_SHARE)):
                workers.start(workers.make_bundles)
            for member in members:
                workers.start(workers.serve, member)
            for kind in tracked:
                workers.start(workers.watch, kind)
            while not board.settle():
                workers.check()
                time.sleep(_TICK_S)
        return FleetReport(rows=board.rows(), targets=board.targets())


class _Workers:
    """Threads that take jobs from a board, and the processes that they wait for."""

    def __init__(self, board: Board, store: Store, options: FleetOptions) -> None:
        self._board, self._store, self._options = board, store, options
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(_MOST_THREADS)
        self._work: list[Future[None]] = []
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._places = threading.Semaphore(options.jobs)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End all threads, and what they wait for."""
        self._over.set()
        with self._lock:
            for process in self._processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        self._pool.shutdown()

    def check(self) -> None:
        """Raise here what ended a thread."""
        for work in [work for work in self._work if work.done()]:
            self._work.remove(work)
            work.result()

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Have a thread do that until all is over."""
        self._work.append(self._pool.submit(work, *arguments))

    def make_bundles(self) -> None:
        """Compile what devices wait for."""
        while not self._over.is_set():
            job = self._board.take_compile()
            if job is None:
                self._over.wait(_TICK_S)
                continue
            self._board.finish(job, self.do(job, ()))

    def serve(self, member: FleetMember) -> None:
        """Do the jobs of one device that is always reached in the same way."""
        while not self._over.is_set() and not self._board.is_over(member.name):
            with self._places:
                pause_s = self._do_next(member)
            self._over.wait(pause_s)

    def watch(self, kind: Tracked) -> None:
        """Have a thread for each device of a kind that the tracker knows."""
        lanes = 0
        while not self._over.is_set():
            with suppress(AdrenocError, OSError):
                names = kind.names()
                for name in names:
                    self._board.meet(name, kind=kind.key)
                for _ in range(len(names) - lanes):
                    self.start(self._serve_free, kind)
                lanes = max(lanes, len(names))
            self._over.wait(_LIST_S)

    def _serve_free(self, kind: Tracked) -> None:
        """Take whichever device is free, and do the next of its jobs."""
        while not self._over.is_set():
            pause_s = _TICK_S
            with self._places:
                if self._board.has_ready():
                    with suppress(AdrenocError, OSError):
                        member = kind.next_free()
                        self._board.meet(member.name, kind=kind.key)
                        # One that has nothing to do waits for its next client.
                        pause_s = self._do_next(member)
            self._over.wait(pause_s)

    def _do_next(self, member: FleetMember) -> float:
        """Do the next job of a device, where it has one; how long to wait before another (s)."""
        job = self._board.take(member.name)
        if job is None:
            return _TICK_S
        result = self.do(job, member.options)
        lost = result is None or not result.is_final
        self._board.finish(job, result, result.error if result is not None and lost else "")
        return _ABSENT_S if lost else 0.0

    def do(self, job: Job, options: Sequence[str]) -> Result | None:
        """Run a job in a process that outlives this one; None where another one has the job."""
        request = {
            "words": [*job.words, *options],
            "limit_s": self._options.limit_s,
            "lock": str(self._store.lock_path(job)),
            "result": str(self._store.result_path(job)),
        }
        with subprocess.Popen(
            own_module(runner.__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process:
            with self._lock:
                self._processes.add(process)
            if self._over.is_set():  # set before the process was there to be ended
                process.terminate()
            try:
                said, _ = process.communicate(json.dumps(request))
            finally:
                with self._lock:
                    self._processes.discard(process)
        if self._over.is_set() or process.returncode == runner.BUSY:
            return None
        if process.returncode:
            return _died(process.returncode)
        return Result(**json.loads(said))


def _died(code: int) -> Result:
    return Result(exit_code=min(code, -1), took_s=0.0, ended="", error="its process was killed")
