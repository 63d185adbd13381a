"""The smallest set of suspects that mends a failure, in few trials.

A trial compiles and runs a model, so trials are what counts.  Suspects come in order of
suspicion: bisection finds how many of the first are enough, then delta debugging takes out what
is not needed, in halves, quarters and so on down to one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class OutOfEffortError(Exception):
    """Raised by a trial that may not begin any more."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A set that passes, in the order of suspicion; minimal if each of its members is needed."""

    chosen: tuple[str, ...]
    is_minimal: bool


def smallest_passing(
    suspects: Sequence[str], passes: Callable[[frozenset[str]], bool]
) -> Found | None:
    """A minimal subset of `suspects` that passes, None where not even all of them do.

    `passes` may raise `OutOfEffortError`; the best set so far is then returned as it is.
    """
    known: dict[frozenset[str], bool] = {}

    def passes_once(chosen: Sequence[str]) -> bool:
        key = frozenset(chosen)
        if key not in known:
            known[key] = passes(key)
        return known[key]

    best: Sequence[str] = tuple(suspects)
    try:
        if not passes_once(best):
            return None
        best = shortest_prefix(best, passes_once)
    except OutOfEffortError:
        return Found(chosen=tuple(best), is_minimal=False)
    kept = list(best)
    try:
        _take_out(kept, passes_once)
    except OutOfEffortError:
        return Found(chosen=tuple(kept), is_minimal=False)
    return Found(chosen=tuple(kept), is_minimal=True)


def shortest_prefix(suspects: Sequence[T], tried: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """As many of the first as are enough, where all are; doubling first, since few are usual."""
    low, high = 0, 1  # `low` fails, or is zero, which was seen to fail
    while high < len(suspects) and not tried(suspects[:high]):
        low, high = high, high * 2
    high = min(high, len(suspects))
    while high - low > 1:
        middle = (low + high) // 2
        if tried(suspects[:middle]):
            high = middle
        else:
            low = middle
    return suspects[:high]


def _take_out(kept: list[str], tried: Callable[[Sequence[str]], bool]) -> None:
    """Delta debugging, in place: afterwards no single member can be taken out."""
    size = max(1, len(kept) // 2)
    while kept:
        taken = False
        for start in reversed(range(0, len(kept), size)):
            rest = kept[:start] + kept[start + size :]
            if rest and tried(rest):
                kept[:] = rest
                taken = True
        if size == 1 and not taken:
            return
        size = max(1, size // 2)
