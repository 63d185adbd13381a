"""Templates of chats as models' makers publish them: Jinja programs, in Jinja's own sandbox.

They are compiled as Hugging Face's transformers compiles them: blanks around blocks go, loops have
`break` and `continue`, and `raise_exception`, `strftime_now`, a `tojson` that keeps letters, and
the mark `generation` around what a model says are there.

Source: Hugging Face's "Chat templates" (transformers 4.5x); Jinja 3.1's sandbox.
"""

from __future__ import annotations

import json
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


def compile_template(text: str) -> Template:
    """Make a template of its text.

    Raises:
        jinja2.TemplateError: it is none.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _format_now
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
