"""What a preset does to each layer of a model, why, and what has to stay in float32.

A layer's own error is told from what it inherits by cutting the network: each layer is run alone
on its true inputs, rounded as they are stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.reporter import Reporter
from adrenoc.check.accuracy.bench import Bench, input_of_cut
from adrenoc.check.accuracy.causes import HALF_ROUNDING, Observed, causes_of, largest_of
from adrenoc.check.accuracy.decoder_layers import number_layers
from adrenoc.check.accuracy.deviation import Arrays, Deviation, range_error
from adrenoc.check.accuracy.effort import Effort
from adrenoc.check.accuracy.own_parts import find_own_parts
from adrenoc.check.accuracy.policies import Policies
from adrenoc.check.accuracy.result import (
    Cause,
    Cost,
    Floor,
    LayerAccuracy,
    PresetAccuracy,
    Remedy,
    TokenScore,
)
from adrenoc.check.accuracy.samples import Judge, Sample
from adrenoc.check.accuracy.search import OutOfEffortError, smallest_passing
from adrenoc.check.accuracy.stored_rounding import round_to, round_within
from adrenoc.check.accuracy.token_score import score_tokens
from adrenoc.check.accuracy.truth import Truth
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind

_NOTABLE = 4 * HALF_ROUNDING
"""A layer alone may be off by a few roundings of half without being remarkable."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """The sets of inputs, of which those with a truth are looked at layer by layer.

    `tokens` are those of a passage, of which each is a sample, in order; none of other models, of
    which `said` tells what the sets hold.
    """

    samples: Sequence[Sample]
    truth: Truth
    tokens: tuple[int, ...] = ()
    said: str = ""


class Doctor:
    """Examines one model in one preset after the other."""

    def __init__(
        self,
        bench: Bench,
        examined: Examined,
        *,
        tolerance: float,
        effort: float,
        point: int | None,
        reporter: Reporter,
    ) -> None:
        self._bench, self._examined, self._tolerance = bench, examined, tolerance
        self._samples = [sample for sample in examined.samples if sample.truth]
        self._share, self._reporter, self._point = effort, reporter, point
        self._in_float32 = examined.truth.error
        self._local: dict[str, dict[str, float]] = {}
        self._judge = Judge(bench, examined.samples, tolerance=tolerance)

    def examine(self, preset: str) -> PresetAccuracy:
        """Layers, causes, and the remedy where one is needed."""
        layers = self._layers(preset)
        outputs = self._judge.run_compiled(self._bench.whole(preset))
        ours = self._judge.judge_outputs(outputs)
        error, floor = ours.counted, self._floor(preset, ours)
        passed = error <= self._tolerance
        # The truth of layers is kept of few inputs; the floor is of all.
        in_float32 = max(self._in_float32, floor.float32_counted)
        remedy, policies = None, None
        effort = Effort(nodes=len(self._bench.fuse(preset).nodes), share=self._share)
        if not passed and in_float32 <= self._tolerance:
            policies = Policies(
                self._bench, self._judge, preset, effort=effort, reporter=self._reporter
            )
            if self._point is not None or not any(layer.causes for layer in layers.values()):
                remedy = self._remedy_by_parts(preset, policies, error)
            else:
                remedy = self._remedy(preset, layers, error, effort)
        return PresetAccuracy(
            preset=preset,
            error=ours.largest,
            accepted_as=ours.accepted_as if passed else "",
            floor=floor,
            passed=passed,
            starts_at=self._start(layers, passed),
            layers=tuple(layers.values()),
            remedy=remedy,
            error_in_float32=in_float32,
            contributions=() if policies is None else policies.contributions(),
            points=() if policies is None else policies.list_points(),
            left=effort.left,
            score=self._score(outputs),
        )

    def _score(self, outputs: Sequence[Arrays]) -> TokenScore | None:
        """How well the logits of a passage predict it; None of other models."""
        tokens = self._examined.tokens
        if not tokens:
            return None
        ((name, _),) = self._examined.samples[0].expected.items()
        wanted = [sample.expected[name].reshape(-1) for sample in self._examined.samples]
        made = [found[name].reshape(-1) for found in outputs]
        return score_tokens(tokens, np.stack(made), np.stack(wanted))

    def _floor(self, preset: str, ours: Deviation) -> Floor:
        """What ideal rounding of all that the plan stores in half gives on the same inputs."""
        started = time.perf_counter()
        floor = self._judge.measure_floor(ours, self._bench.find_halves(preset))
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
        # The caches of a decoder go from token to token, so that none can be left out.
        for sample in self._examined.samples if self._examined.tokens else self._samples:
            values = variant.run(sample.inputs)
            for name, value in zip(names, values, strict=True) if sample.truth else ():
                total[name] = max(total[name], range_error(value, sample.truth[name]))
        outstanding = {name for name, error in local.items() if self._stands_out(name, error)}
        products = self._products([n for n in bench.layers if n.output in outstanding])
        parts = find_own_parts(bench, preset, self._samples)
        places = number_layers(bench.layers, bench.name_of) if parts else {}
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
                parts=parts.get(name),
                part_of=places.get(name, ""),
            )
            if name in outstanding:
                seen = Observed(
                    graph=bench.graph,
                    node=node,
                    truth=self._samples[0].truth,
                    local_error=local[name],
                    products=products.get(name),
                    float_error=None if in_float is None else in_float[name],
                    name_of=bench.name_of,
                )
                layer = replace(layer, causes=self._find_causes(seen))
            layers[name] = layer
        count = sum(bool(layer.causes) for layer in layers.values())
        self._reporter.stage(
            f"{preset} layers", _ms_since(started), f"{len(layers)}, {count} with causes"
        )
        return layers

    def _find_causes(self, seen: Observed) -> tuple[Cause, ...]:
        """By the first set of inputs whose numbers show one; what is large for one token may be
        small for another."""
        found = [causes_of(replace(seen, truth=sample.truth)) for sample in self._samples]
        return next((causes for causes in found if causes[0].name != "rounding"), found[0])

    def _stands_out(self, name: str, local_error: float) -> bool:
        """Whether a layer is off by more than a rounding that fell otherwise makes."""
        quantum = max(self._bench.find_quantum(name, s.truth[name]) for s in self._samples)
        return local_error > max(_NOTABLE, self._tolerance / 4, quantum)

    def _products(self, nodes: Sequence[Node]) -> dict[str, float]:
        """Tensor -> the largest sum of its layer's products by size, for sums of products.

        Weights of few bits have no sizes that a kernel could read.
        """
        tensors = self._bench.graph.tensors
        summing = [
            n
            for n in nodes
            if is_kind(n, Kind.CONVOLUTION, Kind.PRODUCT)
            if all(tensors[name].is_float for name in n.inputs[:2])
        ]
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
                input_of_cut(n): round_within(v, stored)
                if v.dtype.kind == "f" and n not in exact
                else v
                for n, v in sample.truth.items()
            }
            made = variant.run({**sample.inputs, **sample.pasts, **rounded})
            for name, value in zip(names, made, strict=True):
                kept = value if name in exact else round_to(value, stored)
                worst[name] = max(worst[name], range_error(kept, sample.truth[name]))
        self._local[preset] = worst
        return worst

    def _start(self, layers: Mapping[str, LayerAccuracy], passed: bool) -> str:
        """The first layer that is off in float32 already; else the first that stands out; else, of
        a network that fails, the worst one."""
        if self._in_float32 > self._tolerance and self._examined.truth.first_other:
            return self._examined.truth.first_other
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
            errors[pins] = self._judge.judge_compiled(self._bench.whole(preset, pins)).counted
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


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
