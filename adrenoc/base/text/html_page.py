"""One HTML file of parts, whole in itself: it asks no network, and shows any text as a text."""

import html
from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.text.report import (
    Cards,
    Cell,
    Drawing,
    Fields,
    Fold,
    Marked,
    Part,
    Share,
    Table,
    Title,
    Verdict,
    spell,
)
from adrenoc.base.text.spelling import Figure


def page(title: str, *parts: Part, about: str = "", by: str = "") -> str:
    """Return the whole file under a title.

    `about` says in a line what is shown, and `by` names the command that wrote it.
    """
    named = f"<p>{safe(about)}</p>" if about else ""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{safe(title)}</title>\n<style>\n{read_style()}</style></head>\n<body>\n"
        f"<header><div><h1>{safe(title)}</h1>{named}</div>"
        f"<p class='brand'>adrenoc {safe(by)}</p></header>\n"
        f"<main>\n{draw(parts)}</main>\n</body></html>\n"
    )


def read_style() -> str:
    """Return the style sheet of all pages."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def draw(parts: Sequence[Part]) -> str:
    """Return parts of a page."""
    return "".join(map(_draw, parts))


def _draw(part: Part) -> str:
    drawn = ""
    if isinstance(part, Table):
        drawn = _section(part.title, part.note, _table(part)) if part.rows else ""
    elif isinstance(part, Fields):
        rows = tuple((name, str(value)) for name, value in part.pairs)  # figures are texts here
        drawn = _draw(Table(columns=("", ""), rows=rows, title=part.title))
    elif isinstance(part, Cards):
        each = "".join(
            f"<div class='card'><h3>{safe(name)}</h3><div class='big'>{safe(value)}</div></div>"
            for name, value in part.figures
        )
        drawn = f"<section class='cards'>{each}</section>\n"
    elif isinstance(part, Fold):
        summary = f"<summary>{safe(part.title)}</summary>\n"
        drawn = f"<details{' open' * part.is_open}>{summary}{draw(part.parts)}</details>\n"
    elif isinstance(part, Verdict):
        kind = "good" if part.passed else "bad"
        drawn = f"<section{_kind(kind)}>{safe(part.text)}</section>\n"
    elif isinstance(part, Title):
        drawn = _section(part.text, part.detail, "")
    elif isinstance(part, Drawing):
        is_headed = part.title or part.note
        drawn = _section(part.title, part.note, part.html) if is_headed else part.html
    return drawn


def _section(title: str, note: str, body: str) -> str:
    heading = f"<h2>{safe(title)}</h2>\n" if title else ""
    quiet = f"<p class='quiet'>{safe(note)}</p>\n" if note else ""
    return f"<section>{heading}{quiet}{body}</section>\n"


def _table(shown: Table) -> str:
    """Return a table, which scrolls where it is too wide; names stand above as figures do."""
    bars = [
        any(isinstance(cell, Share) for cell in column) for column in zip(*shown.rows, strict=True)
    ]
    names = "".join(
        f"<th scope='col'{_kind('number' * is_right)}>{safe(name)}</th>{'<th></th>' * has_bar}"
        for name, is_right, has_bar in zip(shown.columns, shown.holds_figures, bars, strict=True)
    )
    head = f"<tr>{names}</tr>\n" if any(shown.columns) else ""
    body = "".join(f"<tr>{''.join(map(_cell, row, bars))}</tr>\n" for row in shown.rows)
    return f"<div class='wide'><table>{head}{body}</table></div>\n"


def _cell(cell: Cell, has_bar: bool) -> str:
    kind = "number" if isinstance(cell, Figure | int) else ""
    kind = cell.kind if isinstance(cell, Marked) else kind
    width = 12 * cell.part if isinstance(cell, Share) else 0
    bar = f"<td><span class='share' style='width:{width:.2f}em'></span></td>" * has_bar
    return f"<td{_kind(kind)}>{safe(spell(cell))}</td>{bar}"


def _kind(kind: str) -> str:
    return f" class='{kind}'" if kind else ""


def safe(text: str) -> str:
    """Return a text that is only shown, whatever it holds."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
