"""Tables of Unicode's normal form C: canonical decompositions, classes of marks, compositions.

What the tokenizer's library does is what counts, so decompositions and compositions are asked of
it; classes are Python's, of a version of Unicode that may be newer or older.  Syllables of Hangul
are computed, and in no table.

Source: Unicode Standard Annex 15 and chapter 3.12.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.pattern import POINTS

_HANGUL = range(0xAC00, 0xD7A4)
_FIRST_CHANGED = 0xC0
"""No code point below has a decomposition."""


@dataclass(frozen=True, kw_only=True)
class NormalForm:
    """`points` decompose to `parts` from `starts` on, marks of `marked` have the classes `ranks`,
    and rows of `pairs` are two code points and the one that they make; all in ascending order."""

    points: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    parts: NDArray[np.uint32]
    marked: NDArray[np.uint32]
    ranks: NDArray[np.uint32]
    pairs: NDArray[np.uint32]


@cache
def learn_normal_form() -> NormalForm:
    """Ask the library `tokenizers`."""
    from tokenizers import normalizers

    apart, together = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    candidates = [p for p in POINTS.tolist() if p >= _FIRST_CHANGED and p not in _HANGUL]
    found = {p: parts for p in candidates if (parts := apart(chr(p))) != chr(p)}
    pairs = []
    for point, parts in found.items():
        first = together(parts[:-1])
        if len(first) == 1 and together(first + parts[-1]) == chr(point):
            pairs.append((ord(first), ord(parts[-1]), point))
    ranks = {p: unicodedata.combining(chr(p)) for p in candidates}
    ranks = {point: rank for point, rank in ranks.items() if rank}
    return NormalForm(
        points=_numbers(found),
        starts=_numbers(accumulate(map(len, found.values()), initial=0)),
        parts=_numbers(ord(part) for parts in found.values() for part in parts),
        marked=_numbers(ranks),
        ranks=_numbers(ranks.values()),
        pairs=np.array(sorted(pairs), dtype=np.uint32).reshape(-1, 3),
    )


def _numbers(values: Iterable[int]) -> NDArray[np.uint32]:
    return np.array(list(values), dtype=np.uint32)
