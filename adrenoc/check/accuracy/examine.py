"""Compare each layer in half with the truth, name causes, and find what must stay in float32.

The truth is the reference's value where the model names the tensor, else what float32 kernels give.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from adrenoc.base.errors import InputError, OptionError, ToolError
from adrenoc.base.reporter import Reporter, ms_since
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.decoder_names import LOGITS, PAST_LENGTH, TOKENS
from adrenoc.check.accuracy.bench import AccuracyBench
from adrenoc.check.accuracy.doctor import Doctor, Examined
from adrenoc.check.accuracy.judge_preset import PresetQuestion
from adrenoc.check.accuracy.passage import (
    Passage,
    Wording,
    check_tokens_known,
    compute_each_token,
    draw_passage,
    find_value,
    join_logits,
    read_passage,
)
from adrenoc.check.accuracy.result import AccuracyReport, Arrays, range_error
from adrenoc.check.accuracy.samples import Sample, take_samples, take_token_samples
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import tensor_names
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.device.opencl import pick_device
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.signature import AS_IT_IS, Entry
from adrenoc.importers.states import DecoderForm
from adrenoc.target.target import Target

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
    bench: AccuracyBench,
    model: Path,
    files: Sequence[Path],
    seed: int,
    reporter: Reporter,
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
