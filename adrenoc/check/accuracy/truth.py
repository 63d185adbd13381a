"""What each layer should make: the reference's value where the model names the tensor, else what
float32 kernels give."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from adrenoc.base.errors import ToolError
from adrenoc.base.reporter import Reporter
from adrenoc.check.accuracy.bench import Bench
from adrenoc.check.accuracy.deviation import Arrays, range_error
from adrenoc.check.accuracy.passage import find_value
from adrenoc.check.accuracy.samples import Sample
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import tensor_names

_SAME = 1e-2
"""Beyond it the float32 kernels and the reference do not speak of the same tensor."""


def fill_truth(bench: Bench, samples: list[Sample], model: Path, reporter: Reporter) -> str:
    """Fill in each sample's truth; the first layer whose float32 kernels are far from the
    reference, by the model's own name, empty where none is."""
    started = time.perf_counter()
    variant, names = bench.expose_layers("fp32")
    layers = {node.output for node in bench.layers}
    # The file has no tensor of what a rewrite made, and named after it.
    shared = tensor_names(model).intersection(
        bench.name_of(n) for n in names if n in layers and n in bench.tensors
    )
    others = _Others(bench, reporter)
    for sample in samples:
        seen = dict(zip(names, variant.run(sample.inputs), strict=True))
        reference = _run_plain(model, sample.named, sorted(shared), reporter)
        others.take({n: reference.get(bench.name_of(n)) for n in seen}, seen)
        sample.truth = {**seen, **sample.inputs}
    took_ms = (time.perf_counter() - started) * 1000
    reporter.stage("float32", took_ms, f"{len(names)} tensors")
    return others.first


def _run_plain(
    model: Path, inputs: Mapping[str, np.ndarray], tensors: list[str], reporter: Reporter
) -> dict[str, np.ndarray]:
    """The reference's tensors; none where its kernels that tell them lack an operator."""
    try:
        return run_reference(model, inputs, tensors=tensors)
    except ToolError as error:
        reporter.warn(f"layers are compared with float32 kernels: {error.message}")
        return {}


def fill_token_truth(
    bench: Bench,
    samples: Sequence[Sample],
    looked: Sequence[int],
    reference: Sequence[Arrays],
    reporter: Reporter,
) -> str:
    """The same for the tokens of a passage, each a sample, by what the reference made of each.

    The truth of the samples number `looked` is kept; caches go from one to the next.
    """
    started = time.perf_counter()
    variant, names = bench.expose_layers("fp32")
    states = bench.graph.states
    pasts: dict[str, np.ndarray] = {}
    others = _Others(bench, reporter)
    for number, sample in enumerate(samples):
        seen = dict(zip(names, variant.run(sample.inputs), strict=True))
        stated = {
            n: find_value(reference[number], bench.name_of(n), value, is_state=n in states)
            for n, value in seen.items()
        }
        others.take(stated, seen)
        made = {past: seen[name] for name, past in states.items()}
        if number in looked:
            sample.pasts = pasts or {past: np.zeros_like(v) for past, v in made.items()}
            sample.truth = {**seen, **sample.inputs}
        pasts = made
    took_ms = (time.perf_counter() - started) * 1000
    reporter.stage("float32", took_ms, f"{len(names)} tensors, {len(samples)} tokens")
    return others.first


class _Others:
    """Puts the reference's values in place of ours, and remembers where they are other ones."""

    def __init__(self, bench: Bench, reporter: Reporter) -> None:
        self._bench, self._reporter = bench, reporter
        self._order = {node.output: at for at, node in enumerate(bench.graph.nodes)}
        self._told: set[str] = set()
        self.first = ""

    def take(self, stated: Mapping[str, np.ndarray | None], seen: dict[str, np.ndarray]) -> None:
        """Take what the reference states of a run."""
        for name in sorted(seen, key=lambda name: self._order.get(name, -1)):
            value = stated.get(name)
            if value is None or value.shape != seen[name].shape:
                continue
            quantum = self._bench.find_quantum(name, value)
            if range_error(seen[name], value) <= max(_SAME, quantum):
                seen[name] = value
            elif name not in self._told:
                self._told.add(name)
                own = self._bench.name_of(name)
                self.first = self.first or own
                self._reporter.warn(
                    f"{own}: the float32 kernels differ from the reference; its layer is compared "
                    "with float32"
                )
