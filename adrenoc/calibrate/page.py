"""The report as one HTML file: tables, and curves as drawings inside it; it asks no network."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from adrenoc.calibrate.calibrate import Row
from adrenoc.calibrate.session import Calibration

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 420, 180, 48, 28
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 68em; color: #1b1f24; }
table { border-collapse: collapse; margin: 0.6em 0 2em; }
td, th { padding: 0.2em 0.9em 0.2em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e3e6ea; }
td { overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; }
pre { overflow-x: auto; padding: 0.8em; background: #f6f8fa; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.quiet { color: #6a737d; }
svg { margin: 0 1.5em 1em 0; } svg text { font-size: 11px; fill: #57606a; }
figure { display: inline-block; margin: 0; } figcaption { font-weight: 600; }
"""


def calibration_html(calibration: Calibration) -> str:
    """The whole page."""
    measured = calibration.measured
    rows = measured.rows
    drawn = "".join(_drawing(row) for row in rows if len(row.curve) > 1)
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>\n"
        f"<title>{_safe(measured.device.name)}, measured</title>\n<style>{_STYLE}</style>\n"
        f"<h1>{_safe(measured.device.name)}</h1>\n"
        f"<p>{_safe(measured.source)}; beside {_safe(calibration.listed.title)}.</p>\n"
        f"<h2>Beside what is listed</h2>\n{_beside(calibration)}"
        f"<h2>Measures</h2>\n{_measures(rows)}"
        f"<h2>Curves</h2>\n{drawn or '<p>None was measured.</p>'}\n"
        f"<h2>The target file</h2>\n<pre>{_safe(calibration.toml)}</pre>\n</html>\n"
    )


def _beside(calibration: Calibration) -> str:
    body = "".join(
        _row(
            _cell(found.key),
            _number(f"{found.measured:.4g}"),
            _number(f"{100 * found.spread:.0f} %"),
            _number("" if found.listed is None else f"{found.listed:.4g}"),
            _number("" if found.ratio is None else f"{found.ratio:.2f}"),
            _cell(found.means),
        )
        for found in calibration.differences
    )
    names = ("value", "measured", "spread", "listed", "ratio", "what it means for choices")
    return _table(names, body)


def _measures(rows: Sequence[Row]) -> str:
    body = "".join(
        _row(
            _cell(row.name),
            _cell(row.title),
            _cell(row.word) if row.word else _number(_figure(row)),
            _number(f"{100 * row.spread:.0f} %" if row.samples > 1 else ""),
            _number(f"{row.clock_mhz:.0f}" if row.clock_mhz else ""),
            _number(f"{row.temperature_c:.0f}" if row.temperature_c else ""),
            _cell(f"{row.status}: {row.reason}" if row.reason else ""),
        )
        for row in rows
    )
    names = ("measure", "of what", "figure", "spread", "MHz", "°C", "")
    return _table(names, body)


def _figure(row: Row) -> str:
    return "" if row.value is None else f"{row.value:.4g} {row.unit}"


def _drawing(row: Row) -> str:
    """A curve over a logarithmic axis of places, from zero up."""
    places = [math.log2(max(x, 1e-9)) for x, _ in row.curve]
    low, wide = min(places), (max(places) - min(places)) or 1.0
    top = max(y for _, y in row.curve) or 1.0
    across, up = _WIDTH - _LEFT - 12, _HEIGHT - _BOTTOM - 16
    points = [
        (_LEFT + across * (place - low) / wide, 16 + up * (1 - y / top))
        for place, (_, y) in zip(places, row.curve, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='#0969da'/>" for x, y in points)
    labels = "".join(
        f"<text x='{x:.1f}' y='{_HEIGHT - 10}' text-anchor='middle'>{at:g}</text>"
        for (x, _), (at, _) in zip(points, row.curve, strict=True)
    )
    return (
        f"<figure><figcaption>{_safe(row.name)} ({_safe(row.unit)})</figcaption>"
        f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>"
        f"<line x1='{_LEFT}' y1='{16 + up}' x2='{_WIDTH - 12}' y2='{16 + up}' stroke='#d0d7de'/>"
        f"<text x='4' y='20'>{top:.3g}</text><text x='4' y='{16 + up}'>0</text>"
        f"<polyline points='{line}' fill='none' stroke='#0969da' stroke-width='2'/>{dots}{labels}"
        f"</svg><br><span class='quiet'>{_safe(row.title)}</span></figure>\n"
    )


def _table(names: Sequence[str], body: str) -> str:
    head = "".join(f"<th>{_safe(name)}</th>" for name in names)
    return f"<table><tr>{head}</tr>\n{body}</table>\n"


def _row(*cells: str) -> str:
    return f"<tr>{''.join(cells)}</tr>\n"


def _cell(text: str) -> str:
    return f"<td>{_safe(text)}</td>"


def _number(text: str) -> str:
    return f"<td class='number'>{_safe(text)}</td>"


def _safe(text: str) -> str:
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))
