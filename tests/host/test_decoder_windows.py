"""Caches of a window that hold its rows alone: each row takes the place of one that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.check.generation import check_tokens
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.target.gpu import Quirk
from adrenoc.target.target import load_target
from tests.host import decoder_bundles
from tests.host.decoder_bundles import (
    DecoderShape,
    generate_tokens,
    make_decoder_bundle,
    write_decoder,
)

SLIDES = DecoderShape(layers=2, context=150, alternating=True, window=6, slides=True, seed=1)
HELD = 6 + 16
"""Rows of the window, and as many as may be rewound without more ado."""
PROMPT = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60, 61)
COUNT = SLIDES.context - len(PROMPT) + 1
Found = tuple[list[int], list[np.ndarray]]


@pytest.fixture(scope="module")
def made(device: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    model = write_decoder(tmp_path_factory.mktemp("slides"), SLIDES)
    bundle, decisions = make_decoder_bundle(model, "fp32")
    told = {d["subject"]: d["taken"] for d in decisions}
    assert told["2 caches of a window"] == f"hold the last {HELD} rows of 150"
    shapes = {spec.name: spec.shape for spec in bundle.manifest.inputs}
    assert shapes["past_key_values.0.key"] == (1, 2, 150, 16)
    assert shapes["past_key_values.1.key"] == (1, 2, HELD, 16)
    assert bundle.manifest.slack == 16
    return model, bundle


@pytest.fixture
def decoder(made: tuple[Path, Bundle]) -> Iterator[Decoder]:
    with local_place(made[1], "") as place:
        yield Decoder(place, made[1])


@pytest.fixture(scope="module")
def whole(made: tuple[Path, Bundle]) -> Found:
    """All that the context has room for, of one go."""
    with local_place(made[1], "") as place:
        return generate_tokens(Decoder(place, made[1]), PROMPT, COUNT)


def test_tokens_are_the_references(made: tuple[Path, Bundle], whole: Found) -> None:
    found = check_tokens(made[0], PROMPT, *whole, tolerance=1e-5)
    found.raise_if_failed()
    assert found.near <= 1
    assert len(set(whole[0])) > 4


def test_halves(device: Any, made: tuple[Path, Bundle]) -> None:
    bundle, _ = make_decoder_bundle(made[0], "mixed")
    with local_place(bundle, "") as place:
        tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, COUNT)
    check_tokens(made[0], PROMPT, tokens, rows, tolerance=1e-2).raise_if_failed()


@pytest.mark.nightly
def test_loop_nests(
    made: tuple[Path, Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tuple(f"operator:{name}" for name in ("append_rows", "cached_attention"))
    host = load_target("host")
    quirk = Quirk(name="q", text="t", source="s", avoid=words)
    target = replace(host, gpu=replace(host.gpu, quirks=(*host.gpu.quirks, quirk)))
    monkeypatch.setattr(decoder_bundles, "load_target", lambda _name: target)
    model = write_decoder(tmp_path, replace(SLIDES, context=50))
    bundle, _ = make_decoder_bundle(model, "fp32")
    with local_place(bundle, "") as place:
        tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, 40)
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()


@pytest.mark.parametrize("split", [(60,), (1, 59), (4,) * 15, (7, 30, 23), (58, 1, 1)])
def test_any_split_of_a_prompt_leaves_the_same(
    decoder: Decoder, whole: Found, split: tuple[int, ...]
) -> None:
    # What fills up a run of four takes the places of rows that no token sees any more.
    text = [*PROMPT, *whole[0]]
    left = text[:60]
    for count in split:
        decoder.take_in(left[:count])
        left = left[count:]
    tokens, rows = generate_tokens(decoder, text[60:61], 8)
    first = 60 - len(PROMPT) + 1
    assert tokens == whole[0][first : first + 8]
    np.testing.assert_allclose(rows, whole[1][first : first + 8], atol=2e-6 * np.ptp(whole[1][0]))


@pytest.mark.parametrize("length", [0, 3, 50, 83, 84, 85, 99, 100])
def test_going_back(decoder: Decoder, whole: Found, length: int) -> None:
    # Beyond sixteen rows the window's are gone, and all is taken in again.
    text = [*PROMPT, *whole[0]]
    decoder.take_in(text[:70])
    assert generate_tokens(decoder, text[70:71], 30)[0] == text[71:101]
    decoder.rewind(length)
    at = max(length, 12)
    decoder.take_in(text[length:at])
    tokens, rows = generate_tokens(decoder, text[at : at + 1], 9)
    assert tokens == text[at + 1 : at + 10]
    first = at - len(PROMPT) + 1
    np.testing.assert_allclose(rows, whole[1][first : first + 9], atol=2e-6 * np.ptp(whole[1][0]))
    decoder.rewind(at)  # and once more, from less
    assert generate_tokens(decoder, text[at : at + 1], 3)[0] == text[at + 1 : at + 4]


def test_what_was_stopped_and_saved_goes_on(
    made: tuple[Path, Bundle], decoder: Decoder, whole: Found
) -> None:
    tokens, rows = whole
    decoder.take_in(PROMPT[:-1])
    begun = decoder.generate(PROMPT[-1], Wish(guesses=False))
    for _ in range(40):
        next(begun)
    decoder.stop()
    saved = decoder.save()
    with local_place(made[1], "") as place:
        other = Decoder(place, made[1])
        other.restore(saved)
        again, logits = generate_tokens(other, tokens[39:40], 30)
        assert again == tokens[40:70]
        np.testing.assert_array_equal(logits, rows[40:70])
        other.rewind(20)
        at = 20 - len(PROMPT)
        assert generate_tokens(other, tokens[at : at + 1], 5)[0] == tokens[at + 1 : at + 6]
