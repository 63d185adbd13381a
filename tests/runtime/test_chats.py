"""Conversations by a phone's runtime, in C++, in Java and by its runner: those of Python."""

from collections.abc import Callable

import pytest

from adrenoc.bundle.bundle import CHAT, TEXT_TABLES, TOKENIZER, Bundle, open_bundle, write_app_tar
from adrenoc.bundle.chat import Sampling, read_chat
from adrenoc.device.conversation import Conversation
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.language.tokenizer import Tokenizer
from tests.host.decoder_bundles import WRITER, make_decoder_bundle, make_writer, write_decoder
from tests.runtime.programs import Finished, compile_against

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

Execute = Callable[..., Finished]

SYSTEM = "Be short."
SAID = ("Hello there", "Why?  Läuft 你好 👩‍👩‍👧", "don't", "1234", "And <|im_start|> then?")
COUNT = 12
SAMPLING = Sampling(temperature=1.0, seed=7)


@pytest.fixture(scope="module")
def writer(device, tmp_path_factory) -> Bundle:
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


def test_five_turns_of_the_runner(runtime, writer, answers, opencl, execute):
    said = [word for text in SAID for word in ("--say", text)]
    command = [runtime.runner, writer.path, "--opencl", opencl, "--system", SYSTEM, *said]
    drawing = ("--temperature", SAMPLING.temperature, "--seed", SAMPLING.seed)
    done = execute(*command, *drawing, "--max-tokens", COUNT)
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


def test_a_bundle_without_a_tokenizer_says_so(runtime, device, opencl, execute, tmp_path):
    bundle, _ = make_decoder_bundle(write_decoder(tmp_path, WRITER), "fp32")
    done = execute(runtime.runner, bundle.path, "--opencl", opencl, "--say", "a", expect=29)
    assert "the bundle has no text_tables.bin" in done.err
