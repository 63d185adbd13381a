"""Calls of tools: how a model writes them, found by asking its template, and read from its answers.

A template is given a conversation in which an assistant calls a tool.  What it writes around the
name and the arguments is the form, so that no list of models' marks is needed.  A template that
does not write arguments as JSON behind the name has no form, and what its model calls stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from adrenoc.base.errors import InputError
from adrenoc.device.constraint import Grammar

Show: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], str]
"""Messages -> the text that the template makes of them, without tokens that are no text."""
_SAID, _NAME, _NUMBER = "Vaqozu", "kebimo_rulat", "Wq7Zx2Kp9"
"""What no template writes by itself; Mistral's want numbers of calls to have nine letters."""
_ARGUMENTS = {"hudofi": 1}
_JOINTS = re.compile(r'(\s+|[{}\[\]:,"])')
_WITHOUT_BLANKS = {"x-guidance": {"whitespace_flexible": False}}


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A tool's name, and its arguments as the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """The tools that a model may call, as OpenAI's API describes functions.

    `must` says which one has to be called: "" for none, "*" for any, else its name.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    must: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools."""
        return tuple(tool["function"]["name"] for tool in self.tools)

    def schemas(self) -> dict[str, dict[str, Any]]:
        """Return the JSON schema of the arguments of each tool that `must` allows, by name."""
        functions = (tool["function"] for tool in self.tools)
        schemas = {one["name"]: one.get("parameters") or {"type": "object"} for one in functions}
        return schemas if self.must in ("", "*") else {self.must: schemas[self.must]}


@dataclass(frozen=True, kw_only=True)
class CallForm:
    """What stands before a called tool's name, between it and its arguments, and behind them."""

    before: str
    between: str
    behind: str
    as_text: bool
    """Whether the template takes arguments as text, in place of an object."""

    def leads(self, toolbox: Toolbox) -> tuple[str, ...]:
        """Return what a call may begin with: a stream holds back what does."""
        words = self.before.split()
        return (words[0],) if words else toolbox.names

    def grammar(self, toolbox: Toolbox) -> Grammar:
        """Return the grammar of one call."""
        rules = [
            f"call_{at}: {_quote(name + self.between)} %json {_quote(schema | _WITHOUT_BLANKS)}"
            for at, (name, schema) in enumerate(toolbox.schemas().items())
        ]
        calls = " | ".join(f"call_{at}" for at in range(len(rules)))
        around = [_quote(text) if text else "" for text in (self.before, self.behind)]
        start = f"start: {around[0]} ({calls}) {around[1]}"
        return Grammar(kind="lark", text="\n".join([start, *rules]))

    def read(self, text: str, toolbox: Toolbox) -> tuple[str, tuple[ToolCall, ...]]:
        """Return a text without its calls, and the calls of tools that there are."""
        name = rf"({'|'.join(map(re.escape, toolbox.names))}){_loosen(self.between)}\s*"
        # Of several calls the later ones may stand in one list with the first.
        inner = self.before[max(self.before.rfind("{"), 0) :]
        found = first = re.compile(_loosen(self.before) + name).search(text)
        again, calls, end = re.compile(_loosen(inner) + name), [], 0
        while found:
            try:
                arguments, end = json.JSONDecoder().raw_decode(text, found.end())
            except ValueError:
                break
            if isinstance(arguments, dict):
                calls.append(ToolCall(name=found[1], arguments=text[found.end() : end]))
            found = again.search(text, end)
        if first is None or not calls:
            return text, ()
        behind = re.compile(_loosen(self.behind)).match(text, end)
        return text[: first.start()] + text[behind.end() if behind else end :], tuple(calls)


def find_call_form(show: Show) -> CallForm | None:
    """Ask a template how it writes a call; None where that is not in JSON, or it knows no tools."""
    asked = {"role": "user", "content": "Ask"}
    for as_text in (False, True):
        function = {"name": _NAME, "arguments": _ARGUMENTS}
        called = {"id": _NUMBER, "type": "function", "function": function}
        answer = {"role": "assistant", "content": "", "tool_calls": [called]}
        try:
            plain = show([asked, {"role": "assistant", "content": _SAID}])
            text = show([asked, *write_arguments([answer], as_text=as_text)])
        except InputError:  # the template refuses one of them
            continue
        form = _find_parts(plain, text, as_text)
        if form is not None:
            return form
    return None


def _find_parts(plain: str, called: str, as_text: bool) -> CallForm | None:
    """Return what stands in `called` around name and arguments, without what `plain` has, too."""
    _, _, tail = plain.partition(_SAID)
    end = len(called) - count_shared(called[::-1], tail[::-1])
    text = called[count_shared(plain, called) : end]
    before, name, rest = text.partition(_NAME)
    at = rest.rfind("{", 0, rest.find(next(iter(_ARGUMENTS))))
    if not name or at < 0:
        return None
    try:
        arguments, end = json.JSONDecoder().raw_decode(rest, at)
    except ValueError:
        return None
    if arguments != _ARGUMENTS:
        return None
    return CallForm(before=before, between=rest[:at], behind=rest[end:], as_text=as_text)


def count_shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many letters, or tokens, both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def write_arguments(
    messages: Sequence[Mapping[str, Any]], *, as_text: bool
) -> list[Mapping[str, Any]]:
    """Return messages whose calls have their arguments as a template takes them.

    Clients of OpenAI's API give texts; those that are no JSON stay texts.
    """
    return [
        {**one, "tool_calls": [_write_call(call, as_text) for call in one["tool_calls"]]}
        if one.get("tool_calls")
        else one
        for one in messages
    ]


def _write_call(call: Mapping[str, Any], as_text: bool) -> Mapping[str, Any]:
    given = call["function"]["arguments"]
    if as_text:
        arguments = given if isinstance(given, str) else json.dumps(given)
    else:
        try:
            arguments = json.loads(given) if isinstance(given, str) else given
        except ValueError:
            arguments = given
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _loosen(text: str) -> str:
    """Return a pattern of a text whose blanks, and those around JSON's marks, may be others."""
    parts = (
        rf"\s*{re.escape(part.strip())}\s*" if _JOINTS.fullmatch(part) else re.escape(part)
        for part in _JOINTS.split(text)
    )
    return "".join(parts).replace(_NUMBER, r"[\w-]*")


def _quote(plain: Any) -> str:
    """Write a text as grammars quote it, and a schema as they hold it."""
    return json.dumps(plain, ensure_ascii=False)
