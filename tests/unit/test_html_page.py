"""Pages of tables: names of columns stand above what they name."""

import re

from adrenoc.base.text.html_page import draw
from adrenoc.base.text.report import Share, Table
from adrenoc.base.text.spelling import Figure, show_ms


def _heads(page: str) -> list[tuple[str, str]]:
    return re.findall(r"<th scope='col'(?: class='(\w+)')?>([^<]*)</th>", page)


def test_names_of_figures_are_set_to_the_right_as_the_figures_are() -> None:
    columns = ("family", "measured", "times that")
    rows = (("conv", Share("3 ms", 3.0, 6.0), Figure("7")), ("pool", None, 7))
    page = draw([Table(columns=columns, rows=rows)])
    assert _heads(page) == [("", "family"), ("number", "measured"), ("number", "times that")]
    assert page.count("<td") == page.count("</td>") == 8  # two have bars
    assert "width:6.00em" in page


def test_a_table_without_rows_is_nothing() -> None:
    assert draw([Table(columns=("family", "measured"), rows=(), title="Times")]) == ""


def test_less_than_a_microsecond_is_not_nothing() -> None:
    assert [show_ms(ms) for ms in (0.0, 0.0001, 0.00096, 0.0014)] == [
        "0 µs",
        "0.1 µs",
        "0.96 µs",
        "1 µs",
    ]
