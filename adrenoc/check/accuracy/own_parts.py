"""What the error of a decoder's layer is of: its weights, its activations, or the caches.

Each layer is run alone on its true inputs by float32 kernels, three times: with nothing rounded but
the constants that the plan stores in half, nothing but what lies between kernels, and nothing but
the caches.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from adrenoc.check.accuracy.bench import Bench, input_of_cut
from adrenoc.check.accuracy.deviation import Arrays, range_error
from adrenoc.check.accuracy.program_run import ProgramRun
from adrenoc.check.accuracy.result import OwnParts
from adrenoc.check.accuracy.samples import Sample
from adrenoc.check.accuracy.stored import round_to, round_within


def find_own_parts(bench: Bench, preset: str, samples: Sequence[Sample]) -> dict[str, OwnParts]:
    """The parts of each layer by its tensor; nothing of a model without caches."""
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
