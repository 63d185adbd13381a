"""A conversation with a language model: messages in, pieces of text out, and caches that are kept.

Each turn is the whole conversation as the model's template writes it. Of its tokens those that the
caches hold already are not computed again: what both begin with stays, the rest is forgotten.

How a model writes calls of tools is found by giving its template a conversation in which an
assistant calls one. What it writes around the name and the arguments is the form, so that no list
of models' marks is needed. A template that does not write arguments as JSON behind the name has no
form, and what its model calls stays text.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.bundle.chat import Pictures
from adrenoc.device.generate import Decoder, Wish
from adrenoc.language.tokenizer import Constrainer, Grammar, TextStream, Tokenizer

Look: TypeAlias = Callable[[bytes], Mapping[str, np.ndarray]]
"""A picture's file -> the decoder's inputs that an encoder makes of it."""
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
    """The tools that a model may call, as OpenAI's API describes functions. `must` says which one
    has to be called: "" for none, "*" for any, else its name."""

    tools: tuple[Mapping[str, Any], ...] = ()
    must: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tools."""
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
    """Return messages whose calls have their arguments as a template takes them. Clients of
    OpenAI's API give texts; those that are no JSON stay texts."""
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


Message = Mapping[str, Any]
"""`role` (system, user, assistant or tool) and `content`, as templates of chats read them."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a turn came to: the text, why it ended, and the tokens that it took. `ended` is "end" (a
    token that ends), "stop" (a text that stops), "most" or "full" (the context). `kept` of the
    `prompt` tokens were in the caches before. `calls` of tools are no part of the text."""

    text: str
    ended: str
    prompt: int
    kept: int
    tokens: int
    calls: tuple[ToolCall, ...] = ()


class Conversation:
    """A decoder that talks, and what its caches hold."""

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        pictures: Pictures | None = None,
        look: Look | None = None,
    ) -> None:
        """`tokenizer` has the model's template; the first message shows the picture, if any, and
        by `look` others."""
        self._decoder, self._tokenizer, self._pictures = decoder, tokenizer, pictures
        self._look, self._shown = look, b""
        self._constrainer = Constrainer(tokenizer.path, decoder.vocabulary)
        self._held: list[int] = []
        self.reply = Reply(text="", ended="", prompt=0, kept=0, tokens=0)
        """What the last turn came to."""

    def answer(
        self,
        messages: Sequence[Message],
        wish: Wish,
        stops: Sequence[str] = (),
        toolbox: Toolbox | None = None,
    ) -> Generator[str, None, None]:
        """Yield the model's answer to messages in pieces of whole letters; then `reply` is set.

        A text of `stops` ends it, and is no part of it. Calls of tools are no part of it, but of
        `reply`. Raises InputError where the template refuses the messages, or has no form of calls
        where one has to come; or the context has no room.
        """
        if toolbox is None:
            prompt = self._render(messages)
            yield from self.continue_tokens(prompt, wish, stops)
            return
        form = self._call_form
        if form is None and toolbox.must:
            raise InputError(
                "the model's template writes calls of tools in no form that could be asked for",
                hint='leave "tool_choice" out: what the model calls comes as its text',
            )
        prompt = self._render(messages, tools=list(toolbox.tools))
        if form is None:
            yield from self.continue_tokens(prompt, wish, stops)
            return
        if toolbox.must:
            wish = replace(wish, grammar=form.grammar(toolbox))
        shown = _Pending(form.leads(toolbox))
        for piece in self.continue_tokens(prompt, wish, stops):
            if given := shown.feed(piece):
                yield given
        rest, calls = form.read(self.reply.text[len(shown.text) :], toolbox)
        if rest:
            yield rest
        self.reply = replace(self.reply, text=shown.text + rest, calls=calls)

    @property
    def sees(self) -> bool:
        """Return whether it can be shown pictures."""
        return self._look is not None

    def show(self, picture: bytes) -> None:
        """Have messages show a picture (its file), or none. What the caches hold of another one is
        forgotten. Raises InputError where the picture is damaged."""
        assert self._pictures is not None and self._look is not None
        if picture and picture != self._shown:
            rows = self._look(picture)
            self._rewind([*takewhile(lambda token: token >= 0, self._held), 0])
            self._decoder.give(rows)
            self._shown = picture
        self._pictures = replace(self._pictures, is_given=bool(picture))

    def _render(self, messages: Sequence[Message], **more: Any) -> Sequence[int]:
        """Return the tokens of messages, with the rows of a picture; the first message of the user
        shows it, unless one does by itself."""
        written = self._write_calls(messages)
        if self._pictures is None:
            return self._tokenizer.render(written, **more)
        asked = next((at for at, one in enumerate(written) if one["role"] == "user"), -1)
        shown = asked if self._pictures.is_given and not any(map(_shows, written)) else -1
        parts = [_in_parts(one, shows=at == shown) for at, one in enumerate(written)]
        return self._pictures.place(self._tokenizer.render(parts, **more))

    @cached_property
    def _call_form(self) -> CallForm | None:
        """Return how the model's template writes calls of tools."""

        def show(messages: Sequence[Message]) -> str:
            tokens = self._tokenizer.render(messages, add_generation_prompt=False)
            return self._tokenizer.decode(tokens)

        return find_call_form(show)

    def _write_calls(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not any(message.get("tool_calls") for message in messages):
            return messages
        form = self._call_form
        return write_arguments(messages, as_text=form is not None and form.as_text)

    def continue_text(
        self, text: str, wish: Wish, stops: Sequence[str] = ()
    ) -> Generator[str, None, None]:
        """Yield what follows a text, as `answer`; the template is not asked. Raises InputError
        where the text has no tokens, or the context has no room for it."""
        yield from self.continue_tokens(self._tokenizer.encode(text), wish, stops)

    def continue_tokens(
        self, prompt: Sequence[int], wish: Wish, stops: Sequence[str] = ()
    ) -> Generator[str, None, None]:
        """Yield what follows tokens, as `answer`. Raises InputError where the context has no room
        for them, or the grammar of the wish is wrong."""
        self._check_room(prompt)
        allow = None
        if wish.grammar is not None:
            allow = self._constrainer.begin(wish.grammar, wish.ends)
        kept = self._rewind(prompt)
        self._take_in(prompt[kept:-1])
        stream, pending = TextStream(self._tokenizer), _Pending(stops)
        tokens = 0
        pieces = self._decoder.generate(prompt[-1], wish, allow)
        self._held.append(prompt[-1])
        try:
            for some in pieces:
                tokens += len(some)
                self._held += some
                shown = [token for token in some if token not in wish.ends]
                if piece := pending.feed(stream.feed(shown)):
                    yield piece
                if pending.is_stopped:
                    self._decoder.stop()
                    break
            if not pending.is_stopped and (piece := pending.finish(stream.finish())):
                yield piece
        finally:
            if not self._decoder.ended:  # nobody reads on
                self._decoder.stop()
            # The last token was picked, and is in no cache yet.
            del self._held[self._decoder.length :]
            ended = "stop" if pending.is_stopped else self._decoder.ended
            self.reply = Reply(
                text=pending.text, ended=ended, prompt=len(prompt), kept=kept, tokens=tokens
            )

    def _check_room(self, prompt: Sequence[int]) -> None:
        rows = self._decoder.rows
        if len(prompt) >= rows:
            raise InputError(
                f"the conversation has {len(prompt)} tokens, and the context {rows} rows: there is "
                "no room for an answer",
                hint=f"begin anew (/reset), or adrenoc compile MODEL --context {2 * len(prompt)}",
            )

    def _rewind(self, prompt: Sequence[int]) -> int:
        """Forget what the caches hold beyond what they and the prompt begin with; its length."""
        # The prompt's last token is taken in by the run that picks the first of the answer.
        kept = count_shared(self._held, prompt[:-1])
        if kept < self._decoder.length:
            self._decoder.rewind(kept)
        del self._held[kept:]
        return kept

    def _take_in(self, tokens: Sequence[int]) -> None:
        self._decoder.take_in(tokens)
        self._held += tokens


def _shows(message: Message) -> bool:
    """Return whether a message has a place for a picture."""
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] == "image" for part in content)


def _in_parts(message: Message, *, shows: bool) -> Message:
    """Return a message as templates of models of pictures read it: a list of pictures and texts."""
    said = message.get("content")
    texts = [{"type": "text", "text": said}] if isinstance(said, str) else said or []
    return {**message, "content": [*([{"type": "image"}] if shows else []), *texts]}


class _Pending:
    """Text that is given on as it comes, but for what may be the beginning of a stop."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._kept = ""
        self.text = ""
        self.is_stopped = False

    def feed(self, piece: str) -> str:
        """Return what can be given on now that `piece` is there."""
        self._kept += piece
        found = [at for stop in self._stops if (at := self._kept.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            return self._give(min(found))
        return self._give(len(self._kept) - self._begun())

    def finish(self, piece: str) -> str:
        """Return the rest, as no more comes."""
        return self.feed(piece) + ("" if self.is_stopped else self._give(len(self._kept)))

    def _begun(self) -> int:
        """Return the most letters at the end that a stop begins with."""
        lengths = range(min(len(self._kept), max(map(len, self._stops), default=0)), 0, -1)
        ends = (n for n in lengths if any(s.startswith(self._kept[-n:]) for s in self._stops))
        return next(ends, 0)

    def _give(self, count: int) -> str:
        given, self._kept = self._kept[:count], self._kept[count:]
        self.text += given
        return given
