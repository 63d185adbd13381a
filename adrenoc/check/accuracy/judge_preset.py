"""Tell whether a preset holds a tolerance, and what has to be in float32 where it does not.

`check-accuracy` and `compile --accuracy` both ask this: the kernels of the bundle run on the host's
twin of the target beside the reference, onnxruntime or LiteRT; rounding alone is the floor; one
search finds the remedy.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from adrenoc.check.accuracy.bench import AccuracyBench, VariantFigures
from adrenoc.check.accuracy.program_run import HalfTensors
from adrenoc.check.accuracy.result import (
    AccuracyReport,
    Arrays,
    Floor,
    PolicyCost,
    PresetAccuracy,
    Remedy,
)
from adrenoc.check.accuracy.samples import Judge, take_samples
from adrenoc.check.accuracy.search import (
    Effort,
    OutOfEffortError,
    find_units,
    rank_units,
    smallest_passing,
)
from adrenoc.check.runtimes import reference_version
from adrenoc.compile.cache import cache_key
from adrenoc.device.opencl import pick_device
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.signature import Entry
from adrenoc.ir.options import CompileOptions
from adrenoc.target.target import Target, host_twin


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
        """Find the remedy; None where not even all tensors in float32 hold the tolerance."""
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
    """Find the tensors that these options have to keep in float32.

    Raises DependencyError where there is no reference or no OpenCL device here; AccuracyError where
    the tolerance cannot be met; it says what can.
    """
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
