"""Tell what a preset does to each layer of a model, and why.

A layer's own error is told from what it inherits by cutting the network: each layer is run alone
on its true inputs, rounded as they are stored.  Of a decoder's layers float32 kernels tell what the
error is of, three times: with nothing rounded but the constants that the plan stores in half,
nothing but what lies between kernels, and nothing but the caches.
"""

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.check.accuracy.bench import AccuracyBench, input_of_cut
from adrenoc.check.accuracy.causes import (
    HALF_ROUNDING,
    Observed,
    causes_of,
    largest_of,
    number_layers,
)
from adrenoc.check.accuracy.judge_preset import PresetQuestion, judge_preset
from adrenoc.check.accuracy.passage import score_tokens
from adrenoc.check.accuracy.program_run import ProgramRun, round_to, round_within
from adrenoc.check.accuracy.result import (
    Arrays,
    Cause,
    LayerAccuracy,
    OwnParts,
    PresetAccuracy,
    TokenScore,
    range_error,
)
from adrenoc.check.accuracy.samples import Judge, Sample
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind

_NOTABLE = 4 * HALF_ROUNDING
"""A layer alone may be off by a few roundings of half without being remarkable."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """The sets of inputs, of which those with a truth are looked at layer by layer.

    `first_other` is the first layer whose float32 kernels are far from the reference, by the
    model's own name, empty where none is.  `tokens` are those of a passage, of which each is a
    sample, in order; none of other models, of which `said` tells what the sets hold.
    """

    samples: Sequence[Sample]
    first_other: str
    tokens: tuple[int, ...] = ()
    said: str = ""


class Doctor:
    """Examines one model in one preset after the other."""

    def __init__(
        self, bench: AccuracyBench, examined: Examined, asked: PresetQuestion, reporter: Reporter
    ) -> None:
        self._bench, self._examined, self._asked = bench, examined, asked
        self._samples = [sample for sample in examined.samples if sample.truth]
        self._reporter = reporter
        self._local: dict[str, dict[str, float]] = {}
        self._judge = Judge(bench, examined.samples, tolerance=asked.tolerance)

    def examine(self, preset: str) -> PresetAccuracy:
        """Judge the preset with its remedy, and tell of its layers and the causes."""
        layers = self._layers(preset)
        found, outputs = judge_preset(self._bench, self._judge, preset, self._asked, self._reporter)
        return replace(
            found,
            layers=tuple(layers.values()),
            starts_at=self._start(layers, found),
            score=self._score(outputs),
        )

    def _score(self, outputs: Sequence[Arrays]) -> TokenScore | None:
        """Return how well the logits of a passage predict it; None of other models."""
        tokens = self._examined.tokens
        if not tokens:
            return None
        ((name, _),) = self._examined.samples[0].expected.items()
        wanted = [sample.expected[name].reshape(-1) for sample in self._examined.samples]
        made = [found[name].reshape(-1) for found in outputs]
        return score_tokens(tokens, np.stack(made), np.stack(wanted))

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
            f"{preset} layers", ms_since(started), f"{len(layers)}, {count} with causes"
        )
        return layers

    def _find_causes(self, seen: Observed) -> tuple[Cause, ...]:
        """By the first set of inputs whose numbers show one; what is large for one token may be
        small for another."""
        found = [causes_of(replace(seen, truth=sample.truth)) for sample in self._samples]
        return next((causes for causes in found if causes[0].name != "rounding"), found[0])

    def _stands_out(self, name: str, local_error: float) -> bool:
        """Return whether a layer is off by more than a rounding that fell otherwise makes."""
        quantum = max(self._bench.find_quantum(name, s.truth[name]) for s in self._samples)
        return local_error > max(_NOTABLE, self._asked.tolerance / 4, quantum)

    def _products(self, nodes: Sequence[Node]) -> dict[str, float]:
        """Tensor -> the largest sum of its layer's products by size, for sums of products. Weights
        of few bits have no sizes that a kernel could read."""
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
            made = variant.run(_feeds(sample, {*sample.truth} - exact, stored))
            for name, value in zip(names, made, strict=True):
                kept = value if name in exact else round_to(value, stored)
                worst[name] = max(worst[name], range_error(kept, sample.truth[name]))
        self._local[preset] = worst
        return worst

    def _start(self, layers: Mapping[str, LayerAccuracy], found: PresetAccuracy) -> str:
        """Return the first layer that is off in float32 already; else the first that stands out;
        else, of a network that fails, the worst one."""
        if found.error_in_float32 > self._asked.tolerance and self._examined.first_other:
            return self._examined.first_other
        suspects = [layer for layer in layers.values() if layer.causes]
        if suspects:
            return suspects[0].name
        if found.passed or not layers:
            return ""
        return max(layers.values(), key=lambda layer: layer.local_error).name


def find_own_parts(
    bench: AccuracyBench, preset: str, samples: Sequence[Sample]
) -> dict[str, OwnParts]:
    """Return the parts of each layer by its tensor; nothing of a model without caches."""
    if not bench.graph.states:
        return {}
    stored = bench.find_halves(preset)
    graph = bench.fuse("fp32")
    rounded = {
        name: round_to(np.asarray(graph.tensors[name].value), "float16")
        for name in stored.constants
        if name in graph.tensors and graph.tensors[name].dtype == "float32"
    }
    exact, dtype = {*bench.exact(preset), *bench.graph.outputs}, bench.precision(preset)[0]
    caches = {*bench.graph.states, *bench.graph.states.values()} - bench.exact(preset)
    plain, names = bench.cut("fp32")
    weighed, _ = bench.cut("fp32", rounded)
    between = {n for n in names if n not in exact and n not in caches}
    weights = _worst_errors(weighed, names, samples, frozenset(), dtype)
    activations = _worst_errors(plain, names, samples, between, dtype)
    kept = _worst_errors(plain, names, samples, caches, dtype)
    return {
        name: OwnParts(weights=weights[name], activations=activations[name], cache=kept[name])
        for name in names
    }


def _worst_errors(
    variant: ProgramRun,
    names: Sequence[str],
    samples: Sequence[Sample],
    rounded: Set[str],
    dtype: str,
) -> dict[str, float]:
    """Tensor -> the largest error of its layer where these tensors are rounded, in and out."""
    worst = dict.fromkeys(names, 0.0)
    for sample in samples:
        feeds = _feeds(sample, rounded, dtype)
        for name, value in zip(names, variant.run(feeds), strict=True):
            made = round_within(value, dtype) if name in rounded else value
            worst[name] = max(worst[name], range_error(made, sample.truth[name]))
    return worst


def _feeds(sample: Sample, rounded: Set[str], dtype: str) -> Arrays:
    def stored(name: str, value: np.ndarray) -> np.ndarray:
        is_rounded = name in rounded and value.dtype.kind == "f"
        return round_within(value, dtype) if is_rounded else value

    given = {input_of_cut(n): stored(n, v) for n, v in sample.truth.items()}
    pasts = {n: stored(n, v) for n, v in sample.pasts.items()}
    return {**sample.inputs, **given, **pasts}
