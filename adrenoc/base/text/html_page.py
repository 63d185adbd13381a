"""One HTML file of tables, whole in itself: it asks no network, and shows any text as a text.

A table of a result as texts, which terminals and pages show alike.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """Rows of texts; `figures` names the columns of numbers, which are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[str, ...] = ()


_NUMBER = " class='number'"
_CELL = re.compile(r"<td( class='number')?")


def page(title: str, *sections: str, about: str = "", by: str = "") -> str:
    """Return the whole file under a title; sections are HTML.

    `about` says in a line what is shown, and `by` names the command that wrote it.
    """
    named = f"<p>{safe(about)}</p>" if about else ""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{safe(title)}</title>\n<style>\n{read_style()}</style></head>\n<body>\n"
        f"<header><div><h1>{safe(title)}</h1>{named}</div>"
        f"<p class='brand'>adrenoc {safe(by)}</p></header>\n"
        f"<main>\n{''.join(sections)}</main>\n</body></html>\n"
    )


def read_style() -> str:
    """Return the style sheet of all pages."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def table(names: Sequence[str], body: str) -> str:
    """Return a table of these columns, which scrolls where it is too wide; `body` is its rows.

    The name of a column stands above its figures, as they are set in the first row.
    """
    kinds = _CELL.findall(body.partition("</tr>")[0])
    head = "".join(
        f"<th scope='col'{_NUMBER if kind == _NUMBER else ''}>{safe(name)}</th>"
        for name, kind in zip_longest(names, kinds[: len(names)], fillvalue="")
    )
    return f"<div class='wide'><table><tr>{head}</tr>\n{body}</table></div>\n"


def show_table(shown: ResultTable) -> str:
    """Return a table of a result."""
    rows = (
        line(
            *(
                number(t) if c in shown.figures else cell(t)
                for c, t in zip(shown.columns, row, strict=True)
            )
        )
        for row in shown.rows
    )
    return table(shown.columns, "".join(rows))


def line(*cells: str) -> str:
    """Return a row of these cells."""
    return f"<tr>{''.join(cells)}</tr>\n"


def cell(text: str, kind: str = "") -> str:
    """Return a cell; `kind` is "number", "good", "bad", "quiet" or nothing."""
    return f"<td{kind and f' class={kind!r}'}>{safe(text)}</td>"


def number(text: str) -> str:
    """Return a cell of a figure, set to the right."""
    return cell(text, "number")


def cards(figures: Sequence[tuple[str, str]]) -> str:
    """Return a row of figures, each a name and what it is."""
    each = "".join(
        f"<div class='card'><h3>{safe(name)}</h3><div class='big'>{safe(value)}</div></div>"
        for name, value in figures
    )
    return f"<section class='cards'>{each}</section>\n"


def part(title: str, body: str, note: str = "", kind: str = "") -> str:
    """Return a headed part of a page, under a note; `body` is HTML, `kind` "bad" or nothing."""
    said = f"<p class='quiet'>{safe(note)}</p>\n" if note else ""
    marked = f" class='{kind}'" if kind else ""
    return f"<section><h2{marked}>{safe(title)}</h2>\n{said}{body}</section>\n"


def section(title: str, columns: Sequence[str], rows: Sequence[str], note: str = "") -> str:
    """Return a headed table of rows, under a note; nothing without rows."""
    return part(title, table(columns, "".join(rows)), note) if rows else ""


def bar(share: float, text: str) -> str:
    """Return a cell of a figure, and one with a bar as long as the share (0 to 1) that it is."""
    width = 12 * min(max(share, 0.0), 1.0)
    return f"{number(text)}<td><span class='share' style='width:{width:.2f}em'></span></td>"


def fold(title: str, body: str, *, is_open: bool = False) -> str:
    """Return a part that a click or a key opens; `body` is HTML."""
    return f"<details{' open' * is_open}><summary>{safe(title)}</summary>\n{body}</details>\n"


def safe(text: str) -> str:
    """Return a text that is only shown, whatever it holds."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
