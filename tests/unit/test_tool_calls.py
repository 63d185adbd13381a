"""How models write calls of tools: found by asking templates of the forms that are in use."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adrenoc.base.errors import InputError
from adrenoc.device.conversation import CallForm, Toolbox, ToolCall, find_call_form, write_arguments

jinja2 = pytest.importorskip("jinja2")
from adrenoc.language.tokenizer_process import compile_template  # noqa: E402

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
    def call(arguments: Any) -> list[Mapping[str, Any]]:
        return [{"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]}]

    assert write_arguments(call('{"a": 1}'), as_text=False) == call({"a": 1})
    assert write_arguments(call({"a": 1}), as_text=True) == call('{"a": 1}')
    assert write_arguments(call("no JSON"), as_text=False) == call("no JSON")
