"""Tunes the layers of a model for a microcontroller: schedules are timed under QEMU or on a board.

Many schedules go into one program (`mcu/trials.py`).  Where such a program does not come to its
end, its halves are tried, down to the schedule that is to blame.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import adrenoc
from adrenoc.firmware.mcu.boards import (
    Candidate,
    Task,
    TrialBoard,
    TrialError,
    expected_hash,
    tasks_of,
    trial_program,
)
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.kernel import Choice, Measured
from adrenoc.firmware.mcu.make import measured_of, plan_firmware
from adrenoc.ir.tuning_log import LogWriter, Status, Trial, read_log
from adrenoc.lab.tune.search import KernelProgress, TuneObserver, TuneProgress

_MOST_IN_ONE = 64
_LINE = re.compile(r"^T ([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8})\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class FirmwareTuneRequest:
    """What to tune, and how much of it."""

    model: Path
    core: Core
    log: Path
    trials: int
    budget_s: float
    more_logs: tuple[Path, ...] = ()


def read_lines(said: str) -> dict[int, tuple[int, int]]:
    """Return the ticks and the hash that a program tells of its schedules, by their numbers."""
    return {int(n, 16): (int(t, 16), int(h, 16)) for n, t, h in _LINE.findall(said)}


def tune_firmware(
    request: FirmwareTuneRequest, open_board: Callable[[], TrialBoard], observer: TuneObserver
) -> TuneProgress:
    """Measure schedules, those first that the cost model thinks most of, into the log. Raises
    TuningLogError where the log is damaged or in use; see `plan_firmware` for the rest."""
    tasks = tasks_of(plan_firmware(request.model, request.core)[0])
    board = open_board()
    writer = None
    try:
        writer = LogWriter(request.log)
        run = _Run(request, tasks, board, writer, observer)
        return run.whole()
    finally:
        if writer is not None:
            writer.close()
        board.close()


class _Run:
    """One tuning under way."""

    def __init__(
        self,
        request: FirmwareTuneRequest,
        tasks: Sequence[Task],
        board: TrialBoard,
        writer: LogWriter,
        observer: TuneObserver,
    ) -> None:
        self._request, self._tasks, self._board = request, tasks, board
        self._writer, self._observer = writer, observer
        self._began = time.monotonic()
        self._expected = cache(expected_hash)
        logs = (request.log, *request.more_logs)
        self._trials = [
            trial
            for log in logs
            for trial in read_log(log)
            if trial.gpu == request.core.name
            and (trial.device.name == board.device.name or trial.status is not Status.OK)
        ]
        own = {task.digest for task in tasks}
        self._resumed = sum(trial.kernel in own for trial in self._trials)

    def whole(self) -> TuneProgress:
        wanted = self._list_candidates()
        total = self._resumed + len(wanted)
        try:
            for batch in self._batches(wanted):
                if self._out_of_time():
                    break
                self._measure(batch)
                self._observer.progress(self._progress("tuning", total))
        except KeyboardInterrupt:
            self._observer.event("stopped; the same command goes on from the log")
        return self._progress("done", total)

    def _out_of_time(self) -> bool:
        budget_s = self._request.budget_s
        return bool(budget_s) and time.monotonic() - self._began >= budget_s

    def _list_candidates(self) -> list[Candidate]:
        """Return what is not in the log: the untuned one of each task, then by the model."""
        known = {trial.key for trial in self._trials}
        ranked: list[tuple[int, float, Candidate]] = []
        for task in self._tasks:
            heavy = task.calls * min(c.instructions for c in task.choices)
            order = sorted(task.choices, key=lambda c, task=task: _rank(task, c))  # type: ignore[misc]
            for place, choice in enumerate(order):
                candidate = Candidate(task=task, choice=choice)
                if (task.digest, choice.key) in known:
                    continue
                fits = candidate.ram_bytes <= self._board.ram_bytes
                if fits and candidate.flash_bytes <= self._board.flash_bytes:
                    ranked.append((place, -heavy, candidate))
        ranked.sort(key=lambda entry: entry[:2])
        left = max(0, self._request.trials - self._resumed)
        return [candidate for _, _, candidate in ranked[:left]]

    def _batches(self, candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        """Yield as many at a time as the board's flash holds."""
        batch: list[Candidate] = []
        bytes_ = 0
        for candidate in candidates:
            more = candidate.flash_bytes
            if batch and (len(batch) == _MOST_IN_ONE or bytes_ + more > self._board.flash_bytes):
                yield batch
                batch, bytes_ = [], 0
            batch.append(candidate)
            bytes_ += more
        if batch:
            yield batch

    def _measure(self, batch: Sequence[Candidate]) -> None:
        """Write a trial into the log for each; try halves where all together fail."""
        try:
            said = self._board.run(trial_program(batch))
        except TrialError as failure:
            self._split_batch(batch, failure.status, failure.reason)
            return
        rows = read_lines(said)
        if set(rows) != set(range(len(batch))):
            self._split_batch(batch, Status.CRASH, f"{len(rows)} of {len(batch)} lines came back")
            return
        for number, candidate in enumerate(batch):
            ticks, hash_ = rows[number]
            if hash_ == self._expected(candidate.task):
                time_us = self._board.time_us(ticks) / candidate.repeats
                self._add(candidate, Status.OK, time_us=time_us)
            else:
                self._add(candidate, Status.WRONG, detail="its bytes are not the layer's")

    def _split_batch(self, batch: Sequence[Candidate], status: Status, reason: str) -> None:
        if len(batch) == 1:
            self._add(batch[0], status, detail=reason)
            return
        middle = len(batch) // 2
        for part in (batch[:middle], batch[middle:]):
            if not self._out_of_time():
                self._measure(part)

    def _add(
        self, candidate: Candidate, status: Status, *, time_us: float = 0.0, detail: str = ""
    ) -> None:
        task, choice = candidate.task, candidate.choice
        trial = Trial(
            kernel=task.digest,
            family=task.family,
            work=task.work,
            actions=choice.actions,
            status=status,
            median_us=time_us,
            runs=candidate.repeats if status is Status.OK else 0,
            detail=detail,
            untuned=choice.key == task.untuned,
            confirmed=status is Status.OK,
            target=self._request.core.name,
            gpu=self._request.core.name,
            device=self._board.device,
            tools={"adrenoc": adrenoc.__version__},
            model=self._request.model.name,
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        self._writer.append(trial)
        self._trials.append(trial)
        if status is not Status.OK:
            self._observer.event(f"{task.title}, {choice.key}: {status.value}: {detail}")

    def _progress(self, phase: str, wanted: int) -> TuneProgress:
        measured = measured_of(self._trials)
        return TuneProgress.from_kernels(
            tuple(_standing(task, measured, self._trials) for task in self._tasks),
            phase=phase,
            wanted=wanted,
            resumed=self._resumed,
            devices=1,
            elapsed_s=time.monotonic() - self._began,
        )


def _rank(task: Task, choice: Choice) -> tuple[bool, bool, float]:
    """Return the order: the untuned one, what needs no more memory, then by the cost model."""
    return choice.key != task.untuned, not _is_free(task, choice), choice.instructions


def _is_free(task: Task, choice: Choice) -> bool:
    """Return whether a schedule takes no more of memory than the untuned program has."""
    return choice.scratch_bytes <= task.scratch_bytes and not choice.spare_bytes


def _standing(task: Task, measured: Measured, trials: Sequence[Trial]) -> KernelProgress:
    """Return a task for the table; its best is of what a compilation takes without more memory."""
    times_us = measured.times_us.get(task.digest, {})
    free = [c.key for c in task.choices if _is_free(task, c) or c.key == task.untuned]
    known = {key: times_us[key] for key in free if key in times_us}
    best = min(known, key=lambda key: known[key], default="")
    own = [trial for trial in trials if trial.kernel == task.digest]
    return KernelProgress(
        kernel=task.digest,
        title=task.title,
        calls=task.calls,
        untuned_us=times_us.get(task.untuned, 0.0),
        best_us=known.get(best, 0.0),
        trials=len(own),
        failed=sum(trial.status is not Status.OK for trial in own),
        actions=best,
    )
