"""Tokens: which tokenizer a bundle gets, text as it comes, and scores of what is generated."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_zoo.containers import write_litertlm

from adrenoc.base.errors import InputError, ModelFormatError
from adrenoc.check.accuracy.samples import score_tokens
from adrenoc.check.generation import check_tokens
from adrenoc.compile.decoder_plan import find_tokenizer
from adrenoc.language import tokenizer
from adrenoc.language.tokenizer import TextStream, Tokenizer


class Pieces:
    """A tokeniser whose tokens are bytes, and which drops a blank that begins a text."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def decode(self, tokens: Sequence[int]) -> str:
        text = b"".join(self.pieces[token] for token in tokens).decode("utf-8", "replace")
        return text.removeprefix(" ")


def stream(pieces: Sequence[bytes], lots: Sequence[int]) -> list[str]:
    """What is told of all pieces, so many at a time."""
    told = TextStream(Pieces(pieces))
    said, at = [], 0
    for count in lots:
        said.append(told.feed(range(at, at + count)))
        at += count
    assert at == len(pieces)
    return [*said, told.finish()]


@pytest.mark.parametrize("lots", [(1, 1, 1, 1), (2, 2), (4,), (3, 1)])
def test_blanks_stay(lots):
    said = stream([b" one", b" two", b",", b" three"], lots)
    assert "".join(said) == "one two, three"
    assert said[-1] == ""


def test_a_letter_of_several_tokens_waits_for_its_last():
    said = stream(
        [b"a", "\u20ac".encode()[:1], "\u20ac".encode()[1:2], "\u20ac".encode()[2:], b"b"], [1] * 5
    )
    assert said == ["a", "", "", "\u20ac", "b", ""]


def test_bytes_that_are_no_letter_do_not_wait_for_ever():
    said = stream([b"a", b"\xff", b"\xff", b"\xff", b"\xff", b"b"], [1] * 6)
    assert said[4] != ""
    assert "".join(said).endswith("b")
    assert stream([b"a", b"\xe2"], (1, 1)) == ["a", "", "\ufffd"]


def test_a_prompt_that_fills_the_context_leaves_nothing_to_compare():
    with pytest.raises(InputError, match="prompt's 3 tokens fill the context"):
        check_tokens(Path("m.onnx"), [1, 2, 3], [], [], tolerance=1e-3)


def logs(*rows: list[float]) -> np.ndarray:
    return np.log(np.array(rows, np.float32))


def test_perplexity_is_that_of_the_next_tokens():
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


def test_logits_that_are_no_numbers_score_infinity():
    reference = logs([0.5, 0.5], [0.5, 0.5])
    score = score_tokens((0, 1), np.full((2, 2), np.nan, np.float32), reference)
    assert (score.perplexity, score.divergence) == (math.inf, math.inf)


MODEL = bytes(4) + b"TFL3" + bytes(range(200))
WORDS = b'{"model": {}}'


def write(folder: Path, **parts: bytes) -> Path:
    for name, content in parts.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder / next(iter(parts)).replace("_", ".")


def test_the_one_beside_the_model(tmp_path):
    model = write(tmp_path, m_tflite=MODEL)
    assert find_tokenizer(model, None) == (b"", ())
    write(tmp_path, tokenizer_json=WORDS)
    found, decisions = find_tokenizer(model, None)
    assert found == WORDS and len(decisions) == 1
    write(tmp_path, tokenizer_json=b"[1]")
    found, decisions = find_tokenizer(model, None)
    assert found == b"" and decisions[0].taken == "left out"


def test_the_one_of_the_container_and_the_one_that_is_asked_for(tmp_path):
    whole = write_litertlm(MODEL, tokenizer=WORDS)
    model = write(tmp_path, m_litertlm=whole, tokenizer_json=b'{"model": 1}')
    assert find_tokenizer(model, None)[0] == WORDS
    assert find_tokenizer(model, tmp_path / "tokenizer.json")[0] == b'{"model": 1}'
    for name, message in (("m.litertlm", "no JSON with a model"), ("none", "cannot be read")):
        with pytest.raises(InputError, match=message):
            find_tokenizer(model, tmp_path / name)
    at = whole.rindex(b"x\x9c", 0, whole.index(b"TFL3"))
    write(tmp_path, m_litertlm=whole[: at + 3] + b"\0\0" + whole[at + 5 :])
    with pytest.raises(ModelFormatError, match="cannot be decompressed"):
        find_tokenizer(model, None)


pytest.importorskip("tokenizers")

BYTES = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}


def write_tokenizer(folder: Path, **parts) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": BYTES, **parts}))
    return path


def growing(times: int) -> dict[str, Any]:
    """A normaliser that makes 20^times letters of one."""
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 20}
    return {"type": "Sequence", "normalizers": [step] * times}


def test_text_goes_there_and_back(tmp_path):
    found = Tokenizer(write_tokenizer(tmp_path))
    assert found.encode("abba") == [0, 1, 1, 0]
    assert found.decode([1, 0]) == "b a"


def test_a_pattern_that_panics(tmp_path):
    pattern = {"Regex": "(a+)+$((((a*)*)*)*)*"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    found = Tokenizer(write_tokenizer(tmp_path, pre_tokenizer=split))
    with pytest.raises(InputError, match=r"tokenizer\.json makes no tokens of the text: .*retry"):
        found.encode("a" * 40 + "b")


def test_a_letter_without_a_token(tmp_path):
    model = {"type": "Unigram", "unk_id": None, "vocab": [["b", 0.0]]}
    with pytest.raises(InputError, match="unknown token"):
        Tokenizer(write_tokenizer(tmp_path, model=model)).encode("ab")


def test_a_text_that_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer, "MOST_BYTES", 512 << 20)
    found = Tokenizer(write_tokenizer(tmp_path, normalizer=growing(8)))
    with pytest.raises(InputError, match="to encode ends the library, which may take 512 MiB"):
        found.encode("aaa")
    with pytest.raises(InputError):  # it is gone, and says so again
        found.decode([0])


def test_a_text_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer, "MOST_CPU_S", 1)
    pattern = {"Regex": r"(a*)\1(?!a|$)"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    found = Tokenizer(write_tokenizer(tmp_path, pre_tokenizer=split))
    with pytest.raises(InputError, match="to encode takes more than 1 s of processor time"):
        found.encode("a" * 9000)
