"""Agreement and perplexity by hand."""

import math

import numpy as np
import pytest

from adrenoc.check.accuracy.passage import score_tokens


def logs(*rows: list[float]) -> np.ndarray:
    return np.log(np.array(rows, np.float32))


def test_perplexity_is_that_of_the_next_tokens() -> None:
    reference = logs([0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [0.2, 0.4, 0.4])
    mine = logs([0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.2, 0.3, 0.5])
    score = score_tokens((0, 1, 2), mine + 3.0, reference)  # a softmax knows no offset
    # Of token 1 after 0 and of token 2 after 1; what comes after the last token is not known.
    assert score.perplexity == pytest.approx((1 / 0.5 * 1 / 0.5) ** 0.5, rel=1e-5)
    assert score.reference_perplexity == pytest.approx((1 / 0.25 * 1 / 0.75) ** 0.5, rel=1e-5)
    assert (score.tokens, score.equal) == (3, 1)
    assert score.equal / score.tokens == pytest.approx(1 / 3)
    apart = (
        0.5 * math.log(2) + 0.25 * math.log(0.5),
        0.25 * math.log(0.5) + 0.75 * math.log(1.5),
        0.4 * math.log(4 / 3) + 0.4 * math.log(0.8),
    )
    assert score.divergence == pytest.approx(sum(apart) / 3, rel=1e-5)


def test_logits_that_are_no_numbers_score_infinity() -> None:
    reference = logs([0.5, 0.5], [0.5, 0.5])
    score = score_tokens((0, 1), np.full((2, 2), np.nan, np.float32), reference)
    assert (score.perplexity, score.divergence) == (math.inf, math.inf)
