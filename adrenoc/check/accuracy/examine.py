"""Compare each layer in half with the truth, name causes, and find what must stay in float32.

A layer's own error is told from what it inherits by cutting the network: each layer is run alone
on its true inputs, rounded as they are stored.  The truth is the reference's value where the model
names the tensor, else what float32 kernels give.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm

from adrenoc.check.accuracy.bench import Bench, input_of_cut
from adrenoc.check.accuracy.causes import HALF_ROUNDING, Observed, causes_of, largest_of
from adrenoc.check.accuracy.deviation import Arrays, Deviation, range_error
from adrenoc.check.accuracy.effort import Effort
from adrenoc.check.accuracy.floor import floor_of
from adrenoc.check.accuracy.ideal import NOTHING
from adrenoc.check.accuracy.policies import Policies
from adrenoc.check.accuracy.result import (
    AccuracyReport,
    Cost,
    Floor,
    LayerAccuracy,
    PresetAccuracy,
    Remedy,
)
from adrenoc.check.accuracy.samples import DRAWS, Judge, Sample, take_samples
from adrenoc.check.accuracy.search import OutOfEffortError, smallest_passing
from adrenoc.check.reference import run_reference
from adrenoc.device.opencl import pick_device
from adrenoc.families.operators import is_kind
from adrenoc.families.shared.operator import Kind
from adrenoc.importers.formats import find_model_files
from adrenoc.ir.graph import Node
from adrenoc.ir.half import HALF_MAX
from adrenoc.reporter import Reporter
from adrenoc.target.target import Target

_NOTABLE = 4 * HALF_ROUNDING
"""A layer alone may be off by a few roundings of half without being remarkable."""

_SAME = 1e-2
"""Beyond it the float32 kernels and the reference do not speak of the same tensor."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def check_accuracy(
    model: Path,
    *,
    target: Target,
    presets: Sequence[str],
    files: Sequence[Path] = (),
    shapes: Shapes = (),
    seed: int = 0,
    tolerance: float,
    cl_device: str = "",
    effort: float = 1.0,
    point: int | None = None,
    reporter: Reporter,
) -> AccuracyReport:
    """Examine a model on an OpenCL device of this computer.

    `files` are sets of inputs (.npz, or .npy for the only input), random ones if there are none;
    `tolerance` bounds the error over the range of each output; the search for a remedy does
    `effort` of the usual work (`Effort`), for each preset.  `point` takes the policy of that
    number in the list in place of what meets the tolerance.

    Raises:
        AdrenocError: the model does not compile, an input does not fit, no device, ...
    """
    model_files = find_model_files(model)  # before a device is got ready, which may take minutes
    number, facts = pick_device(cl_device)
    device = tvm.runtime.device("opencl", number)
    bench = Bench(model, target=target, shapes=shapes, device=device, reporter=reporter)
    drawn = take_samples(bench, model, files=files, seed=seed, draws=DRAWS, reporter=reporter)
    samples = drawn if files else drawn[:1]  # layers are looked at one by one, which takes long
    in_float32 = _truth(bench, samples, model, reporter)
    doctor = _Doctor(bench, samples, drawn, tolerance, effort, in_float32, point, reporter)
    return AccuracyReport(
        model=model.name,
        model_sha256=model_files.sha256(),
        target=target.name,
        device=str(facts["name"]),
        samples=len(drawn),
        tolerance=tolerance,
        presets=tuple(doctor.examine(preset) for preset in presets),
    )


def _truth(bench: Bench, samples: list[Sample], model: Path, reporter: Reporter) -> float:
    """Fill in each sample's truth; returns the error of the outputs in float32."""
    started = time.perf_counter()
    variant, names = bench.expose_layers("fp32")
    layers = {node.output for node in bench.layers}
    shared = [bench.name_of(n) for n in names if n in layers and n in bench.tensors]
    errors = []
    for sample in samples:
        seen = dict(zip(names, variant.run(sample.inputs), strict=True))
        errors.append(_worst(seen, sample.expected))
        reference = run_reference(model, sample.named, tensors=dict.fromkeys(shared))
        for name, value in seen.items():
            stated = reference.get(bench.name_of(name))
            if stated is not None and stated.shape == value.shape:
                if range_error(value, stated) <= _SAME:
                    seen[name] = stated
                else:
                    reporter.warn(
                        f"{bench.name_of(name)}: the float32 kernels differ from the reference; "
                        "its layer is compared with float32"
                    )
        sample.truth = {**seen, **sample.inputs}
    reporter.stage("float32", _ms_since(started), f"error {max(errors):.1e}")
    return max(errors)


class _Doctor:
    def __init__(
        self,
        bench: Bench,
        samples: list[Sample],
        drawn: list[Sample],
        tolerance: float,
        effort: float,
        in_float32: float,
        point: int | None,
        reporter: Reporter,
    ) -> None:
        self._bench, self._samples, self._tolerance = bench, samples, tolerance
        self._share, self._in_float32, self._reporter = effort, in_float32, reporter
        self._point = point
        self._local: dict[str, dict[str, float]] = {}
        self._judge = Judge(bench, drawn)

    def examine(self, preset: str) -> PresetAccuracy:
        """Layers, causes, and the remedy where one is needed."""
        layers = self._layers(preset)
        whole = self._bench.whole(preset)
        ours = self._judge.judge_compiled(whole)
        error, floor = ours.largest, self._floor(preset, ours)
        passed = error <= self._tolerance
        remedy, policies = None, None
        effort = Effort(nodes=len(self._bench.fuse(preset).nodes), share=self._share)
        if not passed and self._in_float32 <= self._tolerance:
            policies = Policies(
                self._bench, self._judge, preset, effort=effort, reporter=self._reporter
            )
            if self._point is not None or not any(layer.causes for layer in layers.values()):
                remedy = self._remedy_by_parts(preset, policies, error)
            else:
                remedy = self._remedy(preset, layers, error, effort)
        return PresetAccuracy(
            preset=preset,
            error=error,
            floor=floor,
            passed=passed,
            starts_at=self._start(layers, passed),
            layers=tuple(layers.values()),
            remedy=remedy,
            error_in_float32=self._in_float32,
            contributions=() if policies is None else policies.contributions(),
            points=() if policies is None else policies.list_points(),
            left=effort.left,
        )

    def _floor(self, preset: str, ours: Deviation) -> Floor:
        """What ideal rounding of all that the plan stores in half gives on the same inputs."""
        started = time.perf_counter()
        stored = self._bench.find_halves(preset)
        ideal = self._judge.judge_rounding(stored)
        floor = floor_of(ours, ideal, self._judge.judge_rounding(NOTHING), stored.count)
        self._reporter.stage(f"{preset} floor", _ms_since(started), f"error {floor.error:.1e}")
        return floor

    # Layers

    def _layers(self, preset: str) -> dict[str, LayerAccuracy]:
        started = time.perf_counter()
        bench, local = self._bench, self._local_errors(preset)
        half = bench.precision(preset)[1] == "float16"
        in_float = self._local_errors("mixed") if half else None
        variant, names = bench.expose_layers(preset)
        total: dict[str, float] = dict.fromkeys(names, 0.0)
        for sample in self._samples:
            for name, value in zip(names, variant.run(sample.inputs), strict=True):
                total[name] = max(total[name], range_error(value, sample.truth[name]))
        products = self._products([n for n in bench.layers if self._stands_out(local[n.output])])
        layers = {}
        for node in bench.layers:
            name = node.output
            layer = LayerAccuracy(
                name=bench.name_of(name),
                operators=node.operators,
                shape=bench.graph.tensors[name].shape,
                largest=max(largest_of(s.truth[name]) for s in self._samples),
                local_error=local[name],
                total_error=total[name],
            )
            if self._stands_out(layer.local_error):
                seen = Observed(
                    graph=bench.graph,
                    node=node,
                    truth=self._samples[0].truth,
                    local_error=local[name],
                    products=products.get(name),
                    float_error=None if in_float is None else in_float[name],
                    name_of=bench.name_of,
                )
                layer = replace(layer, causes=causes_of(seen))
            layers[name] = layer
        count = sum(bool(layer.causes) for layer in layers.values())
        self._reporter.stage(
            f"{preset} layers", _ms_since(started), f"{len(layers)}, {count} with causes"
        )
        return layers

    def _stands_out(self, local_error: float) -> bool:
        return local_error > max(_NOTABLE, self._tolerance / 4)

    def _products(self, nodes: Sequence[Node]) -> dict[str, float]:
        """Tensor -> the largest sum of its layer's products by size, for sums of products."""
        summing = [n for n in nodes if is_kind(n, Kind.CONVOLUTION, Kind.PRODUCT)]
        if not summing:
            return {}
        variant, names = self._bench.magnitudes(summing)
        truth = self._samples[0].truth
        sizes = {input_of_cut(n): np.abs(v) for n, v in truth.items() if v.dtype.kind == "f"}
        return {n: largest_of(v) for n, v in zip(names, variant.run(sizes), strict=True)}

    def _local_errors(self, preset: str) -> dict[str, float]:
        """Tensor -> the error of its layer alone, the worst of all samples."""
        if preset in self._local:
            return self._local[preset]
        bench = self._bench
        stored, _ = bench.precision(preset)
        exact = {*bench.exact(preset), *bench.graph.outputs}
        variant, names = bench.cut(preset)
        worst = dict.fromkeys(names, 0.0)
        for sample in self._samples:
            rounded = {
                input_of_cut(n): _round_within(v, stored)
                if v.dtype.kind == "f" and n not in exact
                else v
                for n, v in sample.truth.items()
            }
            made = variant.run({**sample.inputs, **rounded})
            for name, value in zip(names, made, strict=True):
                kept = value if name in exact else _round_to(value, stored)
                worst[name] = max(worst[name], range_error(kept, sample.truth[name]))
        self._local[preset] = worst
        return worst

    def _start(self, layers: Mapping[str, LayerAccuracy], passed: bool) -> str:
        """The first layer that stands out; else, of a network that fails, the worst one."""
        suspects = [layer for layer in layers.values() if layer.causes]
        if suspects:
            return suspects[0].name
        if passed or not layers:
            return ""
        return max(layers.values(), key=lambda layer: layer.local_error).name

    # The remedy

    def _remedy(
        self, preset: str, layers: Mapping[str, LayerAccuracy], error: float, effort: Effort
    ) -> Remedy | None:
        errors: dict[frozenset[str], float] = {}

        def passes(pins: frozenset[str]) -> bool:
            if errors and effort.is_spent():
                raise OutOfEffortError
            effort.plan()
            effort.run(self._judge.samples)
            started = time.perf_counter()
            errors[pins] = self._judge.judge_compiled(self._bench.whole(preset, pins)).largest
            note = f"{len(pins)} tensors in float32: error {errors[pins]:.1e}"
            self._reporter.stage(f"{preset} trial {len(errors)}", _ms_since(started), note)
            return errors[pins] <= self._tolerance

        found = smallest_passing(self._suspects(layers), passes)
        if found is None:
            return None
        chosen = frozenset(found.chosen)
        return Remedy(
            float32_tensors=tuple(self._bench.name_of(name) for name in found.chosen),
            error_before=error,
            error_after=errors[chosen],
            is_minimal=found.is_minimal,
            trials=len(errors),
            cost=self._cost(preset, chosen),
        )

    def _remedy_by_parts(self, preset: str, policies: Policies, error: float) -> Remedy | None:
        """Where no layer stands out: what a search by error and cost finds, or the point asked for.

        Raises:
            OptionError: there is no point of that number.
        """
        if self._point is None:
            chosen, _ = policies.meeting(self._tolerance)
        else:
            chosen = policies.try_candidate(policies.find_point(self._point))
        if chosen is None or chosen.device_error is None:
            return None
        return Remedy(
            float32_tensors=chosen.float32_tensors,
            error_before=error,
            error_after=chosen.device_error,
            is_minimal=False,
            trials=policies.trials,
            cost=self._cost(preset, chosen.graph_tensors),
            by_parts=True,
        )

    def _suspects(self, layers: Mapping[str, LayerAccuracy]) -> list[str]:
        """Tensors that can be pinned, the most suspect first."""
        bench = self._bench
        score = {name: layer.local_error for name, layer in layers.items()}
        for name in bench.graph.inputs:
            if bench.graph.tensors[name].is_float:
                score.setdefault(name, 0.0)
        for layer in layers.values():
            for cause in layer.causes:
                for name in cause.operands:
                    if name in score:  # the layer is right to complain: its operand goes first
                        score[name] = max(score[name], 1.01 * layer.local_error)
        order = {name: position for position, name in enumerate(score)}
        return sorted(score, key=lambda name: (-score[name], order[name]))

    def _cost(self, preset: str, pins: Iterable[str]) -> Cost:
        bench, inputs = self._bench, self._samples[0].inputs
        before, after = bench.build_timed(preset), bench.build_timed(preset, pins)
        floors = before.plan.floor_us, after.plan.floor_us
        return Cost(
            memory_bytes=(before.plan.memory_bytes, after.plan.memory_bytes),
            moved_bytes=(before.plan.moved_bytes, after.plan.moved_bytes),
            floor_us=(floors[0], floors[1])
            if floors[0] is not None and floors[1] is not None
            else None,
            measured_ms=(before.median_ms(inputs), after.median_ms(inputs)),
        )


def _worst(seen: Arrays, expected: Arrays) -> float:
    return max((range_error(seen[name], value) for name, value in expected.items()), default=0.0)


def _round_to(value: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return value.astype(dtype).astype(value.dtype)


def _round_within(value: np.ndarray, dtype: str) -> np.ndarray:
    """As stored, but within the range: overflow is the fault of who made it."""
    if dtype == "float16":
        value = np.clip(value, -HALF_MAX, HALF_MAX)
    return _round_to(value, dtype)


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
