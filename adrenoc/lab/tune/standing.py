"""What is known of one task: its trials, the schedule to beat, the best one, what comes next."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adrenoc.ir.tuning_log import Status, Trial, actions_key, best_trials
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.search import LearnedCostModel, Search, TrialTime
from adrenoc.lab.tune.tasks import TuneTask


@dataclass(frozen=True, kw_only=True)
class KernelProgress:
    """One kernel: times of one launch in microseconds, 0 where nothing is measured yet."""

    kernel: str
    title: str
    calls: int
    untuned_us: float
    best_us: float
    trials: int
    failed: int
    actions: str = ""


@dataclass(frozen=True, kw_only=True)
class TuneProgress:
    """Where a tuner is; `gain` is the time of all launches untuned over that with the best.
    `references`: kernels whose untuned schedule was measured, which comes before its trials."""

    phase: str
    references: int
    trials: int
    wanted: int
    failed: int
    resumed: int
    devices: int
    trials_per_s: float
    elapsed_s: float
    left_s: float
    gain: float
    kernels: tuple[KernelProgress, ...]

    @staticmethod
    def from_kernels(
        kernels: tuple[KernelProgress, ...],
        *,
        phase: str,
        wanted: int,
        resumed: int,
        devices: int,
        elapsed_s: float,
    ) -> TuneProgress:
        """Sum up what kernels came to, of which `resumed` trials were in the log before."""
        trials = sum(k.trials for k in kernels)
        rate = (trials - resumed) / max(elapsed_s, 1e-9)
        known = [k for k in kernels if k.untuned_us and k.best_us]
        best_us = sum(k.calls * k.best_us for k in known)
        return TuneProgress(
            phase=phase,
            references=sum(k.untuned_us > 0 for k in kernels),
            trials=trials,
            wanted=wanted,
            failed=sum(k.failed for k in kernels),
            resumed=resumed,
            devices=devices,
            trials_per_s=rate,
            elapsed_s=elapsed_s,
            left_s=max(0, wanted - trials) / rate if rate else 0.0,
            gain=sum(k.calls * k.untuned_us for k in known) / best_us if best_us else 1.0,
            kernels=kernels,
        )


class TuneObserver(Protocol):
    """Is told of all that happens; the command line draws it."""

    def progress(self, progress: TuneProgress) -> None:
        """Hear that something changed."""

    def event(self, text: str) -> None:
        """Hear a remark worth one line: a failed candidate, a lost device."""


PATIENCE_TRIALS = 8
"""Trials without a gain that halve the interest in a task."""
MOST_REFERENCES = 5


class TaskStanding:
    """One task under tuning. The reference is the output of the untuned schedule; where that one
    fails, of the next one by estimate that does not."""

    def __init__(self, task: TuneTask, known: Iterable[Trial], scratch: Path) -> None:
        self.task = task
        self.trials = [t for t in known if t.kernel == task.digest]
        self.reference = scratch / f"{task.digest}_reference.npy"
        self.has_reference = False
        self.awaits_reference = False
        self.in_flight = 0
        self.trials_out = 0
        self.base: int | None = 0
        self.queue: list[int] = []
        self.search: Search | None = None
        self._since_gain = 0
        self._unreported: list[TrialTime] = []
        self.fastest_us = self._fastest()
        """The shortest time of any right trial, luck or not; infinite where there is none."""
        self._pick_base()
        self.untuned_us = self._find_untuned()
        """The time to beat, infinite where it is not known."""

    def add(self, trial: Trial) -> None:
        """Take in a trial that came back."""
        before = self.fastest_us
        self.trials.append(trial)
        self.fastest_us = self._fastest()
        if trial.status is not Status.OK:
            self._pick_base()
        self.untuned_us = self._find_untuned()
        if trial.confirmed or trial.untuned:
            return
        self._since_gain = 0 if self.fastest_us < before else self._since_gain + 1
        number = self.task.position(dict(trial.actions))
        if number is not None:
            time_us = trial.median_us if trial.status is Status.OK else None
            self._unreported.append(TrialTime(number=number, time_us=time_us))

    def propose(self, count: int) -> None:
        """Fill the queue with what the search wants to know next."""
        if self.search is not None:
            self.search.tell(self._unreported)
            self._unreported = []
            self.queue = self.search.propose(count)

    def _pick_base(self) -> None:
        failed = self._find_failed()
        usable = (
            number
            for number, tile in enumerate(self.task.candidates[:MOST_REFERENCES])
            if actions_key(actions_of(tile)) not in failed
        )
        self.base = next(usable, None)

    def _find_failed(self) -> set[str]:
        return {actions_key(t.actions) for t in self.trials if t.status is not Status.OK}

    def list_known(self) -> list[TrialTime]:
        """Return the trials of candidates as the search wants them, each once."""
        found: dict[int, TrialTime] = {}
        for trial in self.trials:
            number = self.task.position(dict(trial.actions))
            if number is None:
                continue
            failed = trial.status is not Status.OK
            if failed or number not in found:
                found[number] = TrialTime(
                    number=number, time_us=None if failed else trial.median_us
                )
        return list(found.values())

    def start_search(self, model: LearnedCostModel, seeds: tuple[int, ...]) -> None:
        """Start the search from the trials that are known."""
        self._unreported = []
        self.search = Search(self.task, model, known=self.list_known(), seeds=seeds)

    @property
    def is_finished(self) -> bool:
        """Return whether nothing is left to try."""
        if self.base is None:
            return True
        return self.search is not None and self.search.is_exhausted and not self.queue

    @property
    def measured_trials(self) -> list[Trial]:
        """Return what counts as trials: no reference runs, no confirmations."""
        return [t for t in self.trials if not (t.untuned or t.confirmed)]

    def _find_untuned(self) -> float:
        if self.base is None:
            return math.inf
        wanted = actions_key(actions_of(self.task.candidates[self.base]))
        own = [t for t in self.trials if actions_key(t.actions) == wanted]
        own = [t for t in own if t.status is Status.OK]
        confirmed = [t for t in own if t.confirmed]
        return (confirmed or own)[-1].median_us if own else math.inf

    @property
    def best(self) -> Trial | None:
        """Return the fastest right trial."""
        return best_trials(self.trials).get(self.task.digest)

    def _fastest(self) -> float:
        failed = self._find_failed()
        right = (t for t in self.trials if t.status is Status.OK)
        times = (t.median_us for t in right if actions_key(t.actions) not in failed)
        return min(times, default=math.inf)

    def contenders(self, count: int) -> list[int]:
        """Return those that look faster than the untuned one, not yet measured beside it."""
        done = {actions_key(t.actions) for t in self.trials if t.confirmed}
        failed = self._find_failed()
        times = {actions_key(t.actions): t for t in self.trials if t.status is Status.OK}
        faster = sorted(
            (t.median_us, key)
            for key, t in times.items()
            if key not in failed and t.median_us < self.untuned_us
        )[:count]
        if not faster or faster[0][1] in done:
            return []
        numbers = [self.task.position(dict(times[key].actions)) for _, key in faster]
        return [n for n in numbers if n is not None and n != self.base]

    @property
    def confirmable_us(self) -> float:
        """Return what a run gains if the fastest trial is no luck."""
        if not (math.isfinite(self.untuned_us) and math.isfinite(self.fastest_us)):
            return 0.0
        return self.task.calls * (self.untuned_us - self.fastest_us)

    def interest(self) -> float:
        """Return how much time a run spends here, less the longer nothing was gained. What is out
        counts as if it gained nothing, so that many trials at a time spread."""
        fastest_us = self.fastest_us if math.isfinite(self.fastest_us) else 1e12
        idle = (self._since_gain + self.trials_out) / PATIENCE_TRIALS
        return self.task.calls * fastest_us * 0.5**idle

    def progress(self) -> KernelProgress:
        """Return the task's progress as people see it."""
        best = self.best
        return KernelProgress(
            kernel=self.task.digest,
            title=self.task.title,
            calls=self.task.calls,
            untuned_us=self.untuned_us if math.isfinite(self.untuned_us) else 0.0,
            best_us=best.median_us if best is not None else 0.0,
            trials=len(self.measured_trials),
            failed=sum(t.status is not Status.OK for t in self.trials),
            actions=actions_key(best.actions) if best is not None else "",
        )
