"""A decoder's tokens from the runtime without Python and from servers: those of Python's loop."""

import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from adrenoc.base.errors import InputError, RemoteError
from adrenoc.bundle.bundle import CHAT, TEXT_TABLES, TOKENIZER, Bundle, open_bundle, write_app_tar
from adrenoc.bundle.chat import Sampling, read_chat
from adrenoc.device.conversation import Conversation
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.remote import remote_place
from adrenoc.device.run import local_place
from adrenoc.language.tokenizer import Tokenizer
from tests.commands import ask, succeed
from tests.host.decoder_bundles import (
    WRITER,
    DecoderShape,
    make_decoder_bundle,
    make_writer,
    write_decoder,
)
from tests.runtime.programs import ROWS, compile_against
from tests.runtime.servers import address_of, python_server

PROMPT = (3, 5, 7, 11, 2, 9)
UNSUPPORTED = 29
CONTEXT_FULL = 31


@pytest.fixture(scope="module")
def tokens(device, decoder) -> list[int]:
    """All that the context has room for, by the loop here."""
    with local_place(decoder, "") as place:
        return make_all(Decoder(place, decoder))


def make_all(decoder: Decoder) -> list[int]:
    *before, last = PROMPT
    decoder.take_in(before)
    made = [token for some in decoder.generate(last, Wish()) for token in some]
    assert decoder.ended == "full"
    assert len(made) == ROWS - len(PROMPT) + 1
    return made


def read_tokens(line: str) -> list[int]:
    return [int(token) for token in line.split()]


def test_a_session_in_cpp(runtime, decoder, tokens, opencl, execute, tmp_path):
    program = compile_against(runtime, "session_program.cc", tmp_path / "session")
    assert read_tokens(execute(program, decoder.path, opencl, *PROMPT).out) == tokens


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param({"conv_taps": 3}, marks=pytest.mark.nightly),
        {"slides": True, "window": 6, "alternating": True},
    ],
    ids=str,
)
def test_a_session_with_states_that_forget_no_token(
    runtime, device, opencl, execute, tmp_path, layers
):
    # The same program: what is rewound, stopped, ended and restored goes on as if nothing had been.
    model = write_decoder(tmp_path, DecoderShape(layers=2, context=ROWS, **layers))
    bundle, _ = make_decoder_bundle(model, "fp32")
    with local_place(bundle, "") as place:
        tokens = make_all(Decoder(place, bundle))
    program = compile_against(runtime, "session_program.cc", tmp_path / "session")
    assert read_tokens(execute(program, bundle.path, opencl, *PROMPT).out) == tokens


def test_the_runner_streams_tokens(decoder, bundle, tokens, runner):
    ids = ",".join(map(str, PROMPT))
    run = partial(runner, decoder.path, "--prompt")
    line, said = run(ids).out.splitlines()
    assert read_tokens(line) == tokens
    told = json.loads(said)
    assert (told["full"], told["tokens"], told["rows"]) == (True, len(tokens), ROWS)
    # The last token that was made found no room.
    assert told["context"] == ROWS
    few = run(ids, "--max-tokens", 4, "--end", 10**6).out.splitlines()[0]
    assert read_tokens(few) == tokens[:4]
    drawn = partial(run, ids, "--max-tokens", 8, "--temperature", "1.5", "--top-p", "0.9", "--seed")
    lines = [drawn(seed).out.splitlines()[0] for seed in (4, 4, 5)]
    assert lines[0] == lines[1] != lines[2]
    refused = run(",".join(["1"] * (ROWS + 1)), expect=CONTEXT_FULL)
    assert f"the context is full: it has {ROWS} rows, 0 of them hold tokens" in refused.err
    assert "no decoder" in runner(bundle.path, "--prompt", ids, expect=UNSUPPORTED).err


@pytest.mark.parametrize("kind", ["python", "native"])
def test_tokens_of_a_server(kind, decoder, tokens, serve):
    with serve(kind) as (_, port), remote_place(decoder, address_of(port), "") as place:
        remote = Decoder(place, decoder)
        assert make_all(remote) == tokens
        with pytest.raises(InputError, match="the context is full"):
            remote.step(1)
        remote.rewind(len(PROMPT))
        saved = remote.save()
        again, row = remote.step(tokens[0], logits=True)
        assert again == tokens[1] == row.argmax() if row is not None else False
        remote.restore(saved)
        assert remote.step(tokens[0])[0] == tokens[1]


def test_tokens_by_command(decoder, tokens, opencl):
    model = decoder.path.parent / "model.onnx"
    ids = ",".join(map(str, PROMPT))
    with python_server() as (_, port):
        run = ["run", str(decoder.path), "--on", f"127.0.0.1:{port}", "--prompt-ids", ids]
        said = ask(*run, "--max-tokens", "8", "--check", model)
        assert said["tokens"] == tokens[:8]
        assert said["check"]["equal"] == 8
        shown = succeed(*run, "--max-tokens", "3").stdout
        assert shown.startswith(" ".join(map(str, tokens[:3])))


@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_server_that_dies_among_tokens(kind, decoder, serve):
    def generate(server: int, port: int) -> None:
        with remote_place(decoder, address_of(port), "") as place:
            for some in Decoder(place, decoder).generate(1, Wish(with_logits=True)):
                assert some
                kill_sessions(server)

    with serve(kind) as (server, port), pytest.raises(RemoteError, match="left or did not answer"):
        generate(server.pid, port)


def kill_sessions(server: int) -> None:
    """The processes of a server's sessions."""
    for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


SYSTEM = "Be short."
SAID = ("Hello there", "Why?  Läuft 你好 👩‍👩‍👧", "don't", "1234", "And <|im_start|> then?")
COUNT = 12
SAMPLING = Sampling(temperature=1.0, seed=7)


@pytest.fixture(scope="module")
def writer(device, tmp_path_factory) -> Bundle:
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    return make_writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def carried(writer, tmp_path_factory) -> Bundle:
    """The same as an app carries it: with the tables in place of what they were made of."""
    tar = tmp_path_factory.mktemp("carried") / "writer.tar"
    write_app_tar(writer.root, tar, name=writer.manifest.name)
    bundle = open_bundle(tar)
    held = {entry.path for entry in bundle.manifest.files}
    assert TEXT_TABLES in held and not held & {TOKENIZER, CHAT}
    return bundle


@pytest.fixture(scope="module")
def answers(writer) -> list[str]:
    """What Python's conversation comes to."""
    tokenizer = Tokenizer(writer.file(TOKENIZER))
    tokenizer.read_template(read_chat(writer))
    messages = [{"role": "system", "content": SYSTEM}]
    made = []
    with local_place(writer, "") as place:
        conversation = Conversation(Decoder(place, writer), tokenizer)
        for said in SAID:
            messages.append({"role": "user", "content": said})
            wish = Wish(most=COUNT, ends=writer.manifest.end_tokens, sampling=SAMPLING)
            made.append("".join(conversation.answer(messages, wish)))
            messages.append({"role": "assistant", "content": made[-1]})
    assert len(set("".join(made))) > len(made)
    # As a program's output is read.
    return [answer.replace("\r\n", "\n").replace("\r", "\n") for answer in made]


def test_five_turns_of_the_runner(writer, answers, runner):
    said = [word for text in SAID for word in ("--say", text)]
    drawing = ("--temperature", SAMPLING.temperature, "--seed", SAMPLING.seed)
    done = runner(writer.path, "--system", SYSTEM, *said, *drawing, "--max-tokens", COUNT)
    assert done.out == "".join(f"{answer}\n" for answer in answers)


def test_text_in_cpp(runtime, writer, answers, opencl, execute, tmp_path):
    program = compile_against(runtime, "chat_program.cc", tmp_path / "chat")
    assert execute(program, writer.path, opencl).out == answers[0]


def test_five_turns_in_a_jvm(jvm, carried, answers, opencl):
    lines = jvm.run("Chats", opencl, carried.path, COUNT, SYSTEM, *SAID).split("\n")[:-1]
    assert lines == [a.replace("\\", "\\\\").replace("\n", "\\n") for a in answers]


def test_a_bundle_says_what_it_holds_of_text(writer):
    assert TEXT_TABLES in {entry.path for entry in writer.manifest.files}
    decided = [d for d in writer.decisions() if d["subject"].endswith("on the device")]
    assert [d["taken"].split(",")[0] for d in decided] == [TEXT_TABLES]


def test_a_bundle_without_a_tokenizer_says_so(device, runner, tmp_path):
    bundle, _ = make_decoder_bundle(write_decoder(tmp_path, WRITER), "fp32")
    done = runner(bundle.path, "--say", "a", expect=UNSUPPORTED)
    assert "the bundle has no text_tables.bin" in done.err
