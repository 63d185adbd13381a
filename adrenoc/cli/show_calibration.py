"""How a calibration is shown: a line for each measure, then tables, or one JSON object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.cli import console

if TYPE_CHECKING:
    from adrenoc.lab.calibrate.calibrate import Row
    from adrenoc.lab.calibrate.session import Calibration


class RowProgress:
    """A line for each measure as it ends; a quiet one leaves stdout to JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._done, self._quiet = 0, quiet

    def say(self, row: Row, count: int) -> None:
        """Tell of a row, of so many."""
        self._done += 1
        told = row.figure if row.is_measured else f"{row.status}: {row.reason}"
        spread = f", spread {100 * row.spread:.0f} %" if row.samples > 1 else ""
        state = f", {row.state}" if row.state else ""
        name, text = f"{self._done}/{count} {row.name}", f"{told}{spread}{state}"
        if self._quiet:
            console.print_progress(name, text)
        else:
            console.print_fields([(name, text)])


def calibration_to_json(done: Calibration, output: Path) -> dict[str, Any]:
    """Return what `--json` says of a calibration."""
    measured = done.measured
    return {
        "device": measured.device.name,
        "driver": measured.device.driver,
        "source": measured.source,
        "beside": done.listed.name,
        "target_file": str(output),
        "values": [
            {
                "key": value.key,
                "value": value.value,
                "spread": value.spread,
                "how": value.how,
                "from": [row.name for row in value.rows],
            }
            for value in measured.values
        ],
        "differences": done.differences,
        "facts": measured.facts,
        "measures": measured.rows,
    }


def show_calibration(done: Calibration, output: Path) -> None:
    """Show values and facts beside what is listed, as tables."""
    from adrenoc.lab.calibrate.tables import list_differences, list_facts

    console.blank()
    console.print_title(done.measured.device.name, f"beside {done.listed.title}")
    console.show_table(list_differences(done.differences))
    if done.measured.facts:
        console.blank()
        console.show_table(list_facts(done.measured.facts))
    rows = done.measured.rows
    counted = [sum(row.status == status for row in rows) for status in ("measured", "failed")]
    console.print_verdict(True, f"{output}: {counted[0]} measured, {counted[1]} failed")
    if any(row.by_host for row in rows):
        console.print_fields([("clock", "the device's tells of no time, so the host's was taken")])
