"""What is put together of the texts around messages is what a template writes."""

from dataclasses import replace

import pytest

from adrenoc.language.pattern import UnfitError
from adrenoc.language.turns import Message, Turns, find_turns, write_date

pytest.importorskip("jinja2")

from adrenoc.language.tokenizer_process import compile_template

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
