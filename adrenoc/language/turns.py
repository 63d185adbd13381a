"""How a template of chats writes turns, found by asking it, for runtimes that run no templates.

A template is a program.  Most write a text before and behind each message, whatever that says, so
these texts are found in a conversation whose messages are words that no template has.  Then the
template writes other conversations, and what is put together of the parts has to be the same:
otherwise there are no parts, and no phone writes what the template would not have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from adrenoc.language.pattern import UnfitError

Message: TypeAlias = Mapping[str, str]
"""`role` (system, user or assistant) and `content`."""
Render: TypeAlias = Callable[[Sequence[Message]], str]
"""Messages -> what the template writes, up to where the model is to speak."""
_SYSTEM, _ASKED, _SAID, _AGAIN = "Vaqozu", "Kebimo", "Rulatx", "Wopive"
"""What no template writes by itself."""
_THOUGHT_ENDS = "</think>"
"""Behind what models that reason think; templates leave the thoughts of earlier answers out."""
_BLANKS = ("", "\n", " \n\t")
_CONTENTS = (
    "a",
    "two words",
    "quotes \" and '",
    "{{ braces }} {% x %}",
    "läuft 你好 👩‍👩‍👧",
    "<b>\\n",
)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """The texts around messages, which the conversation consists of but for what they say.

    The first message of a user comes behind `begin`, or where there is one of a system first,
    behind `begin_system`, that and `after_system`; both are None where the template takes none of a
    system.  Between a user's message and an answer is `to_answer`, between that and the next
    `to_user`, behind the last `end`.  Blanks around messages of the roles in `trims` are left out,
    and of an answer all up to the last `drops`, with the letters of `drops_blanks` behind it. A
    date in one of them is written as its form between two letters of the code 1."""

    begin: str
    begin_system: str | None
    after_system: str | None
    to_answer: str
    to_user: str
    end: str
    trims: tuple[str, ...] = ()
    drops: str = ""
    drops_blanks: str = ""

    def render(self, messages: Sequence[Message]) -> str:
        """Write a conversation as the runtime does: a system's message or none, then turns."""
        text = self.begin
        rest = list(messages)
        if rest[0]["role"] == "system":
            text = f"{self.begin_system}{self._content(rest.pop(0))}{self.after_system}"
        for at, message in enumerate(rest):
            between = (self.to_user, self.to_answer)[at % 2] if at else ""
            text += between + self._content(message)
        return text + self.end

    def _content(self, message: Message) -> str:
        content, role = message["content"], message["role"]
        if role == "assistant" and self.drops and self.drops in content:
            content = content.rpartition(self.drops)[2].lstrip(self.drops_blanks)
        return content.strip() if role in self.trims else content


def write_date(form: str) -> str:
    """Return what stands for a date of this form, as strftime writes it, in a template's text."""
    return f"\1{form}\1"


def find_turns(render: Render) -> Turns:
    """Ask a template, whose dates are those of `write_date`. Raises UnfitError where it writes
    conversations in a way that is none of these; Exception as it does of the plainest of all
    conversations."""
    asked, said, again = _say("user", _ASKED), _say("assistant", _SAID), _say("user", _AGAIN)
    begin, end = _cut(render([asked]), _ASKED)
    _, to_answer, to_user, _ = _cut(render([asked, said, again]), _ASKED, _SAID, _AGAIN)
    parts = Turns(
        begin=begin,
        begin_system=None,
        after_system=None,
        to_answer=to_answer,
        to_user=to_user,
        end=end,
    )
    try:
        written = render([_say("system", _SYSTEM), asked])
        begin_system, after_system, _ = _cut(written, _SYSTEM, _ASKED)
        parts = replace(parts, begin_system=begin_system, after_system=after_system)
    except Exception:  # noqa: BLE001 - templates refuse by whatever they raise
        pass  # it takes no message of a system
    trims = (role for role in ("system", "user", "assistant") if _trims(render, parts, role))
    parts = replace(parts, trims=tuple(trims))
    without = replace(parts, begin_system=None, after_system=None)
    dropping = (("", ""), *product((_THOUGHT_ENDS,), _BLANKS))
    for some, (drops, blanks) in product((parts, without), dropping):
        tried = replace(some, drops=drops, drops_blanks=blanks)
        if all(render(written) == tried.render(written) for written in _conversations(tried)):
            return tried
    raise UnfitError("a template that writes more than texts around messages")


def _trims(render: Render, parts: Turns, role: str) -> bool:
    blank = _say(role, "  b \n")
    if role == "system":
        if parts.begin_system is None:
            return False
        return "  b" not in render([blank, _say("user", "c")])
    if role == "user":
        return "  b" not in render([blank])
    return "  b" not in render([_say("user", "c"), blank, _say("user", "d")])


def _conversations(parts: Turns) -> Iterator[list[Message]]:
    """Yield conversations that a template has to write as the parts do."""
    thoughts = (f"<think>\nWhy?\n{_THOUGHT_ENDS}\n\nSo.", f"{_THOUGHT_ENDS}So{_THOUGHT_ENDS} it is")
    first = [[_say("system", content)] for content in (_CONTENTS[2], " b\n")]
    starts: list[list[Message]] = [[], *(first if parts.begin_system is not None else [])]
    for start in starts:
        for content in (*_CONTENTS, "  b \n"):
            yield [*start, _say("user", content)]
        for answer in (*_CONTENTS, " b\n\n", *thoughts):
            turns = [*start, _say("user", "a"), _say("assistant", answer), _say("user", " c")]
            yield turns
            yield [*turns, _say("assistant", "d"), _say("user", "e")]


def _cut(text: str, *words: str) -> list[str]:
    """Return what is around words, each of which is there once, in this order."""
    parts = []
    for word in words:
        before, _, text = text.partition(word)
        parts.append(before)
    parts.append(text)
    if any(word in part for word in words for part in parts) or len(parts) != len(words) + 1:
        raise UnfitError("a template that writes messages more than once")
    return parts


def _say(role: str, content: str) -> Message:
    return {"role": role, "content": content}
