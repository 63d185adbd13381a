"""What commands show: tables at any width, parts of results, pages, and how far they are."""

import io
import json
import re
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
from rich.console import Console

from adrenoc.base.reporter import PartReporter
from adrenoc.base.text.report import (
    Cards,
    Drawing,
    Fields,
    Fold,
    Name,
    Part,
    Share,
    Table,
    Title,
    Verdict,
    draw,
    tabulate,
)
from adrenoc.base.text.spelling import Figure, figure, show_ms, show_us, show_value
from adrenoc.bundle.manifest import FileEntry, TensorSpec
from adrenoc.check import runtimes
from adrenoc.cli import console
from adrenoc.cli.guarded import JSON_OPTION
from adrenoc.cli.main import main
from adrenoc.cli.tables import make_table
from adrenoc.cli.write_views import list_options, list_unknown
from adrenoc.ir.options import CompileOptions, ResolvedOptions
from adrenoc.lab.calibrate.measure import MEASURED, DeviceFacts, MeasureRow
from adrenoc.pages.bundle_page import _files, _tell_option, _tensors

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
def test_where_there_is_room_a_row_is_a_row(width):
    header, *rows = _lines(width, ROWS)
    assert header.split() == ["output", "shape", "max", "error", "of", "the", "range", "cosine"]
    assert rows[0].split() == list(ROWS[0])
    assert "12.5 ms" in "".join(rows)


def test_headers_break_between_words_before_a_table_becomes_a_list():
    lines = _lines(46, ROWS[:1])
    assert "".join(lines).count("1.11e-01") == 1
    assert {word for line in lines for word in line.split()} >= {"error", "range", "cosine"}
    assert len(lines) == 3 and lines[-1].split() == list(ROWS[0])


def test_long_names_are_folded_and_numbers_are_not():
    lines = _lines(60, ROWS)
    assert "".join(line[:18].strip() for line in lines).endswith(NAME)
    assert all(any(word in line for line in lines) for word in ROWS[0][1:])


@pytest.mark.parametrize("width", [24, 40])
def test_a_narrow_terminal_has_a_list(width):
    lines = _lines(width, ROWS)
    assert lines[:2] == ["  output", "    y"]
    assert NAME in "".join(line.strip() for line in lines)
    # Of one row it is empty.
    assert sum(line.startswith("      of the range") for line in lines) == 1


def test_who_reads_columns_gets_no_list():
    assert sum(line.startswith("  y") for line in _lines(40, ROWS[:1], may_list=False)) == 1


def test_a_table_without_rows_has_its_headers():
    assert _lines(100, [])[0].split()[0] == "output"


def test_a_list_of_figures_alone_has_no_heading():
    shown = _table(COLUMNS[2:], [("1.1", "2.2", "3.3")], 0)
    table = make_table(shown, width=20, may_list=True)
    stream = io.StringIO()
    Console(file=stream, width=20, color_system=None).print(table)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert lines == [["max", "error", "1.1"], ["of", "the", "range", "2.2"], ["cosine", "3.3"]]


@pytest.mark.parametrize(("columns", "noted"), [("40", False), ("60", True)])
def test_a_stage_keeps_its_name_and_time(capsys, monkeypatch, columns, noted):
    monkeypatch.setattr(console, "_PIPE_WIDTH", int(columns))
    console.ConsoleReporter().stage("plan_memory", 1.66, "0.1 MiB, 0.5 with constants")
    said = capsys.readouterr().err
    assert "plan_memory" in said and "1.66 ms" in said and ("0.1 MiB" in said) is noted


@pytest.mark.parametrize("verbose", [False, True])
def test_parts_are_shown_on_demand(capsys, verbose):
    with console.ConsoleReporter(verbose=verbose) as reporter:
        reporter.working("fuse_norms", 3, 7)
        reporter.part("fuse_norms", 1.0, "")
        PartReporter(reporter, "x:1,8").stage("fuse", 2.0, "")
        reporter.stage("choose", 3.0, "41 nodes")
    said = [line.split() for line in capsys.readouterr().err.splitlines()]
    parts = [["fuse_norms", "1.00", "ms"], ["fuse", "2.00", "ms"]] if verbose else []
    assert said == [*parts, ["✓", "choose", "3.00", "ms", "41", "nodes"]]


LONG = "model/layers/attention/self/query_projection/output"


def parts(*, is_open: bool) -> list[Part]:
    rows = [(LONG, 3.0), ("<b>y</b>", 1.0)]
    columns = {
        "node": lambda row: Name(row[0]),
        "time": lambda row: show_ms(row[1]),
        "share": lambda row: Share.of(row[1], 4.0),
    }
    return [
        Title(text="a run", detail="on a GPU"),
        Cards(figures=[("p50", show_ms(2.0))]),
        Fields(pairs=[("driver", "1.0")]),
        tabulate(rows, columns, title="Nodes", note="The longest first.", most=1),
        tabulate([], columns, title="Nothing"),
        Fields(pairs=[]),
        Fold(title="2 more", parts=[Fields(pairs=[("folded", "yes")])], is_open=is_open),
        Drawing(html="<svg></svg>", title="Drawn"),
        Verdict(passed=False, text="does not agree"),
    ]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_terminal_draws_what_is_not_folded(capsys, is_open):
    console.draw(parts(is_open=is_open))
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[:3] == ["a run  on a GPU", "      p50", "  2.00 ms"]
    assert LONG not in said and LONG[-20:] in said and "75.0%" in said
    assert "and 1 more" in said and "<b>" not in said
    assert "Nothing" not in said and "svg" not in said and "Drawn" not in said
    assert ("folded" in said) is is_open
    assert lines[-1] == "✗ does not agree"
    # A table stands free of what is above and below.
    at = next(n for n, line in enumerate(lines) if "node" in line)
    assert lines[at - 1] == "" and lines[lines.index("  The longest first.") + 1] == ""


def test_a_page_holds_all():
    page = draw(parts(is_open=False))
    assert LONG in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "<details><summary>2 more" in page and "folded" in page and "<svg></svg>" in page
    assert "Nothing" not in page and "<section class='bad'>does not agree" in page
    assert "width:9.00em" in page and "The longest first." in page
    assert draw(parts(is_open=True)).count("<details open>") == 1


def test_with_json_parts_are_not_made(capsys):
    import click

    def never() -> list[Part]:
        raise AssertionError
        yield Title(text="")

    command = click.Command("c", params=[JSON_OPTION], callback=lambda: console.tell([1], never()))
    command.main(["--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == [1]


def test_what_is_not_known_is_empty():
    assert [show_ms(None), show_us(None), figure(None, ".2f", " x")] == ["", "", ""]
    assert [show_us(1500.0), figure(0.5, ".0%")] == ["1.50 ms", "50%"]


def test_values_of_options_are_shown_as_they_are_typed():
    shapes, states = [["x", [1, 8]], ["y", []]], (("past", "present"),)
    assert [show_value(shapes), show_value(states)] == ["x:1,8, y:", "past:present"]
    assert [show_value(v) for v in (None, True, (), (7, 8), "off")] == [
        *("none", "true", "none", "7, 8", "off")
    ]
    assert show_value([[1, 2, 3], {"a": 1}, ["z", 7]]) == "1, 2, 3, {'a': 1}, z:7"


def _heads(page: str) -> list[tuple[str, str]]:
    return re.findall(r"<th scope='col'(?: class='(\w+)')?>([^<]*)</th>", page)


def test_names_of_figures_are_set_to_the_right_as_the_figures_are():
    columns = ("family", "measured", "times that")
    rows = (("conv", Share("3 ms", 3.0, 6.0), Figure("7")), ("pool", None, 7))
    page = draw([Table(columns=columns, rows=rows)])
    assert _heads(page) == [("", "family"), ("number", "measured"), ("number", "times that")]
    assert page.count("<td") == page.count("</td>") == 8  # two have bars
    assert "width:6.00em" in page


def test_a_table_without_rows_is_nothing():
    assert draw([Table(columns=("family", "measured"), rows=(), title="Times")]) == ""


def test_less_than_a_microsecond_is_not_nothing():
    assert [show_ms(ms) for ms in (0.0, 0.0001, 0.00096, 0.0014)] == [
        "0 µs",
        "0.1 µs",
        "0.96 µs",
        "1 µs",
    ]


def test_states_and_shapes_are_shown_by_their_names(capsys):
    options = CompileOptions(
        shapes=(("past", (1, 4, 32, 8)),), states=(("past", "present"),), forbid=("cpu",)
    )
    origins = tuple((name, "the test") for name in ("shapes", "states", "forbid", "winograd"))
    console.draw(list_options(ResolvedOptions(options=options, origins=origins)))
    said = " ".join(capsys.readouterr().out.split())
    assert "past:1,4,32,8" in said
    assert "past:present" in said
    assert "forbid cpu" in said


@pytest.mark.parametrize(
    ("kind", "package"), [("onnx", "onnxruntime"), ("tflite", "ai-edge-litert")]
)
def test_what_no_reference_can_tell_is_told_in_a_line(monkeypatch, kind, package):
    def lack(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(runtimes, "version", lambda name: "1.0")
    assert list_unknown(kind) == []
    monkeypatch.setattr(runtimes, "version", lack)
    ((_, said),) = list_unknown(kind)
    assert f"{package}, which computes the reference for this model, is not installed" in said
    assert "pip install" in said


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def _plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration of one row."""
    row = MeasureRow(name="mad.float", title="t", unit="GFLOP/s", status=MEASURED, value=2.0)
    device = DeviceFacts.from_facts({"name": "a device", "driver": "1.0"})
    measured = SimpleNamespace(device=device, source="s", values=(), facts=(), rows=(row,))
    listed = SimpleNamespace(name="adreno:750")

    def run(request, *, say):
        say(row, 97)
        toml = 'title = "t"\nbase = "adreno:750"\n'
        return SimpleNamespace(measured=measured, listed=listed, differences=(), toml=toml)

    monkeypatch.setattr("adrenoc.lab.calibrate.session.run_calibration", run)


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_progress_beside_json(stream, monkeypatch, capsys, tmp_path):
    _plant(monkeypatch)
    aside = stream()
    monkeypatch.setattr("sys.stderr", aside)
    assert main(["device", "calibrate", "--json", "-o", str(tmp_path / "phone.toml")]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "a device"
    shows = "1/97 mad.float" in aside.getvalue() and "2 GFLOP/s" in aside.getvalue()
    assert shows is (stream is Terminal), aside.getvalue()


def _spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype="float32", layout="row-major")


def test_caches_of_all_layers_have_a_row_and_few_tensors_one_each():
    caches = [_spec(f"past.{n}.{kind}", 1, 8, 9, 4) for n in range(28) for kind in ("key", "value")]
    rows = _tensors("input", (_spec("ids", 1, 1), *caches, _spec("mask.0", 9), _spec("mask.1", 9)))
    assert [row[1] for row in rows] == [
        *("ids", "past.0.key to past.27.key, 28 of them"),
        *("past.0.value to past.27.value, 28 of them", "mask.0", "mask.1"),
    ]
    other = [_spec(f"past.{n}", n) for n in range(28)]
    assert len(_tensors("input", tuple(other))) == 28  # no two are alike


def test_a_long_list_is_counted():
    assert _tell_option("caches", [["past.0", "present.0"]] * 56) == "caches = 56 of them"
    assert _tell_option("end_tokens", [7, 8]) == "end_tokens = [7, 8]"
    assert _tell_option("preset", "m" * 80) == f'preset = "{"m" * 80}"'


def test_kernels_of_a_folder_have_a_row():
    names = ("model.so", "kernels/a.cl", "buckets/1/kernels/a.cl", "buckets/1/kernels/b.cl")
    found = _files(tuple(FileEntry(path=name, bytes=512, sha256="0" * 64) for name in names))
    assert [row[:2] for row in found.rows] == [
        ("model.so", "512 B"),
        ("kernels/ (1 file)", "512 B"),
        ("buckets/1/kernels/ (2 files)", "1.0 KiB"),
    ]
