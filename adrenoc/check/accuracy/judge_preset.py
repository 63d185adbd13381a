"""Tell whether a preset holds a tolerance, and search what has to be in float32 where it does not:
the fewest suspects that mend a failure, or all by their gain.

The kernels of the bundle run on the host's twin of the target beside the reference; rounding alone
is the floor. A trial compiles and runs a model, so trials are what counts. Suspects come in order
of suspicion: bisection finds how many of the first are enough, then delta debugging takes out what
is not needed, in halves, quarters and so on down to one by one.

The order by gain has units: a tensor with what only moves it, and the constants that it is computed
of. Errors of rounding are small and independent, so that their squares add up: what a part of a
network contributes is seen by rounding that part alone. The part that contributes most is halved,
and halved again, as far as there is effort. Effort is counted in nodes, and not by the clock, so
that the same command ends at the same place anywhere, and can say what it left untried.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import tvm

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AccuracyError, AdrenocError, DependencyError, DeviceError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import (
    cache_folder,
    is_trusted_file,
    private_folder,
    read_plain,
    sha256_file,
)
from adrenoc.base.host.extras import pip_install
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.check.accuracy.bench import NOTHING, AccuracyBench, HalfTensors, VariantFigures
from adrenoc.check.accuracy.result import (
    AccuracyReport,
    Arrays,
    Floor,
    PolicyCost,
    PresetAccuracy,
    Remedy,
)
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.check.runtimes import reference_version
from adrenoc.compile.cache import cache_key
from adrenoc.device.place import pick_device
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.signature import Entry
from adrenoc.ir.graph import Graph
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import Target, host_twin

T = TypeVar("T")


class OutOfEffortError(Exception):
    """Raised by a trial that may not begin any more."""


@dataclass(frozen=True, kw_only=True)
class PassingSet:
    """A set that passes, in the order of suspicion; minimal if each of its members is needed."""

    chosen: tuple[str, ...]
    is_minimal: bool


def smallest_passing(
    suspects: Sequence[str], passes: Callable[[frozenset[str]], bool]
) -> PassingSet | None:
    """Return a minimal subset of `suspects` that passes, None where not even all of them do.
    `passes` may raise `OutOfEffortError`; the best set so far is then returned as it is."""
    known: dict[frozenset[str], bool] = {}

    def passes_once(chosen: Sequence[str]) -> bool:
        key = frozenset(chosen)
        if key not in known:
            known[key] = passes(key)
        return known[key]

    best: Sequence[str] = tuple(suspects)
    try:
        if not passes_once(best):
            return None
        best = shortest_prefix(best, passes_once)
    except OutOfEffortError:
        return PassingSet(chosen=tuple(best), is_minimal=False)
    kept = list(best)
    try:
        _take_out(kept, passes_once)
    except OutOfEffortError:
        return PassingSet(chosen=tuple(kept), is_minimal=False)
    return PassingSet(chosen=tuple(kept), is_minimal=True)


def shortest_prefix(suspects: Sequence[T], tried: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return as many of the first as are enough, where all are; few are usual, so it doubles."""
    low, high = 0, 1  # `low` fails, or is zero, which was seen to fail
    while high < len(suspects) and not tried(suspects[:high]):
        low, high = high, high * 2
    high = min(high, len(suspects))
    while high - low > 1:
        middle = (low + high) // 2
        if tried(suspects[:middle]):
            high = middle
        else:
            low = middle
    return suspects[:high]


def _take_out(kept: list[str], tried: Callable[[Sequence[str]], bool]) -> None:
    """Delta debugging, in place: afterwards no single member can be taken out."""
    size = max(1, len(kept) // 2)
    while kept:
        taken = False
        for start in reversed(range(0, len(kept), size)):
            rest = kept[:start] + kept[start + size :]
            if rest and tried(rest):
                kept[:] = rest
                taken = True
        if size == 1 and not taken:
            return
        size = max(1, size // 2)


_LITTLE = 1e-4
"""Share of the whole mean square; what contributes less is not looked into."""
_SHARE = 0.5
"""Of the effort, by when the order is found."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Tensors that are pinned together, by the graph's names, and what that keeps from half.
    `bytes_more` is what a run then moves more: each tensor is written once and read by each reader,
    each constant is read once."""

    tensors: tuple[str, ...]
    stored: HalfTensors
    bytes_more: int


def find_units(graph: Graph, stored: HalfTensors) -> list[Unit]:
    """Return what can be pinned of a fused graph and is stored in half, in execution order."""
    leader = {name: name for name in graph.inputs}
    members = {name: [name] for name in graph.inputs}
    for node in graph.nodes:
        source = node.inputs[0] if node.moves_alone else node.output
        first = leader.get(source, node.output)
        leader[node.output] = first
        members.setdefault(first, []).append(node.output)
    found = []
    for names in members.values():
        nodes = [graph.producers[n] for n in names if n in graph.producers]
        constants = {c for n in nodes for c in n.inputs if graph.tensors[c].value is not None}
        tensors = {t for t in stored.tensors if t in names or _is_copy(t, names)}
        kept = HalfTensors(tensors=frozenset(tensors), constants=stored.constants & constants)
        if kept.count:
            found.append(
                Unit(tensors=tuple(names), stored=kept, bytes_more=_bytes_more(graph, kept))
            )
    return found


def rank_units(
    units: Sequence[Unit], measure: Callable[[HalfTensors], float], effort: Effort
) -> list[Unit]:
    """Order units by what rounding them alone adds to the mean square, for the bytes they cost.
    `measure` gives the mean square where this is rounded, infinite where a value is not finite."""

    def measured(part: Sequence[Unit]) -> tuple[float, Sequence[Unit]]:
        whole = NOTHING
        for unit in part:
            whole = whole.together(unit.stored)
        return measure(whole), part

    left = [measured(units)] if units else []
    total = left[0][0] if left else 0.0
    ended: list[tuple[float, Sequence[Unit]]] = []
    while left:
        left.sort(key=lambda known: known[0])
        square, part = left.pop()
        small = square == 0 or (math.isfinite(total) and square <= _LITTLE * total)
        if len(part) == 1 or small or effort.is_spent(_SHARE):
            ended.append((square, part))
            if len(part) > 1 and not small:
                effort.leave("tensors to round alone", len(part))
            continue
        middle = len(part) // 2
        left += [measured(half) for half in (part[:middle], part[middle:])]
    worth = {
        id(unit): square / sum(one.bytes_more for one in part)
        for square, part in ended
        for unit in part
    }
    return sorted(units, key=lambda unit: -worth[id(unit)])


def _is_copy(tensor: str, names: Iterable[str]) -> bool:
    """Return whether a stored tensor is a copy of one of these in another layout."""
    head, _, roles = tensor.rpartition("_")
    return head in names and roles.isupper()


def _bytes_more(graph: Graph, kept: HalfTensors) -> int:
    elements = 0
    for name in kept.tensors:
        if name in graph.tensors:
            readers = len(graph.consumers[name])
            elements += math.prod(graph.tensors[name].shape) * (1 + readers)
    for name in kept.constants:
        elements += math.prod(graph.tensors[name].shape)
    return max(1, 2 * elements)  # two bytes more each


NODES = 100_000
"""Nodes that a search may plan in all: some ten minutes of one core."""
_NODES_A_RUN = 0.1
"""A run of a set of inputs launches what a plan writes the kernels of, which is less work."""


class Effort:
    """The work that one search has done, of what it may do."""

    def __init__(self, *, nodes: int, share: float = 1.0) -> None:
        """Reckon for a model of so many nodes with a `share` of the usual effort."""
        self._nodes = max(1, nodes)
        self._limit = share * NODES
        self._spent = 0.0
        self._left: dict[str, int] = {}
        self.plans, self.runs = 0, 0

    def plan(self) -> None:
        """Count one plan of the model."""
        self.plans += 1
        self._spent += self._nodes

    def run(self, samples: int = 1) -> None:
        """Count one run of each of some sets of inputs."""
        self.runs += samples
        self._spent += samples * self._nodes * _NODES_A_RUN

    def is_spent(self, share: float = 1.0) -> bool:
        """Return whether this share of it is done."""
        return self._spent >= share * self._limit

    def leave(self, what: str, count: int) -> None:
        """Note what a search did not look at for that reason; nothing if `count` is zero."""
        if count:
            self._left[what] = self._left.get(what, 0) + count

    @property
    def left(self) -> tuple[str, ...]:
        """Return what was left untried, in words for people."""
        return tuple(f"{count} {what}" for what, count in self._left.items())


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `--accuracy` asks for: a tolerance over the range of each output, on these inputs.
    `effort` is the work that the search may do, of the usual."""

    tolerance: float
    files: tuple[Path, ...] = ()
    seed: int = 0
    cl_device: str = ""
    effort: float = 1.0


def decisions_of(plan: AccuracyReport) -> tuple[Decision, ...]:
    """Return a Decision for each tensor that is kept, and one for the whole."""
    (found,) = plan.presets
    limit, remedy = f"--accuracy {plan.tolerance:g}", found.remedy
    why = f" ({found.accepted_as})" if found.accepted_as else ""
    error = f"{found.error:.1e}{why}, and nothing had to be searched for"
    if remedy is not None:
        error = f"{remedy.error_after:.1e}, {remedy.error_before:.1e} without; {remedy.trials} "
        error += f"trials and {remedy.runs} runs"
        error += f"; left untried: {', '.join(found.left)}" if found.left else ", all tried"
    whole = Decision(
        subject="accuracy",
        taken=f"{len(plan.float32_tensors)} tensors in float32 for {limit}",
        reason=f"the largest error over the range of an output is {error}; ideal rounding gives "
        f"{found.floor.error:.1e}; on {plan.device}, {plan.inputs}",
        stage="accuracy",
    )
    kept = f"kept for {limit}: it is among what a search by error and bytes needs"
    return (
        whole,
        *(
            Decision(subject=name, taken="float32", reason=kept, stage="accuracy")
            for name in plan.float32_tensors
        ),
    )


def place_of(model: Path, target: Target, options: CompileOptions, wanted: Wanted) -> Path:
    """Return where the plan lies in the cache: under all that it depends on. Raises DependencyError
    where what computes the reference is not installed."""
    files = find_model_files(model)
    key = cache_key(
        {
            "what": "accuracy",
            "model": files.sha256(),
            "target": host_twin(target).digest(),
            "options": options.digest(),
            "tolerance": repr(wanted.tolerance),
            "effort": repr(wanted.effort),
            "inputs": " ".join(sha256_file(path) for path in wanted.files) or str(wanted.seed),
            "device": wanted.cl_device,
            "reference": reference_version(files.format),
        }
    )
    return cache_folder() / "accuracy" / f"{key}.json"


def read_plan(place: Path) -> AccuracyReport | None:
    """Return the plan that was made before, if any; what cannot be read is looked for again."""
    try:
        if not is_trusted_file(place):
            return None
        data = read_json(read_plain(place))
        return AccuracyReport(**{**data, "presets": tuple(map(_read_preset, data["presets"]))})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read_preset(data: dict[str, Any]) -> PresetAccuracy:
    remedy = data["remedy"]
    if remedy is not None:
        cost: dict[str, Any] = {key: pair and tuple(pair) for key, pair in remedy["cost"].items()}
        names = tuple(remedy["float32_tensors"])
        remedy = Remedy(**{**remedy, "float32_tensors": names, "cost": PolicyCost(**cost)})
    known = {"floor": Floor(**data["floor"]), "remedy": remedy, "left": tuple(data["left"])}
    return PresetAccuracy(**{**data, **known, "layers": ()})


def write_plan(place: Path, plan: AccuracyReport, reporter: Reporter) -> None:
    """Keep a plan; trouble with the cache is a warning."""
    try:
        private_folder(place.parent.parent)
        private_folder(place.parent)
        write_atomically(place, json.dumps(asdict(plan)))
    except (OSError, AdrenocError) as error:
        reporter.warn(f"the cache was not written: {error}")


_RANKED_ON = 1
"""Sets of inputs that contributions are measured on; trials are judged by all."""


@dataclass(frozen=True, kw_only=True)
class PresetQuestion:
    """What is asked of each preset: the tolerance, and the share of the usual work for a remedy."""

    tolerance: float
    effort: float = 1.0


def judge_preset(
    bench: AccuracyBench, judge: Judge, preset: str, asked: PresetQuestion, reporter: Reporter
) -> tuple[PresetAccuracy, Sequence[Arrays]]:
    """Judge a preset as a whole, and find its remedy if it needs one; with its outputs."""
    whole = bench.whole(preset)
    outputs = judge.run_compiled(whole)
    ours = judge.judge_outputs(outputs)
    started = time.perf_counter()
    floor = judge.measure_floor(ours, bench.find_halves(preset))
    reporter.stage(f"{preset} floor", ms_since(started), f"error {floor.error:.1e}")
    passed = ours.counted <= asked.tolerance
    remedy = None
    effort = Effort(nodes=len(bench.fuse(preset).nodes), share=asked.effort)
    if not passed and floor.float32_counted <= asked.tolerance:
        search = _Search(bench, judge, preset, effort, reporter)
        remedy = search.find(asked.tolerance, ours.counted)
    found = PresetAccuracy(
        preset=preset,
        error=ours.largest,
        accepted_as=ours.accepted_as if passed else "",
        floor=floor,
        passed=passed,
        remedy=remedy,
        left=effort.left,
        scales=judge.tell_range(whole),
    )
    return found, outputs


class _Search:
    """Tries plans of one preset on the device."""

    def __init__(
        self, bench: AccuracyBench, judge: Judge, preset: str, effort: Effort, reporter: Reporter
    ) -> None:
        self._bench, self._judge, self._preset = bench, judge, preset
        self._effort, self._reporter = effort, reporter

    def find(self, tolerance: float, error: float) -> Remedy | None:
        bench, started = self._bench, time.perf_counter()
        units = find_units(bench.fuse(self._preset), bench.find_halves(self._preset))
        ranked = rank_units(units, self._measure, self._effort)
        note = f"{len(ranked)} in {self._effort.runs} runs"
        self._reporter.stage(f"{self._preset} contributions", ms_since(started), note)
        pins = {unit.tensors[0]: unit.tensors for unit in ranked}
        errors: list[tuple[frozenset[str], float]] = []

        def passes(chosen: frozenset[str]) -> bool:
            if errors and self._effort.is_spent():
                raise OutOfEffortError
            tensors = [name for unit in chosen for name in pins[unit]]
            errors.append((chosen, self._try(tensors, len(errors) + 1)))
            return errors[-1][1] <= tolerance

        found = smallest_passing(tuple(pins), passes)
        if found is None:
            return None
        if not found.is_minimal:
            self._effort.leave("tensors to leave out", len(found.chosen))
        tensors = [name for unit in found.chosen for name in pins[unit]]
        return Remedy(
            float32_tensors=tuple(dict.fromkeys(bench.name_of(name) for name in tensors)),
            error_before=error,
            error_after=dict(errors)[frozenset(found.chosen)],
            is_minimal=found.is_minimal,
            trials=len(errors),
            runs=self._effort.runs,
            cost=_compare(bench.plan(self._preset), bench.plan(self._preset, tensors)),
        )

    def _measure(self, stored: HalfTensors) -> float:
        self._effort.run(_RANKED_ON)
        return self._judge.judge_rounding(stored, _RANKED_ON).rms ** 2

    def _try(self, tensors: Iterable[str], number: int) -> float:
        """Return the error of the compiled kernels with these in float32."""
        started, names = time.perf_counter(), tuple(tensors)
        self._effort.plan()
        self._effort.run(self._judge.samples)
        error = self._judge.judge_compiled(self._bench.whole(self._preset, names)).counted
        note = f"{len(names)} tensors in float32: error {error:.1e}"
        self._reporter.stage(f"{self._preset} trial {number}", ms_since(started), note)
        return error


def _compare(before: VariantFigures, after: VariantFigures) -> PolicyCost:
    times = before.time_us, after.time_us
    return PolicyCost(
        memory_bytes=(before.memory_bytes, after.memory_bytes),
        moved_bytes=(before.moved_bytes, after.moved_bytes),
        time_us=None if times[0] is None or times[1] is None else (times[0], times[1]),
    )


def meet_accuracy(
    model: Path, *, target: Target, options: CompileOptions, wanted: Wanted, reporter: Reporter
) -> AccuracyReport:
    """Find the tensors that these options have to keep in float32. Raises DependencyError where
    there is no reference or no OpenCL device here; AccuracyError where the tolerance cannot be met;
    it says what can."""
    number, device = _device(wanted)
    bench = AccuracyBench(
        model,
        target=host_twin(target),
        shapes=options.shapes,
        device=tvm.runtime.device("opencl", number),
        reporter=reporter,
        chosen=options,
        entry=Entry(fixed=options.fixed, signature=options.signature),
    )
    samples, said = take_samples(
        bench, model, files=wanted.files, seed=wanted.seed, reporter=reporter
    )
    judge = Judge(bench, samples, tolerance=wanted.tolerance)
    asked = PresetQuestion(tolerance=wanted.tolerance, effort=wanted.effort)
    found, _ = judge_preset(bench, judge, options.preset, asked, reporter)
    if not found.holds(wanted.tolerance):
        raise _unreachable(model, wanted, found)
    return AccuracyReport(
        model=model.name,
        model_sha256=find_model_files(model).sha256(),
        target=target.name,
        device=str(device["name"]),
        samples=len(samples),
        tolerance=wanted.tolerance,
        presets=(found,),
        inputs=said,
    )


def _unreachable(model: Path, wanted: Wanted, found: PresetAccuracy) -> AccuracyError:
    error, name = found.error_in_float32, quote_word(model)
    layers = f"adrenoc run BUNDLE --check-layers {name} names the first layer that is off"
    if error <= wanted.tolerance:
        best, hint = "is off by more", f"adrenoc compile {name} --preset fp32"
    elif math.isfinite(error):
        best = f"is off by {error:.1e}"
        hint = f"adrenoc compile {name} --accuracy {_rounded_up(error)}, or {layers}"
    else:
        best, hint = "is not finite", layers
    return AccuracyError(
        f"{model} cannot be brought within {wanted.tolerance:g} of the range of each output in "
        f"{found.preset}: the best, float32 throughout, {best} on the inputs given",
        hint=hint,
    )


def _rounded_up(error: float) -> str:
    exponent = math.floor(math.log10(error))
    return f"{math.ceil(error / 10**exponent)}e{exponent:03d}"


def _device(wanted: Wanted) -> tuple[int, dict[str, Any]]:
    try:
        return pick_device(wanted.cl_device)
    except DeviceError as error:
        raise DependencyError(
            f"--accuracy runs the kernels on this computer: {error.message}",
            hint=error.hint or pip_install("opencl"),
        ) from error
