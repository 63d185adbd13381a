"""Pages of tables: names of columns stand above what they name."""

from __future__ import annotations

import re

from adrenoc.base.text.html_page import bar, cell, line, number, section, table
from adrenoc.base.text.spelling import show_ms


def _heads(page: str) -> list[tuple[str, str]]:
    return re.findall(r"<th scope='col'(?: class='(\w+)')?>([^<]*)</th>", page)


def test_names_of_figures_are_set_to_the_right_as_the_figures_are() -> None:
    rows = [line(cell("conv"), bar(0.5, "3 ms"), number("7")), line(cell("pool"), cell("x"))]
    page = section("Times", ("family", "measured", "", "times that"), rows)
    assert _heads(page) == [
        ("", "family"),
        ("number", "measured"),
        ("", ""),
        ("number", "times that"),
    ]


def test_a_table_without_rows_has_its_names() -> None:
    assert _heads(table(("family", "measured"), "")) == [("", "family"), ("", "measured")]


def test_less_than_a_microsecond_is_not_nothing() -> None:
    assert [show_ms(ms) for ms in (0.0, 0.0001, 0.00096, 0.0014)] == [
        "0 µs",
        "0.1 µs",
        "0.96 µs",
        "1 µs",
    ]
