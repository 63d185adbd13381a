"""Decoders that keep recurrent states, or caches of a window: what cannot forget is put back, and
each row of a window takes the place of one that nobody sees."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
    avoid_kernels,
    generate_tokens,
    make_decoder_bundle,
    write_decoder,
)

CONV = DecoderShape(layers=2, context=80, conv_taps=3, seed=3)
SLIDES = DecoderShape(layers=2, context=150, alternating=True, window=6, slides=True, seed=1)
HELD = 6 + 16
"""Rows of the window, and as many as may be rewound without more ado."""
PROMPT = (3, 5, 7, 11, 2, 9, 44, 23, 1, 60, 61)
Found = tuple[list[int], list[np.ndarray]]

OF_BOTH = pytest.mark.parametrize("made", [CONV, SLIDES], indirect=True, ids=["states", "windows"])
OF_STATES = pytest.mark.parametrize("made", [CONV], indirect=True, ids=["states"])


@dataclass(frozen=True, kw_only=True)
class Made:
    """A decoder's file, its bundle, and tokens and logits until the context is full, of one go."""

    shape: DecoderShape
    model: Path
    bundle: Bundle
    whole: Found

    @property
    def text(self) -> list[int]:
        return [*PROMPT, *self.whole[0]]

    def expect(self, at: int, found: Found, *, off: float = 2e-6) -> None:
        """Require of tokens and logits that they are those behind a token of the text."""
        tokens, rows = found
        first = at - len(PROMPT) + 1
        assert tokens == self.whole[0][first : first + len(tokens)]
        expected = self.whole[1][first : first + len(tokens)]
        np.testing.assert_allclose(rows, expected, rtol=0, atol=off * np.ptp(self.whole[1][0]))


@pytest.fixture(scope="module")
def made(device, tmp_path_factory, request) -> Made:
    shape = request.param
    model = write_decoder(tmp_path_factory.mktemp("decoder"), shape)
    bundle, decisions = make_decoder_bundle(model, "fp32")
    told = {d["subject"]: d["taken"] for d in decisions}
    if shape is CONV:
        assert told["1 recurrent states"].startswith("kept from token to token")
        assert bundle.manifest.recurrent == ("past.0.conv",)
        assert len(bundle.manifest.states) == 3
    else:
        assert told["2 caches of a window"] == f"hold the last {HELD} rows of 150"
        shapes = {spec.name: spec.shape for spec in bundle.manifest.inputs}
        assert shapes["past_key_values.0.key"] == (1, 2, 150, 16)
        assert shapes["past_key_values.1.key"] == (1, 2, HELD, 16)
        assert bundle.manifest.slack == 16
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        whole = generate_tokens(decoder, PROMPT, shape.context - len(PROMPT) + 1)
        with pytest.raises(InputError, match=f"the context is full: it has {shape.context} rows"):
            decoder.take_in([1])
    return Made(shape=shape, model=model, bundle=bundle, whole=whole)


@pytest.fixture
def decoder(made) -> Iterator[Decoder]:
    with local_place(made.bundle, "") as place:
        yield Decoder(place, made.bundle)


@OF_BOTH
@pytest.mark.parametrize("halves", [False, True], ids=["floats", "halves"])
def test_tokens_are_the_references(made, halves):
    tokens, rows = made.whole
    if halves:
        bundle, _ = make_decoder_bundle(made.model, "mixed")
        with local_place(bundle, "") as place:
            tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, len(tokens))
    found = check_tokens(made.model, PROMPT, tokens, rows, tolerance=1e-2 if halves else 1e-5)
    found.raise_if_failed()
    assert halves or found.near <= 1
    assert len(set(tokens)) > 4  # logits that are flat would show nothing


SPLITS: dict[str, Callable[[int], list[int]]] = {
    "whole": lambda n: [n],
    "one first": lambda n: [1, n - 1],
    "three first": lambda n: [3, n - 3],
    "fours": lambda n: [4] * (n // 4) + [n % 4] * (n % 4 > 0),
    "ones last": lambda n: [n - 2, 1, 1],
    "ones": lambda n: [1] * n,
}


@OF_BOTH
@pytest.mark.parametrize("split", SPLITS)
def test_any_split_of_a_prompt_leaves_the_same(made, decoder, split):
    # What fills up a run of four takes the places of rows that no token sees any more.
    count = 10 if made.shape is CONV else 60
    left = made.text[:count]
    for size in SPLITS[split](count):
        decoder.take_in(left[:size])
        left = left[size:]
    made.expect(count, generate_tokens(decoder, made.text[count : count + 1], 8))


@OF_STATES
@pytest.mark.parametrize("stopped", [1, 7, 16, 17, 18, 40])
def test_what_ran_ahead_is_taken_back(made, decoder, stopped):
    # Three steps are given ahead: the states have taken in tokens that nobody asked for.
    decoder.take_in(PROMPT[:-1])
    begun = decoder.generate(PROMPT[-1], Wish())
    tokens = [token for _ in range(stopped) for token in next(begun)]
    decoder.stop()
    at = len(PROMPT) - 1 + stopped
    assert decoder.length == at
    assert tokens == made.whole[0][:stopped]
    made.expect(at, generate_tokens(decoder, tokens[-1:], 9), off=0)  # to the bit


@OF_STATES
def test_an_end_token_leaves_what_a_conversation_goes_on_from(made, decoder):
    end = made.whole[0][4]
    decoder.take_in(PROMPT[:-1])
    answer = [t for some in decoder.generate(PROMPT[-1], Wish(ends=(end,))) for t in some]
    assert decoder.ended == "end"
    turn = (answer[-1], 8, 9, 10, 11, 12)
    tokens, rows = generate_tokens(decoder, turn, 12)
    prompt = (*PROMPT, *answer, *turn[1:])
    check_tokens(made.model, prompt, tokens, rows, tolerance=1e-5).raise_if_failed()


@OF_BOTH
@pytest.mark.parametrize("back", [0, 1, 15, 16, 17, 36, 41, 97, 100])
def test_going_back_takes_in_what_stays(made, decoder, back):
    # Beyond sixteen rows the window's are gone, and all is taken in again; states always are.
    text, far = made.text, 47 if made.shape is CONV else 100
    decoder.take_in(text[: far - 30])
    made.expect(far - 30, generate_tokens(decoder, text[far - 30 : far - 29], 30))
    assert decoder.length == far
    length = max(far - back, 0)
    decoder.rewind(length)
    assert decoder.length == length
    at = max(length, 12)
    decoder.take_in(text[length:at])
    made.expect(at, generate_tokens(decoder, text[at : at + 1], 9))
    decoder.rewind(at)  # and once more, from less
    made.expect(at, generate_tokens(decoder, text[at : at + 1], 3))


@OF_BOTH
def test_what_was_saved_goes_on_and_back(made, decoder):
    count = 20 if made.shape is CONV else 40
    text, at = made.text, len(PROMPT) + count - 1
    decoder.take_in(PROMPT[:-1])
    begun = decoder.generate(PROMPT[-1], Wish(guesses=False))
    for _ in range(count):
        next(begun)
    decoder.stop()
    saved = decoder.save()
    for wrong in (b"", saved[:-1], saved + b"x", b"x" + saved[1:]):
        with pytest.raises(ValueError, match="saved"):
            decoder.restore(wrong)
    with local_place(made.bundle, "") as place:
        other = Decoder(place, made.bundle)
        other.take_in([1, 2, 3])
        other.restore(saved)
        assert other.length == at
        made.expect(at, generate_tokens(other, text[at : at + 1], 25), off=0)
        first = len(PROMPT) + 2
        other.rewind(first)
        made.expect(first, generate_tokens(other, text[first : first + 1], 5))


def _agrees(model: Path, bundle: Bundle, count: int) -> None:
    """So many tokens behind the prompt are the reference's."""
    with local_place(bundle, "") as place:
        tokens, rows = generate_tokens(Decoder(place, bundle), PROMPT, count)
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()


@pytest.mark.nightly
def test_windows_by_loop_nests(device, tmp_path, monkeypatch):
    avoid_kernels(monkeypatch, "append_rows", "cached_attention")
    model = write_decoder(tmp_path, replace(SLIDES, context=50))
    _agrees(model, make_decoder_bundle(model, "fp32")[0], 40)


LINEAR = DecoderShape(
    layers=2, context=60, conv_taps=4, linear=True, streams=True, rotary_apart=True, seed=1
)


@pytest.mark.parametrize("preset", [pytest.param("fp32", marks=pytest.mark.nightly), "mixed"])
def test_linear_attention_beside_caches(device, tmp_path, preset):
    model = write_decoder(tmp_path, LINEAR)
    bundle, decisions = make_decoder_bundle(model, preset)
    told = {d["subject"]: d["taken"] for d in decisions}
    assert told["position_ids"] == "one stream in place of 3"
    assert bundle.manifest.recurrent == ("past.0.conv", "past.0.recurrent")
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, LINEAR.context - len(PROMPT) + 1)
        decoder.rewind(len(PROMPT) + 20)
        _, logits = generate_tokens(decoder, tokens[20:21], 4)
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
def test_a_decoder_that_keeps_no_token_has_no_end(device, tmp_path):
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


def test_a_file_of_one_token_a_run(device, tmp_path):
    model = write_decoder(tmp_path, DecoderShape(layers=2, context=40, conv_taps=3, seed=3))
    take_one_token(model)
    form = find_decoder(model)
    with pytest.raises(OptionError, match="a run of the file takes one token"):
        plan_decoder(form, None, (8,))
    bundle, decisions = make_decoder_bundle(model, "fp32")
    assert "runs of 1 tokens" in {d["taken"] for d in decisions if d["subject"] == "prefill"}
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate_tokens(decoder, PROMPT, 25)
        decoder.rewind(len(PROMPT) + 4)
        again, _ = generate_tokens(decoder, tokens[4:5], 6)
    check_tokens(model, PROMPT, tokens, rows, tolerance=1e-5).raise_if_failed()
    assert again == tokens[5:11]
