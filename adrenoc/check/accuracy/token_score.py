"""How well a decoder's logits predict a text, and how often they pick what the reference picks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adrenoc.check.accuracy.result import TokenScore


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
    """The logarithms of a softmax."""
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
