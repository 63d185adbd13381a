"""Tokens that the phone's runtime makes of texts, and its texts, are those of the library."""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from adrenoc.language.pattern import UnfitError
from adrenoc.language.tables import MAGIC, make_tables
from adrenoc.language.tokenizer import TextStream
from tests.commands import run_program
from tests.runtime.test_damage import build_with_readers
from tests.tokenizer_files import KINDS, draw_lines, make_bytes

tokenizers = pytest.importorskip("tokenizers")

_READERS = ("src/base/json", "runtime/src/text/steps")
LINES = 120
REAL = sorted(Path(os.environ.get("TOKENIZERS", "/nowhere")).rglob("tokenizer.json"))
"""Files of real models, where somebody has some."""


class Beside:
    """The library, and the program with the tables of the same tokenizer.json."""

    def __init__(self, program: Path, text: str, folder: Path) -> None:
        self._program, self.tables = program, folder / "text_tables.bin"
        self.library = tokenizers.Tokenizer.from_str(text)
        self.tables.write_bytes(make_tables(self.library))

    def ask(self, how: str, lines: Sequence[str]) -> list[str]:
        done = run_program(
            [self._program, self.tables, how], input="".join(f"{line}\n" for line in lines)
        )
        assert done.returncode == 0, done.stdout[-500:] + done.stderr
        return done.stdout.splitlines()

    def encode(self, how: str, texts: Sequence[str]) -> list[list[int]]:
        lines = self.ask(how, [text.encode().hex() for text in texts])
        return [[int(token) for token in line.split()] for line in lines]

    @cached_property
    def added(self) -> list[str]:
        return [token.content for token in self.library.get_added_tokens_decoder().values()]


def tables_of(said: dict[str, Any]) -> bytes:
    return make_tables(tokenizers.Tokenizer.from_str(json.dumps(said)))


def compare(beside: Beside, count: int) -> None:
    library = beside.library
    texts = list(draw_lines(beside.added or ["<none>"], count, 1))
    for how, special in (("encode", True), ("plain", False)):
        made = beside.encode(how, texts)
        expected = [library.encode(text, add_special_tokens=special).ids for text in texts]
        assert [t for t, a, b in zip(texts, made, expected, strict=True) if a != b] == []
    drawn, size = random.Random(2), library.get_vocab_size()
    noise = [[drawn.randrange(size) for _ in range(drawn.randint(1, 20))] for _ in texts]
    rows = [*expected, *noise]
    said = beside.ask("decode", [" ".join(map(str, row)) for row in rows])
    wrong = [
        row
        for row, line in zip(rows, said, strict=True)
        if bytes.fromhex(line).decode() != library.decode(row)
    ]
    assert wrong == []
    some = rows[: count // 4]
    streamed = beside.ask("stream", [" ".join(map(str, row)) for row in some])
    for row, line in zip(some, streamed, strict=True):
        stream = TextStream(library)
        pieces = [*(stream.feed([token]) for token in row), stream.finish()]
        assert [bytes.fromhex(piece).decode() for piece in line.split(" ")] == pieces, row


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build_with_readers("text_program.cc", tmp_path_factory.mktemp("text"), _READERS, "-O1")


@pytest.fixture(scope="module")
def besides(program, tmp_path_factory) -> Callable[[str], Beside]:
    """Tokenizers by their kind; the library is asked about each letter once."""

    @cache
    def make(kind: str) -> Beside:
        return Beside(program, json.dumps(KINDS[kind]()), tmp_path_factory.mktemp("kind"))

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_texts_are_the_library_s(besides, kind):
    compare(besides(kind), LINES)


@pytest.mark.nightly
@pytest.mark.parametrize("path", REAL, ids=[path.parts[-3] for path in REAL])
def test_files_of_models(program, path, tmp_path):
    compare(Beside(program, path.read_text(encoding="utf-8"), tmp_path), 10_000)


@pytest.mark.parametrize("kind", ["bytes", "scores", "words"])
def test_damaged_tables_are_refused(program, besides, kind, tmp_path):
    beside = copy(besides(kind))
    beside.tables = Path(shutil.copy(beside.tables, tmp_path))
    done = run_program([program, beside.tables, "damaged", "7", "80"])
    # Sanitizers end the program; some damage hits what the text has no use for.
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) < 80
    for file, reason in ((b"", "has not the form"), (MAGIC + b"\xff" * 16, "is cut off")):
        beside.tables.write_bytes(file)
        with pytest.raises(AssertionError, match=f"text_tables.bin {reason}"):
            beside.ask("encode", [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "ByteLevel"}}, "its normalizer ByteLevel"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "its pre-tokenizer Whitespace"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                {"type": "Digits", "individual_digits": False},
            ]}},
            "its pre-tokenizer Digits behind ByteLevel",
        ),
        ({"decoder": None}, "its decoder of no kind"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "its decoder WordP"),
        (
            {"truncation": {
                "max_length": 9, "stride": 0, "strategy": "LongestFirst", "direction": "Left"
            }},
            "its truncation of another kind",
        ),
    ],
)  # fmt: skip
def test_what_tables_do_not_hold_is_named(change, reason):
    with pytest.raises(UnfitError, match=reason):
        tables_of(make_bytes(size=300) | change)


def test_a_token_that_has_to_be_a_word_is_refused():
    made = make_bytes(size=300)
    made["added_tokens"][0]["single_word"] = True
    with pytest.raises(UnfitError, match="which has to be a word"):
        tables_of(made)
