"""Run cases in processes of their own: a crash or an endless loop costs one case."""

import multiprocessing
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.onnx_backend.execute import Outcome, execute
from tests.patience import WAIT_S

LIMIT_S = WAIT_S
"""Time for one case; the first of a process also loads TVM."""

Done = Callable[[Any, Any], None]


def run_cases(
    cases: Iterable[Any],
    *,
    jobs: int,
    done: Done,
    work: Callable[[Any], Outcome] = execute,
    limit_s: float = LIMIT_S,
) -> None:
    """Do `work` for all cases; `done` is told of each as it ends, in any order."""
    pending = list(reversed(list(cases)))
    count = min(jobs, max(1, len(pending)))
    workers = [_Worker(work=work, limit_s=limit_s) for _ in range(count)]
    try:
        while pending or any(w.case for w in workers):
            for worker in workers:
                if worker.case is None and pending:
                    worker.start(pending.pop())
            busy = {w.pipe: w for w in workers if w.case is not None}
            ready = wait(list(busy), timeout=1.0)
            for worker in busy.values():
                outcome = worker.result(worker.pipe in ready)
                if outcome is not None and worker.case is not None:
                    case, worker.case = worker.case, None
                    done(case, outcome)
    finally:
        for worker in workers:
            worker.stop()


def _serve(pipe: Connection, work: Callable[[Any], Outcome]) -> None:
    while True:
        case = pipe.recv()
        if case is None:
            return
        pipe.send(work(case))


@dataclass(kw_only=True)
class _Worker:
    """One process and the case that it works on."""

    work: Callable[[Any], Outcome]
    limit_s: float
    case: Any = None
    started: float = 0.0

    def __post_init__(self) -> None:
        self._launch()

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process: Any = context.Process(target=_serve, args=(other, self.work), daemon=True)
        self._process.start()
        other.close()

    def start(self, case) -> None:
        self.case, self.started = case, time.monotonic()
        self.pipe.send(case)

    def result(self, ready: bool) -> Outcome | None:
        """The outcome, if there is one by now."""
        if ready:
            try:
                return self.pipe.recv()
            except EOFError:
                self._process.join()
                code = self._process.exitcode
                self._launch()
                return Outcome(status="died", detail=f"the process ended with {code}")
        if time.monotonic() - self.started > self.limit_s:
            self._process.kill()
            self._process.join()
            self._launch()
            return Outcome(status="timeout", detail=f"more than {self.limit_s:.0f} s")
        return None

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
