"""Which candidates of a kernel to try next: an evolution under a model that learns from trials.

A candidate is a number; its features are its actions and the family's estimate. XGBoost learns
from the features of all tasks of a model how a candidate compares with the best of its task, and
until it has seen enough the estimates stand in for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adrenoc.base.errors import DependencyError
from adrenoc.base.host.extras import pip_install
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


@dataclass(frozen=True, kw_only=True)
class TrialTime:
    """What is known of a candidate: its time, None where it failed."""

    number: int
    time_us: float | None


class LearnedCostModel:
    """One model of all tasks of a device: XGBoost, and the estimates until it has seen enough.

    It learns the shortest time of a task over a candidate's, 0 for one that failed, and is the
    more exact the nearer that is to 1.
    """

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

    def learn(self, digest: str, measured: Sequence[TrialTime]) -> None:
        """Take measurements of a task in."""
        times_us = self._times_us.setdefault(digest, {})
        times_us.update((m.number, np.inf if m.time_us is None else m.time_us) for m in measured)
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
        known: Sequence[TrialTime] = (),
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

    def tell(self, measured: Sequence[TrialTime]) -> None:
        """Tell the search what became of proposed candidates."""
        self._tried.update(m.number for m in measured)
        self._times_us.update((m.number, m.time_us) for m in measured if m.time_us is not None)
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

    Words (routes) are numbered.  The features of one family line up over its kernels, so that
    one model learns from all.
    """
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
