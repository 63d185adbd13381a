"""Templates of chats: what they may do, and what comes of the files beside a model."""

import json
from pathlib import Path

import pytest

from adrenoc.base.errors import InputError
from adrenoc.bundle.chat import ChatSettings
from adrenoc.bundle.sampling import Sampling
from adrenoc.importers.chat_settings import read_chat_settings
from adrenoc.importers.decoder_form import _tokens_beside
from adrenoc.language import tokenizer as module
from adrenoc.language.tokenizer import Tokenizer

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
