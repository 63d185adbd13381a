"""Conversations: what caches hold is kept from turn to turn; and tables of a text's tokens."""

import json
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.bundle import CHAT, TEXT_TABLES, TOKENIZER, Bundle
from adrenoc.bundle.chat import how_to_talk, read_chat
from adrenoc.device.conversation import Conversation
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.language.tokenizer import Tokenizer
from tests.commands import compile_model, refuse, succeed
from tests.host.decoder_bundles import (
    TALKER,
    TALKERS_TEMPLATE,
    make_talker,
    write_decoder,
    write_tokenizer,
)
from tests.models import graph, write
from tests.tokenizer_files import KINDS

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

SHAPE = TALKER
HELLO = {"role": "user", "content": "w3 w5 w7"}


@pytest.fixture(scope="module")
def bundle(device, tmp_path_factory) -> Bundle:
    return make_talker(tmp_path_factory.mktemp("chat"))


@pytest.fixture
def decoder(bundle) -> Iterator[Decoder]:
    with local_place(bundle, "") as place:
        yield Decoder(place, bundle)


@pytest.fixture
def tokenizer(bundle) -> Tokenizer:
    tokenizer = Tokenizer(bundle.file(TOKENIZER))
    tokenizer.read_template(read_chat(bundle))
    return tokenizer


def say(conversation: Conversation, messages: list[dict[str, str]], most: int, *stops: str) -> str:
    return "".join(conversation.answer(messages, Wish(most=most), stops))


def from_nothing(decoder: Decoder, prompt: list[int], most: int) -> list[int]:
    """What the decoder says after a prompt when its caches hold nothing."""
    decoder.rewind(0)
    decoder.take_in(prompt[:-1])
    return [token for some in decoder.generate(prompt[-1], Wish(most=most)) for token in some]


def test_a_bundle_holds_how_it_wants_to_be_talked_to(bundle):
    settings = read_chat(bundle)
    assert settings.template == TALKERS_TEMPLATE
    assert settings.special_tokens == {"bos_token": "w1"}
    assert how_to_talk(bundle.path, bundle.manifest) == f"adrenoc chat {bundle.path}"
    assert CHAT in {entry.path for entry in bundle.manifest.files}
    decided = [d for d in bundle.decisions() if d["subject"] == "chat template"]
    assert decided[0]["reason"] == "tokenizer_config.json has it"


def test_turns_are_those_of_a_decoder_that_keeps_nothing(decoder, tokenizer):
    conversation = Conversation(decoder, tokenizer)
    messages = [{"role": "system", "content": "w8"}, HELLO]
    asked = []
    for turn in range(3):
        before = list(messages)
        text = say(conversation, messages, 4)
        reply = conversation.reply
        assert (reply.text, reply.ended, reply.tokens) == (text, "most", 4)
        assert (reply.kept > 8) == (turn > 0)
        asked.append((before, text))
        again = {"role": "user", "content": f"w{turn} w9"}
        messages += [{"role": "assistant", "content": text}, again]
    for before, text in asked:
        assert text == tokenizer.decode(from_nothing(decoder, tokenizer.render(before), 4))


def test_other_words_at_the_start_forget_what_follows(decoder, tokenizer):
    conversation = Conversation(decoder, tokenizer)
    say(conversation, [HELLO], 3)
    other = [{"role": "user", "content": "w3 w6"}]
    text = say(conversation, other, 3)
    assert conversation.reply.kept == 2
    assert text == tokenizer.decode(from_nothing(decoder, tokenizer.render(other), 3))


def test_an_answer_ends_before_a_text_that_stops(decoder, tokenizer):
    conversation = Conversation(decoder, tokenizer)
    words = say(conversation, [HELLO], 6).split()
    stop = f"{words[2]} {words[3]}"
    first = " ".join(words).index(stop)
    assert say(conversation, [HELLO], 6, "never", stop) == " ".join(words)[:first]
    assert conversation.reply.ended == "stop"
    assert say(conversation, [HELLO], 6).split() == words


def test_an_answer_that_nobody_reads_on_leaves_the_caches_right(decoder, tokenizer):
    conversation = Conversation(decoder, tokenizer)
    whole = say(conversation, [HELLO], 6)
    pieces = conversation.answer([HELLO], Wish(most=6))
    assert whole.startswith(next(pieces))
    pieces.close()
    assert conversation.reply.ended == "stopped"
    assert say(conversation, [HELLO], 6) == whole


def test_the_context_ends_an_answer_and_has_no_room_for_a_long_message(decoder, tokenizer):
    conversation = Conversation(decoder, tokenizer)
    say(conversation, [HELLO], 0)
    assert conversation.reply.ended == "full"
    long = {"role": "user", "content": "w3 " * SHAPE.context}
    with pytest.raises(InputError, match="the context 64 rows: there is no room") as caught:
        say(conversation, [long], 1)
    assert "--context" in caught.value.hint
    assert say(conversation, [HELLO], 2)


def test_the_command_takes_a_line_a_turn(bundle, tmp_path):
    saved = tmp_path / "said.json"
    lines = ["w3 w5 w7", "/nothing", "/reset", "w3 w5 w7", f"/save {saved}", "/exit", "w1"]
    words = ["chat", bundle.path, "--system", "w8", "--max-tokens", "4"]
    done = succeed(*words, typed="\n".join(lines) + "\n")
    answers = [line for line in done.stdout.splitlines() if line.startswith("w")]
    assert len(answers) == 2 and answers[0] == answers[1]
    assert "there is no /nothing" in done.stdout
    roles = [one["role"] for one in json.loads(saved.read_text())["messages"]]
    assert roles == ["system", "user", "assistant"]
    assert "tokens read" in done.stderr and "of them known" in done.stderr
    done = succeed(*words, "--json", typed="w3 w5 w7\nw4\n")
    one, two = map(json.loads, done.stdout.splitlines())
    assert one["text"] == answers[0]
    assert (one["kept"], one["tokens"], one["ended"]) == (0, 4, "most")
    assert two["kept"] > one["prompt"]


def test_a_bundle_says_how_it_is_talked_to(bundle):
    said = " ".join(succeed("inspect", bundle.path).stdout.split())
    assert "decoder up to 64 tokens, end tokens 96; a tokenizer and a template of chats" in said
    assert f"talk adrenoc chat {bundle.path}" in said
    said = " ".join(succeed("run", bundle.path, "--repeat", "1").stdout.split())
    assert f"this was one step; adrenoc chat {bundle.path} generates tokens" in said


def test_a_decoder_without_a_template_is_refused(bundle, tmp_path):
    model = write_decoder(tmp_path, SHAPE)
    write_tokenizer(tmp_path / TOKENIZER, SHAPE.vocabulary)
    output = tmp_path / "mute.adrenoc"
    compile_model(model, output, "--prefill", "4", "--no-cache", preset="")
    said = refuse(InputError, "chat", output)
    assert "has no template of chats" in said and "--prompt TEXT" in said


def test_what_a_decoder_is_compiled_with_is_explained(bundle, tmp_path):
    """Options whose values are numbers of tokens, too."""
    model = bundle.path.parent / "model.onnx"
    words = ["compile", model, "--device", "host", "--preset", "fp32", "--explain"]
    done = succeed(*words, "--prefill", "4", "-o", tmp_path / "e.adrenoc")
    end = ", ".join(map(str, bundle.manifest.end_tokens))
    assert any("end_tokens" in line and end in line for line in done.output.splitlines())


@pytest.mark.parametrize("named", [False, True])
def test_an_encoder_s_bundle_makes_tokens_of_texts(device, tmp_path, named):
    tokenizer = tmp_path / ("other.json" if named else TOKENIZER)
    tokenizer.write_text(json.dumps(KINDS["words"]()), encoding="utf-8")
    model = graph(
        "rows = Gather(table, input_ids)",
        {"input_ids": [1, 16]},
        ["rows"],
        {"table": np.ones((900, 8), np.float32)},
        dtype=onnx.TensorProto.INT64,
    )
    words = ("--no-cache", *(("--tokenizer", tokenizer) if named else ()))
    bundle = compile_model(write(model, tmp_path), tmp_path / "e.adrenoc", *words, preset="")
    assert {TOKENIZER, TEXT_TABLES} <= {entry.path for entry in bundle.manifest.files}


def test_a_tokenizer_for_what_takes_no_tokens_is_refused(tmp_path):
    (tmp_path / TOKENIZER).write_text(json.dumps(KINDS["words"]()), encoding="utf-8")
    model = write(graph("y = Relu(x)", {"x": [1, 4]}, ["y"]), tmp_path)
    command = ["compile", str(model), "--device", "host", "-o", str(tmp_path / "x.adrenoc")]
    assert "--tokenizer is for models that take tokens, as input_ids" in refuse(
        2, *command, "--tokenizer", tmp_path / TOKENIZER
    )
