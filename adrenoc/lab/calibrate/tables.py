"""What a calibration found, as the tables that the terminal and a page without network show."""

from __future__ import annotations

from collections.abc import Sequence

from adrenoc.base.text.html_page import part, safe, show_table
from adrenoc.base.text.result_table import ResultTable
from adrenoc.lab.calibrate.calibrate import Row
from adrenoc.lab.calibrate.facts import Difference, Fact
from adrenoc.lab.calibrate.session import Calibration


def list_differences(found: Sequence[Difference]) -> ResultTable:
    """List measured values beside the listed ones."""
    return ResultTable(
        columns=("value", "measured", "spread", "listed", "ratio", "what it means for choices"),
        rows=tuple(
            (
                one.key,
                f"{one.measured:.4g}",
                f"{100 * one.spread:.0f} %",
                "" if one.listed is None else f"{one.listed:.4g}",
                "" if one.ratio is None else f"{one.ratio:.2f}",
                one.means,
            )
            for one in found
        ),
        figures=("measured", "spread", "listed", "ratio"),
    )


def list_facts(found: Sequence[Fact]) -> ResultTable:
    """List what kernels take for granted beside what the device does."""
    return ResultTable(
        columns=("fact", "measured", "beside", "what it means for choices"),
        rows=tuple((one.key, one.measured, one.beside, one.means) for one in found),
    )


def list_measures(rows: Sequence[Row]) -> ResultTable:
    """List every measure with its state."""
    return ResultTable(
        columns=("measure", "of what", "figure", "spread", "MHz", "°C", ""),
        rows=tuple(
            (
                row.name,
                row.title,
                row.figure,
                f"{100 * row.spread:.0f} %" if row.samples > 1 else "",
                f"{row.clock_mhz:.0f}" if row.clock_mhz else "",
                f"{row.temperature_c:.0f}" if row.temperature_c else "",
                f"{row.status}: {row.reason}" if row.reason else "",
            )
            for row in rows
        ),
        figures=("spread", "MHz", "°C"),
    )


def title_of(calibration: Calibration) -> str:
    """What the page is called."""
    return f"{calibration.measured.device.name}, measured"


def calibration_sections(calibration: Calibration) -> str:
    """What the page shows."""
    measured = calibration.measured
    return (
        part(
            "Beside what is listed",
            show_table(list_differences(calibration.differences)),
            f"{measured.source}; beside {calibration.listed.title}.",
        )
        + part("Beside what kernels reckon with", show_table(list_facts(measured.facts)))
        + part("Measures", show_table(list_measures(measured.rows)))
        + part("The target file", f"<pre>{safe(calibration.toml)}</pre>")
    )
