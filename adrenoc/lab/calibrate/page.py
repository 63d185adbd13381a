"""The report as one HTML file: tables, and curves as drawings inside it; it asks no network."""

from __future__ import annotations

import math
from collections.abc import Sequence

from adrenoc.base.text.html_page import cell, line, number, page, part, safe, table
from adrenoc.lab.calibrate.calibrate import Row
from adrenoc.lab.calibrate.facts import Fact
from adrenoc.lab.calibrate.session import Calibration

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 420, 180, 48, 28, 28
_APART = 24
"""The least distance of two labels below a drawing."""


def calibration_html(calibration: Calibration) -> str:
    """The whole page."""
    return page(title_of(calibration), calibration_sections(calibration), by="device calibrate")


def title_of(calibration: Calibration) -> str:
    """What the page is called."""
    return f"{calibration.measured.device.name}, measured"


def calibration_sections(calibration: Calibration) -> str:
    """What the page shows."""
    measured = calibration.measured
    drawn = "".join(_drawing(row) for row in measured.rows if len(row.curve) > 1)
    return (
        part(
            "Beside what is listed",
            _render_comparison(calibration),
            f"{measured.source}; beside {calibration.listed.title}.",
        )
        + part("Beside what kernels reckon with", _render_facts(measured.facts))
        + part("Measures", _measures(measured.rows))
        + part("Curves", drawn or "<p>None was measured.</p>")
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
            number("" if fact.ratio is None else f"{fact.ratio:.2f}"),
            cell(fact.means),
        )
        for fact in facts
    )
    return table(("fact", "measured", "beside", "ratio", "what it means for choices"), body)


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


def _drawing(row: Row) -> str:
    """A curve over a logarithmic axis of places, from zero up."""
    places = [math.log2(max(x, 1e-9)) for x, _ in row.curve]
    low, wide = min(places), (max(places) - min(places)) or 1.0
    top = max(y for _, y in row.curve) or 1.0
    across, up = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM - 16
    points = [
        (_LEFT + across * (place - low) / wide, 16 + up * (1 - y / top))
        for place, (_, y) in zip(places, row.curve, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3'/>" for x, y in points)
    named: list[tuple[float, float]] = []
    for (x, _), (at, _) in zip(points, row.curve, strict=True):
        if not named or x - named[-1][0] >= _APART:
            named.append((x, at))
    labels = "".join(
        f"<text x='{x:.1f}' y='{_HEIGHT - 10}' text-anchor='middle'>{at:g}</text>"
        for x, at in named
    )
    return (
        f"<figure style='width:{_WIDTH + 24}px;vertical-align:top'>"
        f"<figcaption>{safe(row.name)} ({safe(row.unit)})</figcaption>"
        f"<svg class='drawn' width='{_WIDTH}' height='{_HEIGHT}' role='img'>"
        f"<line x1='{_LEFT}' y1='{16 + up}' x2='{_WIDTH - _RIGHT}' y2='{16 + up}'/>"
        f"<text x='4' y='20'>{top:.3g}</text><text x='4' y='{16 + up}'>0</text>"
        f"<polyline points='{line}'/>{dots}{labels}"
        f"</svg><br><span class='quiet'>{safe(row.title)}</span></figure>\n"
    )
