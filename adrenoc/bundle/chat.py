"""How a language model is talked to: names of its tensors, how tokens are picked, and chat.json."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from adrenoc.base.errors import BundleError, InputError
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import count_of, quote_word
from adrenoc.bundle.bundle import CHAT, TOKENIZER, Bundle
from adrenoc.bundle.manifest import REBUILD_HINT, Manifest

TOKENS, LOGITS = "input_ids", "logits"
"""Of both: the new tokens, and what the next one is picked of."""
MASK, POSITIONS = "attention_mask", "position_ids"
"""Of files alone: which rows count, and the numbers of the new tokens."""
EMBEDDINGS = "inputs_embeds"
"""Of files of vision-language models, in place of tokens: rows that another model has looked up."""
IMAGE_ROWS = "image_features"
"""Of encoders of pictures and of bundles: the rows that tokens below zero take, -1 the first."""
PAST_BRANCH = "use_cache_branch"
"""Of files that hold two graphs: whether there is a past."""
PAST_LENGTH = "past_length"
"""Of bundles: how many rows of the caches hold tokens."""
NEXT_TOKEN, FILLED = "next_token", "filled"
"""Outputs of bundles for one token, and for several."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is picked of logits; a `temperature` of 0 takes the likeliest, others draw.

    `top_k` (0: all) keeps the likeliest tokens, `top_p` (1: all) of these the fewest whose
    probability reaches it, `min_p` (0: all) those that are at least so likely, the likeliest being
    1.  The same `seed` after the same tokens draws the same ones.

    Before that logits are changed, in this order: `bias` holds tokens and what is added to theirs;
    of a token that the context has, a positive one is divided and a negative one multiplied by
    `repetition_penalty`; of a token that the answer has, `frequency_penalty` is taken away as often
    as it does and `presence_penalty` once.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0

    def describe(self) -> str:
        """Write what is not as usual: "tokens drawn at 0.6 (top_k 20)"."""
        told = [
            f"{name} {value:g}"
            for name in RANGES
            if name != "temperature" and (value := getattr(self, name)) != getattr(_USUAL, name)
        ]
        drawn = f"tokens drawn at {self.temperature:g}"
        return (drawn if self.temperature else "the likeliest tokens") + (
            f" ({', '.join(told)})" if told else ""
        )


RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, 1 << 30),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-2, 100),
    "presence_penalty": (-100, 100),
    "frequency_penalty": (-100, 100),
}
"""What somebody may say of a field: the least and the most."""
_USUAL = Sampling()


@dataclass(frozen=True, kw_only=True)
class PictureSettings:
    """How a picture gets into a prompt, and its pixels into an encoder.

    `token` stands for it in a text, once or for each of its rows; where it stands once, tokens come
    `before` and `after` the rows.  Pixels (0 to 1) less `mean` are divided by `std`, a number for
    each channel.  `crops` says that what is not of the encoder's form is cut off, else it is
    squeezed; `filter` is Pillow's number of how pixels are made fewer.
    """

    token: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crops: bool = False
    filter: int = 2


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """How a bundle takes pictures: in so many `rows` (0: none), and whether one `is_given`."""

    settings: PictureSettings
    rows: int
    is_given: bool

    def place(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """Return a prompt with the rows of a picture, -1 the first, where its token stands."""
        token, count = self.settings.token, list(prompt).count(self.settings.token)
        seen = f"the prompt has {count_of(count, 'token')} of a picture ({token})"
        if bool(count) != self.is_given:
            why, hint = ("a picture", _WRITE) if self.is_given else ("no picture", _GIVE)
            raise InputError(f"{seen}, and {why} is given", hint=hint)
        if count > 1 and count != self.rows:
            raise InputError(f"{seen}; expected once, or {self.rows} times", hint=_ONE)
        rows = range(-1, -self.rows - 1, -1)
        if count == 1:
            at = list(prompt).index(token)
            around = (*self.settings.before, *rows, *self.settings.after)
            return (*prompt[:at], *around, *prompt[at + 1 :])
        numbers = iter(rows)
        return tuple(next(numbers) if one == token else one for one in prompt)


_WRITE = "write the model's word for a picture into the prompt, as its makers do (<image>)"
_GIVE = (
    f"adrenoc compile FOLDER --shape {IMAGE_ROWS}:1,ROWS,WIDTH as the encoder gives them, and give "
    "the encoder's bundle and an image"
)
_ONE = "one picture goes into a prompt"


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """A template of messages, its special tokens, how tokens are picked, how pictures go in."""

    template: str
    special_tokens: dict[str, str] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    picture: PictureSettings | None = field(default=None, metadata={"default": True})

    def to_json(self) -> bytes:
        """Return the same as a bundle holds it."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False).encode() + b"\n"


def find_pictures(bundle: Bundle, *, is_given: bool) -> Pictures | None:
    """Return how a bundle takes pictures; None where its model never does."""
    settings = read_chat(bundle).picture if bundle.file(CHAT).is_file() else None
    if settings is None:
        return None
    shapes = (spec.shape for spec in bundle.manifest.inputs if spec.name == IMAGE_ROWS)
    rows = next((math.prod(shape[:-1]) for shape in shapes), 0)
    return Pictures(settings=settings, rows=rows, is_given=is_given)


def read_chat(bundle: Bundle) -> ChatSettings:
    """Read what a bundle says."""
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
        content = path.read_bytes()
    except OSError as error:
        raise _wrong(where, f"cannot be read: {error}") from error
    return parse_chat(content, where)


def parse_chat(content: bytes, where: str) -> ChatSettings:
    """Read what `ChatSettings.to_json` wrote; messages begin with `where`."""
    try:
        plain = read_json(content)
    except ValueError as error:
        raise _wrong(where, f"cannot be read: {error}") from error
    settings: ChatSettings = RecordReader(_wrong).read(ChatSettings, plain, where)
    for name, (least, most) in RANGES.items():
        if not least <= (value := getattr(settings.sampling, name)) <= most:
            raise _wrong(where, f"has the {name} {value}, expected {least:g} to {most:g}")
    return settings


def _wrong(where: str, what: str) -> BundleError:
    return BundleError(f"{where} {what}", hint=REBUILD_HINT)


def is_decoder(manifest: Manifest) -> bool:
    """Return whether a bundle generates tokens: it has caches, and the inputs of a decoder."""
    names = {spec.name for spec in manifest.inputs}
    return bool(manifest.states) and {TOKENS, PAST_LENGTH} <= names


def how_to_talk(path: Path, manifest: Manifest) -> str:
    """Write the command that has the decoder at `path` generate, by the files that it came with."""
    files = {entry.path for entry in manifest.files}
    where = "" if manifest.target.host else " --adb"
    if {CHAT, TOKENIZER} <= files:
        return f"adrenoc chat {quote_word(path)}{where}"
    prompt = '--prompt "Once upon"' if TOKENIZER in files else "--prompt-ids 1,2,3"
    if any("encoder" in spec.name or "cross" in spec.name for spec in manifest.inputs):
        prompt = "--encoder BUNDLE --input NAME=FILE --prompt-ids START"
    return f"adrenoc run {quote_word(path)}{where} {prompt}"
