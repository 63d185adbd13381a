"""Files of tokenizers that panic, grow or do not end: one sentence, and our process lives."""

import json
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import InputError
from adrenoc.language import tokenizer
from adrenoc.language.tokenizer import Tokenizer

pytest.importorskip("tokenizers")

BYTES = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}


def write(folder: Path, **parts: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": BYTES, **parts}))
    return path


def growing(times: int) -> dict[str, Any]:
    """A normaliser that makes 20^times letters of one."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 20}
    return {"type": "Sequence", "normalizers": [step] * times}


def test_text_goes_there_and_back(tmp_path: Path) -> None:
    found = Tokenizer(write(tmp_path))
    assert found.encode("abba") == [0, 1, 1, 0]
    assert found.decode([1, 0]) == "b a"


def test_a_pattern_that_panics(tmp_path: Path) -> None:
    pattern = {"Regex": "(a+)+$((((a*)*)*)*)*"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    found = Tokenizer(write(tmp_path, pre_tokenizer=split))
    with pytest.raises(InputError, match=r"tokenizer\.json makes no tokens of the text: .*retry"):
        found.encode("a" * 40 + "b")


def test_a_letter_without_a_token(tmp_path: Path) -> None:
    model = {"type": "Unigram", "unk_id": None, "vocab": [["b", 0.0]]}
    with pytest.raises(InputError, match="unknown token"):
        Tokenizer(write(tmp_path, model=model)).encode("ab")


def test_a_text_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MOST_BYTES", 512 << 20)
    found = Tokenizer(write(tmp_path, normalizer=growing(8)))
    with pytest.raises(InputError, match="to encode ends the library, which may take 512 MiB"):
        found.encode("aaa")
    with pytest.raises(InputError):  # it is gone, and says so again
        found.decode([0])


def test_a_text_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MOST_CPU_S", 1)
    pattern = {"Regex": r"(a*)\1(?!a|$)"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    found = Tokenizer(write(tmp_path, pre_tokenizer=split))
    with pytest.raises(InputError, match="to encode takes more than 1 s of processor time"):
        found.encode("a" * 9000)
