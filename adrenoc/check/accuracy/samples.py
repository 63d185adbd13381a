"""Sets of inputs with what should come out of the model, and the judgement of plans by them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from adrenoc.check.accuracy.bench import Bench
from adrenoc.check.accuracy.deviation import Arrays, Deviation, deviation
from adrenoc.check.accuracy.ideal import IdealRun, Stored
from adrenoc.check.accuracy.variant import Variant
from adrenoc.check.inputs import InputFile, make_inputs
from adrenoc.check.reference import run_reference
from adrenoc.reporter import Reporter

DRAWS = 4
"""Random inputs that a whole model is measured on: the ratio of two noises is a noise itself."""


@dataclass(kw_only=True)
class Sample:
    """One set of inputs by the graph's names, what should come out, and each layer's truth."""

    named: Arrays
    inputs: Arrays
    expected: Arrays
    truth: dict[str, np.ndarray] = field(default_factory=dict)


def take_samples(
    bench: Bench,
    model: Path,
    *,
    files: Sequence[Path],
    seed: int,
    draws: int,
    reporter: Reporter,
) -> list[Sample]:
    """A sample of each file, of as many random inputs as `draws` says if there are no files.

    Raises:
        DependencyError: what computes the reference is not installed.
        InputError: a file does not fit the model.
    """
    started = time.perf_counter()
    if files:
        given = [make_inputs(bench.inputs, [InputFile(path=path)], seed=seed) for path in files]
    else:
        given = [make_inputs(bench.inputs, [], seed=seed + number) for number in range(draws)]
    samples = [sample_of(bench, inputs, run_reference(model, inputs)) for inputs in given]
    took_ms = (time.perf_counter() - started) * 1000
    reporter.stage("reference", took_ms, f"{len(samples)} sets of inputs")
    return samples


def sample_of(bench: Bench, inputs: Arrays, outputs: Arrays) -> Sample:
    """A sample from inputs and outputs by the model's names."""
    expected = {
        tensor: outputs[spec.name]
        for tensor, spec in zip(bench.graph.outputs, bench.outputs, strict=True)
    }
    return Sample(named=inputs, inputs=bench.rename_inputs(inputs), expected=expected)


class Judge:
    """How far plans of one model are from the reference on the same samples."""

    def __init__(self, bench: Bench, samples: Sequence[Sample]) -> None:
        self._outputs = bench.graph.outputs
        self._samples, self._bench = samples, bench
        self._ideal: IdealRun | None = None

    @property
    def samples(self) -> int:
        """How many sets of inputs plans are judged by."""
        return len(self._samples)

    def judge_compiled(self, variant: Variant) -> Deviation:
        """How far the outputs of a compiled model are from the reference, over all samples."""
        return self._judge_outputs([variant.run(sample.inputs) for sample in self._samples])

    def judge_rounding(self, stored: Stored, samples: int | None = None) -> Deviation:
        """How far float32 arithmetic is off that rounds what is stored ideally, over the first
        `samples`."""
        chosen = self._samples[:samples]
        return self._judge_outputs([self.ideal.run(sample.inputs, stored) for sample in chosen])

    @property
    def ideal(self) -> IdealRun:
        """The float32 model that rounds what it is told to."""
        if self._ideal is None:
            self._ideal = self._bench.ideal()
        return self._ideal

    def _judge_outputs(self, outputs: list[list[np.ndarray]]) -> Deviation:
        seen = [dict(zip(self._outputs, values, strict=True)) for values in outputs]
        expected = [sample.expected for sample in self._samples[: len(seen)]]
        return deviation(seen, expected)
