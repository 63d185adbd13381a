"""The process that runs what comes with a model: its tokenizer.json, and its template of chats.

The first may panic, or never end, and the second is a program.  Lines of JSON come in and go out:
{"load": TEXT} and {"template": {...}} first, then {"encode": TEXT} with the tokens that a tokenizer
puts around a text, {"encode_plain": TEXT} without them, {"decode": [...]} or {"render": {...}}; and
{"grammar": {...}}, then {"allow": [...]} of an answer that has a form; {"tables": SAMPLING} for
what a runtime without these libraries needs.
Each is answered by {"is": ...}, or by {"error": ...} where the library refuses.  A question that
takes more than the limits ends the process.

Templates of chats are Jinja programs, which run in Jinja's own sandbox.  They are compiled as
Hugging Face's transformers compiles them: blanks around blocks go, loops have `break` and
`continue`, and `raise_exception`, `strftime_now`, a `tojson` that keeps letters, and the mark
`generation` around what a model says are there.

Source: Hugging Face's "Chat templates" (transformers 4.5x); Jinja 3.1's sandbox.
"""

import json
import math
import os
import resource
import signal
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`: what is between, which is marked for training."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def compile_template(text: str, format_now: Callable[[str], str] | None = None) -> Template:
    """Make a template of its text; `format_now` says what date it is."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = format_now or _format_now
    return environment.from_string(text)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON with letters as they are: Jinja's own filter is for pages of HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _format_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
"""What the library reads: threads map memory that they never use, and the limit counts it."""


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (allowed, hard))


class _Model:
    """What was loaded: the tokenizer and the template of one model."""

    def __init__(self) -> None:
        self._tokenizer: Any = None
        self._template: Any = None
        self._template_text = ""
        self._special: dict[str, str] = {}
        self._matcher: Any = None

    def answer(self, question: dict[str, Any]) -> Any:
        """Return what the libraries say to a question of one key."""
        ((deed, of),) = question.items()
        if deed in ("grammar", "allow"):
            return self._matcher.begin(**of) if deed == "grammar" else self._matcher.allow(of)
        if deed in ("load", "template"):
            return self._load(of) if deed == "load" else self._take(**of)
        if deed == "tables":
            return self._make_tables(of)
        if deed == "render":
            return self._template.render(**self._special, **of)
        if deed == "decode":
            return self._tokenizer.decode(of, skip_special_tokens=True)
        return self._tokenizer.encode(of, add_special_tokens=deed == "encode").ids

    def _load(self, text: str) -> None:
        from tokenizers import Tokenizer

        from adrenoc.language.tokenizer import Matcher

        self._tokenizer = Tokenizer.from_str(text)
        self._matcher = Matcher(text)

    def _take(self, text: str, special_tokens: dict[str, str]) -> None:
        self._template = compile_template(text)
        self._template_text = text
        self._special = special_tokens

    def _make_tables(self, sampling: dict[str, float]) -> dict[str, str]:
        """Return the file "tables" in base64, or why it is "left_out", and why "turns" are."""
        from adrenoc.language.pattern import UnfitError
        from adrenoc.language.tables import make_tables
        from adrenoc.language.turns import find_turns, write_date

        told = {"tables": "", "left_out": "", "turns": ""}
        turns = None
        if self._template_text:
            template = compile_template(self._template_text, write_date)
            try:
                turns = find_turns(
                    lambda messages: template.render(
                        **self._special, messages=list(messages), add_generation_prompt=True
                    )
                )
            except Exception as error:  # noqa: BLE001 - templates raise whatever they like
                told["turns"] = str(error) or type(error).__name__
        try:
            known = asdict(turns) if turns else None
            tables = make_tables(self._tokenizer, known, sampling)
            told["tables"] = b64encode(tables).decode()
        except UnfitError as error:
            told["left_out"] = str(error)
        return told


def main() -> None:
    """Answer questions until there are no more; the arguments are the limits, in s and bytes."""
    most_s, most_bytes = map(int, sys.argv[1:])
    os.environ.update(_ONE_THREAD)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, most_bytes)
    model = _Model()
    for line in sys.stdin.buffer:
        # Give the next question its processor time, whatever those before it took.
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + most_s)
        try:
            told = {"is": model.answer(json.loads(line))}
        except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
            told = {"error": str(error) or type(error).__name__}
        sys.stdout.buffer.write(json.dumps(told).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
