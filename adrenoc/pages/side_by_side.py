"""Two texts beside each other as HTML, what they share folded to a few lines around changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from adrenoc.base.text.html_page import safe

_AROUND = 3
_MOST_LINES = 4000
"""Of a text that is held against another line by line."""


def show_side_by_side(before: str, after: str) -> str:
    """Return a table of four columns: line number and text of each."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        return (
            f"<p class='quiet'>{len(old)} and {len(new)} lines are too many to be held against "
            "each other here.</p>\n"
        )
    return f"<table class='sides'>{''.join(_rows(old, new))}</table>\n"


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number:
            yield "<tr><td class='number'>⋮</td><td></td><td class='number'>⋮</td><td></td></tr>\n"
        for tag, i, i_end, j, j_end in group:
            for step in range(max(i_end - i, j_end - j)):
                left = _side(old, i + step, i_end, tag, "went")
                right = _side(new, j + step, j_end, tag, "came")
                yield f"<tr>{left}{right}</tr>\n"


def _side(lines: Sequence[str], at: int, end: int, tag: str, kind: str) -> str:
    if at >= end:
        return "<td class='number'></td><td></td>"
    mark = "" if tag == "equal" else f" class='{kind}'"
    return f"<td class='number'>{at + 1}</td><td{mark}>{safe(lines[at])}</td>"
