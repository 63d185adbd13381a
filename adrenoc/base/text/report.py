"""What is shown of a result, as parts that a terminal and a page draw alike.

A command makes them once: `adrenoc.cli.console.draw` prints them, `html_page.page` makes one file
of them, and `--json` has the result itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adrenoc.base.text.spelling import Figure

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
    """Shorten a name of the model to its end, which tells it from its neighbours.

    TFLite joins the names of all that a tensor was fused from; the first one stands for them.
    """
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
    there are; `others` has the rest.
    """

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
