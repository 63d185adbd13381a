"""Which tokenizer.json goes into a bundle."""

from pathlib import Path

import pytest
from model_zoo.containers import write_litertlm

from adrenoc.base.errors import InputError, ModelFormatError
from adrenoc.compile.decoder_plan import find_tokenizer

MODEL = bytes(4) + b"TFL3" + bytes(range(200))
WORDS = b'{"model": {}}'


def write(folder: Path, **parts: bytes) -> Path:
    for name, content in parts.items():
        (folder / name.replace("_", ".")).write_bytes(content)
    return folder / next(iter(parts)).replace("_", ".")


def test_the_one_beside_the_model(tmp_path: Path) -> None:
    model = write(tmp_path, m_tflite=MODEL)
    assert find_tokenizer(model, None) == (b"", ())
    write(tmp_path, tokenizer_json=WORDS)
    found, decisions = find_tokenizer(model, None)
    assert found == WORDS and len(decisions) == 1
    write(tmp_path, tokenizer_json=b"[1]")
    found, decisions = find_tokenizer(model, None)
    assert found == b"" and decisions[0].taken == "left out"


def test_the_one_of_the_container_and_the_one_that_is_asked_for(tmp_path: Path) -> None:
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
