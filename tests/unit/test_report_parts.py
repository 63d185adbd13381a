"""Parts of a result are drawn alike by a terminal and a page, but for what only pages have."""

import json

import pytest

from adrenoc.base.text.html_page import draw
from adrenoc.base.text.report import (
    Cards,
    Drawing,
    Fields,
    Fold,
    Name,
    Part,
    Share,
    Title,
    Verdict,
    tabulate,
)
from adrenoc.base.text.spelling import figure, show_ms, show_us, show_value
from adrenoc.cli import console
from adrenoc.cli.guarded import JSON_OPTION

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
def test_a_terminal_draws_what_is_not_folded(
    capsys: pytest.CaptureFixture[str], is_open: bool
) -> None:
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


def test_a_page_holds_all() -> None:
    page = draw(parts(is_open=False))
    assert LONG in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "<details><summary>2 more" in page and "folded" in page and "<svg></svg>" in page
    assert "Nothing" not in page and "<section class='bad'>does not agree" in page
    assert "width:9.00em" in page and "The longest first." in page
    assert draw(parts(is_open=True)).count("<details open>") == 1


def test_with_json_parts_are_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    import click

    def never() -> list[Part]:
        raise AssertionError
        yield Title(text="")

    command = click.Command("c", params=[JSON_OPTION], callback=lambda: console.tell([1], never()))
    command.main(["--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == [1]


def test_what_is_not_known_is_empty() -> None:
    assert [show_ms(None), show_us(None), figure(None, ".2f", " x")] == ["", "", ""]
    assert [show_us(1500.0), figure(0.5, ".0%")] == ["1.50 ms", "50%"]


def test_values_of_options_are_shown_as_they_are_typed() -> None:
    shapes, states = [["x", [1, 8]], ["y", []]], (("past", "present"),)
    assert [show_value(shapes), show_value(states)] == ["x:1,8, y:", "past:present"]
    assert [show_value(v) for v in (None, True, (), (7, 8), "off")] == [
        *("none", "true", "none", "7, 8", "off")
    ]
    assert show_value([[1, 2, 3], {"a": 1}, ["z", 7]]) == "1, 2, 3, {'a': 1}, z:7"
