"""Which candidates of a kernel to try next: MetaSchedule's evolutionary search and XGBoost model.

MetaSchedule searches over traces of schedule decisions.  Our kernels are written, not scheduled,
so a task is a stand-in function with one traced decision: the number of a candidate.  The space
is ours, a mutation is a step to a candidate that differs in few actions, and features come from
the actions and the family's estimate instead of from loops.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule.cost_model import PyCostModel, XGBModel
from tvm.s_tir.meta_schedule.feature_extractor import PyFeatureExtractor
from tvm.s_tir.meta_schedule.mutator import PyMutator
from tvm.s_tir.meta_schedule.runner import RunnerResult

from adrenoc.errors import DependencyError
from adrenoc.tune.tasks import Task

BLOCK = "kernel"
ANNOTATION = "adrenoc.candidate"
WARM_UP = 24
"""Measured candidates after which XGBoost's word counts more than the estimates."""
ROUNDS_A_TASK = 1 << 16
NEIGHBOURS = 12
"""Candidates that a mutation chooses from: about two for each action of a convolution's tile."""
_FEATURES = 24


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is known of a candidate: its time, None where it failed."""

    number: int
    time_us: float | None


class CostModel:
    """One model of all tasks of a device: XGBoost, and the estimates until it has seen enough."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        _need_xgboost()
        logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)
        self._tasks = {task.digest: task for task in tasks}
        self._features: dict[str, np.ndarray] = {}
        self._xgb = XGBModel(
            extractor=_Extractor(self.features),
            num_warmup_samples=WARM_UP,
            early_stopping_rounds=20,
            verbose_eval=0,
            num_tuning_cores=1,
        )
        self.handle = _Scores(self)

    def features(self, digest: str) -> np.ndarray:
        """The table of a task; made when it is first asked for, as most models have many tasks."""
        if digest not in self._features:
            self._features[digest] = features(self._tasks[digest])
        return self._features[digest]

    def scores(self, digest: str, numbers: Sequence[int]) -> np.ndarray:
        """Of candidates of a task; more is better."""
        if self._xgb.data_size >= WARM_UP and self._xgb.booster is not None:
            rows = self.features(digest)[list(numbers)].astype("float32")
            # Its `predict` wants each candidate as a schedule, which takes a hundred times longer.
            return np.asarray(self._xgb._predict(xs=[row[None] for row in rows]))
        estimates = np.array(self._tasks[digest].estimates)[list(numbers)]
        ranked: np.ndarray = 1.0 / (1.0 + estimates / max(estimates.min(), 1e-9))
        return ranked

    def learn(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Take measurements in."""
        self._xgb.update(context, list(candidates), list(results))


class Search:
    """The search of one task; `known` is what a log already tells, `seeds` what to try first."""

    def __init__(
        self,
        task: Task,
        model: CostModel,
        *,
        batch: int,
        known: Sequence[Measured] = (),
        seeds: Sequence[int] = (),
        seed: int = 1,
    ) -> None:
        self.task = task
        self._model = model
        self._tried: set[int] = {m.number for m in known}
        self._seeds = list(dict.fromkeys(seeds))
        self._waiting: dict[int, Any] = {}
        count = len(task.candidates)
        near = Neighbours(model.features(task.digest))

        def space(schedule: Any) -> None:
            chosen = schedule.sample_categorical(list(range(count)), [1.0 / count] * count)
            schedule.annotate(schedule.get_sblock(BLOCK), ANNOTATION, chosen)

        self._context = _Context(
            _stand_in(task.digest),
            ms.space_generator.ScheduleFn(
                space, sch_rules=[], postprocs=[], mutator_probs={_Step(near, seed): 1}
            ),
            ms.search_strategy.EvolutionarySearch(
                population_size=64,
                init_min_unmeasured=1,
                genetic_num_iters=2,
                eps_greedy=0.1,
            ),
            seed,
        )
        self._space = self._context.generate_design_space()
        self._database = ms.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._context.mod)
        self._record(known)
        self._context.pre_tuning(
            ROUNDS_A_TASK,
            batch,
            design_spaces=self._space,
            database=self._database,
            cost_model=model.handle,
        )

    @property
    def exhausted(self) -> bool:
        """Whether every candidate was proposed."""
        return len(self._tried) >= len(self.task.candidates)

    def propose(self, count: int) -> list[int]:
        """Candidates to measure next, none twice; fewer than `count` only at the end."""
        picked = [n for n in self._seeds if n not in self._tried][:count]
        self._tried.update(picked)
        if len(picked) < count and not self.exhausted:
            for candidate in self._context.generate_measure_candidates() or ():
                number = _number(candidate)
                if number not in self._tried and len(picked) < count:
                    self._tried.add(number)
                    picked.append(number)
        if len(picked) < count and not self.exhausted:
            # The evolution met nothing new: a space of this size can simply be ranked.
            rest = [n for n in range(len(self.task.candidates)) if n not in self._tried]
            scores = self._model.scores(self.task.digest, rest)
            best = [rest[i] for i in np.argsort(-scores, kind="stable")[: count - len(picked)]]
            self._tried.update(best)
            picked += best
        return picked

    def tell(self, measured: Sequence[Measured]) -> None:
        """What became of proposed candidates."""
        self._tried.update(m.number for m in measured)
        candidates, results = self._record(measured)
        if candidates:
            self._context.notify_runner_results(candidates, results)

    def close(self) -> None:
        """End MetaSchedule's side of it."""
        self._context.post_tuning()

    def _record(self, measured: Sequence[Measured]) -> tuple[list[Any], list[Any]]:
        candidates = [self._candidate(m.number) for m in measured]
        results = [_result(m) for m in measured]
        if not candidates:
            return [], []
        for candidate, result in zip(candidates, results, strict=True):
            seconds = result.run_secs or [1e10]
            self._database.commit_tuning_record(
                ms.database.TuningRecord(
                    candidate.sch.trace,
                    self._workload,
                    seconds,
                    self._context.target,
                    candidate.args_info,
                )
            )
        self._model.learn(self._context, candidates, results)
        return candidates, results

    def _candidate(self, number: int) -> Any:
        """The candidate of a number as MetaSchedule has it."""
        trace = self._space[0].trace
        instruction = next(iter(trace.decisions))
        decided = trace.with_decision(instruction, number, True)
        schedule = tvm.s_tir.Schedule(self._context.mod)
        decided.apply_to_schedule(schedule, False)
        return ms.search_strategy.MeasureCandidate(
            schedule, ms.arg_info.ArgInfo.from_entry_func(self._context.mod, False)
        )


class _Context(ms.TuneContext):
    """MetaSchedule's context, made without its own constructor.

    That one parses TVM's tensor intrinsics first, which takes some fifteen seconds and has nothing
    to do with textures.
    """

    def __init__(self, module: Any, space: Any, strategy: Any, seed: int) -> None:
        target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
        logger = ms.logging.get_logging_func(logging.getLogger("tvm.s_tir.meta_schedule"))
        arguments = (module, target, space, strategy, "kernel", 1, seed, logger)
        self.__init_handle_by_constructor__(_ffi_api.TuneContext, *arguments)
        _ffi_api.TuneContextInitialize(self)


def _result(measured: Measured) -> Any:
    if measured.time_us is None:
        return RunnerResult(None, "failed")
    return RunnerResult([measured.time_us * 1e-6], None)


def _stand_in(digest: str) -> Any:
    """A function to hang decisions on; it is never built."""
    x = te.placeholder((1,), name="x")
    y = te.compute((1,), lambda i: x[i], name=BLOCK)
    func = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": func.with_attr("adrenoc.digest", digest)})


def _digest(context: Any) -> str:
    return str(context.mod["main"].attrs["adrenoc.digest"])


def _number(candidate: Any) -> int:
    """The candidate that a trace decided on."""
    return int(next(iter(candidate.sch.trace.decisions.values())))


def features(task: Task) -> np.ndarray:
    """`[candidates, features]`: actions and products of them as logarithms, and the estimate.

    Words (routes) are numbered.  The features of one family line up over its kernels, so that
    one model learns from all.
    """
    actions = [_numbers(each) for each in task.actions]
    table = np.zeros((len(actions), _FEATURES))
    estimates = np.array(task.estimates)
    table[:, 0] = np.log2(1 + estimates / max(estimates.min(), 1e-9))
    table[:, 1] = sum(ord(c) for c in task.family) % 997
    extents = [float(e) for e in task.choice.work["output"][0]]
    table[:, 2] = np.log2(1 + np.prod(extents))
    for row, numbers in enumerate(actions):
        wide = np.log2(1.0 + np.array(numbers[: _FEATURES - 4]))
        table[row, 3] = wide.sum()
        table[row, 4 : 4 + len(wide)] = wide
    return table


def _numbers(value: Any) -> list[float]:
    """The numbers in JSON values, in order; words count by their letters."""
    if isinstance(value, dict):
        return [n for key in sorted(value) for n in _numbers(value[key])]
    if isinstance(value, list):
        return [n for part in value for n in _numbers(part)]
    if isinstance(value, str):
        return [float(sum(ord(c) for c in value) % 97)]
    return [float(value or 0)]


class Neighbours:
    """For each candidate those that differ least in their actions, found when asked for."""

    def __init__(self, table: np.ndarray) -> None:
        self._table = table[:, 4:]
        self._near: dict[int, list[int]] = {}

    def of(self, number: int) -> list[int]:
        """Numbers of candidates, the nearest first."""
        if number not in self._near:
            distance = np.abs(self._table - self._table[number]).sum(axis=1)
            distance[number] = -1  # itself is the first, and left out
            order = np.argsort(distance, kind="stable")[1 : 1 + NEIGHBOURS]
            self._near[number] = [int(i) for i in order]
        return self._near[number]


@derived_object
class _Extractor(PyFeatureExtractor):
    def __init__(self, table_of: Callable[[str], np.ndarray]) -> None:
        super().__init__()
        self._table_of = table_of

    def extract_from(self, context: Any, candidates: Any) -> list[Any]:
        """One row a candidate."""
        table = self._table_of(_digest(context))
        return [tvm.runtime.tensor(table[[_number(c)]]) for c in candidates]


@derived_object
class _Step(PyMutator):
    def __init__(self, near: Neighbours, seed: int) -> None:
        super().__init__()
        self._near = near
        self._random = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        """Nothing of it is needed."""

    def apply(self, trace: Any, _: Any) -> Any:
        """The trace with a decision nearby."""
        instruction, decision = next(iter(trace.decisions.items()))
        near = self._near.of(int(decision))
        if not near:
            return None
        return trace.with_decision(instruction, self._random.choice(near), True)

    def clone(self) -> Any:
        """Another one with the same steps."""
        return _Step(self._near, self._random.randrange(1 << 30))


@derived_object
class _Scores(PyCostModel):
    def __init__(self, model: CostModel) -> None:
        super().__init__()
        self._model = model

    def load(self, path: str) -> None:
        """The log is what is kept."""

    def save(self, path: str) -> None:
        """The log is what is kept."""

    def update(self, context: Any, candidates: Any, results: Any) -> None:
        """`CostModel.learn` is told by the search."""

    def predict(self, context: Any, candidates: Any) -> Any:
        """Scores, more is better."""
        numbers = [_number(candidate) for candidate in candidates]
        return self._model.scores(_digest(context), numbers).astype("float64")


def _need_xgboost() -> None:
    try:
        import xgboost
    except ImportError as error:
        raise DependencyError(
            "the tuner needs the package xgboost", hint="pip install 'adrenoc[tune]'"
        ) from error
    # Tables of some hundred numbers: threads would only wait for each other, a hundred times longer
    # where the machine is busy.
    xgboost.set_config(nthread=1)
