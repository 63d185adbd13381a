"""Answers by a JSON schema or a grammar: what the library allows is what is picked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from adrenoc.base.errors import InputError
from adrenoc.bundle.bundle import TOKENIZER, Bundle
from adrenoc.bundle.chat import read_chat
from adrenoc.bundle.sampling import Sampling
from adrenoc.cli.main import cli
from adrenoc.device import tokenizer as limits
from adrenoc.device.constraint import Constrainer, Grammar
from adrenoc.device.conversation import Conversation
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.run import local_place
from adrenoc.device.tokenizer import Tokenizer
from tests.host.decoder_bundles import SPELLER, make_speller
from tests.host.test_openai_server import serve

llguidance = pytest.importorskip("llguidance")
openai = pytest.importorskip("openai")
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
def bundle(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_speller(tmp_path_factory.mktemp("constraint"))


@pytest.fixture
def decoder(bundle: Bundle) -> Iterator[Decoder]:
    with local_place(bundle, "") as place:
        yield Decoder(place, bundle)


@pytest.fixture
def conversation(bundle: Bundle, decoder: Decoder) -> Conversation:
    tokenizer = Tokenizer(bundle.file(TOKENIZER))
    tokenizer.read_template(read_chat(bundle))
    return Conversation(decoder, tokenizer)


def say(conversation: Conversation, grammar: Grammar | None, **said: Any) -> str:
    wish = Wish(ends=(END,), grammar=grammar, sampling=Sampling(**said))
    return "".join(conversation.answer([HELLO], wish))


def check_answer(text: str) -> None:
    said = json.loads(text)
    assert said["colour"] in ("red", "green", "blue") and 1 <= said["count"] <= 99
    assert 1 <= len(said["sizes"]) <= 3 and {*map(type, said["sizes"])} == {bool}
    assert {*said} == {*SCHEMA["required"]}


def by_schema(schema: Any) -> Grammar:
    return Grammar(kind="json_schema", text=json.dumps(schema))


def test_each_token_is_the_likeliest_of_those_that_are_allowed(
    bundle: Bundle, decoder: Decoder
) -> None:
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
        logits = np.where(asked[-1], decoder.read_logits(), -np.inf)
        assert token == logits.argmax()
        free += token == decoder.read_logits().argmax()
        tokens.append(token)
    assert decoder.ended == "end" and free < len(tokens) > 20
    check_answer(Tokenizer(bundle.file(TOKENIZER)).decode(tokens))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 3.0])
def test_an_answer_follows_its_schema(conversation: Conversation, temperature: float) -> None:
    for seed in range(3):
        text = say(conversation, by_schema(SCHEMA), temperature=temperature, seed=seed)
        assert conversation.reply.ended == "end"
        check_answer(text)


def test_an_answer_follows_its_grammar(conversation: Conversation) -> None:
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
def test_a_wrong_grammar_is_refused(
    conversation: Conversation, grammar: Grammar, reason: str
) -> None:
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        say(conversation, grammar)
    assert "does not go with the grammar" in caught.value.message
    check_answer(say(conversation, by_schema(SCHEMA)))


def test_a_grammar_beyond_the_limits_ends_its_process_alone(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_CPU_S", 1)
    with pytest.raises(InputError, match="takes more than 1 s of processor time"):
        say(conversation, by_schema({"enum": [f"{at}" * 50 for at in range(100_000)]}))
    monkeypatch.undo()
    check_answer(say(conversation, by_schema(SCHEMA)))


def test_an_answer_needs_an_end(conversation: Conversation) -> None:
    wish = Wish(most=3, grammar=by_schema(SCHEMA))
    with pytest.raises(InputError, match="the bundle names none"):
        "".join(conversation.answer([HELLO], wish))


def test_bits_are_as_many_as_the_model_has_tokens(bundle: Bundle) -> None:
    grammar = by_schema(SCHEMA)
    known = llguidance.LLTokenizer(bundle.file(TOKENIZER).read_text(), eos_token=[END])
    whole = llguidance.LLMatcher(known, llguidance.grammar_from(grammar.kind, grammar.text))
    expected = whole.compute_bitmask()
    for vocabulary in (64, SPELLER.vocabulary, 400):
        bits = Constrainer(bundle.file(TOKENIZER), vocabulary).begin(grammar, (END,))([])
        assert bits is not None and len(bits) == -(-vocabulary // 32) * 4
        assert bits == expected.ljust(len(bits), b"\0")[: len(bits)]


def test_chat_reads_a_file(bundle: Bundle, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    words = ["chat", str(bundle.path), "--json", "--grammar"]
    done = CliRunner().invoke(cli, [*words, str(schema)], input="one\ntwo\n")
    assert done.exit_code == 0, done.output
    for line in done.stdout.splitlines():
        check_answer(json.loads(line)["text"])
    schema.write_bytes(b"\xff")
    refused = CliRunner().invoke(cli, [*words, str(schema)], input="one\n")
    assert "cannot be read" in refused.output + str(refused.exception)


def test_clients_say_the_form(bundle: Bundle) -> None:
    with serve(bundle) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)

        def ask(**more: Any) -> str:
            answer = client.chat.completions.create(
                model="speller", messages=[HELLO], temperature=1.0, **more
            )
            content: str = answer.choices[0].message.content
            return content

        described = {"name": "thing", "strict": True, "schema": SCHEMA}
        check_answer(ask(response_format={"type": "json_schema", "json_schema": described}))
        anything = ask(response_format={"type": "json_object"}, max_tokens=40)
        assert anything.startswith("{")
        assert ask(extra_body={"grammar": 'root ::= "yes" | "no"'}) in ("yes", "no")
        with pytest.raises(openai.BadRequestError, match="Invalid type"):
            described["schema"] = {"type": "nonsense"}
            ask(response_format={"type": "json_schema", "json_schema": described})
        with pytest.raises(openai.BadRequestError, match="response_format is none of"):
            ask(response_format={"type": "xml"})
