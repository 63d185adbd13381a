"""Tokens that are guessed and checked in one run are those that are made one by one."""

from collections.abc import Iterator
from typing import Any

import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.sampling import Sampling
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder

PHRASE = (3, 5, 7, 11, 2, 9)
PROMPT = PHRASE * 3
SHAPES = {
    "whole caches": DecoderShape(layers=1, context=96),
    "caches of windows": DecoderShape(layers=2, context=96, slides=True, window=6),
}


@pytest.fixture(scope="module", params=SHAPES)
def bundle(
    device: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Bundle:
    model = write_decoder(tmp_path_factory.mktemp("guesses"), SHAPES[request.param])
    return make_decoder_bundle(model, "fp32")[0]


@pytest.fixture(scope="module")
def decoder(bundle: Bundle) -> Iterator[Decoder]:
    with local_place(bundle, "") as place:
        yield Decoder(place, bundle)


def one_by_one(decoder: Decoder, count: int) -> list[int]:
    """The likeliest tokens after the prompt, each made by itself."""
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    tokens = [PROMPT[-1]]
    for _ in range(count):
        tokens.append(decoder.step(tokens[-1])[0])
    return tokens[1:]


def together(decoder: Decoder, wish: Wish) -> list[int]:
    """Tokens after the prompt, with guesses."""
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    return [token for some in decoder.generate(PROMPT[-1], wish) for token in some]


@pytest.mark.parametrize("most", [1, 2, 7, 40])
def test_tokens_are_those_that_are_made_one_by_one(decoder, most):
    expected = one_by_one(decoder, most)
    assert together(decoder, Wish(most=most)) == expected
    assert decoder.ended == "most"
    runs, right = decoder.count_guesses()
    assert (runs == 0) == (most == 1)  # one token is no more than a step gives
    if most == 40:
        assert right > 0, "a text that repeats itself is guessed"
    # What comes next goes on from there: rows of wrong guesses are gone.
    assert decoder.step(expected[-1])[0] == one_by_one(decoder, most + 1)[-1]


def test_it_ends_where_it_would_without_guesses(decoder):
    expected = one_by_one(decoder, 40)
    for end in dict.fromkeys(expected):
        wanted = expected[: expected.index(end) + 1]
        assert together(decoder, Wish(most=40, ends=(end,))) == wanted
        assert decoder.ended == "end"
        assert decoder.length == len(PROMPT) - 1 + len(wanted)


def test_the_whole_context_is_filled(decoder):
    room = decoder.rows - len(PROMPT) + 1
    expected = one_by_one(decoder, room)
    assert together(decoder, Wish()) == expected
    assert (decoder.ended, decoder.length) == ("full", decoder.rows)


@pytest.mark.parametrize(
    "wish",
    [Wish(most=20, sampling=Sampling(temperature=1.0, seed=3)), Wish(most=20, guesses=False)],
    ids=["drawn", "one by one"],
)
def test_nobody_guesses(decoder, wish):
    assert together(decoder, wish) == together(decoder, wish)
    assert decoder.count_guesses() == (0, 0)


def test_somebody_stops_between_two_tokens_of_a_guess(decoder):
    expected = one_by_one(decoder, 12)
    decoder.rewind(0)
    decoder.take_in(PROMPT[:-1])
    made: list[int] = []
    for some in decoder.generate(PROMPT[-1], Wish(most=12)):
        made += some
        if len(made) >= 5:
            decoder.stop()
    assert made == expected[: len(made)]
    assert decoder.length == len(PROMPT) - 1 + len(made)
    assert decoder.step(made[-1])[0] == expected[len(made)]
