"""Text to tokens and back, by the `tokenizers` package and a model's tokenizer.json.

Answers may have a form: which tokens may come next then, the library llguidance says.  What a
grammar allows is worked out in a process with limits, as a text's tokens are: grammars and
schemas may come from anybody who asks a server.  It is handed to the kernel that picks tokens as a
bit for each.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import shlex
import signal
import subprocess
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from adrenoc.base.errors import DependencyError, InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.proc import own_module

if TYPE_CHECKING:
    from adrenoc.bundle.chat import ChatSettings, Sampling


MOST_CPU_S = 15
"""Processor time of one question: the largest vocabularies in use take 3 s to load."""
MOST_BYTES = 2 << 30
"""What the process of the library may map."""
_UNFINISHED = "\ufffd"
"""What stands for bytes that are no letter yet."""
_LONGEST_LETTER = 4
"""Tokens that may hold one letter: a letter has at most as many bytes."""
_MOST_ANSWER = 64 << 20
"""Bytes of an answer of the library's process."""
_NO_TOKENS = "makes no tokens of the text"
_HINT = "use the tokenizer.json that came with the model"
_GRAMMAR_HINT = "give a JSON schema, or a grammar in GBNF or Lark, as llguidance reads them"


class Tokenizer:
    """What a tokenizer.json says; a process of its own with limits of time and memory reads it."""

    def __init__(self, path: Path, text: str | None = None, most_cpu_s: int = 0) -> None:
        """Read a file, or its `text`; a question may take `most_cpu_s` of processor time, 0 for as
        long as is usual. Raises DependencyError where the package is not installed; InputError
        where the file is no such thing, or takes more than the limits."""
        if importlib.util.find_spec("tokenizers") is None:
            raise DependencyError(
                "text needs the Python package tokenizers, which is not installed",
                hint=f"{pip_install('text')}, or give tokens by --prompt-ids",
            )
        try:
            text = path.read_text(encoding="utf-8") if text is None else text
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the tokenizer {path} cannot be read: {error}",
                hint="adrenoc compile --tokenizer takes the tokenizer.json of the model",
            ) from error
        self.path, self._most_cpu_s = path, most_cpu_s or MOST_CPU_S
        self._process = subprocess.Popen(
            own_module(
                "adrenoc.language.tokenizer_process", str(self._most_cpu_s), str(MOST_BYTES)
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
        )
        weakref.finalize(self, _end, self._process)
        self._ask("load", text, "is no tokenizer.json")

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that the tokeniser puts around it. Raises
        InputError where there are none, or the tokeniser fails."""
        tokens: list[int] = self._ask("encode", text, _NO_TOKENS)
        if not tokens:
            raise InputError(
                f"the tokenizer makes no tokens of {shlex.quote(text)}", hint="give a longer prompt"
            )
        return tokens

    def read_template(self, settings: ChatSettings) -> None:
        """Take a model's template of chats, for `render`. Raises DependencyError where the package
        that runs it is not installed; InputError where it is no such thing."""
        if importlib.util.find_spec("jinja2") is None:
            raise DependencyError(
                "a template of chats needs the Python package jinja2, which is not installed",
                hint=f"{pip_install('text')}",
            )
        given = {"text": settings.template, "special_tokens": settings.special_tokens}
        self._ask("template", given, "comes with a template that is none")

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> list[int]:
        """Return the tokens of messages (`role` and `content` each), up to where the model is to
        speak.

        `more` are other names that the template may read, such as `tools`. Raises InputError where
        the template refuses the messages, or takes more than the limits."""
        given = {"messages": list(messages), "add_generation_prompt": True, **more}
        text: str = self._ask("render", given, "comes with a template that refuses the messages")
        tokens: list[int] = self._ask("encode_plain", text, _NO_TOKENS)
        return tokens

    @property
    def is_alive(self) -> bool:
        """Return whether the process of the library has not ended, as it does beyond the limits."""
        return self._process.poll() is None

    def ask_of_grammar(self, deed: str, of: Any) -> Any:
        """Have `adrenoc.language.tokenizer.Matcher` do what it does ("grammar", "allow"). Raises
        InputError where the grammar is wrong, or takes more than the limits."""
        return self._ask(deed, of, "does not go with the grammar", _GRAMMAR_HINT)

    def make_tables(self, sampling: Sampling) -> dict[str, str]:
        """Have the file made by which a runtime of a phone does the same, and what it holds of the
        template that was taken: what `adrenoc.language.tokenizer_process` says to "tables".

        `sampling` is how the model's makers pick tokens. Raises InputError where it takes more than
        the limits."""
        told: dict[str, str] = self._ask("tables", asdict(sampling), "makes no tables")
        return told

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without those that are no text."""
        said: str = self._ask("decode", [int(t) for t in tokens], "makes no text of tokens")
        return said

    def _ask(self, deed: str, of: Any, failure: str, hint: str = _HINT) -> Any:
        """Return what the library says; `failure` is the verb of the sentence where it does not."""
        asked, told = self._process.stdin, self._process.stdout
        assert asked is not None and told is not None
        line = b""
        with suppress(OSError, ValueError):  # it ended, or was ended by us
            asked.write(json.dumps({deed: of}).encode() + b"\n")
            asked.flush()
            line = told.readline(_MOST_ANSWER)
        if line.endswith(b"\n"):
            answer = json.loads(line)
            if "error" not in answer:
                return answer["is"]
            reason = answer["error"]
        else:
            reason = _explain(_end(self._process), deed, self._most_cpu_s)
        raise InputError(f"{self.path} {failure}: {reason}", hint=hint)


def _explain(code: int, deed: str, most_cpu_s: int) -> str:
    """Return why the process of the library ended."""
    if code == -signal.SIGXCPU:
        return f"to {deed} takes more than {most_cpu_s} s of processor time"
    return f"to {deed} ends the library, which may take {MOST_BYTES >> 20} MiB of memory"


def _end(process: subprocess.Popen[bytes]) -> int:
    """End the process, unless it has ended; returns how it ended."""
    with suppress(subprocess.TimeoutExpired):
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        process.wait(1)
    process.kill()
    code = process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return code


class TextStream:
    """The text of tokens as they come, in pieces that are whole letters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = 0
        """Tokens whose text was given, but for some before the last, which the next text joins."""
        self._base = 0

    def feed(self, tokens: Sequence[int]) -> str:
        """Return the text that these add; of a letter that they begin, nothing yet."""
        self._tokens += tokens
        text = self._added()
        if text.endswith(_UNFINISHED) and len(self._tokens) - self._shown < _LONGEST_LETTER:
            return ""
        self._base, self._shown = self._shown, len(self._tokens)
        return text

    def finish(self) -> str:
        """Return what is left when no more tokens come."""
        text = self._added()
        self._base = self._shown = len(self._tokens)
        return text

    def _added(self) -> str:
        # Decoded with some tokens before it: tokenisers may drop the blank that begins a text.
        before = self._tokenizer.decode(self._tokens[self._base : self._shown])
        return self._tokenizer.decode(self._tokens[self._base :])[len(before) :]


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
    """Read a file: a JSON object is a schema, any other text a grammar."""
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
        Raises DependencyError where llguidance is not installed; InputError where the grammar is
        wrong or beyond the limits, or the model has no end token."""
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
        """Take a grammar. Raises ValueError where it is wrong."""
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
        """Take tokens in; the bits of those that may follow in base64, or None. Raises ValueError
        where the grammar does not go on so."""
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
