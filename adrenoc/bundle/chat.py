"""How a language model wants to be talked to: what the file chat.json of its bundle says."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from adrenoc.base.errors import BundleError, InputError
from adrenoc.base.text.decode import Decoder
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.bundle import CHAT, Bundle
from adrenoc.bundle.sampling import RANGES, Sampling
from adrenoc.bundle.tar import REBUILD_HINT


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """A template of messages, the special tokens that it may name, and how tokens are picked."""

    template: str
    special_tokens: dict[str, str] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)

    def to_json(self) -> bytes:
        """Return the same as a bundle holds it."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode() + b"\n"


def read_chat(bundle: Bundle) -> ChatSettings:
    """Read what a bundle says.

    Raises:
        InputError: it has no template of chats.
        BundleError: the file is damaged.
    """
    path = bundle.file(CHAT)
    if not path.is_file():
        raise InputError(
            f"{bundle.path} has no template of chats: none lay beside the model",
            hint="put the model's tokenizer_config.json or chat_template.jinja beside it and "
            "compile again, or continue a text: "
            f"adrenoc run {quote_word(bundle.path)} --prompt TEXT",
        )
    where = f"{bundle.path}: {CHAT}"
    try:
        plain = read_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BundleError(f"{where} cannot be read: {error}", hint=REBUILD_HINT) from error
    settings: ChatSettings = Decoder(_wrong).read(ChatSettings, plain, where)
    for name, (least, most) in RANGES.items():
        if not least <= (value := getattr(settings.sampling, name)) <= most:
            raise _wrong(where, f"has the {name} {value}, expected {least:g} to {most:g}")
    return settings


def _wrong(where: str, what: str) -> BundleError:
    return BundleError(f"{where} {what}", hint=REBUILD_HINT)
