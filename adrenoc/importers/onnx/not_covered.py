"""What keeps a decoder's caches from being written in place, all of it in one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.base.refused import RefusedError
from adrenoc.base.text.spelling import list_first

AS_IT_IS = (
    "adrenoc compile MODEL --shape INPUT:1,... for each input compiles the graph as it is, for "
    "one length of its past"
)
"""What to type for a decoder whose attention is in no form that is known."""


@dataclass(kw_only=True)
class NotCovered:
    """Reasons, each with the attentions that it is the reason for."""

    others: list[str] = field(default_factory=list)
    """What is no single attention's."""
    _attentions: dict[str, list[str]] = field(default_factory=dict)

    def add(self, label: str, reason: RefusedError) -> None:
        """Note that an attention is in no form that is known."""
        self._attentions.setdefault(str(reason), []).append(label)

    def raise_if_any(self) -> None:
        """Say all of it.

        Raises:
            UnsupportedOperatorError: there is anything.
        """
        found = [*self.others]
        found += [reason.format(_name(labels)) for reason, labels in self._attentions.items()]
        if found:
            raise UnsupportedOperatorError("; ".join(found), hint=AS_IT_IS)


def _name(labels: Sequence[str]) -> str:
    names = list_first((f"'{label}'" for label in labels), between=", ")
    return f"the attention {names}" if len(labels) == 1 else f"{len(labels)} attentions, {names},"
