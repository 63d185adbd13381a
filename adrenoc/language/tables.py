"""What a tokenizer.json says, as tables that the runtime of a phone reads as they are.

The file text_tables.bin of a bundle holds the letters "adrtext2", the length of a JSON object in
eight bytes, the object, and arrays of little-endian numbers, each at a multiple of eight.  The
object names steps and where their arrays lie.  A tokenizer that has anything which these tables do
not hold has none, so that no phone makes other tokens than the library.

What makes tokens of pieces of a text does so by merging pairs (byte-pair encoding), by the best sum
of scores (Unigram) or by the longest beginnings (WordPiece).

Source: the sources of Hugging Face's tokenizers 0.2x.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.pattern import UnfitError
from adrenoc.language.text_steps import ALIGNMENT, Arrays, Step, StepMaker, flatten, replacing

NONE = 0xFFFFFFFF
"""The number of no token."""
_UNKNOWN_PENALTY = 10.0
"""By how much an unknown letter is worse than the worst token."""


Tokens: TypeAlias = Mapping[str, int]
"""Numbers of tokens by their texts."""


def make_model(
    arrays: Arrays, model: Mapping[str, Any], contents: Sequence[bytes], *, is_bytes: bool
) -> Step:
    """Return what the runtime reads of a model, whose tokens are written as `contents`."""
    makers = {"BPE": _make_merges, "Unigram": _make_scores, "WordPiece": _make_words}
    kind = model["type"]
    if kind not in makers or (is_bytes and kind != "BPE"):
        raise UnfitError(f"its model {kind}{' of bytes' if kind in makers else ''}")
    held = model["vocab"]
    # Of two tokens that are the same, the last.
    vocabulary = {text: at for at, (text, _) in enumerate(held)} if isinstance(held, list) else held
    return makers[kind](arrays, model, vocabulary, contents, is_bytes)


def _make_merges(
    arrays: Arrays, model: Any, vocabulary: Tokens, contents: Sequence[bytes], is_bytes: bool
) -> Step:
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise UnfitError(f"its {name}")
    falls_back = not is_bytes and model["byte_fallback"]
    whole = [
        id_
        for token, id_ in vocabulary.items()
        if (byte_letters(token) is not None if is_bytes else fallback_byte(token) is None)
    ]
    single = _single(vocabulary if falls_back else {})
    if is_bytes:
        for id_ in whole:
            if len(contents[id_]) == 1:
                single[contents[id_][0]] = id_
    starts, merges = _merges(model["merges"], vocabulary, len(contents))
    return {
        "kind": "merges",
        "is_bytes": is_bytes,
        "takes_whole": bool(model.get("ignore_merges")),
        "unknown": vocabulary.get(model["unk_token"] or "", NONE),
        "fuses": model["fuse_unk"],
        "single": arrays.add(single),
        "order": _order(arrays, whole, contents),
        "starts": arrays.add(starts),
        "merges": arrays.add(merges),
    }


def _make_scores(
    arrays: Arrays, model: Any, vocabulary: Tokens, contents: Sequence[bytes], is_bytes: bool
) -> Step:
    if model["unk_id"] is None:
        raise UnfitError("its model without a token for what is unknown")
    scores = [score for _, score in model["vocab"]]
    # Behind those of the tokens, that of a letter which is none.
    scores.append(min(scores) - _UNKNOWN_PENALTY)
    return {
        "kind": "scores",
        "unknown": model["unk_id"],
        "single": arrays.add(_single(vocabulary if model["byte_fallback"] else {})),
        "order": _order(arrays, vocabulary.values(), contents),
        "scores": arrays.add(np.array(scores, dtype=np.float64)),
    }


def _make_words(
    arrays: Arrays, model: Any, vocabulary: Tokens, contents: Sequence[bytes], is_bytes: bool
) -> Step:
    return {
        "kind": "words",
        "unknown": vocabulary[model["unk_token"]],
        "continues": model["continuing_subword_prefix"],
        "most_letters": model["max_input_chars_per_word"],
        "order": _order(arrays, vocabulary.values(), contents),
    }


def _order(arrays: Arrays, tokens: Any, contents: Sequence[bytes]) -> Step:
    ordered = sorted(tokens, key=lambda token: contents[token])
    return arrays.add(np.array(ordered, dtype=np.uint32))


def _single(vocabulary: Mapping[str, int]) -> NDArray[np.uint32]:
    """Return the token of each byte that has one."""
    tokens = [vocabulary.get(f"<0x{byte:02X}>", NONE) for byte in range(256)]
    return np.array(tokens, dtype=np.uint32)


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


_PLAIN_BYTES = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER_BYTES = [byte for byte in range(256) if byte not in _PLAIN_BYTES]
_BYTE_LETTERS = {chr(b): b for b in _PLAIN_BYTES} | {
    chr(256 + at): b for at, b in enumerate(_OTHER_BYTES)
}
"""The letters that ByteLevel writes bytes as."""


def byte_letters(token: str) -> bytes | None:
    """Return the bytes that a token of ByteLevel stands for; None where it is none of these."""
    if all(letter in _BYTE_LETTERS for letter in token):
        return bytes(_BYTE_LETTERS[letter] for letter in token)
    return None


def fallback_byte(token: str) -> int | None:
    """Return the byte of `<0x41>`."""
    if len(token) == len("<0x41>") and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


MAGIC = b"adrtext2"
_NORMALIZED, _STRIPS_LEFT, _STRIPS_RIGHT = 1, 2, 4
_SPECIAL, _BYTE = 1, 2
_CLEANUP = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
    (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
"""What the decoder WordPiece replaces."""


class _Maker:
    """Makes the tables of one tokenizer."""

    def __init__(self, library: Any) -> None:
        self._arrays = Arrays()
        self._library = library
        # As the library writes it, whatever older form it was in.
        self._said = json.loads(library.to_str())

    def make(self, chat: Mapping[str, Any]) -> bytes:
        """Return the file."""
        said, arrays = self._said, self._arrays
        steps = StepMaker(arrays)
        cuts, is_bytes = steps.cuts(said["pre_tokenizer"])
        writing, has_bytes = _writing(said["decoder"], is_bytes=is_bytes)
        contents = [self._content(text, is_bytes=is_bytes) for text in self._texts]
        header = {
            "added": self._added(),
            "normalize": steps.changes(said["normalizer"]),
            "cut": cuts,
            "model": make_model(arrays, said["model"], contents, is_bytes=is_bytes),
            "tokens": {
                "contents": arrays.add_texts(contents),
                "flags": self._flags(has_bytes=has_bytes),
            },
            "around": self._around() | _length(said["truncation"], said["padding"]),
            "write": writing,
            "chat": chat,
        }
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(len(MAGIC) + ALIGNMENT + len(text)) % ALIGNMENT)
        return MAGIC + len(text).to_bytes(8, "little") + text + arrays.content

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

    @cached_property
    def _texts(self) -> list[str | None]:
        """Return the text of each token, None where a number has none."""
        held = self._said["model"]["vocab"]
        by_id = (
            {id_: token for id_, (token, _) in enumerate(held)}
            if isinstance(held, list)
            else {id_: token for token, id_ in held.items()}
        )
        by_id |= {token["id"]: token["content"] for token in self._said["added_tokens"]}
        return [by_id.get(id_) for id_ in range(max(by_id) + 1)]

    @staticmethod
    def _content(text: str | None, *, is_bytes: bool) -> bytes:
        text = text or ""
        return (byte_letters(text) if is_bytes else None) or text.encode()

    def _flags(self, *, has_bytes: bool) -> Step:
        left_out = {None, *(t["content"] for t in self._said["added_tokens"] if t["special"])}
        flags = [
            (_SPECIAL if text in left_out else 0)
            | (_BYTE if has_bytes and fallback_byte(text or "") is not None else 0)
            for text in self._texts
        ]
        return self._arrays.add(np.array(flags, dtype=np.uint8))

    def _around(self) -> dict[str, list[int]]:
        """Return the tokens that the tokenizer puts before and behind those of a text."""
        found = set()
        for text in ("a", "b 7\n\nc"):
            inner, outer = self._encode(text, special=False), self._encode(text, special=True)
            at = next(
                (i for i in range(len(outer)) if outer[i : i + len(inner)] == inner), len(outer)
            )
            found.add((tuple(outer[:at]), tuple(outer[at + len(inner) :])))
        if len(found) != 1:
            raise UnfitError("its post-processor, which puts other tokens around other texts")
        ((before, after),) = found
        return {"before": list(before), "after": list(after)}

    def _encode(self, text: str, *, special: bool) -> list[int]:
        """Return a text's tokens without those that fill it up."""
        made = self._library.encode(text, add_special_tokens=special)
        return [
            token for token, counts in zip(made.ids, made.attention_mask, strict=True) if counts
        ]


def make_tables(
    library: Any,
    turns: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the file of a tokenizer, as the `library` has read it, of how a template writes turns,
    and of how the model's makers pick tokens."""
    try:
        return _Maker(library).make({"turns": turns, "sampling": sampling})
    except (KeyError, TypeError, IndexError) as error:
        raise UnfitError(f"a form that is not known ({type(error).__name__}: {error})") from error


def _length(truncation: Any, padding: Any) -> Step:
    """Return the most tokens of a text (0: any number), and up to how many one fills it."""
    for said, name in ((truncation, "truncation"), (padding, "padding")):
        if said and (said["direction"] != "Right" or said.get("pad_to_multiple_of")):
            raise UnfitError(f"its {name} of another kind")
    fixed = padding["strategy"] if padding else None  # a batch of one text needs none
    return {
        "most": truncation["max_length"] if truncation else 0,
        "fills": fixed["Fixed"] if isinstance(fixed, dict) else 0,
        "filler": padding["pad_id"] if padding else 0,
    }


def _writing(said: Any, *, is_bytes: bool) -> tuple[Step, bool]:
    """Return how texts come of tokens, and whether some stand for bytes."""
    steps = flatten(said, "decoders")
    kinds = [one["type"] for one in steps]
    writing: Step = {"first": [], "replaces": [], "strips": 0, "continues": ""}
    if kinds == ["ByteLevel"] and is_bytes:
        return writing, False
    if kinds == ["WordPiece"] and not is_bytes:
        cleans = list(map(list, _CLEANUP)) if steps[0]["cleanup"] else []
        return writing | {
            "first": cleans,
            "replaces": cleans,
            "continues": steps[0]["prefix"],
        }, False
    if kinds == ["Metaspace"] and not is_bytes:
        mark = steps[0]["replacement"]
        first = " " if steps[0]["prepend_scheme"] == "never" else ""
        return writing | {"first": [[mark, first]], "replaces": [[mark, " "]]}, False
    replaced = [replacing(one) for one in steps if one["type"] == "Replace"]
    rest = kinds[len(replaced) :]
    strip = steps[-1] if rest and rest[-1] == "Strip" else None
    is_plain = strip is None or (strip["content"] == " " and strip["stop"] == 0 and "Fuse" in rest)
    has_bytes = "ByteFallback" in rest
    known = (["ByteFallback"] * has_bytes, ["ByteFallback", "Strip"], ["Strip"])
    if is_bytes or not kinds or [k for k in rest if k != "Fuse"] not in known or not is_plain:
        raise UnfitError(f"its decoder {', '.join(kinds) or 'of no kind'}")
    replaces = [[one["from"], one["to"]] for one in replaced]
    strips = 0 if strip is None else strip["start"]
    return writing | {"first": replaces, "replaces": replaces, "strips": strips}, has_bytes
