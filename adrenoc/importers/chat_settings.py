"""How a language model wants to be talked to, by what its makers published beside it.

The template that turns messages into one text is in chat_template.jinja or tokenizer_config.json,
how tokens are picked in generation_config.json or, as onnxruntime-genai writes it, under `search`
in genai_config.json.

What stands for a picture is in config.json, what is done to its pixels in preprocessor_config.json.

Source: Hugging Face's "Chat templates" and "GenerationConfig"; onnxruntime-genai's configuration;
transformers' processors of Idefics3, SmolVLM and LFM2-VL.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adrenoc.base.decision import Decision
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.chat import ChatSettings, PictureSettings
from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.importers.model_folders import folders_beside, read_beside
from adrenoc.importers.states import GENAI_CONFIG

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
_MOST_TEMPLATE_BYTES = 1 << 20
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
_IMAGE_TOKENS = ("image_token_id", "image_token_index")
_AROUND = {
    "idefics3": (("<fake_token_around_image>", "<global-img>"), ("<fake_token_around_image>",)),
    "lfm2_vl": (("<|image_start|>",), ("<|image_end|>",)),
}
_AROUND["smolvlm"] = _AROUND["idefics3"]
"""Models whose templates have one word for a picture -> what processors put around its rows."""
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_settings(
    model: Path, tokenizer: bytes = b""
) -> tuple[ChatSettings | None, tuple[Decision, ...]]:
    """Read what lies beside a model, or one folder up; None where nothing has a template.

    `tokenizer` is the tokenizer.json that goes with it.
    Damaged files say nothing, with a Decision each.
    """
    decisions: list[Decision] = []
    files = {
        name: read_beside(model, name, decisions)
        for name in (TOKENIZER_CONFIG, GENERATION_CONFIG, GENAI_CONFIG, CONFIG, PREPROCESSOR)
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
    settings = ChatSettings(
        template=template,
        special_tokens=special,
        sampling=picked,
        picture=_picture_of(files[CONFIG], files[PREPROCESSOR], tokenizer),
    )
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


def _picture_of(
    config: Mapping[str, Any], prepared: Mapping[str, Any], tokenizer: bytes
) -> PictureSettings | None:
    """Return how pictures go in; None where the model takes none."""
    token = next((config[key] for key in _IMAGE_TOKENS if type(config.get(key)) is int), None)
    if token is None:
        return None
    added = read_json(tokenizer).get("added_tokens") if tokenizer else None
    listed = [one for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    known = {one.get("content"): one["id"] for one in listed if type(one.get("id")) is int}
    before, after = _AROUND.get(str(config.get("model_type")), ((), ()))
    is_normal = prepared.get("do_normalize") is not False
    chosen = prepared.get("resample")
    return PictureSettings(
        token=token,
        before=tuple(known[word] for word in before if word in known),
        after=tuple(known[word] for word in after if word in known),
        mean=_channels(prepared.get("image_mean") if is_normal else None) or (0.0,),
        std=_channels(prepared.get("image_std") if is_normal else None) or (1.0,),
        crops=prepared.get("do_center_crop") is True,
        filter=chosen if type(chosen) is int and 0 <= chosen < 6 else PictureSettings.filter,
    )


def _channels(value: object) -> tuple[float, ...]:
    """Return a number for each channel; nothing of anything else."""
    read = [_number(one, 0.0, 1.0) for one in value] if isinstance(value, list) else []
    return tuple(one for one in read if one is not None)


def _number(value: object, least: float, most: float) -> float | None:
    """Return a number in its range; None for anything else, which says nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if least <= value <= most else None


def _token(value: object) -> str:
    """Return a special token: its text, or a table with it."""
    held = value.get("content") if isinstance(value, dict) else value
    return held if isinstance(held, str) else ""
