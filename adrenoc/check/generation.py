"""Tokens that a bundle generates, held against onnxruntime's or LiteRT's for the same model.

Compare a bundle with its model layer by layer, to name the first tensor that goes wrong.

Whether a bundle was compiled from the model file that it is compared with.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from adrenoc.base.errors import BundleError, CheckFailedError, InputError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.reporter import Reporter
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.bundle.chat import LOGITS, MASK, PAST_BRANCH, POSITIONS, TOKENS
from adrenoc.check.own_rounding import read_quanta
from adrenoc.check.reference import explain_installed, run_reference, run_steps, run_tokens
from adrenoc.check.runtimes import tensor_names
from adrenoc.compile.make import make_bundle
from adrenoc.device.compare import CheckResult, Uncertainty, compare, hint_of_failure
from adrenoc.device.fit import target_of
from adrenoc.importers.decoder_form import find_decoder
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.states import DecoderForm
from adrenoc.ir.options import CompileOptions


@dataclass(frozen=True, kw_only=True)
class TokenCheck:
    """How many tokens are the reference's own choice after the same ones, and how far logits are.

    `near` are others whose logit, by the reference, is within the tolerance of its choice: which of
    them is larger is rounding.  `first_other` is the number of the first token that is neither,
    None where there is none; `max_error` is the largest error of a logit over the range of its row.
    Of what is computed `in_float32` rounding to half is no excuse.  `note` is what else is to be
    said of the reference, empty where that is nothing.
    """

    tokens: int
    equal: int
    near: int
    first_other: int | None
    max_error: float
    tolerance: float
    in_float32: bool = False
    note: str = ""

    @property
    def passed(self) -> bool:
        """Return whether all tokens are equal or near, and all logits within the tolerance."""
        return self.equal + self.near == self.tokens and self.max_error <= self.tolerance

    def raise_if_failed(self) -> None:
        """Say what is off. Raises CheckFailedError where a token is another one, or a logit is
        beyond the tolerance."""
        if self.passed:
            return
        where = "" if self.first_other is None else f", the first other one is {self.first_other}"
        raise CheckFailedError(
            f"{self.equal} of {self.tokens} tokens are the reference's{where}; logits are off by "
            f"{self.max_error:.2e} of their range, expected at most {self.tolerance:.0e}",
            hint=hint_of_failure(self.in_float32),
        )


def check_tokens(
    model: Path,
    prompt: Sequence[int],
    tokens: Sequence[int],
    logits: Sequence[np.ndarray],
    *,
    tolerance: float,
    given: Mapping[str, np.ndarray] | None = None,
) -> TokenCheck:
    """Run the reference over prompt and tokens at once, and compare each token and its logits.
    `given` are its inputs beside tokens and caches. Raises InputError where there are no tokens to
    compare, or the model is no decoder with a past; else as `run_reference` does."""
    if not tokens:
        raise InputError(
            f"no token was generated: the prompt's {len(prompt)} tokens fill the context",
            hint=f"adrenoc compile {quote_word(model)} --context {2 * len(prompt)}",
        )
    form = find_decoder(model)
    if form is None:
        raise InputError(
            f"{model} is no decoder with past and present keys and values",
            hint="adrenoc run BUNDLE --prompt-ids ... --check MODEL takes the model it is made of",
        )
    whole = [*prompt, *tokens[:-1]]
    every = compute_logits(model, form, whole, given)
    note = ""
    if not (form.lengths or form.single):
        feeds = {**feed_tokens(form, whole), **(given or {})}
        note = explain_installed(model, feeds, expected={LOGITS: every[None]})
    reference = every[len(prompt) - 1 :]
    chosen = _choose(reference, form).argmax(axis=-1)
    same = chosen == np.asarray(tokens)
    gaps = [_gap(*three) for three in zip(reference, chosen, tokens, strict=True)]
    allowed = same | (np.asarray(gaps) <= tolerance)
    errors = [_error(mine, own) for mine, own in zip(logits, reference, strict=True)]
    return TokenCheck(
        tokens=len(tokens),
        equal=int(same.sum()),
        near=int((allowed & ~same).sum()),
        first_other=None if allowed.all() else int(np.argmin(allowed)) + 1,
        max_error=max(errors),
        tolerance=tolerance,
        note=note,
    )


def compute_logits(
    model: Path,
    form: DecoderForm,
    tokens: Sequence[int],
    given: Mapping[str, np.ndarray] | None = None,
) -> np.ndarray:
    """Compute the logits after each token by the reference, [tokens, vocabulary]. Files that give
    those of the last token alone are run token by token. Raises as `run_reference` does."""
    if form.lengths:
        return run_tokens(model, tokens)
    if not form.single:
        feeds = {**feed_tokens(form, tokens), **(given or {})}
        made: np.ndarray = run_reference(model, feeds)[LOGITS][0]
        if len(made) == len(tokens):
            return made
    steps = run_steps(model, feed_steps(form, tokens, given), kept=kept_states(form))
    return np.concatenate([one[LOGITS].reshape(1, -1) for one in steps])


def in_halves(model: Path) -> bool:
    """Return whether a decoder keeps its past in halves, as models in halves do."""
    form = find_decoder(model)
    return form is not None and any(cache.dtype == "float16" for cache in form.caches)


def feed_tokens(form: DecoderForm, tokens: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the inputs of a run over all tokens, with nothing before them."""
    feeds = {TOKENS: np.asarray([tokens], np.int64)}
    if form.masked:
        feeds[MASK] = np.ones((1, len(tokens)), np.int64)
    if form.positions:
        numbers = np.arange(len(tokens), dtype=np.int64)[None]
        # They are the same in each stream of positions that there is.
        feeds[POSITIONS] = numbers if form.streams == 1 else np.tile(numbers, (form.streams, 1, 1))
    if form.merged:
        feeds[PAST_BRANCH] = np.array([True])
    for cache in form.caches:
        feeds[cache.past] = np.zeros((1, cache.heads, cache.least, cache.head), cache.dtype)
    for state in form.recurrent:
        feeds[state.past] = np.zeros(state.shape, state.dtype)
    return feeds


def feed_steps(
    form: DecoderForm, tokens: Sequence[int], given: Mapping[str, np.ndarray] | None = None
) -> list[dict[str, np.ndarray]]:
    """Return the inputs of a run for each token; states are those before the first. `given` are
    inputs beside tokens and states, the same for all tokens."""
    feeds = []
    for number, token in enumerate(tokens):
        feed = {**feed_tokens(form, [token]), **(given or {})}
        if form.masked:
            feed[MASK] = np.ones((1, number + 1), np.int64)
        if form.positions:
            feed[POSITIONS] = np.full_like(feed[POSITIONS], number)
        feeds.append(feed)
    return feeds


def kept_states(form: DecoderForm) -> list[tuple[str, str]]:
    """Inputs of a decoder, and the outputs of the run before that they are."""
    caches = [(cache.past, cache.present) for cache in form.caches]
    return caches + [(state.past, state.present) for state in form.recurrent]


def _choose(logits: np.ndarray, form: DecoderForm) -> np.ndarray:
    """Return logits behind a prompt without those of tokens that are not to come."""
    left = logits.astype(np.float64)
    for name, rows in (("suppress_tokens", left), ("begin_suppress_tokens", left[:1])):
        tokens = [token for token in form.tokens.get(name, ()) if token < left.shape[-1]]
        rows[:, tokens] = -np.inf
    return left


def _gap(row: np.ndarray, chosen: int, token: int) -> float:
    """Return how far below the reference's choice it sees a token, over the range of its logits."""
    wide = row.astype(np.float64)
    return float(wide[chosen] - wide[token]) / (float(np.ptp(wide)) or 1.0)


def _error(mine: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest error of one row, of its range; infinite where a number is none."""
    wide = mine.astype(np.float64) - reference.astype(np.float64)
    error = float(np.abs(wide).max()) / (float(np.ptp(reference.astype(np.float64))) or 1.0)
    return error if np.isfinite(error) else float("inf")


Checked = TypeVar("Checked", CheckResult, TokenCheck)


def note_other_file(checked: Checked, bundle: Bundle, model: Path) -> Checked:
    """Return a comparison whose note says, first, where `bundle` is not of the file `model`."""
    told = _tell_other_file(bundle, model)
    return replace(checked, note="; ".join(filter(None, (told, checked.note))))


def refuse_other_file(bundle: Bundle, model: Path) -> None:
    """Do nothing where `bundle` was compiled from the file `model`, or one of the same bytes.
    Raises BundleError where it was compiled from another one."""
    told = _tell_other_file(bundle, model)
    if told:
        raise BundleError(
            told, hint=f"adrenoc compile {quote_word(model)} --device {bundle.manifest.target.name}"
        )


def _tell_other_file(bundle: Bundle, model: Path) -> str:
    """Say which file `bundle` was compiled from, where that is not `model`; else nothing."""
    own, other = bundle.manifest.model, find_model_files(model).sha256()
    if own.sha256 == other:
        return ""
    return (
        f"{bundle.path} was compiled from {own.file} with SHA-256 {own.sha256[:12]}, {model} has "
        f"{other[:12]}"
    )


def check_layers(
    bundle: Bundle,
    model: Path,
    inputs: Mapping[str, np.ndarray],
    *,
    run: Callable[[Bundle], Mapping[str, np.ndarray]],
    tolerance: float,
    reporter: Reporter,
) -> CheckResult:
    """Compile `model` again as `bundle` was, with every layer as an output, run and compare.

    The kernels are those of the bundle; only the copies to the host are added. `run` computes the
    outputs of a bundle from `inputs`, here or on a server. Layers are compared in execution order,
    the model's outputs last. Raises BundleError where the bundle was made from another model file.
    """
    refuse_other_file(bundle, model)
    options = replace(CompileOptions.from_bundle(bundle), expose_layers=True)
    with TemporaryFolder("layers") as scratch:
        made = make_bundle(
            model,
            target=target_of(bundle),
            options=options,
            output=Path(scratch) / "layers.adrenoc",
            reporter=reporter,
            use_cache=False,
        )
        outputs = run(open_bundle(made.path))
    own = [spec.name for spec in bundle.manifest.outputs]
    # What the importer made up, as the parts of one operator, has nothing to be compared with.
    known = tensor_names(model)
    layers = [name for name in outputs if name not in own and name in known]
    expected = run_reference(model, inputs, tensors=layers)
    ordered = {name: outputs[name] for name in (*layers, *own)}
    comparable = {
        name: value for name, value in ordered.items() if expected[name].shape == value.shape
    }
    stated = read_quanta(model)
    quanta = {} if stated is None else stated.tensors
    steps = {n: Uncertainty(step=step, step_is="one quantum") for n, step in quanta.items()}
    return compare(comparable, expected, tolerance=tolerance, known=steps)
