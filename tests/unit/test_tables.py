"""Tables hold their words together at any width, as a list where there is no room for columns."""

import io

import pytest
from rich.console import Console

from adrenoc.base.reporter import PartReporter
from adrenoc.base.text.report import Table
from adrenoc.base.text.spelling import Figure
from adrenoc.cli import console
from adrenoc.cli.tables import make_table

COLUMNS = ("output", "shape", "max error", "of the range", "cosine")
NAME = "model/layers/attention/self/query_projection/output"
ROWS = [("y", "1x1000", "1.11e-01", "9.06e-04", "0.999999"), (NAME, "1x8", "12.5 ms", "", "1")]


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]], texts: int) -> Table:
    """Make a table whose first columns, so many, are texts."""
    cells = tuple((*row[:texts], *map(Figure, row[texts:])) for row in rows)
    return Table(columns=columns, rows=cells)


def _lines(width: int, rows: list[tuple[str, ...]], *, may_list: bool = True) -> list[str]:
    table = make_table(_table(COLUMNS, rows, 2), width=width, may_list=may_list)
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_terminal=True).print(table)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("width", [160, 100, 72])
def test_where_there_is_room_a_row_is_a_row(width: int) -> None:
    header, *rows = _lines(width, ROWS)
    assert header.split() == ["output", "shape", "max", "error", "of", "the", "range", "cosine"]
    assert rows[0].split() == list(ROWS[0])
    assert "12.5 ms" in "".join(rows)


def test_headers_break_between_words_before_a_table_becomes_a_list() -> None:
    lines = _lines(46, ROWS[:1])
    assert "".join(lines).count("1.11e-01") == 1
    assert {word for line in lines for word in line.split()} >= {"error", "range", "cosine"}
    assert len(lines) == 3 and lines[-1].split() == list(ROWS[0])


def test_long_names_are_folded_and_numbers_are_not() -> None:
    lines = _lines(60, ROWS)
    assert "".join(line[:18].strip() for line in lines).endswith(NAME)
    assert all(any(word in line for line in lines) for word in ROWS[0][1:])


@pytest.mark.parametrize("width", [24, 40])
def test_a_narrow_terminal_has_a_list(width: int) -> None:
    lines = _lines(width, ROWS)
    assert lines[:2] == ["  output", "    y"]
    assert NAME in "".join(line.strip() for line in lines)
    # Of one row it is empty.
    assert sum(line.startswith("      of the range") for line in lines) == 1


def test_who_reads_columns_gets_no_list() -> None:
    lines = _lines(40, ROWS[:1], may_list=False)
    assert sum(line.startswith("  y") for line in lines) == 1


def test_a_table_without_rows_has_its_headers() -> None:
    assert _lines(100, [])[0].split()[0] == "output"


def test_a_list_of_figures_alone_has_no_heading() -> None:
    shown = _table(COLUMNS[2:], [("1.1", "2.2", "3.3")], 0)
    table = make_table(shown, width=20, may_list=True)
    stream = io.StringIO()
    Console(file=stream, width=20, color_system=None).print(table)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert lines == [["max", "error", "1.1"], ["of", "the", "range", "2.2"], ["cosine", "3.3"]]


@pytest.mark.parametrize(("columns", "noted"), [("40", False), ("60", True)])
def test_a_stage_keeps_its_name_and_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, noted: bool
) -> None:
    monkeypatch.setattr(console, "_PIPE_WIDTH", int(columns))
    console.ConsoleReporter().stage("plan_memory", 1.66, "0.1 MiB, 0.5 with constants")
    said = capsys.readouterr().err
    assert "plan_memory" in said and "1.66 ms" in said and ("0.1 MiB" in said) is noted


@pytest.mark.parametrize("verbose", [False, True])
def test_parts_are_shown_on_demand(capsys: pytest.CaptureFixture[str], verbose: bool) -> None:
    with console.ConsoleReporter(verbose=verbose) as reporter:
        reporter.working("fuse_norms", 3, 7)
        reporter.part("fuse_norms", 1.0, "")
        PartReporter(reporter, "x:1,8").stage("fuse", 2.0, "")
        reporter.stage("choose", 3.0, "41 nodes")
    said = [line.split() for line in capsys.readouterr().err.splitlines()]
    parts = [["fuse_norms", "1.00", "ms"], ["fuse", "2.00", "ms"]] if verbose else []
    assert said == [*parts, ["✓", "choose", "3.00", "ms", "41", "nodes"]]
