"""The tokens that a decoder is examined on, and what the reference computes after each of them.

How well a decoder's logits predict a text, and how often they pick what the reference picks.
"""

import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import open_plain
from adrenoc.bundle.bundle import TOKENIZER
from adrenoc.bundle.decoder_names import LOGITS
from adrenoc.check.accuracy.result import Arrays, TokenScore
from adrenoc.check.generation import compute_logits, feed_steps, feed_tokens, kept_states
from adrenoc.check.reference import run_reference, run_steps, run_tokens
from adrenoc.check.runtimes import tensor_names
from adrenoc.compile.decoder_plan import find_tokenizer
from adrenoc.importers.states import DecoderForm
from adrenoc.language.tokenizer import Tokenizer


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
    """Return the logarithms of a softmax."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        wide -= wide.max(axis=-1, keepdims=True)
        shares: np.ndarray = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return shares


def _perplexity(tokens: Sequence[int], log_shares: np.ndarray) -> float:
    """Of each token but the first, which nothing predicts."""
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
    DependencyError where the package that reads tokenizers is not installed.
    """
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
    """Return what the reference computes of all tokens at once, with products in float.

    [1, tokens, ...] by name: logits, caches, and of `tensors` those that the file computes. Raises
    as `run_reference` does.
    """
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
