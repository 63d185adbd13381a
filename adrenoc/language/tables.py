"""What a tokenizer.json says, as tables that the runtime of a phone reads as they are.

The file text_tables.bin of a bundle holds the letters "adrtext2", the length of a JSON object in
eight bytes, the object, and arrays of little-endian numbers, each at a multiple of eight.  The
object names steps and where their arrays lie.  A tokenizer that has anything which these tables do
not hold has none, so that no phone makes other tokens than the library.

Source: the sources of Hugging Face's tokenizers 0.2x.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from adrenoc.language.arrays import ALIGNMENT, Arrays, Step
from adrenoc.language.pattern import UnfitError
from adrenoc.language.text_models import byte_letters, fallback_byte, make_model
from adrenoc.language.text_steps import StepMaker, flatten, replacing

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
    """Return the file of a tokenizer, as the `library` has read it, of how a template writes
    turns, and of how the model's makers pick tokens.

    Raises:
        UnfitError: the tokenizer has what the tables do not hold.
    """
    try:
        return _Maker(library).make({"turns": turns, "sampling": sampling})
    except (KeyError, TypeError, IndexError) as error:
        raise UnfitError(f"a form that is not known ({type(error).__name__}: {error})") from error


def _length(truncation: Any, padding: Any) -> Step:
    """Return the most tokens of a text (0: any number), and up to how many it is filled with one.

    Raises:
        UnfitError: they are not those at its end.
    """
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
