"""A language model behind OpenAI's API, asked by OpenAI's own client and by others."""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import OptionError
from adrenoc.base.host.proc import own_module
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.conversation import Reply
from adrenoc.device.generate import Wish
from adrenoc.device.openai.protocol import Answers, RequestError, read_request
from tests.commands import refuse, run_program
from tests.host.decoder_bundles import TALKER, make_talker


class _Openai:
    """OpenAI's package, loaded by the first test that asks for it: more than a second goes."""

    def __getattr__(self, name: str):
        return getattr(pytest.importorskip("openai"), name)


openai = _Openai()
pytest.importorskip("tokenizers")
HELLO = [{"role": "user", "content": "w3 w5 w7"}]


@contextmanager
def serve(bundle: Bundle, *words: str) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [*own_module("adrenoc", "serve", "--openai", str(bundle.path), "--port", "0")]
    with subprocess.Popen(
        [*command, "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        try:
            assert line, process.stderr.read()
            yield json.loads(line)["url"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 130), process.stderr.read()


@pytest.fixture(scope="module")
def bundle(device, tmp_path_factory) -> Bundle:
    return make_talker(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def url(bundle) -> Iterator[str]:
    with serve(bundle) as url:
        yield url


@pytest.fixture
def client(url):
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0)


def ask(url: str, body: bytes | None, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and the body of an answer, whatever asks."""
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else {"error": text}


def test_the_client_chats(client):
    (model,) = client.models.list().data
    assert model.id == "talker"
    answer = client.chat.completions.create(model="talker", messages=HELLO, max_tokens=5)
    (choice,) = answer.choices
    assert choice.finish_reason == "length" and choice.message.role == "assistant"
    assert len(choice.message.content.split()) == 5
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 5)


def test_a_stream_is_the_same_text(client):
    asked = {"model": "talker", "messages": HELLO, "max_completion_tokens": 5}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    *pieces, end, usage = list(stream)
    assert "".join(piece.choices[0].delta.content for piece in pieces) == whole
    assert len(pieces) > 2
    assert end.choices[0].finish_reason == "length"
    assert usage.usage.prompt_tokens_details.cached_tokens == 5


_FIVE_TURNS = """
const OpenAI = require("openai");
const client = new OpenAI({ baseURL: process.argv[1], apiKey: "none", maxRetries: 0 });
(async () => {
  const messages = [], turns = [];
  for (let turn = 0; turn < 5; ++turn) {
    messages.push({ role: "user", content: `w${turn + 3}` });
    const asked = { model: "talker", messages, max_tokens: 4, stream: true };
    const pieces = [];
    for await (const piece of await client.chat.completions.create(asked))
      pieces.push(piece.choices[0]?.delta?.content ?? "");
    messages.push({ role: "assistant", content: pieces.join("") });
    turns.push(pieces.filter(Boolean));
  }
  console.log(JSON.stringify(turns));
})();
"""


def test_the_client_for_node_has_five_turns(url, client):
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no node")
    modules = run_program([npm, "root", "--global"], check=True)
    if not Path(modules.stdout.strip(), "openai").is_dir():
        pytest.skip("npm install --global openai")
    done = run_program(
        ["node", "-e", _FIVE_TURNS, url],
        env={**os.environ, "NODE_PATH": modules.stdout.strip()},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    turns = json.loads(done.stdout)
    assert len(turns) == 5 and all(len(pieces) > 2 for pieces in turns)
    messages: list[dict[str, str]] = []
    for number, pieces in enumerate(turns):
        messages.append({"role": "user", "content": f"w{number + 3}"})
        whole = client.chat.completions.create(model="talker", messages=messages, max_tokens=4)
        assert whole.choices[0].message.content == "".join(pieces)
        messages.append({"role": "assistant", "content": "".join(pieces)})


def test_turns_are_remembered(client):
    first = client.chat.completions.create(model="talker", messages=HELLO, max_tokens=4)
    said = {"role": "assistant", "content": first.choices[0].message.content}
    more = [*HELLO, said, {"role": "user", "content": [{"type": "text", "text": "w9"}]}]
    second = client.chat.completions.create(model="talker", messages=more, max_tokens=4)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens


def test_a_stop_ends_an_answer(client):
    asked = {"model": "talker", "messages": HELLO, "max_tokens": 6}
    words = client.chat.completions.create(**asked).choices[0].message.content.split()
    (choice,) = client.chat.completions.create(**asked, stop=words[3]).choices
    assert choice.finish_reason == "stop"
    assert choice.message.content.split() == words[: words.index(words[3])]


def test_text_is_continued(client):
    asked = {"model": "talker", "prompt": "w3 w5 w7", "max_tokens": 4}
    whole = client.completions.create(**asked)
    stream = list(client.completions.create(**asked, stream=True))
    assert "".join(piece.choices[0].text for piece in stream) == whole.choices[0].text
    assert whole.usage.prompt_tokens == 3


def test_drawn_tokens_hang_on_the_seed(client):
    asked = {"model": "talker", "messages": HELLO, "max_tokens": 12, "temperature": 3.0}
    one, same, other = (
        client.chat.completions.create(**asked, seed=seed).choices[0].message.content
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_penalties_and_bias_change_what_is_said(client):
    asked = {"model": "talker", "messages": HELLO, "max_tokens": 12}

    def words(**more) -> list[str]:
        answer = client.chat.completions.create(**asked, **more)
        return answer.choices[0].message.content.split()

    plain = words()
    # Token 33 is the word w33, whatever else the model would say.
    assert words(logit_bias={"33": 100}) == ["w33"] * 12
    assert plain[0] not in words(logit_bias={plain[0][1:]: -100})
    once = words(presence_penalty=100)
    assert len({*once}) == 12 and once[0] == plain[0]
    assert len({*words(frequency_penalty=100)}) == 12
    assert not {"w3", "w5", "w7"} & {*words(extra_body={"repetition_penalty": 100.0})}
    assert words() == plain
    with pytest.raises(openai.BadRequestError, match="a bias is given for the token 5000"):
        words(logit_bias={"5000": 1})


def test_many_at_once_each_get_their_own(url):
    def talk(word: int) -> str:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        messages = [{"role": "user", "content": f"w{word}"}]
        answer = client.chat.completions.create(model="talker", messages=messages, max_tokens=6)
        return answer.choices[0].message.content

    alone = [talk(word) for word in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(talk, range(6))) == alone


def test_a_reader_that_leaves_leaves_the_model_right(client):
    asked = {"model": "talker", "messages": HELLO, "max_tokens": 20}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    with client.chat.completions.create(**asked, stream=True) as stream:
        next(iter(stream))
    assert client.chat.completions.create(**asked).choices[0].message.content == whole


def test_what_is_not_there_is_refused(client):
    with pytest.raises(openai.NotFoundError, match="'gpt-4' is not here; 'talker' is"):
        client.chat.completions.create(model="gpt-4", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="n is not supported"):
        client.chat.completions.create(model="talker", messages=HELLO, n=2)
    long = [{"role": "user", "content": "w3 " * TALKER.context}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="talker", messages=long)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="talker", messages=long, stream=True)


def test_pages_in_a_browser_get_nothing(url):
    chat, body = f"{url}/chat/completions", json.dumps({"messages": HELLO}).encode()
    assert ask(chat, body, **{"Content-Type": "text/plain"})[0] == 400
    named = {"Content-Type": "application/json", "Host": "evil.example"}
    assert ask(chat, body, **named)[0] == 400
    assert ask(f"{url.removesuffix('/v1')}/health", None) == (200, {"status": "ok"})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b"{}" + b" " * (5 << 20)])
def test_a_body_that_is_none_gets_a_sentence(url, body):
    kind = {"Content-Type": "application/json"}
    status, answer = ask(f"{url}/chat/completions", body, **kind)
    assert status in (400, 413) and answer["error"]["message"]


def test_a_token_is_asked_for(bundle, monkeypatch):
    monkeypatch.setenv("ADRENOC_TOKEN", "secret")
    with serve(bundle) as url:
        right, wrong = (openai.OpenAI(base_url=url, api_key=key) for key in ("secret", "other"))
        assert right.models.list().data
        with pytest.raises(openai.AuthenticationError):
            wrong.models.list()
        with pytest.raises(openai.AuthenticationError):
            wrong.chat.completions.create(model="talker", messages=HELLO)


def test_others_are_let_in_by_a_token_alone(bundle):
    assert "ADRENOC_TOKEN" in refuse(2, "serve", "--openai", bundle.path, "--host", "0.0.0.0")


def test_a_taken_port_is_told(bundle, url):
    port = url.split(":")[2].split("/", maxsplit=1)[0]
    words = ["serve", "--openai", str(bundle.path), "--port", port]
    assert "cannot be listened on" in refuse(OptionError, *words)


@pytest.mark.parametrize(
    ("said", "field_name"),
    [
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"image_url": 1}]}]}, "messages[0].content"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens"),
        ({"messages": HELLO, "temperature": "hot"}, "temperature"),
        ({"messages": HELLO, "stop": [1]}, "stop"),
        ({"messages": HELLO, "presence_penalty": "1"}, "presence_penalty"),
        ({"messages": HELLO, "logit_bias": {"w3": 1}}, "logit_bias"),
        ({"messages": HELLO, "logit_bias": {"3": 101}}, "3"),
        ({"messages": HELLO, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HELLO, "response_format": {"type": "json_schema"}}, "response_format"),
        ({"messages": HELLO, "response_format": "json"}, "response_format"),
        ({"messages": HELLO, "tools": {}}, "tools"),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, "tools"),
        ({"messages": HELLO, "tools": [{"function": {"name": "f", "parameters": 1}}]}, "tools"),
        ({"messages": HELLO, "tool_choice": "required"}, "tool_choice"),
        ({"messages": HELLO, "tool_choice": {"function": {"name": "f"}}}, "tool_choice"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
    ],
)
def test_a_wrong_field_is_named(said, field_name):
    with pytest.raises(RequestError) as caught:
        read_request(said, Wish(), "m", chat=True)
    assert caught.value.field_name == field_name


def test_the_end_of_the_context_is_a_length():
    reply = Reply(text="", ended="full", prompt=1, kept=0, tokens=1)
    whole = Answers(model="m", chat=True).whole(reply)
    assert whole["choices"][0]["finish_reason"] == "length"
