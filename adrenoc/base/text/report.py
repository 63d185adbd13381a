"""What is shown of a result, as parts that a terminal and a page draw alike.

A command makes them once: `adrenoc.cli.console.draw` prints them, `page` makes one HTML file of
them, whole in itself, which shows any text as a text, and `--json` has the result itself.

JUnit's XML, which build servers read: suites of cases, any name shown as a text.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

from adrenoc.base.text.spelling import Figure, printable

T = TypeVar("T")
Cell = str | int | None
"""A number and a `Figure` are set to the right; None is what is not known, and shown as nothing."""


class Marked(str):
    """A text that is good or bad news, as `kind` says."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Marked:
        """Mark a text."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


_NAME_COLUMNS = 44
"""Of a name, so that a line of 100 columns holds the figures too."""


class Name(str):
    """A name of the model, which a terminal shows shortened."""


def shorten(name: str) -> str:
    """Shorten a name of the model to its end, which tells it from its neighbours. TFLite joins the
    names of all that a tensor was fused from; the first one stands for them."""
    first, joined, _ = name.partition(";")
    if len(first) > _NAME_COLUMNS:
        first = f"…{first[1 - _NAME_COLUMNS :]}"
    return f"{first};…" if joined else first


class Share(Figure):
    """A figure that a page draws as a bar, too, as long as the `part` (0 to 1) that it is."""

    part: float

    def __new__(cls, text: str, value: float, whole: float) -> Share:
        """Tell a value with its text beside the whole, or the largest."""
        made = super().__new__(cls, text)
        made.part = min(max(value / whole, 0.0), 1.0) if whole else 0.0
        return made

    @classmethod
    def of(cls, value: float, whole: float) -> Share:
        """Tell which part of the whole a value is."""
        return cls(f"{value / whole:.1%}" if whole else "", value, whole)


@dataclass(frozen=True, kw_only=True)
class Title:
    """What is shown, and in which circumstances."""

    text: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether all is well, and what that means."""

    passed: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Names and values, below each other; on pages under a title."""

    pairs: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Cards:
    """The figures that matter, each under its name."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under the names of columns, on pages under a title and a note.

    Without rows it is nothing.  Of more than `most` rows a terminal shows the first, and how many
    there are; `others` has the rest."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    note: str = ""
    most: int | None = None
    others: str = "--json lists all"

    @property
    def holds_figures(self) -> tuple[bool, ...]:
        """Return of each column whether it is one of figures."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.columns)
        return tuple(any(isinstance(cell, Figure | int) for cell in one) for one in columns)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What a page opens on a click; a terminal leaves out what is not open."""

    title: str
    parts: Sequence[Part]
    is_open: bool = False


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A part of a page as HTML, which a terminal leaves out."""

    html: str
    title: str = ""
    note: str = ""


Part = Title | Verdict | Fields | Cards | Table | Fold | Drawing


def tabulate(items: Iterable[T], columns: Mapping[str, Callable[[T], Cell]], **more: Any) -> Table:
    """Make a table with a row for each item, and of each column what it shows of an item."""
    rows = tuple(tuple(show(item) for show in columns.values()) for item in items)
    return Table(columns=tuple(columns), rows=rows, **more)


def spell(cell: Cell) -> str:
    """Return a cell as text."""
    return "" if cell is None else str(cell)


def page(title: str, *parts: Part, about: str = "", by: str = "") -> str:
    """Return the whole file under a title. `about` says in a line what is shown, and `by` names the
    command that wrote it."""
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


@dataclass(frozen=True, kw_only=True)
class JunitCase:
    """One thing that was tried; `failure` or `skipped` says why it did not pass."""

    group: str
    name: str
    took_s: float = 0.0
    failure: str = ""
    skipped: str = ""
    figures: str = ""


@dataclass(frozen=True, kw_only=True)
class JunitSuite:
    """Cases that belong together."""

    name: str
    cases: tuple[JunitCase, ...]


def show_suites(name: str, suites: Sequence[JunitSuite]) -> str:
    """Return the whole file."""
    root = ElementTree.Element("testsuites", name=name)
    for suite in suites:
        element = ElementTree.SubElement(
            root,
            "testsuite",
            name=printable(suite.name),
            tests=str(len(suite.cases)),
            failures=str(sum(bool(case.failure) for case in suite.cases)),
            skipped=str(sum(bool(case.skipped) for case in suite.cases)),
            time=f"{sum(case.took_s for case in suite.cases):.3f}",
        )
        for case in suite.cases:
            _add(element, case)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ElementTree.Element, case: JunitCase) -> None:
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=printable(case.group),
        name=printable(case.name),
        time=f"{case.took_s:.3f}",
    )
    for kind, message in (("failure", case.failure), ("skipped", case.skipped)):
        if message:
            ElementTree.SubElement(element, kind, message=printable(message))
    if case.figures:
        out = ElementTree.SubElement(element, "system-out")
        out.text = printable(case.figures)
