"""Tables of what makes tokens of pieces of a text: by merging pairs (byte-pair encoding), by the
best sum of scores (Unigram) or by the longest beginnings (WordPiece).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adrenoc.language.arrays import Arrays, Step
from adrenoc.language.pattern import UnfitError

NONE = 0xFFFFFFFF
"""The number of no token."""
_UNKNOWN_PENALTY = 10.0
"""By how much an unknown letter is worse than the worst token."""


def make_model(
    arrays: Arrays, model: Mapping[str, Any], contents: Sequence[bytes], *, is_bytes: bool
) -> Step:
    """Return what the runtime reads of a model, whose tokens are written as `contents`.

    Raises:
        UnfitError: it is of another kind, or has what the tables do not hold.
    """
    makers = {"BPE": _make_merges, "Unigram": _make_scores, "WordPiece": _make_words}
    kind = model["type"]
    if kind not in makers or (is_bytes and kind != "BPE"):
        raise UnfitError(f"its model {kind}{' of bytes' if kind in makers else ''}")
    held = model["vocab"]
    # Of two tokens that are the same, the last.
    vocabulary = {text: at for at, (text, _) in enumerate(held)} if isinstance(held, list) else held
    return makers[kind](arrays, model, vocabulary, contents, is_bytes)


def _make_merges(
    arrays: Arrays,
    model: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    contents: Sequence[bytes],
    is_bytes: bool,
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
    arrays: Arrays,
    model: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    contents: Sequence[bytes],
    is_bytes: bool,
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
    arrays: Arrays,
    model: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    contents: Sequence[bytes],
    is_bytes: bool,
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


def _byte_letters() -> dict[str, int]:
    """Return the letters that ByteLevel writes bytes as."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + at): b for at, b in enumerate(others)}


_BYTE_LETTERS = _byte_letters()


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
