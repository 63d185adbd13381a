"""What a map of SentencePiece makes of letters, and of which clusters of them.

A map ("Precompiled") is a trie of UTF-8 whose leaves are texts.  The library looks a cluster up as
a whole where it has at most five bytes, else letter by letter, and takes the shortest beginning
that the trie holds.  So only keys of five bytes count, and of those none that begins with another.

Where clusters end hangs on the library's version of Unicode, so the library is asked: by a map of
one letter for each byte, in which a short cluster becomes one letter and a long one as many as it
has code points.

Source: Unicode Standard Annex 29, table 1c; the crate spm_precompiled 0.1.
"""

from base64 import b64decode
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.pattern import POINTS, Automaton, UnfitError, compile_pattern

MOST_BYTES = 5
"""Of a cluster that is looked up as a whole."""
_MOST_KEYS = 1 << 20
_LEAF, _FAR, _VALUE = 1 << 8, 1 << 9, (1 << 31) - 1
_UNASKED = (0x0A, 0x0D)
"""The letters between what the library is asked, and what joins them."""
_ACUTE, _JOINER, _TRADEMARK, _VIRAMA, _KA = "\u0301", "\u200d", "\u2122", "\u094d", "\u0915"
_CLUSTER = r"\r\n|c|p*(?:k(?:j*hj*k)+|g(?:x*zg)*|o)e*"
"""Small letters stand for sets: controls, prepended letters, consonants that are joined by a linker
among extenders, pictographs that are joined by U+200D, what is no control, and what extends."""


def read_map(precompiled: str) -> dict[bytes, bytes]:
    """Return what a map in base64 makes of which bytes.

    Raises:
        UnfitError: it is damaged, or of syllables whose clusters are not known here.
    """
    content = b64decode(precompiled)
    size = int.from_bytes(content[:4], "little") // 4
    units = np.frombuffer(content, dtype="<u4", count=size, offset=4).tolist()
    texts = content[4 + 4 * size :]
    found: dict[bytes, bytes] = {}
    waiting = [(b"", _child_of(units, 0, 0))]
    while waiting:
        key, place = waiting.pop()
        for byte in range(1, 256):
            at = place ^ byte
            unit = units[at] if at < size else 0
            if unit & (1 << 31 | 0xFF) != byte:
                continue
            following = _child_of(units, at, at)
            if unit & _LEAF:
                begin = units[following] & _VALUE
                found[key + bytes([byte])] = texts[begin : texts.find(b"\0", begin)]
            elif len(key) + 1 < MOST_BYTES:
                waiting.append((key + bytes([byte]), following))
        if len(found) + len(waiting) > _MOST_KEYS:
            raise UnfitError("its map of letters, which has no end")
    if any(_is_of_syllable(key) for key in found):
        raise UnfitError("its map of letters of Hangul's syllables")
    return found


def _child_of(units: list[int], at: int, place: int) -> int:
    """Return where the children of a unit begin."""
    unit = units[at]
    return place ^ (unit >> 10 << (8 if unit & _FAR else 0))


def _is_of_syllable(key: bytes) -> bool:
    """Return whether a key is one letter of which a syllable has more before it."""
    text = key.decode(errors="replace")
    return len(text) == 1 and ("\u1160" <= text <= "\u11ff" or "\uac00" <= text <= "\ud7ff")


@cache
def learn_clusters() -> Automaton:
    """Ask the library where clusters end."""
    count = _Counter()
    extends = count("a", "") == 1
    controls = (count("", 2 * _ACUTE) == 2) | np.isin(POINTS, _UNASKED)
    sets = {
        "c": controls,
        "p": count("", "a") == 1,
        "k": count("", _VIRAMA + _KA + _ACUTE) == 4,
        "j": extends & (count(_KA, _VIRAMA + _KA + _ACUTE) == 5),
        "h": extends & (count(_KA, _KA + _ACUTE) == 4),
        "g": count("", _JOINER + _TRADEMARK + _ACUTE) == 4,
        "x": extends & (count("\u231a", _JOINER + _TRADEMARK + _ACUTE) == 5),
        "z": np.isin(POINTS, ord(_JOINER)),
        "o": ~controls,
        "e": extends,
        r"\r": np.isin(POINTS, ord("\r")),
        r"\n": np.isin(POINTS, ord("\n")),
    }
    return compile_pattern(_CLUSTER, sets.__getitem__)


class _Counter:
    """Counts letters that the library makes of a code point between two texts."""

    def __init__(self) -> None:
        from tokenizers import normalizers

        # Node 256 + byte of each byte, whose value is in node 512; no letter goes on from there.
        units = np.zeros(768, dtype="<u4")
        units[0] = 256 << 10
        for byte in range(1, 256):
            if byte not in _UNASKED:
                units[256 + byte] = byte | _LEAF | (256 + byte ^ 512) << 10
        trie = units.tobytes()
        size = len(trie).to_bytes(4, "little")
        self._map: Any = normalizers.Precompiled(size + trie + b"b\0")
        self._asked = ~np.isin(POINTS, _UNASKED)

    def __call__(self, before: str, after: str) -> NDArray[np.int64]:
        counts = np.zeros(len(POINTS), dtype=np.int64)
        texts = "\n".join(f"{before}{chr(p)}{after}" for p in POINTS[self._asked].tolist())
        counts[self._asked] = list(map(len, self._map.normalize_str(texts).split("\n")))
        return counts
