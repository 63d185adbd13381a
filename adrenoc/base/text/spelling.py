"""Names in messages: what a misspelt one was meant to be, and long lists of them."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path

MOST_LISTED = 8
"""The most names that a message lists: a model may have thousands of nodes of one kind."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)` for the known name nearest to `name`, or an empty string."""
    nearest = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f' (did you mean "{nearest[0]}"?)' if nearest else ""


def list_first(items: Iterable[str], *, between: str = "; ", most: int = MOST_LISTED) -> str:
    """Return the first items of a list, and how many more there are."""
    found = list(items)
    if len(found) <= most:
        return between.join(found)
    before = "" if between == ", " else between.rstrip()
    return f"{between.join(found[:most])}{before} and {len(found) - most} more"


def quote_word(value: object) -> str:
    """Return a path, or what else a user named, as one word of a command to type.

    A path that begins with a dash would be read as an option.
    """
    begins = isinstance(value, Path) and str(value).startswith("-")
    return shlex.quote(f"./{value}" if begins else str(value))
