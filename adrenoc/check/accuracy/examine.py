"""Compare each layer in half with the truth, tell why it differs, and find what must stay in
float32.

The truth is the reference's value where the model names the tensor, else what float32 kernels give.
A layer's own error is told from what it inherits by cutting the network: each layer is run alone on
its true inputs, rounded as they are stored. Of a decoder's layers float32 kernels tell what the
error is of, three times: with nothing rounded but the constants that the plan stores in half,
nothing but what lies between kernels, and nothing but the caches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from adrenoc.base.errors import InputError, OptionError, ToolError
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.chat import LOGITS, PAST_LENGTH, TOKENS
from adrenoc.check.accuracy.bench import (
    AccuracyBench,
    ProgramRun,
    input_of_cut,
    round_to,
    round_within,
)
from adrenoc.check.accuracy.causes import (
    HALF_ROUNDING,
    Observed,
    causes_of,
    largest_of,
    number_layers,
)
from adrenoc.check.accuracy.judge_preset import PresetQuestion, judge_preset
from adrenoc.check.accuracy.result import (
    AccuracyReport,
    Arrays,
    Cause,
    LayerAccuracy,
    OwnParts,
    PresetAccuracy,
    TokenScore,
    range_error,
)
from adrenoc.check.accuracy.samples import (
    Judge,
    Passage,
    Sample,
    Wording,
    check_tokens_known,
    compute_each_token,
    draw_passage,
    find_value,
    join_logits,
    read_passage,
    score_tokens,
    take_samples,
    take_token_samples,
)
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import tensor_names
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.device.place import pick_device
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.signature import AS_IT_IS, Entry
from adrenoc.importers.states import DecoderForm
from adrenoc.ir.graph import Node
from adrenoc.kernels.families.operators import is_kind
from adrenoc.kernels.families.shared.operator import Kind
from adrenoc.target.target import Target

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
        """Find causes by the first set of inputs whose numbers show one; what is large for one
        token may be small for another."""
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


_LOOKED = 4
"""Tokens of a passage whose layers are looked at one by one, the last among them."""

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
    int8_prompts: bool = False,
    wording: Wording | None = None,
    keep_float32: bool = True,
    entry: Entry = AS_IT_IS,
    reporter: Reporter,
) -> AccuracyReport:
    """Examine a model on an OpenCL device of this computer.

    `files` are sets of inputs (.npz, or .npy for the only input), else those of `draw_trials`;
    `tolerance` bounds the error over the range of each output; the search for a remedy does
    `effort` of the usual work (`Effort`), for each preset. A decoder whose past grows in the file
    is examined on the tokens of `wording`, one after the other. With `int8_prompts` products of
    many tokens round them to bytes; tests have all in half, without `keep_float32`. Raises
    InputError where there is a text and no decoder, or there are files and one; AdrenocError where
    the model does not compile, an input does not fit, no device, ...
    """
    model_files = find_model_files(model)  # before a device is got ready, which may take minutes
    form = None if shapes or entry.leaves_decoder else find_decoder(model)
    _check_asked(model, form, files, wording, int8_prompts=int8_prompts)
    rows, passage = _read_rows(model, form, wording or Wording())
    number, facts = pick_device(cl_device)
    device = tvm.runtime.device("opencl", number)
    if form is None:
        more: dict[str, Any] = {"int8_prompts": int8_prompts, "keep_float32": keep_float32}
        more |= {"device": device, "reporter": reporter, "shapes": shapes, "entry": entry}
        bench = AccuracyBench(model, target=target, **more)
        examined = _take_sets(bench, model, files, seed, reporter)
    else:
        bench = _make_decoder_bench(model, form, rows, target, device, reporter)
        passage = passage or draw_passage(rows, vocabulary=_vocabulary_of(bench), seed=seed)
        examined = _take_tokens(bench, model, form, passage, reporter)
    doctor = Doctor(bench, examined, PresetQuestion(tolerance=tolerance, effort=effort), reporter)
    return AccuracyReport(
        model=model.name,
        model_sha256=model_files.sha256(),
        target=target.name,
        device=str(facts["name"]),
        samples=len(examined.samples),
        tolerance=tolerance,
        presets=tuple(doctor.examine(preset) for preset in presets),
        passage="" if passage is None else passage.source,
        inputs=examined.said,
    )


def _read_rows(
    model: Path, form: DecoderForm | None, wording: Wording
) -> tuple[int, Passage | None]:
    """Return how many tokens of a decoder are examined, and which; 0 of other models."""
    if form is None:
        return 0, None
    rows = min(wording.most, form.rows or form.context or wording.most)
    return rows, read_passage(model, wording, rows=rows)


def _check_asked(
    model: Path,
    form: DecoderForm | None,
    files: Sequence[Path],
    wording: Wording | None,
    *,
    int8_prompts: bool,
) -> None:
    if form is None and wording is not None:
        raise InputError(
            f"{model} is no decoder with past and present keys and values, and takes no text",
            hint=f"adrenoc check-accuracy {quote_word(model)} --inputs FOLDER",
        )
    if form is not None and files:
        raise InputError(
            f"{model} is a decoder, which is examined on tokens, and not on sets of inputs",
            hint=f"adrenoc check-accuracy {quote_word(model)} --text FILE",
        )
    if form is not None and int8_prompts:
        raise OptionError(
            f"{model} is a decoder, which is examined token by token, and int8_prompts rounds "
            "what many tokens are computed of at once",
            hint=f"adrenoc compile {quote_word(model)} --device host --set int8_prompts=true, then "
            f"adrenoc run BUNDLE --prompt-ids 1,2,3 --check {quote_word(model)}",
        )


def _take_sets(
    bench: AccuracyBench, model: Path, files: Sequence[Path], seed: int, reporter: Reporter
) -> Examined:
    """Sets of inputs as samples, and the truth of some of them."""
    drawn, said = take_samples(bench, model, files=files, seed=seed, reporter=reporter)
    samples = drawn if files else drawn[:1]  # layers are looked at one by one, which takes long
    first_other = fill_truth(bench, samples, model, reporter)
    return Examined(samples=drawn, first_other=first_other, said=said)


def _make_decoder_bench(
    model: Path, form: DecoderForm, rows: int, target: Target, device: Any, reporter: Reporter
) -> AccuracyBench:
    """Return the entry point of one token, over caches for the passage alone."""
    plan = plan_decoder(form, rows, (), whole=True)
    bench = AccuracyBench(
        model,
        target=target,
        shapes=plan.buckets[0],
        device=device,
        reporter=reporter,
        caches=plan.caches,
        recurrent=plan.recurrent,
    )
    pasts = (past for past, _ in (*plan.caches, *plan.recurrent))
    known = {TOKENS, PAST_LENGTH, *pasts}
    more = [spec.name for spec in bench.inputs if spec.name not in known]
    if more:
        raise InputError(
            f"{model} also takes {', '.join(more)}, as decoders beside an encoder do, and a text "
            "does not say what it holds",
            hint="adrenoc run BUNDLE --prompt-ids 1,2 --encoder BUNDLE --check MODEL",
        )
    return bench


def _vocabulary_of(bench: AccuracyBench) -> int:
    return next(spec for spec in bench.outputs if spec.name == LOGITS).shape[-1]


def _take_tokens(
    bench: AccuracyBench, model: Path, form: DecoderForm, passage: Passage, reporter: Reporter
) -> Examined:
    """Return each token of a passage as a sample, and the truth of some of them."""
    started = time.perf_counter()
    check_tokens_known(model, passage, _vocabulary_of(bench))
    names = [bench.name_of(node.output) for node in bench.layers]
    reference = compute_each_token(model, form, passage, names)
    count = len(passage.tokens)
    took_ms = ms_since(started)
    reporter.stage("reference", took_ms, f"{count} tokens: {passage.source}")
    samples = take_token_samples(bench, passage.tokens, join_logits(reference))
    looked = sorted({round((part + 1) * count / _LOOKED) - 1 for part in range(_LOOKED)} - {-1})
    first_other = fill_token_truth(bench, samples, looked, reference, reporter)
    return Examined(samples=samples, first_other=first_other, tokens=passage.tokens)


_SAME = 1e-2
"""Beyond it the float32 kernels and the reference do not speak of the same tensor."""


def fill_truth(bench: AccuracyBench, samples: list[Sample], model: Path, reporter: Reporter) -> str:
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
    took_ms = ms_since(started)
    reporter.stage("float32", took_ms, f"{len(names)} tensors")
    return others.first


def _run_plain(
    model: Path, inputs: Mapping[str, np.ndarray], tensors: list[str], reporter: Reporter
) -> dict[str, np.ndarray]:
    """Return the reference's tensors; none where its kernels that tell them lack an operator."""
    try:
        return run_reference(model, inputs, tensors=tensors)
    except ToolError as error:
        reporter.warn(f"layers are compared with float32 kernels: {error.message}")
        return {}


def fill_token_truth(
    bench: AccuracyBench,
    samples: Sequence[Sample],
    looked: Sequence[int],
    reference: Sequence[Arrays],
    reporter: Reporter,
) -> str:
    """Return the same for the tokens of a passage, each a sample with the reference's results. The
    truth of the samples number `looked` is kept; caches go from one to the next."""
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
    took_ms = ms_since(started)
    reporter.stage("float32", took_ms, f"{len(names)} tensors, {len(samples)} tokens")
    return others.first


class _Others:
    """Puts the reference's values in place of ours, and remembers where they are other ones."""

    def __init__(self, bench: AccuracyBench, reporter: Reporter) -> None:
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
