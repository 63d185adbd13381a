"""What a tokenizer.json says, as tables that the runtime of a phone reads as they are.

The file text_tables.bin of a bundle holds the letters "adrtext1", the length of a JSON object in
eight bytes, the object, and arrays of little-endian numbers, each at a multiple of eight.  The
object names steps and where their arrays lie.  A tokenizer that has anything which these tables do
not hold has none, so that no phone makes other tokens than the library.

Source: the sources of Hugging Face's tokenizers 0.2x.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.normal_form import learn_normal_form
from adrenoc.language.pattern import POINTS, Automaton, Points, UnfitError, compile_pattern

MAGIC = b"adrtext1"
_NONE = 0xFFFFFFFF
"""The number of no token."""
_ALIGNMENT = 8
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How ByteLevel cuts where it is to."""
_NORMALIZED, _STRIPS_LEFT, _STRIPS_RIGHT = 1, 2, 4
_SPECIAL, _BYTE = 1, 2
_LAST_FOLDED = 0x3000
"""No code point from here on differs in case alone from one of ASCII."""
_PLAIN = {r"\r": "\r", r"\n": "\n", r"\t": "\t", r"\f": "\f", r"\v": "\v"}
_BEHAVIORS = (
    "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"
)  # fmt: skip

Step: TypeAlias = dict[str, Any]


class _Arrays:
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
        padded = content + bytes(-len(content) % _ALIGNMENT)
        self._parts.append(padded)
        self._size += len(padded)
        return place

    def add_texts(self, texts: Iterable[bytes]) -> dict[str, dict[str, int]]:
        """Return where texts lie, one behind the other, and where each begins."""
        held = list(texts)
        starts = np.cumsum([0, *map(len, held)], dtype=np.uint32)
        return {"starts": self.add(starts), "bytes": self.add(b"".join(held))}

    @property
    def content(self) -> bytes:
        """Return all of them."""
        return b"".join(self._parts)


class _Maker:
    """Makes the tables of one tokenizer.json."""

    def __init__(self, text: str, library: Any) -> None:
        self._arrays = _Arrays()
        self._library = library
        self._said = json.loads(text)
        self._learned: dict[str, Points] = {}

    def make(self, chat: Mapping[str, Any]) -> bytes:
        """Return the file."""
        said = self._said
        for name in ("truncation", "padding"):
            if said.get(name) is not None:
                raise UnfitError(f"its {name}")
        cuts, is_bytes = self._cuts(said["pre_tokenizer"])
        header = {
            "added": self._added(),
            "normalize": self._normalize(said["normalizer"]),
            "cut": cuts,
            "model": self._model(is_bytes=is_bytes),
            "tokens": self._tokens(is_bytes=is_bytes),
            "around": self._around(),
            "write": _writing(said["decoder"], is_bytes=is_bytes),
            "chat": chat,
        }
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(len(MAGIC) + _ALIGNMENT + len(text)) % _ALIGNMENT)
        return MAGIC + len(text).to_bytes(8, "little") + text + self._arrays.content

    def _added(self) -> dict[str, Any]:
        """Return tokens that are found in a text before all else."""
        normalizer = self._library.normalizer
        found: dict[bytes, tuple[int, int]] = {}
        for token in self._said["added_tokens"]:
            if token["single_word"]:
                raise UnfitError(f"its token {token['content']!r}, which has to be a word")
            content, flags = token["content"], 0
            for name, flag in (
                ("normalized", _NORMALIZED), ("lstrip", _STRIPS_LEFT), ("rstrip", _STRIPS_RIGHT)
            ):  # fmt: skip
                flags |= flag if token[name] else 0
            if token["normalized"] and normalizer is not None:
                content = normalizer.normalize_str(content)
            if content:
                found[content.encode()] = token["id"], flags
        contents = sorted(found)
        return {
            "contents": self._arrays.add_texts(contents),
            "ids": self._arrays.add(np.array([found[c][0] for c in contents], dtype=np.uint32)),
            "flags": self._arrays.add(np.array([found[c][1] for c in contents], dtype=np.uint8)),
        }

    def _normalize(self, said: Any) -> list[Step]:
        steps: list[Step] = []
        for one in _flatten(said, "normalizers"):
            if one["type"] == "NFC":
                form = vars(learn_normal_form())
                steps.append({"do": "compose"} | {k: self._arrays.add(v) for k, v in form.items()})
            elif one["type"] == "Prepend":
                steps.append(_begin(one["prepend"], always=True))
            elif one["type"] == "Replace":
                steps.append(_replacing(one))
            else:
                raise UnfitError(f"its normalizer {one['type']}")
        return steps

    def _cuts(self, said: Any) -> tuple[list[Step], bool]:
        """Return how a text is cut before the model sees it, and whether it sees bytes."""
        from tokenizers import pre_tokenizers

        steps: list[Step] = []
        is_bytes = False
        for one in _flatten(said, "pretokenizers"):
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
            else:
                raise UnfitError(f"its pre-tokenizer {kind}")
        return steps, is_bytes

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
        places = {name: self._arrays.add(array) for name, array in vars(automaton).items()}
        columns = automaton.steps.shape[1]
        return {"do": "split", "behavior": behavior, "inverts": invert, "columns": columns} | places

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

    def _model(self, *, is_bytes: bool) -> Step:
        model = self._said["model"]
        if model.get("type", "BPE") != "BPE":
            raise UnfitError(f"its model {model['type']}")
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name):
                raise UnfitError(f"its {name}")
        vocabulary: dict[str, int] = model["vocab"]
        stored = {token: _bytes_of(token, is_bytes=is_bytes) for token in vocabulary}
        whole = {
            token: content
            for token, content in stored.items()
            if content is not None and (is_bytes or _fallback_byte(token) is None)
        }
        order = [vocabulary[t] for t in sorted(whole, key=lambda t: whole[t])]
        single = np.full(256, _NONE, dtype=np.uint32)
        if is_bytes:
            for token, content in whole.items():
                if len(content) == 1:
                    single[content[0]] = vocabulary[token]
        elif model["byte_fallback"]:
            for byte in range(256):
                single[byte] = vocabulary.get(f"<0x{byte:02X}>", _NONE)
        starts, merges = _merges(model["merges"], vocabulary, len(self._texts))
        unknown = vocabulary.get(model["unk_token"], _NONE) if model["unk_token"] else _NONE
        return {
            "is_bytes": is_bytes,
            "takes_whole": bool(model.get("ignore_merges")),
            "unknown": unknown,
            "fuses": model["fuse_unk"],
            "single": self._arrays.add(single),
            "order": self._arrays.add(np.array(order, dtype=np.uint32)),
            "starts": self._arrays.add(starts),
            "merges": self._arrays.add(merges),
        }

    @cached_property
    def _texts(self) -> list[str | None]:
        """Return the text of each token, None where a number has none."""
        vocabulary = self._said["model"]["vocab"]
        by_id = {id_: token for token, id_ in vocabulary.items()}
        by_id |= {token["id"]: token["content"] for token in self._said["added_tokens"]}
        return [by_id.get(id_) for id_ in range(max(by_id) + 1)]

    def _tokens(self, *, is_bytes: bool) -> Step:
        texts = self._texts
        special = {t["id"] for t in self._said["added_tokens"] if t["special"]}
        flags = np.zeros(len(texts), dtype=np.uint8)
        flags[list(special)] |= _SPECIAL
        contents = []
        for at, text in enumerate(texts):
            content = b"" if text is None else text.encode()
            if is_bytes and text is not None:
                content = _bytes_of(text, is_bytes=True) or content
            elif (byte := _fallback_byte(text or "")) is not None:
                flags[at] |= _BYTE
                content = bytes([byte])
            contents.append(content)
        return {"contents": self._arrays.add_texts(contents), "flags": self._arrays.add(flags)}

    def _around(self) -> dict[str, list[int]]:
        """Return the tokens that the tokenizer puts before and behind those of a text."""
        found = set()
        for text in ("a", "b 7\n\nc"):
            inner = self._library.encode(text, add_special_tokens=False).ids
            outer = self._library.encode(text).ids
            at = next(
                (i for i in range(len(outer)) if outer[i : i + len(inner)] == inner), len(outer)
            )
            found.add((tuple(outer[:at]), tuple(outer[at + len(inner) :])))
        if len(found) != 1:
            raise UnfitError("its post-processor, which puts other tokens around other texts")
        ((before, after),) = found
        return {"before": list(before), "after": list(after)}


def make_tables(
    text: str,
    library: Any,
    turns: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the file of a tokenizer.json, which the `library` has read, of how a template writes
    turns, and of how the model's makers pick tokens.

    Raises:
        UnfitError: the tokenizer has what the tables do not hold.
    """
    try:
        return _Maker(text, library).make({"turns": turns, "sampling": sampling})
    except (KeyError, TypeError, IndexError) as error:
        raise UnfitError(f"a form that is not known ({type(error).__name__}: {error})") from error


def _flatten(said: Any, key: str) -> list[Mapping[str, Any]]:
    """Return steps in a row, of sequences in sequences."""
    if said is None:
        return []
    if said["type"] != "Sequence":
        return [said]
    return [step for one in said[key] for step in _flatten(one, key)]


def _pattern_of(said: Mapping[str, Any]) -> str:
    ((kind, text),) = said["pattern"].items()
    return text if kind == "Regex" else _quote(text)


def _quote(text: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\^$.|?*+()[]{}" else letter for letter in text)


def _replacing(said: Mapping[str, Any]) -> Step:
    ((kind, text),) = said["pattern"].items()
    if kind != "String" or not text:
        raise UnfitError(f"its replacement of the pattern {text!r}")
    return {"do": "replace", "from": text, "to": said["content"]}


def _begin(text: str, *, first: bool = False, always: bool = False) -> Step:
    return {"do": "begin", "text": text, "first": first, "always": always}


def _writing(said: Any, *, is_bytes: bool) -> Step:
    """Return how texts come of tokens."""
    steps = [one for one in _flatten(said, "decoders") if one["type"] != "Fuse"]
    kinds = [one["type"] for one in steps]
    if kinds == ["ByteLevel"] and is_bytes:
        return {"replaces": [], "strips": 0}
    replaces = [_replacing(one) for one in steps if one["type"] == "Replace"]
    rest = kinds[len(replaces) :]
    strips = steps[-1] if rest == ["ByteFallback", "Strip"] else None
    is_plain = strips is None or (strips["content"] == " " and strips["stop"] == 0)
    if is_bytes or (rest != ["ByteFallback"] and strips is None) or not is_plain:
        raise UnfitError(f"its decoder {', '.join(kinds) or 'of no kind'}")
    return {
        "replaces": [[one["from"], one["to"]] for one in replaces],
        "strips": 0 if strips is None else strips["start"],
    }


def _merges(
    said: Sequence[Any], vocabulary: Mapping[str, int], count: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return rows of (right, rank, made) in order of the left token and the right one, and where
    the rows of each left token begin."""
    rows: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, pair in enumerate(said):
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        rows[vocabulary[left], vocabulary[right]] = rank, vocabulary[left + right]
    ordered = np.array(sorted((*pair, *made) for pair, made in rows.items()), dtype=np.uint32)
    ordered = ordered.reshape(-1, 4)
    starts = np.searchsorted(ordered[:, 0], np.arange(count + 1)).astype(np.uint32)
    return starts, np.ascontiguousarray(ordered[:, 1:])


def _byte_letters() -> dict[str, int]:
    """Return the letters that ByteLevel writes bytes as."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + at): b for at, b in enumerate(others)}


_BYTE_LETTERS = _byte_letters()


def _bytes_of(token: str, *, is_bytes: bool) -> bytes | None:
    """Return what a token stands for; None where it is not of bytes but should be."""
    if not is_bytes:
        return token.encode()
    if all(letter in _BYTE_LETTERS for letter in token):
        return bytes(_BYTE_LETTERS[letter] for letter in token)
    return None


def _fallback_byte(token: str) -> int | None:
    """Return the byte of `<0x41>`."""
    if len(token) == len("<0x41>") and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


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
