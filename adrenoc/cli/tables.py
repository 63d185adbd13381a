"""Tables as wide as they may be, and lists in their place where a terminal is too narrow for them.

Before -> after, of a row in 40 columns:
    output  shape  max error  ...       output
    y       1x8    1.1e-03    ...         y
                                            shape      1x8
                                            max error  1.1e-03
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from adrenoc.base.text.report import Cell, Name, shorten, spell
from adrenoc.base.text.report import Table as ShownTable
from adrenoc.base.text.spelling import printable

_INDENT, _GAP = 2, 2
_LIST_BELOW = 72
"""Columns of a terminal below which a table that would break its words becomes a list."""
_WORD = 16
"""Of a word of a text, as of a model's name: shorter ones stay whole in a table."""


def show(text: object, style: str = "") -> Text:
    """Return a text that a terminal only shows, whatever it holds."""
    return Text(printable(str(text)), style)


def make_table(shown: ShownTable, *, width: int, may_list: bool) -> RenderableType:
    """Make a table of at most `width` columns of a terminal. Numbers and the words of headers stay
    whole. Where that leaves no room, `may_list` has each row as a list of its own."""
    columns, numbers = shown.columns, shown.holds_figures
    rows = [[*map(_spell, row)] for row in shown.rows[: shown.most]]
    cells = [[printable(cell) for cell in row] for row in (columns, *rows)]
    whole, broken = _least_widths(cells, numbers)
    room = width - _INDENT - _GAP * (len(columns) - 1)
    if may_list and width < _LIST_BELOW and sum(whole) > room:
        return _make_list(columns, rows, is_titled=not numbers[0])
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(columns))]
    for least in (whole, broken):
        widths = _shrink(widths, least, room)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for at, name in enumerate(columns):
        justify: Any = "right" if numbers[at] else "left"
        table.add_column(show(name), justify=justify, overflow="fold", width=widths[at])
    for row in rows:
        table.add_row(*map(show, row))
    grid = Table.grid()
    grid.add_row(" " * _INDENT, table)
    return grid


def _spell(cell: Cell) -> str:
    return shorten(cell) if isinstance(cell, Name) else spell(cell)


def _least_widths(
    cells: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Return how wide each column is with its words whole, and with those of a text broken."""
    whole, broken = [], []
    for at, is_number in enumerate(numbers):
        header, *texts = (row[at] for row in cells)
        of_header = _longest_word(header)
        if is_number:
            texts = [text.replace(" ", "_") for text in texts]
        longest = max(map(_longest_word, texts), default=0)
        whole.append(max(of_header, longest if is_number else min(longest, _WORD)))
        broken.append(max(of_header, longest) if is_number else of_header)
    return whole, broken


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=1)


def _shrink(widths: list[int], least: Sequence[int], room: int) -> list[int]:
    """Take from the widest column that may give, until all fit."""
    widths = list(widths)
    for _ in range(sum(widths) - room):
        giving = [at for at, width in enumerate(widths) if width > least[at]]
        if not giving:
            break
        widths[max(giving, key=lambda at: widths[at])] -= 1
    return widths


def _make_list(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, is_titled: bool
) -> RenderableType:
    """Make a list: the first column is a heading, and what is empty of a row is left out."""
    listed = Table.grid()
    listed.add_column(overflow="fold")
    if is_titled and columns[0]:
        listed.add_row(show(f"  {columns[0]}", "bold"))
    for row in rows:
        if is_titled:
            listed.add_row(_indent(show(row[0]), 2 * _INDENT))
        fields = Table.grid(padding=(0, _GAP, 0, 0))
        fields.add_column(no_wrap=True)
        fields.add_column(overflow="fold")
        for name, value in list(zip(columns, row, strict=False))[is_titled:]:
            if value:
                fields.add_row(show(name, "dim"), show(value))
        listed.add_row(_indent(fields, 3 * _INDENT if is_titled else _INDENT))
    return listed


def _indent(what: RenderableType, columns: int) -> Table:
    line = Table.grid()
    line.add_column()
    line.add_column(overflow="fold")
    line.add_row(" " * columns, what)
    return line
