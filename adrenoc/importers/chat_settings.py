"""How a language model wants to be talked to, by what its makers published beside it.

The template that turns messages into one text is in chat_template.jinja or tokenizer_config.json,
how tokens are picked in generation_config.json or, as onnxruntime-genai writes it, under `search`
in genai_config.json.

Source: Hugging Face's "Chat templates" and "GenerationConfig"; onnxruntime-genai's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adrenoc.base.decision import Decision
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.chat import ChatSettings
from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.importers.decoder_spec import GENAI_CONFIG
from adrenoc.importers.model_folders import find_beside, folders_beside

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
_MOST_BYTES = 8 << 20
"""A tokenizer_config.json lists its added tokens, of which some models have thousands."""
_MOST_TEMPLATE_BYTES = 1 << 20
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_settings(model: Path) -> tuple[ChatSettings | None, tuple[Decision, ...]]:
    """Read what lies beside a model, or one folder up; None where nothing has a template.

    Damaged files say nothing, with a Decision each.
    """
    decisions: list[Decision] = []
    files = {
        name: _read(model, name, decisions)
        for name in (TOKENIZER_CONFIG, GENERATION_CONFIG, GENAI_CONFIG)
    }
    config = files[TOKENIZER_CONFIG]
    template, source = _template_of(model, config)
    if not template:
        return None, tuple(decisions)
    picked, picked_by = _sampling_of(files[GENERATION_CONFIG], files[GENAI_CONFIG])
    special = {key: text for key in _SPECIAL if (text := _token(config.get(key)))}
    decisions.append(
        Decision(
            subject="chat template",
            taken="goes into the bundle",
            reason=f"{source} has it"
            + (f"; tokens are picked as {picked_by} says" * bool(picked_by)),
        )
    )
    settings = ChatSettings(template=template, special_tokens=special, sampling=picked)
    return settings, tuple(decisions)


def _template_of(model: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the template, and the file that has it; of several named ones the default."""
    for folder in folders_beside(model):
        try:
            return read_plain(folder / TEMPLATE_FILE, _MOST_TEMPLATE_BYTES).decode(), TEMPLATE_FILE
        except (OSError, ValueError):
            continue
    held = config.get("chat_template")
    if isinstance(held, list):
        named = {one.get("name"): one.get("template") for one in held if isinstance(one, dict)}
        held = named.get("default", next(iter(named.values()), None))
    is_one = isinstance(held, str) and len(held) <= _MOST_TEMPLATE_BYTES
    return (held, TOKENIZER_CONFIG) if is_one and held is not None else ("", "")


def _sampling_of(generation: Mapping[str, Any], genai: Mapping[str, Any]) -> tuple[Sampling, str]:
    """Return how tokens are picked, and by which file; the likeliest where none says to draw."""
    search = genai.get("search")
    for said, name in ((generation, GENERATION_CONFIG), (search, f"{GENAI_CONFIG} (search)")):
        if not isinstance(said, dict):
            continue
        is_drawn = said.get("do_sample") is True
        found: dict[str, Any] = {"temperature": 1.0} if is_drawn else {}
        names = RANGES if is_drawn else ("repetition_penalty",)
        read = {n: _number(said.get(n), *RANGES[n]) for n in names}
        found |= {n: value for n, value in read.items() if value is not None}
        if found:
            top_k = int(found.pop("top_k", 0))
            return Sampling(top_k=top_k, **found), name
    return Sampling(), ""


def _number(value: object, least: float, most: float) -> float | None:
    """Return a number in its range; None for anything else, which says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= most else None


def _token(value: object) -> str:
    """Return a special token: its text, or a table with it."""
    held = value.get("content") if isinstance(value, dict) else value
    return held if isinstance(held, str) else ""


def _read(model: Path, name: str, decisions: list[Decision]) -> dict[str, Any]:
    path = find_beside(model, name)
    if path is None:
        return {}
    try:
        held = read_json(read_plain(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        decisions.append(Decision(subject=name, taken="left out", reason=str(error)))
        return {}
    return held if isinstance(held, dict) else {}
