"""Text of tokens as they come: whole letters, blanks in their place, nothing twice."""

from collections.abc import Sequence

import pytest

from adrenoc.language.tokenizer import TextStream


class Pieces:
    """A tokeniser whose tokens are bytes, and which drops a blank that begins a text."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def decode(self, tokens: Sequence[int]) -> str:
        text = b"".join(self.pieces[token] for token in tokens).decode("utf-8", "replace")
        return text.removeprefix(" ")


def stream(pieces: Sequence[bytes], lots: Sequence[int]) -> list[str]:
    """What is told of all pieces, so many at a time."""
    told = TextStream(Pieces(pieces))  # type: ignore[arg-type]
    said, at = [], 0
    for count in lots:
        said.append(told.feed(range(at, at + count)))
        at += count
    assert at == len(pieces)
    return [*said, told.finish()]


@pytest.mark.parametrize("lots", [(1, 1, 1, 1), (2, 2), (4,), (3, 1)])
def test_blanks_stay(lots: tuple[int, ...]) -> None:
    said = stream([b" one", b" two", b",", b" three"], lots)
    assert "".join(said) == "one two, three"
    assert said[-1] == ""


def test_a_letter_of_several_tokens_waits_for_its_last() -> None:
    said = stream(
        [b"a", "\u20ac".encode()[:1], "\u20ac".encode()[1:2], "\u20ac".encode()[2:], b"b"], [1] * 5
    )
    assert said == ["a", "", "", "\u20ac", "b", ""]


def test_bytes_that_are_no_letter_do_not_wait_for_ever() -> None:
    said = stream([b"a", b"\xff", b"\xff", b"\xff", b"\xff", b"b"], [1] * 6)
    assert said[4] != ""
    assert "".join(said).endswith("b")
    assert stream([b"a", b"\xe2"], (1, 1)) == ["a", "", "\ufffd"]
