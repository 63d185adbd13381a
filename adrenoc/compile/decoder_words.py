"""The tokenizer.json of a decoder, and how it is talked to: its bundle carries what is known."""

from __future__ import annotations

from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import InputError
from adrenoc.base.files.read import open_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.bundle import CHAT, TOKENIZER
from adrenoc.importers.chat_settings import read_chat_settings
from adrenoc.importers.containers import open_tokenizer
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.model_folders import find_beside

_HINT = "--tokenizer takes the tokenizer.json that lies beside the model"


def find_words(model: Path, asked: Path | None) -> tuple[dict[str, bytes], tuple[Decision, ...]]:
    """Return the files of a bundle that turn texts into tokens: the tokenizer, and its template of
    chats.

    Raises:
        InputError: the tokenizer that was asked for cannot be read, or is no such thing.
        ModelFormatError: that of the container is damaged.
    """
    tokenizer, found = find_tokenizer(model, asked)
    settings, more = read_chat_settings(model) if tokenizer else (None, ())
    words = {TOKENIZER: tokenizer, CHAT: b"" if settings is None else settings.to_json()}
    return {name: content for name, content in words.items() if content}, (*found, *more)


def find_tokenizer(model: Path, asked: Path | None) -> tuple[bytes, tuple[Decision, ...]]:
    """Return the one that was asked for, that of the model's container, or the one beside the
    model.

    Nothing where there is none.

    Raises:
        InputError: the one that was asked for cannot be read, or is no such thing.
        ModelFormatError: that of the container is damaged.
    """
    if asked is not None:
        return _read(asked), _decide(f"{asked.name}, as asked for")
    files = find_model_files(model)
    if files.tokenizer is not None:
        with open_plain(model) as file:
            file.seek(files.tokenizer.offset)
            stored = file.read(files.tokenizer.length)
        return open_tokenizer(stored, model), _decide("the one in the model's container")
    beside = find_beside(model, TOKENIZER)
    if beside is None:
        return b"", ()
    try:
        return _read(beside), _decide("it lies beside the model")
    except InputError as error:
        left_out = Decision(subject="tokenizer", taken="left out", reason=error.message)
        return b"", (left_out,)


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read()
    except OSError as error:
        raise InputError(f"the tokenizer {path} cannot be read: {error}", hint=_HINT) from error
    try:
        is_one = "model" in read_json(content)
    except (ValueError, TypeError):
        is_one = False
    if not is_one:
        raise InputError(f"{path} is no tokenizer.json: it is no JSON with a model", hint=_HINT)
    return content


def _decide(reason: str) -> tuple[Decision, ...]:
    taken = f"{TOKENIZER} goes into the bundle"
    return (Decision(subject="tokenizer", taken=taken, reason=reason),)
