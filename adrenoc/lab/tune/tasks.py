"""What there is to tune: the distinct kernels of a model's final graph, as they will be used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.reporter import Reporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Param, ScheduleChoice
from adrenoc.ir.tuning_log import Actions, Trial, actions_key, best_trials
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.schedule import actions_of, is_of
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.target.cost.cost import Cost
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True, eq=False)
class TuneTask:
    """One kernel with a choice of schedules; `calls` is how often a run launches it.

    `candidates` are in the order of the family's estimate: the first is the untuned schedule.
    """

    digest: str
    family: str
    calls: int
    choice: ScheduleChoice
    node: Node
    candidates: tuple[Any, ...]

    @cached_property
    def estimates(self) -> tuple[float, ...]:
        """Return the family's estimate of each candidate (any unit, less is better)."""
        return tuple(self.choice.estimate(tile) for tile in self.candidates)

    @property
    def title(self) -> str:
        """Return what people see: the operators and where the first of these kernels is."""
        return f"{'+'.join(self.node.operators)} {self.node.name}"

    def spread(self, count: int) -> tuple[int, ...]:
        """Return so many numbers of candidates at equal factors of place: 1st, 2nd, 3rd, 5th ...

        More of those that the estimate puts first, among which a choice is made; none of those that
        it rules out.
        """
        places: list[int] = []
        place, last = 0, max(1, sum(map(math.isfinite, self.estimates)))
        while place < last and len(places) < count:
            places.append(place)
            rest = max(count - len(places), 1)
            place = max(place + 1, round((place + 1) * (last / (place + 1)) ** (1 / rest)) - 1)
        return tuple(places)

    def position(self, actions: Any) -> int | None:
        """Return the number of the candidate with these actions."""
        number = self._positions.get(actions_key(actions))
        if number is not None:
            return number
        # A log may lack what the family has learnt since.
        partial = (n for n, tile in enumerate(self.candidates) if is_of(tile, actions))
        return next(partial, None)

    @cached_property
    def actions(self) -> tuple[Actions, ...]:
        """Return the actions of each candidate."""
        return tuple(actions_of(tile) for tile in self.candidates)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {actions_key(actions): number for number, actions in enumerate(self.actions)}


PACKED_BYTES = 512 << 20
"""The bytes of packed constants that a plan keeps: packing takes longer than the kernel."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TunePlan:
    """A planned model and its tasks.

    `packed` are constants as candidates so far have them, which others have too.
    """

    model: Path
    target: Target
    options: CompileOptions
    graph: Graph
    tasks: tuple[TuneTask, ...]
    packed: dict[str, Param] = field(default_factory=dict)

    def context(self, cost: Cost, params: dict[str, Param]) -> RuleContext:
        """Return what rules look at, with these constants of the cost model."""
        return RuleContext(
            graph=self.graph,
            options=self.options,
            limits=self.target.limits,
            performance=self.target.performance,
            cost=cost,
            log=DecisionLog(),
            params=params,
        )

    def call(self, task: TuneTask, tile: Any) -> tuple[KernelCall, RuleContext]:
        """Write the kernel of a task with one of its candidates.

        What the context has of constants is this candidate's until the next call.
        """
        if sum(param.value.nbytes for param in self.packed.values()) > PACKED_BYTES:
            self.packed.clear()
        context = self.context(self.target.cost, self.packed)
        # Chosen already: there may be thousands of others to compare it with.
        context.schedules.chosen[task.digest] = replace(task.choice, tile=tile)
        call = kernel_of(context, task.node)
        if task.digest not in {choice.digest for choice in context.schedules.of_node.values()}:
            raise ValueError(f"{task.title} did not take {actions_of(tile)}")
        return call, context


def plan_model(
    model: Path, *, target: Target, options: CompileOptions, reporter: Reporter
) -> TunePlan:
    """Plan a model up to its kernels, and list those that have a choice.

    Raises:
        AdrenocError: the model cannot be imported or planned.
        CompileError: no kernel of the model has a choice.
    """
    start = State(model=model, target=target, options=options)
    state, _ = run_stages(start, reporter=reporter, stop_after="lower")
    if state.graph is None or state.program is None:
        raise ValueError("the pipeline ended early")
    # A kernel is the same wherever its tensors lie; alone, all that it writes can be compared.
    planned = state.program.graph
    nodes = tuple(replace(node, stores=()) for node in planned.nodes)
    graph = replace(planned, views={}, nodes=nodes)
    by_name = {node.name: node for node in graph.nodes}
    pasts = set(graph.states.values())
    calls = Counter(choice.digest for choice in state.program.choices.values())
    distinct = {choice.digest: choice for choice in state.program.choices.values()}
    tasks = tuple(
        TuneTask(
            digest=digest,
            family=choice.family,
            calls=calls[digest],
            choice=choice,
            node=by_name[choice.node],
            candidates=tuple(sorted(choice.candidates, key=choice.estimate)),
        )
        for digest, choice in distinct.items()
        # Of a state a kernel leaves most as it was: two runs onto other contents differ.
        if len(choice.candidates) > 1 and graph.owner(by_name[choice.node].output) not in pasts
    )
    if not tasks:
        raise CompileError(
            f"{model} has no kernel with a choice of schedules",
            hint="there is nothing to tune: adrenoc compile MODEL",
        )
    return TunePlan(model=model, target=target, options=options, graph=graph, tasks=tasks)


MOST_SEEDS = 4


def seeds(task: TuneTask, trials: Iterable[Trial]) -> tuple[int, ...]:
    """Return numbers of candidates, the most promising first.

    Of the same kernel on other GPUs first, then of kernels of the family by how far their shapes
    are from this one's.
    """
    by_gpu: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.family == task.family:
            by_gpu.setdefault(trial.gpu, []).append(trial)
    found: list[tuple[float, int]] = []
    for own in by_gpu.values():
        for trial in best_trials(own).values():
            far = 0.0 if trial.kernel == task.digest else 1e-6 + distance(trial.work, task)
            number = task.position(dict(trial.actions))
            if number is not None and math.isfinite(far):
                found.append((far, number))
    return tuple(dict.fromkeys(number for _, number in sorted(found)))[:MOST_SEEDS]


def distance(work: Mapping[str, Any], task: TuneTask) -> float:
    """Return how many doublings lie between two kernels, infinite between unlike ones."""
    own = task.choice.work
    if any(work.get(key) != own.get(key) for key in ("op", "storage", "compute")):
        return math.inf
    ours = _numbers([own["attrs"], own["output"]])
    theirs = _numbers([work.get("attrs"), work.get("output")])
    if len(ours) != len(theirs):
        return math.inf
    pairs = zip(ours, theirs, strict=True)
    return sum(abs(math.log2((1 + abs(a)) / (1 + abs(b)))) for a, b in pairs)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        return [n for key in sorted(value) for n in _numbers(value[key])]
    if isinstance(value, list | tuple):
        return [n for part in value for n in _numbers(part)]
    return [float(value)] if isinstance(value, int | float) else []
