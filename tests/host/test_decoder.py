"""A decoder from its file to tokens: caches in place, prompts in any split, a full context."""

import gc
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import CheckFailedError, InputError
from adrenoc.bundle.bundle import Bundle
from adrenoc.check.generation import check_tokens
from adrenoc.check.reference import run_reference
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from tests.commands import invoke, succeed
from tests.host.decoder_bundles import (
    DecoderShape,
    generate_tokens,
    make_decoder_bundle,
    write_decoder,
    write_tokenizer,
)

QWEN = DecoderShape(layers=1, context=300)
LLAMA = DecoderShape(kind="llama", layers=1, context=48, zeros=True, embedding_bits=4, packed=False)
PROMPT = (3, 5, 7, 11, 2, 9, 44, 23, 1)


def make(model: Path, preset: str) -> Bundle:
    """Its bundle, of one token and of four."""
    bundle, decisions = make_decoder_bundle(model, preset)
    context = [d for d in decisions if d["subject"] == "context"]
    assert context[0]["reason"] == "genai_config.json says so"
    return bundle


@pytest.fixture(scope="module")
def qwen(device, tmp_path_factory) -> tuple[Path, Bundle]:
    model = write_decoder(tmp_path_factory.mktemp("qwen"), QWEN)
    return model, make(model, "fp32")


@pytest.fixture
def decoder(qwen) -> Iterator[Decoder]:
    with local_place(qwen[1], "") as place:
        yield Decoder(place, qwen[1])


def generate(decoder: Decoder, count: int) -> tuple[list[int], list[np.ndarray]]:
    """Tokens after the prompt, each with its logits."""
    return generate_tokens(decoder, PROMPT, count)


def test_tokens_are_the_references(qwen, decoder):
    tokens, rows = generate(decoder, 256)
    found = check_tokens(qwen[0], PROMPT, tokens, rows, tolerance=1e-5)
    assert (found.equal, found.first_other) == (256, None)
    found.raise_if_failed()
    assert len(set(tokens)) > 4  # logits that are flat would show nothing
    tokens[100] = (tokens[100] + 1) % QWEN.vocabulary
    other = check_tokens(qwen[0], PROMPT, tokens, rows, tolerance=1e-5)
    assert other.first_other == 101
    with pytest.raises(CheckFailedError, match="the first other one is 101"):
        other.raise_if_failed()


@pytest.mark.parametrize("split", [(8,), (1, 7), (3, 5), (4, 4), (6, 1, 1), (1,) * 8])
def test_any_split_of_a_prompt_gives_the_same_cache(qwen, decoder, split):
    model, bundle = qwen
    left = list(PROMPT[:8])
    for count in split:
        decoder.take_in(left[:count])
        left = left[count:]
    feeds = {
        "input_ids": np.asarray([PROMPT[:8]]),
        "attention_mask": np.ones((1, 8), np.int64),
        **{name: np.zeros((1, 2, 0, 16), np.float32) for name in bundle.manifest.states},
    }
    expected = run_reference(model, feeds)
    assert decoder.length == 8
    for name in bundle.manifest.states:
        present = expected[name.replace("past_key_values", "present")]
        np.testing.assert_allclose(decoder.read_cache(name), present, atol=2e-6 * np.ptp(present))


def test_a_prompt_of_one_more_is_the_same_as_one_more_token(decoder):
    decoder.take_in(PROMPT[:6])
    first, _ = decoder.step(PROMPT[6])
    decoder.rewind(5)
    decoder.take_in(PROMPT[5:6])
    assert decoder.step(PROMPT[6])[0] == first
    decoder.rewind(0)
    assert generate(decoder, 9)[0] == generate_again(decoder, 9)
    with pytest.raises(InputError, match="rewind to 400 tokens"):
        decoder.rewind(400)


def generate_again(decoder: Decoder, count: int) -> list[int]:
    """The same prompt anew: what the caches held before does not matter."""
    decoder.rewind(0)
    return generate(decoder, count)[0]


@pytest.mark.parametrize("preset", ["mixed"])
def test_a_full_context_is_an_error_that_says_so(device, tmp_path, preset):
    model = write_decoder(tmp_path, LLAMA)
    bundle = make(model, preset)
    with local_place(bundle, "") as place:
        decoder = Decoder(place, bundle)
        tokens, rows = generate(decoder, LLAMA.context - len(PROMPT) + 1)
        assert check_tokens(model, PROMPT, tokens, rows, tolerance=1e-2).max_error < 1e-2
        with pytest.raises(InputError, match=r"the context is full: it has 48 rows"):
            decoder.step(1)
        decoder.rewind(46)  # what fills up a run of four has no place in the cache
        decoder.take_in(tokens[-2:])
        with pytest.raises(InputError, match="no room for 1 more"):
            decoder.take_in([1])


def test_the_commands(qwen, tmp_path):
    model, bundle = qwen
    ids = ",".join(map(str, PROMPT))
    run = ["run", str(bundle.path), "--prompt-ids", ids, "--check", str(model)]
    said = json.loads(succeed(*run, "--max-tokens", "5", "--json").output)
    assert said["check"]["equal"] == len(said["tokens"]) == 5
    shown = invoke(*run, "--max-tokens", "400", catch=True)
    assert "full: it has 300 rows" in shown.output
    assert "292 of 292 tokens are the reference's" in shown.output
    for words, message in (
        (["--prompt-ids", "3,900"], "the token 900, expected 0 to 96"),
        (["--prompt-ids", "3;4"], "no list of token numbers"),
        (["--prompt-ids", "3", "--on", "127.0.0.1:1"], "no server at 127.0.0.1:1"),
        (["--prompt-ids", "3", "--bench"], "exclude each other"),
        (["--prompt", "a"], "adrenoc compile puts one into it"),
        (["--bench", "--sample", "temperature=1"], "is for --prompt and --prompt-ids"),
        (["--prompt-ids", ",".join(["1"] * 301)], "no room for 1 more"),
        (["--prompt-ids", "3", "--sample", "top_k=4"], "temperature=T above 0"),
        (["--prompt-ids", "3", "--sample", "topk=4"], 'did you mean "top_k"?'),
        (["--prompt-ids", "3", "--sample", "top_k=1.5"], "top_k is '1.5', expected 0 to"),
        (["--prompt-ids", "3", "--sample", "bias.x=1"], "is no way to pick tokens"),
        (["--prompt-ids", "3", "--sample", "bias.5000=1"], "expected 0 to 96"),
        (["--prompt-ids", "3", "--sample", "temperature=1", "--check", str(model)], "--sample"),
    ):
        refused = invoke("run", bundle.path, *words, catch=True)
        assert refused.exit_code != 0
        assert message in refused.output + str(refused.exception)


def test_what_was_saved_goes_on_the_same(qwen, decoder):
    tokens, _ = generate(decoder, 12)
    decoder.rewind(len(PROMPT) + 3)
    saved = decoder.save()
    decoder.rewind(0)
    generate_tokens(decoder, PROMPT[::-1], 30)
    decoder.restore(saved)
    assert decoder.length == len(PROMPT) + 3
    again = [*tokens[:4]]
    for _ in range(8):
        again.append(decoder.step(again[-1])[0])
    assert again == tokens
    with local_place(qwen[1], "") as place:
        other = Decoder(place, qwen[1])
        other.restore(saved)
        assert other.step(tokens[3])[0] == tokens[4]
    kept = decoder.save()
    for wrong in (b"", saved[:-1], saved + b"x", b"x" + saved[1:], saved[:40] + b"\xff" * 30):
        with pytest.raises(ValueError, match="saved"):
            decoder.restore(wrong)
    assert decoder.save() == kept


def test_one_decoder_outlives_another(qwen):
    # Both have one library, and what its code has looked up: whose kernels are these?
    with local_place(qwen[1], "") as place:
        first, second = Decoder(place, qwen[1]), Decoder(place, qwen[1])
        tokens = [generate(one, 5)[0] for one in (first, second)]
        del first
        gc.collect()
        second.rewind(0)
        assert tokens == [generate(second, 5)[0]] * 2


def test_tokens_ahead_are_forgotten(decoder):
    # What was launched beyond the token that ended it leaves nothing that is read.
    tokens, _ = generate(decoder, 40)
    decoder.rewind(0)
    *before, last = PROMPT
    decoder.take_in(before)
    end = tokens[5]
    made = [t for some in decoder.generate(last, Wish(most=40, ends=(end,))) for t in some]
    assert made == tokens[: tokens.index(end) + 1]
    assert decoder.ended == "end"
    assert decoder.length == len(PROMPT) - 1 + len(made)
    more = [t for some in decoder.generate(made[-1], Wish(most=40 - len(made))) for t in some]
    assert made + more == tokens
    # A loop that nobody reads to its end ends with the next command.
    decoder.rewind(len(PROMPT))
    begun = decoder.generate(tokens[0], Wish(most=30, with_logits=True))
    assert next(begun) == tokens[1:2]
    decoder.stop()
    assert (decoder.ended, decoder.length) == ("stopped", len(PROMPT) + 1)


def test_drawn_tokens_are_those_of_their_seed(qwen, tmp_path):
    run = ["run", str(qwen[1].path), "--prompt-ids", "3,5,7", "--max-tokens", "20", "--json"]
    drawn = [*run, "--sample", "temperature=1.5", "--sample", "top_k=30", "--sample", "top-p=0.95"]
    said = []
    large = str((1 << 64) - 1)
    for words in ((*drawn, "--seed", "1"), (*drawn, "--seed", "1"), (*drawn, "--seed", large), run):
        said.append(json.loads(succeed(*words).output)["tokens"])
    assert said[0] == said[1]
    assert len({tuple(tokens) for tokens in said}) == 3


def test_what_is_said_of_tokens_is_done(qwen):
    def tokens(*words: str) -> list[int]:
        run = ["run", str(qwen[1].path), "--prompt-ids", "3,5,7", "--max-tokens", "30", "--json"]
        done = succeed(*run, *words)
        return json.loads(done.output)["tokens"]

    plain = tokens()
    assert tokens("--sample", "repetition_penalty=1") == plain
    assert tokens("--sample", "bias.40=1e9") == [40] * 30
    once = tokens("--sample", "presence_penalty=100", "--sample", f"bias.{plain[0]}=-1e9")
    assert len({*once}) == 30 and plain[0] not in once


def test_the_benchmark(qwen):
    said = json.loads(succeed("run", qwen[1].path, "--bench", "--json").output)
    assert [prompt["tokens"] for prompt in said["prefill"]] == [4]
    assert [step["context"] for step in said["decode"]] == [0, 300 - 40]
    assert said["launching"]["launches"] > 5
    assert min(said["first_token_ms"], said["decode"][0]["tokens_per_s"]) > 0
    assert "tokens a second" in invoke("run", qwen[1].path, "--bench", catch=True).output


def test_text(qwen, tmp_path):
    talks = shutil.copytree(qwen[1].path, tmp_path / "talks.adrenoc")
    tokenizer = write_tokenizer(talks / "tokenizer.json", QWEN.vocabulary)
    run = ["run", str(talks), "--prompt", "w3 w5 w7"]
    said = json.loads(succeed(*run, "--max-tokens", "6", "--json").output)
    ids = invoke(*run[:2], "--prompt-ids", "3,5,7", "--max-tokens", "6", "--json", catch=True)
    assert said["tokens"] == json.loads(ids.output)["tokens"]
    assert said["text"].split() == [f"w{token}" for token in said["tokens"]]
    assert invoke(*run, "--max-tokens", "6", catch=True).output.startswith(said["text"])
    tokenizer.write_text("{}")
    assert "is no tokenizer.json" in str(invoke(*run, catch=True).exception)
