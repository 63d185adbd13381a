"""A conversation with a language model: messages in, pieces of text out, and caches that are kept.

Each turn is the whole conversation as the model's template writes it.  Of its tokens those that the
caches hold already are not computed again: what both begin with stays, the rest is forgotten.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from adrenoc.base.errors import InputError
from adrenoc.device.constraint import Constrainer
from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.tokenizer import TextStream, Tokenizer
from adrenoc.device.tool_calls import (
    CallForm,
    Toolbox,
    ToolCall,
    count_shared,
    find_call_form,
    write_arguments,
)

Message = Mapping[str, Any]
"""`role` (system, user, assistant or tool) and `content`, as templates of chats read them."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a turn came to: the text, why it ended, and the tokens that it took.

    `ended` is "end" (a token that ends), "stop" (a text that stops), "most" or "full" (the
    context).  `kept` of the `prompt` tokens were in the caches before.  `calls` of tools are no
    part of the text.
    """

    text: str
    ended: str
    prompt: int
    kept: int
    tokens: int
    calls: tuple[ToolCall, ...] = ()


class Conversation:
    """A decoder that talks, and what its caches hold."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer) -> None:
        """`tokenizer` has the model's template."""
        self._decoder, self._tokenizer = decoder, tokenizer
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
        """Yield the model's answer to messages, in pieces that are whole letters; then `reply` is
        set.

        A text of `stops` ends it, and is no part of it.  Calls of tools are no part of it, but
        of `reply`.

        Raises:
            InputError: the template refuses the messages, or has no form of calls where one has to
                come; or the context has no room.
        """
        if toolbox is None:
            prompt = self._tokenizer.render(self._write_calls(messages))
            yield from self.continue_tokens(prompt, wish, stops)
            return
        form = self._call_form
        if form is None and toolbox.must:
            raise InputError(
                "the model's template writes calls of tools in no form that could be asked for",
                hint='leave "tool_choice" out: what the model calls comes as its text',
            )
        prompt = self._tokenizer.render(self._write_calls(messages), tools=list(toolbox.tools))
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

    @cached_property
    def _call_form(self) -> CallForm | None:
        """How the model's template writes calls of tools."""

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
        """Yield what follows a text, as `answer`; the template is not asked.

        Raises:
            InputError: the text has no tokens, or the context has no room for it.
        """
        yield from self.continue_tokens(self._tokenizer.encode(text), wish, stops)

    def continue_tokens(
        self, prompt: Sequence[int], wish: Wish, stops: Sequence[str] = ()
    ) -> Generator[str, None, None]:
        """Yield what follows tokens, as `answer`.

        Raises:
            InputError: the context has no room for them, or the grammar of the wish is wrong.
        """
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
