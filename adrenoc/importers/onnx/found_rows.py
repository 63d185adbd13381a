"""Which rows each token of an attention sees, and what is added to their scores.

Masks are looked at by numbers, for pasts of several lengths (`probe.py`): a causal one, or one of a
window; biases that hang on nothing but how far a row lies before the token are a table of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adrenoc.base.refused import RefusedError
from adrenoc.importers.onnx.found_scores import FoundMask, Seen, read_masks
from adrenoc.importers.onnx.graph import OnnxGraph
from adrenoc.importers.onnx.probe import Prober

_OTHER_ROWS = (
    "the mask of {} hides other rows than those after each token, or than those before a window; "
    "expected a causal one"
)
_OTHER_BIAS = (
    "what is added to the scores of {} hangs on more than how far a row lies before the token, "
    "which is all that a table of it can say"
)
_ROUNDING = 8
"""How many units in the last place biases may be off what a table says of them."""


@dataclass(frozen=True, kw_only=True)
class RowsSeen:
    """`window` is how many rows a token sees, itself included, 0 for all up to it.

    `bias` [heads, rows], or [1, rows] for all heads, is what is added to the score of a row that
    lies so many rows before the token; None for nothing.
    """

    window: int
    bias: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Reads masks of a graph whose run has `tokens` new ones, over caches of `rows`.

    `graph` is folded.
    """

    prober: Prober
    graph: OnnxGraph
    tokens: int
    rows: int
    pasts: tuple[int, int]

    def read(
        self,
        masks: Sequence[FoundMask],
        *,
        causal: bool = False,
        before: bool = False,
        shifted: bool = True,
    ) -> RowsSeen:
        """Return what masks say.

        With `causal` it hides by itself the rows after each token, or, where the past is joined
        `before` it, those after as many as there are new tokens.  Where scores may be `shifted`,
        all of a token by one number, the softmax is the same.

        Raises:
            RefusedError: they say something else.
        """
        given = (masks, causal, before)
        first = self._look(*given, 1, self.rows - 1)
        row = None if first is None else first.rows[0]
        window = 0
        if row is not None and not row.all():
            window = int(row.sum())
            if not row[self.rows - window :].all():
                row = None
        checked = [(self.tokens, past) for past in self.pasts]
        if window and window + self.tokens + 2 <= self.rows:
            checked.append((self.tokens, window + 2))
        looks = [] if row is None else [(past, self._look(*given, n, past)) for n, past in checked]
        if first is None or not looks or not all(_is_causal(*look, window) for look in looks):
            raise RefusedError(_OTHER_ROWS)
        bias = self._read_bias(first, looks, shifted=shifted)
        return RowsSeen(window=window, bias=bias)

    def _look(
        self, masks: Sequence[FoundMask], causal: bool, before: bool, tokens: int, past: int
    ) -> Seen | None:
        names = [mask.name for mask in masks]
        values = self.prober.values(names, tokens, past) if names else {}
        held = {name: self.graph.constants[name] for name in names if name not in values}
        seen = read_masks({**held, **values}, masks, tokens, past + tokens)
        if seen is None or not causal:
            return seen
        allowed = np.tril(np.ones(seen.rows.shape, bool), 0 if before else past)
        return Seen(rows=seen.rows & allowed, added=seen.added)

    def _read_bias(
        self,
        first: Seen,
        looks: Sequence[tuple[int, Seen | None]],
        *,
        shifted: bool,
    ) -> np.ndarray | None:
        """Return the table of what is added, by how far a row lies before the token."""
        seen = [(past, look) for past, look in looks if look is not None]
        if first.added is None and all(look.added is None for _, look in seen):
            return None
        for is_shifted in (False, True) if shifted else (False,):
            added = first.bias(self.rows - 1, is_shifted=is_shifted)
            table = added[:, 0, ::-1]
            if all(_follows(table, past, look, is_shifted=is_shifted) for past, look in seen):
                return np.ascontiguousarray(table, np.float32)
        raise RefusedError(_OTHER_BIAS)


def _is_causal(past: int, seen: Seen | None, window: int) -> bool:
    if seen is None:
        return False
    tokens, rows = seen.rows.shape
    mine, others = past + np.arange(tokens)[:, None], np.arange(rows)
    expected = (others <= mine) & ((others > mine - window) if window else True)
    return bool((seen.rows == expected).all())


def _follows(table: np.ndarray, past: int, seen: Seen, *, is_shifted: bool) -> bool:
    """Return whether what is added to the rows that are seen is what the table says."""
    tokens, rows = seen.rows.shape
    added = seen.bias(past, is_shifted=is_shifted)
    before = past + np.arange(tokens)[:, None] - np.arange(rows)
    expected = table[:, np.clip(before, 0, table.shape[1] - 1)]
    known = seen.rows & (before < table.shape[1])
    size = max(float(np.abs(table).max()), float(np.abs(added).max()))
    off = np.abs(added - expected)[:, known]
    return bool((off <= _ROUNDING * seen.precision * size).all())
