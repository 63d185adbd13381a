"""Which candidates of a kernel to try next, by an evolution under a model that learns from trials,
and what is known of one task: the schedule to beat, the best one.

A candidate is a number; its features are its actions and the family's estimate. XGBoost learns from
the features of all tasks of a model how a candidate compares with the best of its task, and until
it has seen enough the estimates stand in for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from adrenoc.base.errors import DependencyError
from adrenoc.base.host.extras import pip_install
from adrenoc.ir.tuning_log import Status, Trial, actions_key, best_trials
from adrenoc.kernels.families.shared.schedule import actions_of
from adrenoc.lab.tune.tasks import TuneTask

WARM_UP = 24
"""The measured candidates after which XGBoost's word counts more than the estimates."""
RELEARN = 1.2
"""The factor of new measurements after which XGBoost is trained again."""
BOOST_ROUNDS = 100
POPULATION = 64
SURVIVORS = 12
"""The fastest measured candidates, from which others are made."""
GENERATIONS = 2
RANDOM_SHARE = 0.1
"""The share of proposals that are drawn: the model may be wrong about what it thinks little of."""
NEIGHBOURS = 12
"""The candidates that a mutation chooses from: about two for each action of a tile."""
_FEATURES = 24
_LONGEST_US = 1e12
_HOPELESS = 2.0**30
"""Times the least estimate."""
_TREES = {"max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2, "seed": 43}


TrialTimes = Mapping[int, float | None]
"""What is known of candidates: number -> its time (us), None where it failed."""


class LearnedCostModel:
    """One model of all tasks of a device: XGBoost, and the estimates until it has seen enough. It
    learns the shortest time of a task over a candidate's, 0 for one that failed, and is the more
    exact the nearer that is to 1."""

    def __init__(self, tasks: Sequence[TuneTask]) -> None:
        self._xgboost = _xgboost()
        self._tasks = {task.digest: task for task in tasks}
        self._features: dict[str, np.ndarray] = {}
        self._times_us: dict[str, dict[int, float]] = {}
        self._booster: Any = None
        self._learnt = 0

    def features(self, digest: str) -> np.ndarray:
        """Return the table of a task, made when it is first asked for."""
        if digest not in self._features:
            self._features[digest] = features(self._tasks[digest])
        return self._features[digest]

    def scores(self, digest: str, numbers: Sequence[int]) -> np.ndarray:
        """Return the scores of a task's candidates; more is better."""
        rows = list(numbers)
        if self._booster is not None:
            table = self._xgboost.DMatrix(self.features(digest)[rows])
            return np.asarray(self._booster.predict(table))
        ranked: np.ndarray = 1.0 / (1.0 + _ratios(self._tasks[digest])[rows])
        return ranked

    def learn(self, digest: str, measured: TrialTimes) -> None:
        """Take measurements of a task in."""
        times_us = self._times_us.setdefault(digest, {})
        times_us.update((n, np.inf if time is None else time) for n, time in measured.items())
        known = sum(map(len, self._times_us.values()))
        if known >= max(WARM_UP, RELEARN * self._learnt):
            self._learnt = known
            self._train()

    def _train(self) -> None:
        rows, ratios = [], []
        for digest, found in self._times_us.items():
            times_us = np.array(list(found.values()))
            rows.append(self.features(digest)[list(found)])
            ratios.append(np.minimum(times_us.min(), _LONGEST_US) / times_us)
        label = np.concatenate(ratios)
        if not label.any():
            return
        table = self._xgboost.DMatrix(np.concatenate(rows), label=label, weight=label)
        self._booster = self._xgboost.train(_TREES, table, num_boost_round=BOOST_ROUNDS)


class Search:
    """The search of one task; `known` is what a log already tells, `seeds` what to try first."""

    def __init__(
        self,
        task: TuneTask,
        model: LearnedCostModel,
        *,
        known: TrialTimes = MappingProxyType({}),
        seeds: Sequence[int] = (),
        seed: int = 1,
    ) -> None:
        self.task = task
        self._model = model
        self._random = np.random.default_rng(seed)
        self._actions = model.features(task.digest)[:, 4:]
        self._nearest: dict[int, list[int]] = {}
        self._seeds = list(dict.fromkeys(seeds))
        self._times_us: dict[int, float] = {}
        self._tried: set[int] = set()
        self.tell(known)

    @property
    def is_exhausted(self) -> bool:
        """Return whether every candidate was proposed."""
        return len(self._tried) >= len(self.task.candidates)

    def propose(self, count: int) -> list[int]:
        """Return candidates to measure next, none twice; fewer than `count` only at the end."""
        picked = [n for n in self._seeds if n not in self._tried][:count]
        self._tried.update(picked)
        rest = [n for n in range(len(self.task.candidates)) if n not in self._tried]
        wanted = min(count - len(picked), len(rest))
        if wanted == 0:
            return picked
        met = [n for n in self._evolve(rest) if n not in self._tried]
        ranked = [met[i] for i in np.argsort(-self._scores(met), kind="stable")]
        drawn = self._random.binomial(wanted, RANDOM_SHARE)
        chosen = dict.fromkeys(ranked[: wanted - drawn])
        chosen |= dict.fromkeys(map(int, self._random.permutation(rest)))
        found = list(chosen)[:wanted]
        self._tried.update(found)
        return picked + found

    def tell(self, measured: TrialTimes) -> None:
        """Tell the search what became of proposed candidates."""
        self._tried.update(measured)
        self._times_us.update((n, time) for n, time in measured.items() if time is not None)
        if measured:
            self._model.learn(self.task.digest, measured)

    def _evolve(self, rest: Sequence[int]) -> list[int]:
        """Return all that a population meets in some generations, each once."""
        best = sorted(self._times_us, key=self._times_us.__getitem__)[:SURVIVORS]
        fresh = self._random.permutation(rest)[: POPULATION - len(best)]
        population = [*best, *map(int, fresh)]
        met = dict.fromkeys(population)
        for _ in range(GENERATIONS):
            scores = np.maximum(self._scores(population), 1e-6)
            parents = self._random.choice(population, POPULATION, p=scores / scores.sum())
            population = [int(self._random.choice(self._find_near(int(n)))) for n in parents]
            met |= dict.fromkeys(population)
        return list(met)

    def _find_near(self, number: int) -> list[int]:
        """Return the candidates nearest to one by their actions, the nearest first."""
        if number not in self._nearest:
            distance = np.abs(self._actions - self._actions[number]).sum(axis=1)
            distance[number] = -1  # itself is the first, and left out
            order = np.argsort(distance, kind="stable")[1 : 1 + NEIGHBOURS]
            self._nearest[number] = [int(i) for i in order]
        return self._nearest[number]

    def _scores(self, numbers: Sequence[int]) -> np.ndarray:
        return self._model.scores(self.task.digest, numbers) if numbers else np.zeros(0)


def features(task: TuneTask) -> np.ndarray:
    """Return `[candidates, features]`: actions and products of them as logarithms, the estimate.
    Words (routes) are numbered. The features of one family line up over its kernels, so that one
    model learns from all."""
    actions = [_numbers(each) for each in task.actions]
    table = np.zeros((len(actions), _FEATURES))
    table[:, 0] = np.log2(1 + _ratios(task))
    table[:, 1] = sum(ord(c) for c in task.family) % 997
    extents = [float(e) for e in task.choice.work["output"][0]]
    table[:, 2] = np.log2(1 + np.prod(extents))
    for row, numbers in enumerate(actions):
        wide = np.log2(1.0 + np.array(numbers[: _FEATURES - 4]))
        table[row, 3] = wide.sum()
        table[row, 4 : 4 + len(wide)] = wide
    return table


def _ratios(task: TuneTask) -> np.ndarray:
    """Return estimates over the least one, finite also for a hopeless candidate."""
    estimates = np.array(task.estimates)
    least = max(estimates.min(), 1e-9)
    if not np.isfinite(least):
        return np.ones_like(estimates)
    return np.minimum(estimates / least, _HOPELESS)


def _numbers(value: Any) -> list[float]:
    """Return the numbers in JSON values, in order; words count by their letters."""
    if isinstance(value, dict):
        return [n for key in sorted(value) for n in _numbers(value[key])]
    if isinstance(value, list):
        return [n for part in value for n in _numbers(part)]
    if isinstance(value, str):
        return [float(sum(ord(c) for c in value) % 97)]
    return [float(value or 0)]


def _xgboost() -> Any:
    """Return the package, on one thread: tables so small are not worth more. Raises DependencyError
    where it is not there."""
    try:
        import xgboost
    except ImportError as error:
        raise DependencyError(
            "the tuner needs the package xgboost", hint=pip_install("tune")
        ) from error
    xgboost.set_config(nthread=1)
    return xgboost


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
        self._unreported: dict[int, float | None] = {}
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
            self._unreported[number] = trial.median_us if trial.status is Status.OK else None

    def propose(self, count: int) -> None:
        """Fill the queue with what the search wants to know next."""
        if self.search is not None:
            self.search.tell(self._unreported)
            self._unreported = {}
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

    def start_search(self, model: LearnedCostModel, seeds: tuple[int, ...]) -> None:
        """Start the search from the trials that are known, the first time of each that never
        failed."""
        known: dict[int, float | None] = {}
        for trial in self.trials:
            number = self.task.position(dict(trial.actions))
            if number is not None and trial.status is Status.OK:
                known.setdefault(number, trial.median_us)
            elif number is not None:
                known[number] = None
        self._unreported = {}
        self.search = Search(self.task, model, known=known, seeds=seeds)

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
