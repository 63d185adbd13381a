"""Judge plans by sets of inputs: their error beside what ideal rounding gives on the same inputs,
and of a decoder how well its logits predict a text, token by token."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tvm

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import open_plain
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.bundle.bundle import TOKENIZER, Bundle
from adrenoc.bundle.chat import LOGITS, PAST_LENGTH, TOKENS
from adrenoc.check.accuracy.bench import NOTHING, AccuracyBench, HalfTensors, ProgramRun
from adrenoc.check.accuracy.result import Arrays, Deviation, Floor, TokenScore, deviation, error_of
from adrenoc.check.generation import compute_logits, feed_steps, feed_tokens, kept_states
from adrenoc.check.inputs import InputFile, Inputs, make_inputs
from adrenoc.check.own_rounding import Reference
from adrenoc.check.reference import run_reference, run_steps, run_tokens
from adrenoc.check.runtimes import tensor_names
from adrenoc.check.trial_inputs import REFUSED, draw_trials, scale_inputs, tell_range
from adrenoc.compile.decoder_plan import find_tokenizer
from adrenoc.device.fit import target_of
from adrenoc.device.place import pick_device
from adrenoc.importers.signature import Entry, read_fixed_inputs, read_signature
from adrenoc.importers.states import DecoderForm
from adrenoc.ir.options import CompileOptions
from adrenoc.language.tokenizer import Tokenizer
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
    bench: AccuracyBench, model: Path, *, files: Sequence[Path], seed: int, reporter: Reporter
) -> tuple[list[Sample], str]:
    """Return a sample of each file, or of each set of `draw_trials`, and in words what they hold.
    Raises DependencyError where what computes the reference is not installed, InputError where a
    file does not fit the model."""
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
    """How far plans of one model are from the reference on the same samples. What is beyond
    `tolerance` is held against how exactly the reference knows its own outputs; with None nothing
    is, as where errors are compared with each other alone."""

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
    compile as the bundle was."""
    number, _ = pick_device("")
    options = replace(CompileOptions.from_bundle(bundle), tuning_log=None)
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


def score_tokens(tokens: Sequence[int], logits: np.ndarray, reference: np.ndarray) -> TokenScore:
    """Score the logits after each token, [tokens, vocabulary], beside the reference's."""
    mine, wanted = _log_shares(logits), _log_shares(reference)
    apart = np.sum(np.exp(wanted) * (wanted - mine), axis=-1)
    return TokenScore(
        tokens=len(tokens),
        equal=int((logits.argmax(-1) == reference.argmax(-1)).sum()),
        perplexity=_perplexity(tokens, mine),
        reference_perplexity=_perplexity(tokens, wanted),
        divergence=_finite_or_infinite(float(np.mean(apart))),
    )


def _log_shares(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        wide -= wide.max(axis=-1, keepdims=True)
        shares: np.ndarray = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return shares


def _perplexity(tokens: Sequence[int], log_shares: np.ndarray) -> float:
    """Return the perplexity of each token but the first, which nothing predicts."""
    surprise = -log_shares[np.arange(len(tokens) - 1), np.asarray(tokens[1:])]
    return _finite_or_infinite(float(np.exp(np.mean(surprise))))


def _finite_or_infinite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


USUAL_TOKENS = 32
"""Tokens that are enough to see where an error enters; more of them make the perplexity surer."""
_FEWEST = 2
"""One is predicted by the other."""


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The text to examine a decoder on: a file and its tokenizer, else seeded token numbers. `most`
    bounds the tokens."""

    text: Path | None = None
    tokenizer: Path | None = None
    most: int = USUAL_TOKENS


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Tokens in order, and in words where they come from."""

    tokens: tuple[int, ...]
    source: str


def read_passage(model: Path, wording: Wording, *, rows: int) -> Passage | None:
    """Return the first tokens of the text, at most as many as there are rows; None without a text.
    Raises InputError where the text or a tokenizer cannot be read, or the text is too short;
    DependencyError where the package that reads tokenizers is not installed."""
    if wording.text is None:
        return None
    tokens = _open_tokenizer(model, wording.tokenizer).encode(_read_text(wording.text))
    if len(tokens) < _FEWEST:
        raise InputError(
            f"{wording.text} is {len(tokens)} token, expected at least {_FEWEST}: each is "
            "predicted by those before it",
            hint="--text FILE with some sentences",
        )
    taken = tuple(tokens[: min(wording.most, rows)])
    part = "" if len(taken) == len(tokens) else f", the first {len(taken)} of {len(tokens)} tokens"
    return Passage(tokens=taken, source=f"{wording.text.name}{part}")


def draw_passage(count: int, *, vocabulary: int, seed: int) -> Passage:
    """Seeded token numbers, where there is no text."""
    drawn = np.random.default_rng(seed).integers(0, vocabulary, count)
    return Passage(tokens=tuple(drawn.tolist()), source=f"random tokens from seed {seed}")


def check_tokens_known(model: Path, passage: Passage, vocabulary: int) -> None:
    """Refuse a passage with tokens that the model lacks: the tokenizer is another model's. Raises
    InputError naming the first."""
    strange = [token for token in passage.tokens if token >= vocabulary]
    if strange:
        raise InputError(
            f"the tokenizer makes the token {strange[0]} of {passage.source}, and {model} knows 0 "
            f"to {vocabulary - 1}",
            hint="put the tokenizer.json that came with the model beside it",
        )


def _read_text(path: Path) -> str:
    try:
        with open_plain(path) as file:
            return file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the text {path} cannot be read: {error}", hint="--text FILE, in UTF-8"
        ) from error


def _open_tokenizer(model: Path, asked: Path | None) -> Tokenizer:
    """Return the passage asked for, the container's, or the one beside the model."""
    content, _ = find_tokenizer(model, asked)
    if not content:
        raise InputError(
            f"--text needs a tokenizer, and no {TOKENIZER} lies beside {model}",
            hint="put the tokenizer.json that came with the model beside it",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER
        path.write_bytes(content)
        return Tokenizer(path)


def join_logits(made: Sequence[Arrays]) -> np.ndarray:
    """Return the logits after each token, [1, tokens, vocabulary]."""
    return np.concatenate([one[LOGITS].reshape(1, 1, -1) for one in made], axis=1)


def find_value(made: Arrays, name: str, like: np.ndarray, *, is_state: bool) -> np.ndarray | None:
    """Return what the run of a token made of a tensor, in the shape of `like`, if known. A state is
    what it is after the token: of a cache the rows up to its own, and zeros."""
    value = made.get(name)
    if value is None or value.ndim != like.ndim:
        return None
    return _fill_rows(value, like) if is_state and value.shape != like.shape else value


def _fill_rows(rows: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return a cache of which so many rows are there."""
    there = np.zeros_like(like)
    there[:, :, : rows.shape[2]] = rows
    return there


def compute_passage(
    model: Path, form: DecoderForm, passage: Passage, tensors: Iterable[str] = ()
) -> Arrays:
    """Return what the reference computes of all tokens at once, with products in float. [1, tokens,
    ...] by name: logits, caches, and of `tensors` those that the file computes. Raises as
    `run_reference` does."""
    if form.lengths:  # LiteRT goes from token to token, and names nothing between
        return {LOGITS: run_tokens(model, passage.tokens)[None]}
    wanted = sorted(tensor_names(model).intersection(tensors))
    feeds = feed_tokens(form, passage.tokens)
    made = run_reference(model, feeds, tensors=wanted, optimise=False)
    if made[LOGITS].shape[1] != len(passage.tokens):
        return {**made, LOGITS: compute_logits(model, form, passage.tokens)[None]}
    return made


def compute_each_token(
    model: Path, form: DecoderForm, passage: Passage, tensors: Iterable[str]
) -> Sequence[Arrays]:
    """Return what the reference computes of each token: logits, states, and `tensors`. Raises as
    `run_reference` does."""
    if form.lengths:  # LiteRT names nothing between
        return [{LOGITS: row} for row in run_tokens(model, passage.tokens)]
    wanted = sorted(tensor_names(model).intersection(tensors))
    feeds, kept = feed_steps(form, passage.tokens), kept_states(form)
    return run_steps(model, feeds, kept=kept, tensors=wanted, optimise=False)
