"""Templates of chats: turns, files beside a model, and calls of tools."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.chat import ChatSettings, Sampling
from adrenoc.device.conversation import CallForm, Toolbox, ToolCall, find_call_form, write_arguments
from adrenoc.importers.decoder_form import _tokens_beside, read_chat_settings
from adrenoc.language import tokenizer as module
from adrenoc.language.pattern import UnfitError
from adrenoc.language.tokenizer import Tokenizer
from adrenoc.language.turns import Message, Turns, find_turns, write_date

jinja2 = pytest.importorskip("jinja2")
from adrenoc.language.tokenizer_process import compile_template  # noqa: E402


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{% for n in [1, 2, 3] %}{% if n == 3 %}{% break %}{% endif %}{{ n }}{% endfor %}", "12"),
        ("{{ {'é': [1, 'ü']} | tojson }}", '{"é": [1, "ü"]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("a{% generation %}b{{ x }}{% endgeneration %}", "abX"),
        ("{{ strftime_now('%Y')[:2] }}", "20"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 4 %}{{ ns.n }}", "4"),
        ("{{ bos_token | default('none') }}", "none"),
    ],
)
def test_templates_do_what_transformers_has_them_do(template, text):
    assert compile_template(template).render(x="X") == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles alternate') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for",
        "{% include '/etc/passwd' %}",
    ],
)
def test_templates_do_no_more(template):
    with pytest.raises((jinja2.TemplateError, TypeError)):
        compile_template(template).render(messages=[])


def _tokenizer(folder: Path, template: str) -> Tokenizer:
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(folder / "tokenizer.json")
    tokenizer.read_template(ChatSettings(template=template, special_tokens={"bos_token": "b"}))
    return tokenizer


def test_messages_become_tokens(tmp_path):
    tokenizer = _tokenizer(tmp_path, "{{ bos_token }} {{ messages[0].content }}")
    assert tokenizer.render([{"role": "user", "content": "a b a"}]) == [1, 0, 1, 0]


def test_what_a_template_refuses_is_told_in_its_words(tmp_path):
    tokenizer = _tokenizer(tmp_path, "{{ raise_exception('roles have to alternate') }}")
    with pytest.raises(InputError, match="refuses the messages: roles have to alternate"):
        tokenizer.render([])


def test_a_template_that_never_ends_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_CPU_S", 1)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer = _tokenizer(tmp_path, loop)
    with pytest.raises(InputError, match="takes more than 1 s of processor time"):
        tokenizer.render([])


def _write(folder: Path, name: str, plain: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(plain if isinstance(plain, str) else json.dumps(plain))


def test_files_beside_a_model_say_how_it_is_talked_to(tmp_path):
    model = tmp_path / "onnx" / "model_q4.onnx"
    assert read_chat_settings(model) == (None, ())
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    config = {"chat_template": named, "eos_token": "</s>", "bos_token": {"content": "<s>"}}
    _write(tmp_path, "tokenizer_config.json", config)
    settings, decisions = read_chat_settings(model)
    assert settings == ChatSettings(
        template="D", special_tokens={"eos_token": "</s>", "bos_token": "<s>"}
    )
    assert [d.reason for d in decisions] == ["tokenizer_config.json has it"]
    _write(tmp_path, "chat_template.jinja", "J")
    _write(tmp_path, "generation_config.json", {"do_sample": True, "top_k": 20, "top_p": 7})
    settings, decisions = read_chat_settings(model)
    # 7 is no probability.
    assert (settings.template, settings.sampling) == ("J", Sampling(temperature=1.0, top_k=20))
    assert "picked as generation_config.json says" in decisions[0].reason


def test_genai_says_how_tokens_are_picked(tmp_path):
    _write(tmp_path, "chat_template.jinja", "J")
    search = {"do_sample": True, "temperature": 0.6, "top_k": 5, "top_p": 0.9}
    _write(tmp_path, "genai_config.json", {"model": {}, "search": search})
    settings, _ = read_chat_settings(tmp_path / "model.onnx")
    assert settings.sampling == Sampling(temperature=0.6, top_k=5, top_p=0.9)
    search = {"do_sample": False, "top_k": 50, "repetition_penalty": 1.1}
    _write(tmp_path, "genai_config.json", {"model": {}, "search": search})
    settings, _ = read_chat_settings(tmp_path / "model.onnx")
    assert settings.sampling == Sampling(repetition_penalty=1.1)
    assert settings.sampling.describe() == "the likeliest tokens (repetition_penalty 1.1)"


def test_a_damaged_file_is_left_out_with_its_reason(tmp_path):
    _write(tmp_path, "chat_template.jinja", "J")
    _write(tmp_path, "tokenizer_config.json", "{")
    settings, decisions = read_chat_settings(tmp_path / "model.onnx")
    assert settings == ChatSettings(template="J")
    assert decisions[0].subject == "tokenizer_config.json" and decisions[0].taken == "left out"


def test_a_turn_ends_where_the_generation_says(tmp_path):
    model = tmp_path / "model.onnx"
    _write(tmp_path, "config.json", {"eos_token_id": 2})
    assert _tokens_beside(model)["end_tokens"] == (2,)
    _write(tmp_path, "generation_config.json", {"eos_token_id": [2, 9]})
    assert _tokens_beside(model)["end_tokens"] == (2, 9)
    _write(tmp_path, "generation_config.json", {"top_k": 1})
    assert _tokens_beside(model)["end_tokens"] == (2,)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
CHATML_TURNS = Turns(
    begin="<|im_start|>user\n",
    begin_system="<|im_start|>system\n",
    after_system="<|im_end|>\n<|im_start|>user\n",
    to_answer="<|im_end|>\n<|im_start|>assistant\n",
    to_user="<|im_end|>\n<|im_start|>user\n",
    end="<|im_end|>\n<|im_start|>assistant\n",
)
BRACKETS = (
    "{% if messages[0].role == 'system' %}{% set system = '<<' ~ messages[0].content ~ '>>' %}"
    "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}"
    "{% endif %}"
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('in turns') }}{% endif %}{% if m.role == 'user' %}"
    "<s>[{{ (system if loop.first else '') ~ m.content | trim }}]{% else %}"
    "{{ ' ' ~ m.content | trim ~ ' </s>' }}{% endif %}{% endfor %}"
)


def turns_of(template: str) -> Turns:
    made = compile_template(template, write_date)
    return find_turns(lambda messages: made.render(messages=list(messages)))


def test_the_texts_around_messages_are_found():
    assert turns_of(CHATML) == CHATML_TURNS


def test_blanks_are_left_out_by_role():
    assert turns_of(CHATML.replace("m.content", "m.content | trim")) == replace(
        CHATML_TURNS, trims=("system", "user", "assistant")
    )
    # The first user's message behind a system's: its blanks before it stay, by Jinja's precedence.
    found = turns_of(BRACKETS)
    assert (found.begin, found.end, found.trims) == ("<s>[", "]", ("user", "assistant"))


@pytest.mark.parametrize(
    ("strips", "blanks"), [("", ""), (".lstrip('\\n')", "\n"), (".strip()", "")]
)
def test_thoughts_of_earlier_answers_are_left_out(strips, blanks):
    said = f"(m.content.split('</think>')[-1]{strips} if m.role == 'assistant' else m.content)"
    found = turns_of(CHATML.replace("m.content", said))
    assert (found.drops, found.drops_blanks) == ("</think>", blanks)
    assert found.trims == (("assistant",) if strips == ".strip()" else ())


def test_a_default_of_the_system_is_in_the_beginning():
    given = "{% if messages[0].role != 'system' %}<|im_start|>system\nHelp!<|im_end|>\n{% endif %}"
    found = turns_of(given + CHATML)
    assert found == replace(
        CHATML_TURNS, begin="<|im_start|>system\nHelp!<|im_end|>\n<|im_start|>user\n"
    )


def test_a_date_stays_a_form():
    found = turns_of("{{ strftime_now('%d %b %Y') }}\n" + CHATML)
    assert found.begin.startswith("\1%d %b %Y\1\n<|im_start|>")


def test_a_template_may_take_no_message_of_a_system():
    refuses = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('none of these') }}{% endif %}"
    )
    without = replace(CHATML_TURNS, begin_system=None, after_system=None)
    assert turns_of(refuses + CHATML) == without
    # As Mistral's: it stands before the last message, wherever that is.
    late = (
        "{% for m in messages if m.role != 'system' %}[{% if loop.last and messages[0].role == "
        "'system' %}{{ messages[0].content }}\n\n{% endif %}{{ m.content }}]{% endfor %}"
    )
    found = turns_of(late)
    assert (found.begin, found.begin_system, found.to_user) == ("[", None, "][")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[-1].content }}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ loop.index }}: {{ m.content }}\n{% endfor %}",
        "{% for m in messages %}<{{ m.content | upper }}>{% endfor %}",
        "{% for m in messages %}<{{ m.content | length }} {{ m.content }}>{% endfor %}",
    ],
)
def test_a_template_that_writes_more_has_no_turns(template):
    with pytest.raises(UnfitError, match="a template that writes"):
        turns_of(template)


def test_turns_write_what_the_template_does():
    template = compile_template(CHATML)
    said: list[Message] = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "a {{ b }}"},
        {"role": "assistant", "content": "c\n"},
        {"role": "user", "content": " d"},
    ]
    for messages in (said, said[1:], said[:2]):
        assert turns_of(CHATML).render(messages) == template.render(messages=messages)


HERMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}"
    "{% if m.content %}{{ '\n' + m.content }}{% endif %}"
    '{% for c in m.tool_calls %}{{ \'\n<tool_call>\n{"name": "\' + c.function.name }}'
    '", "arguments": {{ c.function.arguments | tojson }}{{ "}\n</tool_call>" }}{% endfor %}'
    "<|im_end|>\n{% endfor %}"
)
BARE = (
    "{% for m in messages %}<|{{ m.role }}|>\n\n{% if m.tool_calls %}"
    "{% if m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}<|eot|>{% endfor %}"
)
LIST = (
    "{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}'
    '{% if c.id | length != 9 %}{{ raise_exception("nine letters") }}{% endif %}'
    ', "id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]</s>'
    "{% elif m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
MARKS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
    "<call>function<sep>{{ c.function.name }}\n```json\n{{ c.function.arguments + '' }}\n```</call>"
    "{% endfor %}<end>{% endfor %}"
)
NAMED = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}<end>{% endfor %}"
)
TAGS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}"
    "<function={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
    "<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function>{% endfor %}<end>{% endfor %}"
)
NO_TOOLS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
FORMS = {"hermes": HERMES, "bare": BARE, "list": LIST, "marks": MARKS, "named": NAMED}
TOOLS = Toolbox(
    tools=tuple({"type": "function", "function": {"name": name}} for name in ("look_up", "add"))
)


def form_of(template: str) -> CallForm | None:
    made = compile_template(template)

    def show(messages: Sequence[Mapping[str, Any]]) -> str:
        try:
            return made.render(messages=messages)
        except (jinja2.TemplateError, TypeError) as error:
            raise InputError(str(error), hint="none") from error

    return find_call_form(show)


@pytest.mark.parametrize("kind", FORMS)
def test_what_a_template_writes_is_read(kind):
    form = form_of(FORMS[kind])
    assert form is not None and form.as_text == (kind == "marks")
    arguments = {"city": 'Ab "c" {d}', "days": [1, 2]}
    said = f"{form.before}look_up{form.between}{json.dumps(arguments)}{form.behind}"
    text, (call,) = form.read(said, TOOLS)
    assert text == "" and call.name == "look_up" and json.loads(call.arguments) == arguments
    text, calls = form.read(f"I look it up.\n{said}", TOOLS)
    assert text.strip() == "I look it up." and calls == (call,)


def test_the_form_holds_no_end_of_the_turn():
    form = form_of(HERMES)
    assert form == CallForm(
        before='<tool_call>\n{"name": "',
        between='", "arguments": ',
        behind="}\n</tool_call>",
        as_text=False,
    )
    assert form.leads(TOOLS) == ("<tool_call>",)


@pytest.mark.parametrize("template", [TAGS, NO_TOOLS])
def test_what_is_no_json_behind_a_name_has_no_form(template):
    assert form_of(template) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hermes", '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'),
        ("hermes", '<tool_call>\n{ "name" : "add",\n "arguments": {"a":1} }\n</tool_call>\n'),
        ("bare", '{"name": "add",  "parameters":{"a":1}}'),
        ("list", '[{"name": "add", "arguments": {"a":1}, "id": "abc-1"}]'),
        ("list", '[TOOL_CALLS][{"name": "add", "arguments": {"a":1}}'),
        ("named", 'add {"a":1}'),
    ],
)
def test_blanks_and_marks_may_be_missing(kind, said):
    form = form_of(
        FORMS[kind].replace("[TOOL_CALLS]", "" if said.startswith("[{") else "[TOOL_CALLS]")
    )
    _, calls = form.read(said, TOOLS)
    assert calls == (ToolCall(name="add", arguments='{"a":1}'),)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hermes", '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n' * 2),
        (
            "list",
            '[TOOL_CALLS] [{"name": "add", "arguments": {}}, {"name": "add", "arguments": {}}]',
        ),
    ],
)
def test_several_calls_are_read(kind, said):
    form = form_of(FORMS[kind])
    assert form.read(said, TOOLS)[1] == (ToolCall(name="add", arguments="{}"),) * 2


@pytest.mark.parametrize(
    "said",
    [
        "No call at all.",
        '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "add", "arguments": {"a": ',
    ],
)
def test_what_is_no_call_stays_text(said):
    form = form_of(HERMES)
    assert form is not None and form.read(said, TOOLS) == (said, ())


def test_arguments_are_written_as_a_template_takes_them():
    def call(arguments) -> list[Mapping[str, Any]]:
        return [{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]

    assert write_arguments(call('{"a": 1}'), as_text=False) == call({"a": 1})
    assert write_arguments(call({"a": 1}), as_text=True) == call('{"a": 1}')
    assert write_arguments(call("no JSON"), as_text=False) == call("no JSON")
