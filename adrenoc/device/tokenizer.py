"""Text to tokens and back, by the `tokenizers` package and a model's tokenizer.json."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from adrenoc.errors import DependencyError, InputError
from adrenoc.host.extras import pip_install

_UNFINISHED = "\ufffd"
"""What stands for bytes that are no letter yet."""
_LONGEST_LETTER = 4
"""Tokens that may hold one letter: a letter has at most as many bytes."""


class Tokenizer:
    """What a tokenizer.json says."""

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            DependencyError: the package is not installed.
            InputError: the file is no such thing.
        """
        try:
            from tokenizers import Tokenizer as Library
        except ImportError as error:
            raise DependencyError(
                "text needs the Python package tokenizers, which is not installed",
                hint=f"{pip_install('text')}, or give tokens by --prompt-ids",
            ) from error
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the tokenizer {path} cannot be read: {error}",
                hint="--tokenizer takes the tokenizer.json that lies beside the model",
            ) from error
        with _NamedFailure(path):
            self._library: Any = Library.from_str(text)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the tokeniser puts around it.

        Raises:
            InputError: there are none.
        """
        tokens = list(self._library.encode(text).ids)
        if not tokens:
            raise InputError(
                f"the tokenizer makes no tokens of {shlex.quote(text)}", hint="give a longer prompt"
            )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that are no text."""
        said: str = self._library.decode(list(tokens), skip_special_tokens=True)
        return said


class _NamedFailure:
    """Turns what the library raises of a file, an `Exception` of no class of its own, into ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is Exception:
            raise InputError(
                f"{self._path} is no tokenizer.json: {error}",
                hint="--tokenizer takes the tokenizer.json that lies beside the model",
            ) from error


class TextStream:
    """The text of tokens as they come, in pieces that are whole letters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = 0
        """Tokens whose text was given, but for some before the last, which the next text joins."""
        self._base = 0

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that these add; of a letter that they begin, nothing yet."""
        self._tokens += tokens
        # Decoded with some tokens before it: tokenisers may drop the blank that begins a text.
        before = self._tokenizer.decode(self._tokens[self._base : self._shown])
        whole = self._tokenizer.decode(self._tokens[self._base :])
        unfinished = whole.endswith(_UNFINISHED)
        if unfinished and len(self._tokens) - self._shown < _LONGEST_LETTER:
            return ""
        self._base, self._shown = self._shown, len(self._tokens)
        return whole[len(before) :]

    def finish(self) -> str:
        """What is left when no more tokens come."""
        before = self._tokenizer.decode(self._tokens[self._base : self._shown])
        whole = self._tokenizer.decode(self._tokens[self._base :])
        self._base = self._shown = len(self._tokens)
        return whole[len(before) :]
