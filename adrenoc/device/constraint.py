"""Answers that have a form: which tokens may come next, by the library llguidance.

What a grammar allows is worked out in a process with limits, as a text's tokens are: grammars and
schemas may come from anybody who asks a server.  It is handed to the kernel that picks tokens as a
bit for each.
"""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from adrenoc.base.errors import DependencyError, InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.host.extras import pip_install
from adrenoc.device.tokenizer import Tokenizer

Allow: TypeAlias = Callable[[Sequence[int]], "bytes | None"]
"""Tokens that came since the last question -> a bit for each that may come next, of the first the
lowest; None where the answer is whole."""
Kind: TypeAlias = Literal["json_schema", "gbnf", "lark"]
_WORD_BYTES = 4
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """A form of answers: its kind and its text; users' grammars in Lark go as GBNF, too."""

    kind: Kind
    text: str


def read_grammar(path: Path) -> Grammar:
    """Read a file: a JSON object is a schema, and any other text a grammar.

    Raises:
        InputError: it is no text.
    """
    try:
        text = read_plain(path, _MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InputError(
            f"the grammar {path} cannot be read: {error}",
            hint="give a JSON schema, or a grammar in GBNF or Lark",
        ) from error
    is_schema = text.lstrip().startswith("{")
    return Grammar(kind="json_schema" if is_schema else "gbnf", text=text)


class Constrainer:
    """Grammars over the tokens of one model, one after the other."""

    def __init__(self, tokenizer: Path, vocabulary: int) -> None:
        """`vocabulary` is how many tokens the model picks among."""
        self._path, self._vocabulary = tokenizer, vocabulary
        self._tokenizer: Tokenizer | None = None

    def begin(self, grammar: Grammar, ends: Sequence[int]) -> Allow:
        """Begin an answer of this form, which one of `ends` ends; what was begun before is over.

        Raises:
            DependencyError: llguidance is not installed.
            InputError: the grammar is wrong or beyond the limits, or the model has no end token.
        """
        if importlib.util.find_spec("llguidance") is None:
            raise DependencyError(
                "answers by a grammar need the Python package llguidance, which is not installed",
                hint=pip_install("grammar"),
            )
        if not ends:
            raise InputError(
                "an answer by a grammar ends with an end token, and the bundle names none",
                hint="put the model's generation_config.json beside it and compile again",
            )
        if self._tokenizer is None or not self._tokenizer.is_alive:
            self._tokenizer = Tokenizer(self._path)
        told = {"kind": grammar.kind, "text": grammar.text, "ends": list(ends)}
        self._tokenizer.ask_of_grammar("grammar", told)
        return self._allow

    def _allow(self, tokens: Sequence[int]) -> bytes | None:
        assert self._tokenizer is not None
        told = self._tokenizer.ask_of_grammar("allow", list(tokens))
        size = -(-self._vocabulary // (8 * _WORD_BYTES)) * _WORD_BYTES
        # Rows of logits may be longer than what the tokenizer knows, and shorter.
        return None if told is None else base64.b64decode(told).ljust(size, b"\0")[:size]


class Matcher:
    """What the process of the library holds: the tokens of a tokenizer.json, and one grammar."""

    def __init__(self, text: str) -> None:
        """`text` is the tokenizer.json."""
        self._text = text
        self._tokens: Any = None
        self._matcher: Any = None

    def begin(self, kind: Kind, text: str, ends: list[int]) -> None:
        """Take a grammar.

        Raises:
            ValueError: it is wrong.
        """
        from llguidance import LLMatcher, LLTokenizer, grammar_from

        if self._tokens is None:
            self._tokens = LLTokenizer(self._text, eos_token=ends)
        # Without this any blanks are allowed, of which a small model may make no end.
        grammar = (
            LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False})
            if kind == "json_schema"
            else grammar_from(kind, text)
        )
        self._matcher = LLMatcher(self._tokens, grammar, log_level=0)
        self._check()

    def allow(self, tokens: list[int]) -> str | None:
        """Take tokens in; the bits of those that may follow in base64, or None.

        Raises:
            ValueError: the grammar does not go on so.
        """
        self._matcher.consume_tokens(tokens)
        self._check()
        if self._matcher.is_stopped():
            return None
        bits = self._matcher.compute_bitmask()
        self._check()
        return base64.b64encode(bits).decode()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
