"""The report as one HTML file, which asks no network."""

from __future__ import annotations

from adrenoc.base.text.html_page import part, safe, show_table
from adrenoc.lab.calibrate.session import Calibration
from adrenoc.lab.calibrate.tables import list_differences, list_facts, list_measures


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
