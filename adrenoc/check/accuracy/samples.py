"""Judge plans by sets of inputs with what should come out of the model.

The error of a plan is held against what ideal rounding gives on the same inputs.

The floor under the error of a bundle: what rounding alone costs on the inputs of its run.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tvm

from adrenoc.base.errors import InputError
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.decoder_names import LOGITS, PAST_LENGTH, TOKENS
from adrenoc.check.accuracy.bench import AccuracyBench
from adrenoc.check.accuracy.program_run import NOTHING, HalfTensors, ProgramRun
from adrenoc.check.accuracy.result import Arrays, Deviation, Floor, deviation, error_of
from adrenoc.check.inputs import InputFile, Inputs, make_inputs
from adrenoc.check.own_rounding import Reference
from adrenoc.check.reference import run_reference
from adrenoc.check.trial_inputs import REFUSED, draw_trials, scale_inputs, tell_range
from adrenoc.compile.bundle_options import options_of
from adrenoc.device.fit import target_of
from adrenoc.device.opencl import pick_device
from adrenoc.importers.signature import Entry, read_fixed_inputs, read_signature
from adrenoc.target.target import host_twin


@dataclass(kw_only=True)
class Sample:
    """One set of inputs by the graph's names, what should come out, and each layer's truth.

    `reference` knows how exactly that is known, by the model's own names of outputs, which `names`
    holds.  Of a decoder a sample is one token: `inputs` lack the caches, which go from one sample
    to the next; `pasts` are the true ones before it, and there is no `reference`.
    """

    named: Arrays
    inputs: Arrays
    expected: Arrays
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    pasts: dict[str, np.ndarray] = field(default_factory=dict)
    reference: Reference | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def judge(self, outputs: Arrays, tolerance: float) -> Deviation:
        """Return how far outputs, by the graph's names, are from what should come out."""
        outputs = {name: outputs[name] for name in self.expected}
        found = deviation([outputs], [self.expected])
        if self.reference is None or found.largest <= tolerance:
            return found
        named = {self.names[name]: value for name, value in outputs.items()}
        checked = self.reference.judge(named, tolerance=tolerance)
        if not checked.accepted:
            return found
        left = (t for t in checked.tensors if not t.accepted_as)
        return replace(
            found,
            accepted_as=checked.accepted[0].accepted_as,
            left=max((error_of(check) for check in left), default=0.0),
        )


def take_samples(
    bench: AccuracyBench,
    model: Path,
    *,
    files: Sequence[Path],
    seed: int,
    reporter: Reporter,
) -> tuple[list[Sample], str]:
    """Return a sample of each file, or of each set of `draw_trials`, and in words what they hold.

    Raises DependencyError where what computes the reference is not installed, InputError where a
    file does not fit the model.
    """
    started = time.perf_counter()
    said = ", ".join(path.name for path in files)
    given = [make_inputs(bench.inputs, [InputFile(path=path)], seed=seed) for path in files]
    if not files:
        trials = draw_trials(model, bench.inputs, seed=seed)
        given, said = [*trials.sets], trials.said
    entry = bench.entry
    settings = read_fixed_inputs(model, entry.fixed, entry.signature, bench.shapes)
    firsts = [past for past, _ in read_signature(model, bench.entry.signature).variables]
    said += ", from states of zeros" if firsts else ""
    given = [
        inputs.add({**settings, **{name: np.zeros_like(inputs[name]) for name in firsts}})
        for inputs in given
    ]
    samples = []
    try:
        for inputs in given:
            outputs = run_reference(model, inputs)
            samples.append(_sample_of(bench, model, inputs, outputs))
    except InputError:
        if files or not samples:
            raise
        samples, said = samples[:1], trials.keep_first(REFUSED).said
    took_ms = ms_since(started)
    reporter.stage("reference", took_ms, f"{len(samples)} sets of inputs")
    return samples, said


def _sample_of(bench: AccuracyBench, model: Path, inputs: Arrays, outputs: Arrays) -> Sample:
    """Return a sample from inputs and outputs by the model's names. States that the model's own
    runtime keeps to itself, as variables, are none of its outputs."""
    every = zip(bench.graph.outputs, bench.outputs, strict=True)
    names = {tensor: spec.name for tensor, spec in every if spec.name in outputs}
    return Sample(
        named=inputs,
        inputs=bench.rename_inputs(inputs),
        expected={tensor: outputs[name] for tensor, name in names.items()},
        reference=Reference(model, inputs, outputs),
        names=names,
    )


def take_token_samples(
    bench: AccuracyBench, tokens: Sequence[int], logits: np.ndarray
) -> list[Sample]:
    """Return a sample of each token, with the reference's logits after it, [1, tokens, words]."""
    tensors = dict(zip((spec.name for spec in bench.outputs), bench.graph.results, strict=True))
    names = dict(zip((spec.name for spec in bench.inputs), bench.graph.inputs, strict=True))
    samples = []
    for number, token in enumerate(tokens):
        named: dict[str, np.ndarray] = {
            TOKENS: np.array([[token]], np.int64),
            PAST_LENGTH: np.array([number], np.int32),
        }
        specs = {spec.name: spec for spec in bench.inputs}
        inputs = {names[n]: v.astype(specs[n].dtype) for n, v in named.items()}
        expected = {tensors[LOGITS]: logits[:, number : number + 1]}
        samples.append(Sample(named=named, inputs=inputs, expected=expected))
    return samples


class Judge:
    """How far plans of one model are from the reference on the same samples.

    What is beyond `tolerance` is held against how exactly the reference knows its own outputs; with
    None nothing is, as where errors are compared with each other alone.
    """

    def __init__(
        self, bench: AccuracyBench, samples: Sequence[Sample], *, tolerance: float | None = None
    ) -> None:
        self._outputs, self._tolerance = bench.graph.outputs, tolerance
        self._samples, self._bench = samples, bench
        self._ideal: ProgramRun | None = None

    @property
    def samples(self) -> int:
        """Return how many sets of inputs plans are judged by."""
        return len(self._samples)

    def judge_compiled(self, variant: ProgramRun) -> Deviation:
        """Return how far a compiled model is from the reference, over all samples."""
        return self.judge_outputs(self.run_compiled(variant))

    def run_compiled(self, variant: ProgramRun) -> list[Arrays]:
        """Return the outputs of a compiled model for each sample, by the graph's names."""
        return [self._name(variant.run(sample.inputs)) for sample in self._samples]

    def judge_outputs(self, seen: Sequence[Arrays]) -> Deviation:
        """Return how far outputs are from the reference, over the samples that they are of."""
        samples = self._samples[: len(seen)]
        found = deviation(seen, [sample.expected for sample in samples])
        if self._tolerance is None or found.largest <= self._tolerance:
            return found
        pairs = zip(samples, seen, strict=True)
        each = [sample.judge(outputs, self._tolerance) for sample, outputs in pairs]
        said = next((one.accepted_as for one in each if one.accepted_as), "")
        return replace(found, accepted_as=said, left=max(one.counted for one in each))

    def judge_rounding(self, stored: HalfTensors, samples: int | None = None) -> Deviation:
        """Return how far ideal float32 arithmetic is off, over the first `samples`."""
        chosen = self._samples[:samples]
        made = [self.ideal.run(sample.inputs, stored) for sample in chosen]
        return self.judge_outputs([self._name(values) for values in made])

    def measure_floor(self, ours: Deviation, stored: HalfTensors) -> Floor:
        """Return what ideal rounding of a plan's tensors gives, beside the plan."""
        ideal, exact = self.judge_rounding(stored), self.judge_rounding(NOTHING)
        return floor_of(ours, ideal, exact, stored.count)

    def tell_range(self, variant: ProgramRun) -> str:
        """Tell at which scales of drawn inputs a compiled model is not finite and float32 is."""
        usual = self._samples[0].named
        scaled = scale_inputs(usual) if isinstance(usual, Inputs) else []
        if not scaled:
            return ""
        given = [self._bench.rename_inputs(one) for one in scaled]
        ours = [self._name(variant.run(one)) for one in given]
        theirs = [self._name(self.ideal.run(one)) for one in given]
        return tell_range(ours, theirs)

    @property
    def ideal(self) -> ProgramRun:
        """Return the float32 model that rounds what it is told to."""
        if self._ideal is None:
            self._ideal = self._bench.ideal()
        return self._ideal

    def _name(self, values: Sequence[np.ndarray]) -> Arrays:
        return dict(zip(self._outputs, values, strict=True))


_NO_ERROR = 1e-7
"""Of the range: a float32 kernel rounds by more, so that ratios of less say nothing."""


def floor_of(ours: Deviation, ideal: Deviation, exact: Deviation, tensors: int) -> Floor:
    """Return the floor under an error with `tensors` rounded; `exact` is float32 throughout."""
    if math.isinf(ours.rms):
        ratio = 1.0 if math.isinf(ideal.rms) else math.inf
    else:
        ratio = max(ours.rms, _NO_ERROR) / max(ideal.rms, _NO_ERROR)
    return Floor(
        error=ideal.largest,
        rms=ideal.rms,
        our_rms=ours.rms,
        ratio=ratio,
        tensors=tensors,
        float32_error=exact.largest,
        float32_counted=exact.counted,
        float32_rms=exact.rms,
    )


def floor_of_bundle(
    bundle: Bundle,
    model: Path,
    *,
    inputs: Arrays,
    outputs: Arrays,
    expected: Arrays,
    reporter: Reporter,
) -> Floor:
    """Hold the outputs of a bundle, wherever it ran, against ideal rounding on a device here.

    Raises DeviceError where there is no OpenCL device here, AdrenocError where the model does not
    compile as the bundle was.
    """
    number, _ = pick_device("")
    options = replace(options_of(bundle), tuning_log=None)
    shapes = {spec.name: inputs[spec.name].shape for spec in bundle.manifest.inputs}
    wanted = tuple((name, shapes[name]) for name, _ in options.shapes)
    bench = AccuracyBench(
        model,
        target=host_twin(target_of(bundle)),
        shapes=wanted,
        device=tvm.runtime.device("opencl", number),
        reporter=reporter,
        chosen=replace(options, shapes=wanted),
        entry=Entry(fixed=options.fixed, signature=options.signature),
    )
    sample = _sample_of(bench, model, inputs, expected)
    seen = {tensor: outputs[name] for tensor, name in sample.names.items()}
    stored = bench.find_halves(options.preset, options.float32_tensors)
    return Judge(bench, [sample]).measure_floor(deviation([seen], [sample.expected]), stored)
