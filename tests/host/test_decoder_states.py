"""Decoders that keep recurrent states beside their caches: what cannot forget is put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import InputError, OptionError
from adrenoc.bundle.bundle import Bundle
from adrenoc.check.generation import check_tokens
from adrenoc.compile.decoder_plan import plan_decoder
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.importers.decoder_form import find_decoder
from tests.host.decoder_bundles import (
    DecoderShape,
    generate_tokens,
    make_decoder_bundle,
    write_decoder,
)

CONV = DecoderShape(layers=2, context=80, conv_taps=3, seed=3)
PROMPT = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60, 61)


@pytest.fixture(scope="module")
def made(device: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bundle]:
    model = write_decoder(tmp_path_factory.mktemp("conv"), CONV)
    bundle, decisions = make_decoder_bundle(model, "fp32")
    told = {d["subject"]: d["taken"] for d in decisions}
    assert told["1 recurrent states"].startswith("kept from token to token")
    assert bundle.manifest.recurrent == ("past.0.conv",)
    assert len(bundle.manifest.states) == 3
    return model, bundle


@pytest.fixture
def decoder(made: tuple[Path, Bundle]) -> Iterator[Decoder]:
    with local_place(made[1], "") as place:
        yield Decoder(place, made[1])


def go_on(decoder: Decoder, token: int, count: int) -> tuple[list[int], list[np.ndarray]]:
    """So many tokens after `token`, one call each, with their logits."""
    return generate_tokens(decoder, (token,), count)


@pytest.fixture(scope="module")
def whole(made: tuple[Path, Bundle]) -> tuple[list[int], list[np.ndarray]]:
    """Tokens and logits until the context is full, of one go."""
    with local_place(made[1], "") as place:
        decoder = Decoder(place, made[1])
        found = generate_tokens(decoder, PROMPT, CONV.context - len(PROMPT) + 1)
        with pytest.raises(InputError, match="the context is full: it has 80 rows"):
            decoder.take_in([1])
        return found


@pytest.mark.parametrize("preset", [pytest.param("fp32", marks=pytest.mark.nightly), "mixed"])
def test_tokens_are_the_references(
    made: tuple[Path, Bundle], whole: tuple[list[int], list[np.ndarray]], preset: str
) -> None:
    model, _ = made
    tokens, rows = whole
    tolerance = 1e-5
    if preset != "fp32":
        bundle, _ = make_decoder_bundle(model, preset)
        tolerance = 1e-2
        with local_place(bundle, "") as place:
            tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, len(tokens))
    found = check_tokens(model, PROMPT, tokens, rows, tolerance=tolerance)
    found.raise_if_failed()
    assert found.near <= 1
    assert len(set(tokens)) > 4  # logits that are flat would show nothing


@pytest.mark.parametrize("split", [(10,), (1, 9), (3, 7), (4, 4, 2), (6, 3, 1), (1,) * 10])
def test_any_split_of_a_prompt_leaves_the_same(
    decoder: Decoder, whole: tuple[list[int], list[np.ndarray]], split: tuple[int, ...]
) -> None:
    left = list(PROMPT[:10])
    for count in split:
        decoder.take_in(left[:count])
        left = left[count:]
    tokens, rows = go_on(decoder, PROMPT[10], 6)
    assert tokens == whole[0][:6]
    np.testing.assert_allclose(rows, whole[1][:6], atol=2e-6 * np.ptp(whole[1][0]))


@pytest.mark.parametrize("stopped", [1, 7, 16, 17, 18, 40])
def test_what_ran_ahead_is_taken_back(
    decoder: Decoder, whole: tuple[list[int], list[np.ndarray]], stopped: int
) -> None:
    # Three steps are given ahead: the states have taken in tokens that nobody asked for.
    tokens, rows = whole
    decoder.take_in(PROMPT[:-1])
    begun = decoder.generate(PROMPT[-1], Wish())
    made = [token for _ in range(stopped) for token in next(begun)]
    decoder.stop()
    assert decoder.length == len(PROMPT) - 1 + stopped
    assert made == tokens[:stopped]
    more, logits = go_on(decoder, made[-1], 9)
    assert more == tokens[stopped : stopped + 9]
    np.testing.assert_array_equal(logits, rows[stopped : stopped + 9])  # to the bit


def test_an_end_token_leaves_what_a_conversation_goes_on_from(
    made: tuple[Path, Bundle], decoder: Decoder, whole: tuple[list[int], list[np.ndarray]]
) -> None:
    end = whole[0][4]
    decoder.take_in(PROMPT[:-1])
    answer = [t for some in decoder.generate(PROMPT[-1], Wish(ends=(end,))) for t in some]
    assert decoder.ended == "end"
    turn = (answer[-1], 8, 9, 10, 11, 12)
    tokens, rows = generate_tokens(decoder, turn, 12)
    prompt = (*PROMPT, *answer, *turn[1:])
    check_tokens(made[0], prompt, tokens, rows, tolerance=1e-5).raise_if_failed()


@pytest.mark.parametrize("length", [0, 1, 6, 11, 30, 47])
def test_going_back_takes_in_what_stays(
    decoder: Decoder, whole: tuple[list[int], list[np.ndarray]], length: int
) -> None:
    tokens, rows = whole
    text = [*PROMPT, *tokens]
    decoder.take_in(PROMPT[:-1])
    assert go_on(decoder, PROMPT[-1], 37)[0] == tokens[:37]
    assert decoder.length == 47
    decoder.rewind(length)
    assert decoder.length == length
    decoder.take_in(text[length : max(length, 10)])
    at = max(length, 10)
    again, logits = go_on(decoder, text[at], 8)
    assert again == text[at + 1 : at + 9]
    first = at - len(PROMPT) + 1
    np.testing.assert_allclose(logits, rows[first : first + 8], atol=2e-6 * np.ptp(rows[0]))


def test_what_was_saved_goes_on_and_back(
    made: tuple[Path, Bundle], decoder: Decoder, whole: tuple[list[int], list[np.ndarray]]
) -> None:
    tokens, rows = whole
    decoder.take_in(PROMPT[:-1])
    begun = decoder.generate(PROMPT[-1], Wish())
    for _ in range(20):
        next(begun)
    decoder.stop()
    saved = decoder.save()
    for wrong in (b"", saved[:-1], saved + b"x", b"x" + saved[1:]):
        with pytest.raises(ValueError, match="saved"):
            decoder.restore(wrong)
    with local_place(made[1], "") as place:
        other = Decoder(place, made[1])
        other.take_in([1, 2, 3])
        other.restore(saved)
        assert other.length == len(PROMPT) + 19
        again, logits = go_on(other, tokens[19], 5)
        assert again == tokens[20:25]
        np.testing.assert_array_equal(logits, rows[20:25])
        other.rewind(len(PROMPT) + 2)
        assert go_on(other, tokens[2], 5)[0] == tokens[3:8]


LINEAR = DecoderShape(
    layers=2, context=60, conv_taps=4, linear=True, streams=True, rotary_apart=True, seed=1
)


@pytest.mark.parametrize("preset", [pytest.param("fp32", marks=pytest.mark.nightly), "mixed"])
def test_linear_attention_beside_caches(device: Any, tmp_path: Path, preset: str) -> None:
    model = write_decoder(tmp_path, LINEAR)
    bundle, decisions = make_decoder_bundle(model, preset)
    told = {d["subject"]: d["taken"] for d in decisions}
    assert told["position_ids"] == "one stream in place of 3"
    assert bundle.manifest.recurrent == ("past.0.conv", "past.0.recurrent")
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, LINEAR.context - len(PROMPT) + 1)
        decoder.rewind(len(PROMPT) + 20)
        _, logits = go_on(decoder, tokens[20], 4)
    check_tokens(
        model, PROMPT, tokens, rows, tolerance=1e-5 if preset == "fp32" else 1e-2
    ).raise_if_failed()
    # Runs of several tokens are other sums than those of each.
    off = np.abs(np.asarray(logits) - rows[21:25]).max() / np.ptp(rows)
    assert off < (1e-5 if preset == "fp32" else 1e-2), off
    assert len(set(tokens)) > 4


def leave_out_mask(model: Path) -> None:
    """As files without attention have none."""
    proto = onnx.load(model)
    graph, gone = proto.graph, {"attention_mask"}
    inputs = [port for port in graph.input if port.name not in gone]
    kept = []
    for node in graph.node:
        if gone.intersection(node.input):
            gone.update(node.output)
        else:
            kept.append(node)
    for part, those in ((graph.input, inputs), (graph.node, kept)):
        del part[:]
        part.extend(those)
    onnx.save(proto, model)


@pytest.mark.nightly
def test_a_decoder_that_keeps_no_token_has_no_end(device: Any, tmp_path: Path) -> None:
    model = write_decoder(tmp_path, DecoderShape(layers=1, context=20, conv_taps=3, seed=2))
    leave_out_mask(model)
    bundle, decisions = make_decoder_bundle(model, "fp32")
    assert "no end" in {d["taken"] for d in decisions if d["subject"] == "context"}
    assert bundle.manifest.states == bundle.manifest.recurrent == ("past.0.conv",)
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, 40)
        assert decoder.length == len(PROMPT) + 39
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()


def take_one_token(model: Path) -> None:
    """As exporters write a step whose recurrence has no form for several tokens."""
    proto = onnx.load(model)
    tokens = next(port for port in proto.graph.input if port.name == "input_ids")
    tokens.type.tensor_type.shape.dim[1].dim_value = 1
    onnx.save(proto, model)


def test_a_file_of_one_token_a_run(device: Any, tmp_path: Path) -> None:
    model = write_decoder(tmp_path, DecoderShape(layers=2, context=40, conv_taps=3, seed=3))
    take_one_token(model)
    form = find_decoder(model)
    assert form is not None
    with pytest.raises(OptionError, match="a run of the file takes one token"):
        plan_decoder(form, None, (8,))
    bundle, decisions = make_decoder_bundle(model, "fp32")
    assert "runs of 1 tokens" in {d["taken"] for d in decisions if d["subject"] == "prefill"}
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, 25)
        decoder.rewind(len(PROMPT) + 4)
        again, _ = go_on(decoder, tokens[4], 6)
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()
    assert again == tokens[5:11]
