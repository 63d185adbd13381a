"""The report as one HTML file, which asks no network."""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.text.html_page import cell, line, number, page, part, safe, table
from adrenoc.lab.calibrate.calibrate import Row
from adrenoc.lab.calibrate.facts import Fact
from adrenoc.lab.calibrate.session import Calibration


def calibration_html(calibration: Calibration) -> str:
    """The whole page."""
    return page(title_of(calibration), calibration_sections(calibration), by="device calibrate")


def title_of(calibration: Calibration) -> str:
    """What the page is called."""
    return f"{calibration.measured.device.name}, measured"


def calibration_sections(calibration: Calibration) -> str:
    """What the page shows."""
    measured = calibration.measured
    return (
        part(
            "Beside what is listed",
            _render_comparison(calibration),
            f"{measured.source}; beside {calibration.listed.title}.",
        )
        + part("Beside what kernels reckon with", _render_facts(measured.facts))
        + part("Measures", _measures(measured.rows))
        + part("The target file", f"<pre>{safe(calibration.toml)}</pre>")
    )


def _render_comparison(calibration: Calibration) -> str:
    body = "".join(
        line(
            cell(found.key),
            number(f"{found.measured:.4g}"),
            number(f"{100 * found.spread:.0f} %"),
            number("" if found.listed is None else f"{found.listed:.4g}"),
            number("" if found.ratio is None else f"{found.ratio:.2f}"),
            cell(found.means),
        )
        for found in calibration.differences
    )
    names = ("value", "measured", "spread", "listed", "ratio", "what it means for choices")
    return table(names, body)


def _render_facts(facts: Sequence[Fact]) -> str:
    body = "".join(
        line(
            cell(fact.key),
            cell(fact.measured),
            cell(fact.beside),
            cell(fact.means),
        )
        for fact in facts
    )
    return table(("fact", "measured", "beside", "what it means for choices"), body)


def _measures(rows: Sequence[Row]) -> str:
    body = "".join(
        line(
            cell(row.name),
            cell(row.title),
            cell(row.figure) if row.word else number(row.figure),
            number(f"{100 * row.spread:.0f} %" if row.samples > 1 else ""),
            number(f"{row.clock_mhz:.0f}" if row.clock_mhz else ""),
            number(f"{row.temperature_c:.0f}" if row.temperature_c else ""),
            cell(f"{row.status}: {row.reason}" if row.reason else ""),
        )
        for row in rows
    )
    names = ("measure", "of what", "figure", "spread", "MHz", "°C", "")
    return table(names, body)
