"""What happens to a text before a model sees it: how it is changed, and how it is cut.

Which code points the library changes, removes or cuts at hangs on its version of Unicode, so it is
asked about each, also for canonical decompositions and compositions.  Syllables of Hangul are
computed, and in no table.

A map of SentencePiece ("Precompiled") is a trie of UTF-8 whose leaves are texts.  The library looks
a cluster up as a whole where it has at most five bytes, else letter by letter, and takes the
shortest beginning that the trie holds.  So only keys of five bytes count, and of those none that
begins with another.  Where clusters end the library is asked: by a map of one letter for each byte,
in which a short cluster becomes one letter and a long one as many as it has code points.

Source: Unicode Standard Annex 15, chapter 3.12 and Annex 29, table 1c; the crate spm_precompiled
0.1.
"""

import unicodedata
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.pattern import POINTS, Automaton, Points, UnfitError, compile_pattern

ALIGNMENT = 8
Step: TypeAlias = dict[str, Any]
"""What the file's object says of one thing."""


class Arrays:
    """Arrays as bytes, one behind the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, array: NDArray[Any] | bytes) -> dict[str, int]:
        """Return where an array lies, of how many elements of how many bytes it is."""
        stored = array if isinstance(array, bytes) else array.astype(array.dtype.newbyteorder("<"))
        content = stored if isinstance(stored, bytes) else stored.tobytes()
        width = 1 if isinstance(stored, bytes) else stored.itemsize
        place = {"at": self._size, "count": len(content) // width, "bytes": width}
        padded = content + bytes(-len(content) % ALIGNMENT)
        self._parts.append(padded)
        self._size += len(padded)
        return place

    def add_all(self, record: object) -> dict[str, dict[str, int]]:
        """Return where the arrays of a record lie, by name."""
        return {name: self.add(array) for name, array in vars(record).items()}

    def add_texts(self, texts: Iterable[bytes]) -> dict[str, dict[str, int]]:
        """Return where texts lie, one behind the other, and where each begins."""
        held = list(texts)
        starts = np.cumsum([0, *map(len, held)], dtype=np.uint32)
        return {"starts": self.add(starts), "bytes": self.add(b"".join(held))}

    @property
    def content(self) -> bytes:
        """Return all of them."""
        return b"".join(self._parts)


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
    """Return what a map in base64 makes of which bytes."""
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
    count = _ClusterCounter()
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


class _ClusterCounter:
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


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How ByteLevel cuts where it is to."""
_LAST_FOLDED = 0x3000
"""No code point from here on differs in case alone from one of ASCII."""
_FIRST_UNIFORM = 0xE01F0
"""Code points from here on are alike in ranges."""
_PLAIN = {r"\r": "\r", r"\n": "\n", r"\t": "\t", r"\f": "\f", r"\v": "\v"}
_BEHAVIORS = (
    "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"
)  # fmt: skip


class StepMaker:
    """Makes the steps of one tokenizer, whose arrays go into `arrays`."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._learned: dict[str, Points] = {}

    def changes(self, said: Any) -> list[Step]:
        """Return how a text is changed before it is cut."""
        steps: list[Step] = []
        for one in flatten(said, "normalizers"):
            kind = one["type"]
            if kind in ("NFC", "NFD", "NFKC", "NFKD"):
                steps += self._normal_form(kind)
            elif kind == "Prepend":
                steps.append(_begin(one["prepend"], always=True))
            elif kind == "Replace":
                steps.append(self._replace(one))
            elif kind == "Strip":
                steps.append({"do": "strip"} | {k: one[f"strip_{k}"] for k in ("left", "right")})
            elif kind == "Precompiled":
                found = read_map(one["precompiled_charsmap"])
                steps.append(self._map(found) | {"clusters": self._automaton(learn_clusters())})
            elif kind in ("Lowercase", "Nmt"):
                steps.append(self._letter_by_letter(kind))
            elif kind == "StripAccents":
                steps.append(self._remove(kind))
            elif kind == "BertNormalizer":
                steps += self._bert(one)
            else:
                raise UnfitError(f"its normalizer {kind}")
        return steps

    def cuts(self, said: Any) -> tuple[list[Step], bool]:
        """Return how a text is cut before the model sees it, and whether it sees bytes."""
        from tokenizers import pre_tokenizers

        steps: list[Step] = []
        is_bytes = False
        for one in flatten(said, "pretokenizers"):
            kind = one["type"]
            if is_bytes:
                raise UnfitError(f"its pre-tokenizer {kind} behind ByteLevel")
            if kind == "ByteLevel":
                is_bytes = True
                if one["add_prefix_space"]:
                    steps.append(_begin(" "))
                if one.get("use_regex", True):
                    steps.append(self._split(_GPT2, "Isolated"))
            elif kind == "Split":
                steps.append(self._split(_pattern_of(one), one["behavior"], invert=one["invert"]))
            elif kind == "Digits":
                behavior = "Isolated" if one["individual_digits"] else "Contiguous"
                steps.append(self._split_by(pre_tokenizers.Digits(True), behavior))
            elif kind == "Punctuation":
                found = pre_tokenizers.Punctuation("isolated")
                steps.append(self._split_by(found, one["behavior"]))
            elif kind == "Metaspace":
                steps += self._metaspace(one)
            elif kind in ("WhitespaceSplit", "BertPreTokenizer"):
                steps.append(self._split(r"\s+", "Removed"))
                if kind == "BertPreTokenizer":
                    steps.append(self._split_by(pre_tokenizers.BertPreTokenizer(), "Isolated"))
            else:
                raise UnfitError(f"its pre-tokenizer {kind}")
        return steps, is_bytes

    def _normal_form(self, kind: str) -> list[Step]:
        form: Step = {"do": "compose", "composes": kind.endswith("C")}
        form |= self._arrays.add_all(learn_normal_form())
        return [self._letter_by_letter("NFKD", "NFD"), form] if kind.startswith("NFK") else [form]

    def _letter_by_letter(self, kind: str, where_not: str = "") -> Step:
        """Have each letter become what a normalizer makes of it, unless another makes the same."""
        become, other = _ask(kind), _ask(where_not) if where_not else lambda letter: letter
        made = {chr(p): become(chr(p)) for p in POINTS.tolist()}
        changed = {letter: text for letter, text in made.items() if text != other(letter)}
        if any(ord(letter) >= _FIRST_UNIFORM for letter in changed):
            raise UnfitError(f"its normalizer {kind}, which changes letters that are none")
        return self._map({letter.encode(): text.encode() for letter, text in changed.items()})

    def _bert(self, said: Mapping[str, Any]) -> list[Step]:
        steps: list[Step] = []
        kind, strips = "BertNormalizer", said["strip_accents"]
        only = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False}
        if said["clean_text"]:
            clean = only | {"clean_text": True}
            steps.append(self._remove(kind, **clean))
            steps.append(self._swap_points(_points(_ask(kind, **clean), " "), " "))
        if said["handle_chinese_chars"]:
            spaced = _ask(kind, **only | {"handle_chinese_chars": True})
            stands_alone = np.array([len(spaced(chr(p))) == 3 for p in POINTS.tolist()])
            steps.append(self._swap_points(stands_alone, " ", keeps=True))
        if said["lowercase"] if strips is None else strips:
            steps += self._normal_form("NFD")
            steps.append(self._remove(kind, **only | {"strip_accents": True}))
        if said["lowercase"]:
            steps.append(self._letter_by_letter("Lowercase"))
        return steps

    def _remove(self, kind: str, **said: Any) -> Step:
        """Remove letters of which a normalizer leaves nothing."""
        return self._swap_points(_points(_ask(kind, **said), ""), "")

    def _swap_points(self, points: Points, to: str, *, keeps: bool = False) -> Step:
        """Put a text in place of letters, or on both sides of them."""
        swap = {"do": "swap", "to": to, "keeps": keeps}
        return swap | self._automaton(compile_pattern(".", lambda _: points))

    def _replace(self, said: Mapping[str, Any]) -> Step:
        ((kind, text),) = said["pattern"].items()
        if kind == "String":
            return replacing(said)
        swap = {"do": "swap", "to": said["content"], "keeps": False}
        return swap | self._automaton(compile_pattern(text, self._learn))

    def _map(self, made: Mapping[bytes, bytes]) -> Step:
        keys = sorted(made)
        values = self._arrays.add_texts(made[key] for key in keys)
        return {
            "do": "map",
            "keys": self._arrays.add_texts(keys),
            "values": values,
            "clusters": None,
        }

    def _metaspace(self, said: Mapping[str, Any]) -> list[Step]:
        mark, scheme = said["replacement"], said["prepend_scheme"]
        steps: list[Step] = [{"do": "replace", "from": " ", "to": mark}]
        if scheme != "never":
            steps.append(_begin(mark, first=scheme == "first"))
        if said["split"]:
            steps.append(self._split(_quote(mark), "MergedWithNext"))
        return steps

    def _split(self, pattern: str, behavior: str, *, invert: bool = False) -> Step:
        return self._split_at(compile_pattern(pattern, self._learn), behavior, invert=invert)

    def _split_by(self, cut: Any, behavior: str) -> Step:
        """Split at the letters that a pre-tokenizer of the library has stand alone."""
        points = _isolated_by(cut)
        return self._split_at(compile_pattern(".", lambda _: points), behavior, invert=False)

    def _split_at(self, automaton: Automaton, behavior: str, *, invert: bool) -> Step:
        if behavior not in _BEHAVIORS:
            raise UnfitError(f"its split {behavior}")
        split = {"do": "split", "behavior": behavior, "inverts": invert}
        return split | self._automaton(automaton)

    def _automaton(self, automaton: Automaton) -> Step:
        return {"columns": automaton.steps.shape[1]} | self._arrays.add_all(automaton)

    def _learn(self, source: str) -> Points:
        """Ask the library which code points a part of a pattern matches."""
        plain = _PLAIN.get(source, source)
        if len(plain) == 2 and plain[0] == "\\" and not plain[1].isalnum():
            plain = plain[1]
        if len(plain) == 1 and source != ".":
            return np.isin(POINTS, ord(plain))
        if source not in self._learned:
            folded = source.startswith("(?i:") and source.isascii() and "[" not in source
            points = POINTS[POINTS < _LAST_FOLDED] if folded and "\\" not in source else POINTS
            self._learned[source] = _match_each(source, points)
        return self._learned[source]


def flatten(said: Any, key: str) -> list[Mapping[str, Any]]:
    """Return steps in a row, of sequences in sequences."""
    if said is None:
        return []
    if said["type"] != "Sequence":
        return [said]
    return [step for one in said[key] for step in flatten(one, key)]


def replacing(said: Mapping[str, Any]) -> Step:
    """Return how one text becomes another."""
    ((kind, text),) = said["pattern"].items()
    if kind != "String" or not text:
        raise UnfitError(f"its replacement of the pattern {text!r}")
    return {"do": "replace", "from": text, "to": said["content"]}


def _begin(text: str, *, first: bool = False, always: bool = False) -> Step:
    return {"do": "begin", "text": text, "first": first, "always": always}


def _pattern_of(said: Mapping[str, Any]) -> str:
    ((kind, text),) = said["pattern"].items()
    return text if kind == "Regex" else _quote(text)


def _quote(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\^$.|?*+()[]{}" else letter for letter in text)


def _ask(kind: str, **said: Any) -> Callable[[str], str]:
    """Return what a normalizer of the library makes of a text."""
    from tokenizers import normalizers

    if kind == "BertNormalizer":
        said["lowercase"] = False
    become: Callable[[str], str] = getattr(normalizers, kind)(**said).normalize_str
    return become


def _points(become: Callable[[str], str], text: str) -> Points:
    """Return which code points become a text that they are not."""
    letters = map(chr, POINTS.tolist())
    return np.array([become(letter) == text != letter for letter in letters], dtype=np.bool_)


def _isolated_by(cut: Any) -> Points:
    """Ask a pre-tokenizer which code points it has stand alone, each put between two letters."""
    between = "".join(f"a{chr(point)}" for point in POINTS.tolist()) + "a"
    alone = np.zeros(len(POINTS), dtype=np.bool_)
    for _, (begin, end) in cut.pre_tokenize_str(between):
        if begin % 2 and end == begin + 1:
            alone[begin // 2] = True
    return alone


def _match_each(source: str, points: NDArray[np.uint32]) -> Points:
    """Ask the library which of these code points a class or an escape matches."""
    from tokenizers import Regex, pre_tokenizers

    try:
        split = pre_tokenizers.Split(Regex(f"(?:{source})+"), "removed", invert=False)
    except Exception as error:  # the library has no class of its own for this
        raise UnfitError(f"its pattern {source!r}: {error}") from error
    matched = np.ones(len(POINTS), dtype=np.bool_)
    matched[len(points) :] = False
    for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, points.tolist()))):
        matched[begin:end] = False
    return matched
