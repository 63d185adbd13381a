"""What there is to tune: the distinct kernels of a model's final graph, and candidates of each.

A candidate is OpenCL C with the tensors that it is launched on: the model's own weights, and other
inputs that are random, the same for all candidates.  They share files of a scratch folder.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import CompileError
from adrenoc.base.reporter import Reporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.layout import Memory, OperandSpec, TexelOrder
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Param, ScheduleChoice
from adrenoc.ir.tuning_log import Actions, Trial, actions_key, best_trials
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.codegen.build import device_kernel
from adrenoc.kernels.families.shared.context import KernelCall, RuleContext
from adrenoc.kernels.families.shared.schedule import actions_of, is_of
from adrenoc.kernels.weights import pack_blocked
from adrenoc.passes.lower.lower import kernel_of
from adrenoc.target.cost import Cost
from adrenoc.target.target import Target


@dataclass(frozen=True, kw_only=True, eq=False)
class TuneTask:
    """One kernel with a choice of schedules; `calls` is how often a run launches it. `candidates`
    are in the order of the family's estimate: the first is the untuned schedule."""

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
        it rules out."""
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
    """A planned model and its tasks. `packed` are constants as candidates so far have them, which
    others have too."""

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
        """Write the kernel of a task with one of its candidates. What the context has of constants
        is this candidate's until the next call."""
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
    """Plan a model up to its kernels, and list those that have a choice. Raises AdrenocError where
    the model cannot be imported or planned, CompileError where no kernel of the model has a
    choice."""
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
    """Return numbers of candidates, the most promising first. Of the same kernel on other GPUs
    first, then of kernels of the family by how far their shapes are from this one's."""
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


KERNEL = "kernel"
"""What a candidate's kernel is called before TVM splits it from what launches it."""
PATTERN = 16411
"""Random elements that a device repeats over a large input, for a session brings some 40 MB a
second: a prime, so that rows and blocks differ."""


_FINITE_BELOW = 1 << 30
"""Words below it are floats from zero to two, if they are read as such."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A tensor on the device: physical shape, dtype, memory scope, and the file of its value.
    `repeated`: the file holds its first elements, and all others are those again."""

    shape: tuple[int, ...]
    dtype: str
    scope: str
    file: str
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A candidate as a device takes it: OpenCL C, work-items, arguments. The last argument is the
    output and has no file; `bytes`: its words hold four quanta each."""

    kernel: str
    source: str
    work_items: tuple[int, int, int]
    work_group: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    bytes: bool = False


BuildVariant = Callable[[TuneTask, int], Variant]
"""From a task and the number of a candidate to what runs it."""


class VariantBuilder:
    """Builds candidates; their tensors lie in `scratch`."""

    def __init__(self, plan: TunePlan, scratch: Path) -> None:
        self._plan, self._scratch = plan, scratch

    def __call__(self, task: TuneTask, number: int) -> Variant:
        """Build one candidate. Raises AdrenocError where it cannot be compiled."""
        call, context = self._plan.call(task, task.candidates[number])
        builder = self.builder(task, number, call)
        kernel = device_kernel(builder.build(KERNEL), self._plan.target)
        launch = builder.launch
        if launch is None:
            raise ValueError(f"{task.title} launches no threads")
        arguments = []
        output = len(call.arguments) - 1
        for place in kernel.arguments:
            name = call.arguments[place]
            param = context.params.get(name)
            spec = param.spec if param is not None else context.graph.operand(name)
            value = param.value if param is not None else None
            argument = Argument(
                shape=tuple(value.shape) if value is not None else spec.physical,
                dtype=str(value.dtype) if value is not None else spec.dtype,
                scope=spec.scope,
                file="" if place == output else str(self._save(task, place, name, spec, value)),
                repeated=place != output and value is None and is_repeated(spec),
            )
            arguments.append(argument)
        if kernel.arguments[-1] != output:
            raise ValueError(f"{task.title} does not write its last argument")
        groups = zip(launch.work_group, launch.grid, strict=True)
        width, height, depth = (threads * count for threads, count in groups)
        return Variant(
            kernel=kernel.name,
            source=kernel.source,
            work_items=(width, height, depth),
            work_group=launch.work_group,
            arguments=tuple(arguments),
            bytes=spec.memory is Memory.BYTES,
        )

    def builder(self, task: TuneTask, number: int, call: KernelCall) -> KernelBuilder:
        """Return the kernel builder of a candidate."""
        return call.builder

    def _rows_there(self, task: TuneTask) -> int:
        """Half of the rows of the cache that a kernel goes over: what its number of rows says."""
        graph = self._plan.graph
        pasts = {past for past, _ in self._plan.options.caches}
        rows = (
            graph.tensors[name].shape[2] for name in task.node.inputs if graph.owner(name) in pasts
        )
        return next(rows, 0) // 2

    def _save(
        self, task: TuneTask, place: int, name: str, spec: OperandSpec, value: np.ndarray | None
    ) -> Path:
        safe = "".join(c if c.isalnum() else "_" for c in name)[-80:]
        path = self._scratch / f"{task.digest}_{place}_{safe}.npy"
        if not path.exists():
            made = value if value is not None else random_value(spec, f"{task.digest}{place}")
            there = self._rows_there(task)
            if there and value is None and not spec.dtype.startswith("float"):
                made = np.full(spec.shape, there, spec.dtype)
            np.save(path, np.asarray(made, order="C"))
        return path


def is_repeated(spec: OperandSpec) -> bool:
    """Return whether a large input is a short pattern repeated, not with lanes of zeros."""
    if spec.memory is Memory.BYTES:
        return False
    return math.prod(spec.shape) == math.prod(spec.physical) > PATTERN


def random_value(spec: OperandSpec, seed: str) -> np.ndarray:
    """Return a tensor as it lies in memory, or the pattern that it repeats. Lanes beyond the last
    channel are zero."""
    random = np.random.default_rng(list(seed.encode()))
    shape = (PATTERN,) if is_repeated(spec) else spec.shape
    if spec.memory is Memory.BYTES:
        # Words beside bytes may be scales (`n_bits/n_bits_dot.py`).
        return random.integers(0, _FINITE_BELOW, spec.physical, np.uint32)
    if spec.dtype.startswith("float"):
        value = random.standard_normal(shape).astype(spec.dtype)
    else:  # small enough for any index
        value = random.integers(0, 2, shape).astype(spec.dtype)
    if is_repeated(spec) or spec.memory in (Memory.PLAIN, Memory.CPU):
        return value
    roles = spec.roles
    return pack_blocked(value, roles.roles, roles.order is TexelOrder.ROWS)
