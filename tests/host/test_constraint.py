"""Answers by a JSON schema or a grammar: what the library allows is what is picked."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.bundle import TOKENIZER, Bundle
from adrenoc.bundle.chat import ChatSettings, Sampling, read_chat
from adrenoc.device.conversation import Conversation, Toolbox
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.language import tokenizer as limits
from adrenoc.language.tokenizer import Constrainer, Grammar, Tokenizer
from tests.commands import invoke, succeed
from tests.host.decoder_bundles import SPELLER, make_speller
from tests.host.test_openai_server import openai, serve

llguidance = pytest.importorskip("llguidance")
END = SPELLER.vocabulary - 1
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "sizes": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["colour", "count", "sizes"],
    "additionalProperties": False,
}
HELLO = {"role": "user", "content": "Say it"}


@pytest.fixture(scope="module")
def bundle(device, tmp_path_factory) -> Bundle:
    return make_speller(tmp_path_factory.mktemp("constraint"))


@pytest.fixture(scope="module")
def client(bundle) -> Iterator[Any]:
    with serve(bundle) as url:
        yield openai.OpenAI(base_url=url, api_key="none", max_retries=0)


@pytest.fixture
def decoder(bundle) -> Iterator[Decoder]:
    with local_place(bundle, "") as place:
        yield Decoder(place, bundle)


@pytest.fixture
def conversation(bundle, decoder) -> Conversation:
    tokenizer = Tokenizer(bundle.file(TOKENIZER))
    tokenizer.read_template(read_chat(bundle))
    return Conversation(decoder, tokenizer)


def say(conversation: Conversation, grammar: Grammar | None, **said) -> str:
    wish = Wish(ends=(END,), grammar=grammar, sampling=Sampling(**said))
    return "".join(conversation.answer([HELLO], wish))


def check_answer(text: str) -> None:
    said = json.loads(text)
    assert said["colour"] in ("red", "green", "blue") and 1 <= said["count"] <= 99
    assert 1 <= len(said["sizes"]) <= 3 and {*map(type, said["sizes"])} == {bool}
    assert {*said} == {*SCHEMA["required"]}


def by_schema(schema) -> Grammar:
    return Grammar(kind="json_schema", text=json.dumps(schema))


def test_each_token_is_the_likeliest_of_those_that_are_allowed(bundle, decoder):
    constrainer = Constrainer(bundle.file(TOKENIZER), decoder.vocabulary)
    ask = constrainer.begin(by_schema(SCHEMA), (END,))
    asked: list[np.ndarray] = []

    def allow(tokens: Sequence[int]) -> bytes | None:
        bits = ask(tokens)
        if bits is not None:
            flat = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            asked.append(flat[: SPELLER.vocabulary].astype(bool))
        return bits

    wish = Wish(ends=(END,), with_logits=True)
    tokens: list[int] = []
    free = 0
    for (token,) in decoder.generate(3, wish, allow):
        assert token == np.where(asked[-1], decoder.read_logits(), -np.inf).argmax()
        free += token == decoder.read_logits().argmax()
        tokens.append(token)
    assert decoder.ended == "end" and free < len(tokens) > 20
    check_answer(Tokenizer(bundle.file(TOKENIZER)).decode(tokens))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_an_answer_follows_its_schema(conversation, temperature):
    for seed in range(3):
        text = say(conversation, by_schema(SCHEMA), temperature=temperature, seed=seed)
        assert conversation.reply.ended == "end"
        check_answer(text)


def test_an_answer_follows_its_grammar(conversation):
    free = say(conversation, None)
    said = {
        say(conversation, Grammar(kind="gbnf", text='root ::= ("yes" | "no") "!"'), **sampling)
        for sampling in ({"temperature": 100.0, "seed": seed} for seed in range(12))
    }
    assert said == {"yes!", "no!"}
    lark = Grammar(kind="gbnf", text='start: "(" /[a-c]{3}/ start? ")"')
    text = say(conversation, lark, temperature=1.0, frequency_penalty=0.5)
    assert re.fullmatch(r"(\([abc]{3})+\)+", text)
    assert say(conversation, None) == free


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        (by_schema({"type": "nonsense"}), "Invalid type: nonsense"),
        (by_schema({"$ref": "http://elsewhere/schema"}), "not present in a registry"),
        (by_schema({"type": "string", "pattern": "(?=a)b"}), "look-around"),
        (Grammar(kind="gbnf", text="root ::= ("), "Expected ')'"),
        (Grammar(kind="gbnf", text='root ::= "a" other'), "other"),
    ],
)
def test_a_wrong_grammar_is_refused(conversation, grammar, reason):
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        say(conversation, grammar)
    assert "does not go with the grammar" in caught.value.message
    check_answer(say(conversation, by_schema(SCHEMA)))


def test_a_grammar_beyond_the_limits_ends_its_process_alone(conversation, monkeypatch):
    monkeypatch.setattr(limits, "MOST_CPU_S", 1)
    with pytest.raises(InputError, match="takes more than 1 s of processor time"):
        say(conversation, by_schema({"enum": [f"{at}" * 50 for at in range(250_000)]}))
    monkeypatch.undo()
    check_answer(say(conversation, by_schema(SCHEMA)))


def test_an_answer_needs_an_end(conversation):
    wish = Wish(most=3, grammar=by_schema(SCHEMA))
    with pytest.raises(InputError, match="the bundle names none"):
        "".join(conversation.answer([HELLO], wish))


def test_bits_are_as_many_as_the_model_has_tokens(bundle):
    grammar = by_schema(SCHEMA)
    known = llguidance.LLTokenizer(bundle.file(TOKENIZER).read_text(), eos_token=[END])
    whole = llguidance.LLMatcher(known, llguidance.grammar_from(grammar.kind, grammar.text))
    expected = whole.compute_bitmask()
    for vocabulary in (64, SPELLER.vocabulary, 400):
        bits = Constrainer(bundle.file(TOKENIZER), vocabulary).begin(grammar, (END,))([])
        assert bits is not None and len(bits) == -(-vocabulary // 32) * 4
        assert bits == expected.ljust(len(bits), b"\0")[: len(bits)]


def test_chat_reads_a_file(bundle, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    words = ("chat", bundle.path, "--json", "--grammar", schema)
    for line in succeed(*words, typed="one\ntwo\n").stdout.splitlines():
        check_answer(json.loads(line)["text"])
    schema.write_bytes(b"\xff")
    refused = invoke(*words, typed="one\n", catch=True)
    assert "cannot be read" in refused.output + str(refused.exception)


def test_clients_say_the_form(client):
    def ask(**more) -> str:
        answer = client.chat.completions.create(
            model="speller", messages=[HELLO], temperature=1.0, **more
        )
        return answer.choices[0].message.content

    described = {"name": "thing", "strict": True, "schema": SCHEMA}
    check_answer(ask(response_format={"type": "json_schema", "json_schema": described}))
    assert ask(response_format={"type": "json_object"}, max_tokens=40).startswith("{")
    assert ask(extra_body={"grammar": 'root ::= "yes" | "no"'}) in ("yes", "no")
    with pytest.raises(openai.BadRequestError, match="Invalid type"):
        described["schema"] = {"type": "nonsense"}
        ask(response_format={"type": "json_schema", "json_schema": described})
    with pytest.raises(openai.BadRequestError, match="response_format is none of"):
        ask(response_format={"type": "xml"})


def describe_tool(name: str, **properties) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name, "parameters": {**schema, "additionalProperties": False}}
    return {"type": "function", "function": function}


TOOLS = [
    describe_tool("paint", colour={"enum": ["red", "blue"]}),
    describe_tool("count", to={"type": "integer", "minimum": 1, "maximum": 9}),
]


def test_clients_have_tools_called(client):
    asked = {"model": "speller", "temperature": 1.0, "tools": TOOLS}
    for seed in range(3):
        answer = client.chat.completions.create(
            **asked, messages=[HELLO], seed=seed, tool_choice="required"
        )
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        (call,) = choice.message.tool_calls
        assert call.type == "function" and call.id
        check_call(call.function)
    named = {"type": "function", "function": {"name": "count"}}
    answer = client.chat.completions.create(**asked, messages=[HELLO], tool_choice=named)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "count"
    said = [HELLO, answer.choices[0].message, {"role": "tool", "content": "x"}]
    said[2] |= {"tool_call_id": call.id}
    after = client.chat.completions.create(**asked, messages=said, tool_choice="none", max_tokens=3)
    assert after.choices[0].message.tool_calls is None


def check_call(function) -> None:
    arguments = json.loads(function.arguments)
    if function.name == "paint":
        assert arguments["colour"] in ("red", "blue") and len(arguments) == 1
    else:
        assert function.name == "count" and 1 <= arguments["to"] <= 9 and len(arguments) == 1


def test_a_stream_gives_calls_and_no_text_of_them(client):
    stream = client.chat.completions.create(
        model="speller", messages=[HELLO], tools=TOOLS, tool_choice="required", stream=True
    )
    deltas = [piece.choices[0] for piece in stream]
    assert "".join(one.delta.content or "" for one in deltas) == ""
    (calls,) = (one.delta.tool_calls for one in deltas if one.delta.tool_calls)
    (call,) = calls
    assert call.index == 0
    check_call(call.function)
    assert deltas[-1].finish_reason == "tool_calls"


def test_what_is_said_beside_tools_is_text(client):
    asked = {"model": "speller", "messages": [HELLO], "max_tokens": 12, "seed": 4}
    plain = client.chat.completions.create(**asked).choices[0]
    beside = client.chat.completions.create(**asked, tools=TOOLS).choices[0]
    assert beside.message.content == plain.message.content and not beside.message.tool_calls
    assert beside.finish_reason == plain.finish_reason
    with pytest.raises(openai.BadRequestError, match="has the form of response_format"):
        client.chat.completions.create(
            **asked, tools=TOOLS, tool_choice="required", response_format={"type": "json_object"}
        )


def test_a_template_without_a_form_of_calls_is_told(conversation):
    plain = ChatSettings(template="{{ messages[-1].content }}")
    conversation._tokenizer.read_template(plain)
    with pytest.raises(InputError, match="in no form"):
        list(conversation.answer([HELLO], Wish(), (), Toolbox(tools=tuple(TOOLS), must="*")))
