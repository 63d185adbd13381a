"""How a calibration is shown: a line for each measure, then tables, or one JSON object.

How `adrenoc device calibrate --validate` is told: tables for people, the same as JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.cli import console

if TYPE_CHECKING:
    from adrenoc.lab.calibrate.calibrate import MeasureRow
    from adrenoc.lab.calibrate.session import Calibration
    from adrenoc.lab.calibrate.validate.fit import Fit
    from adrenoc.lab.calibrate.validate.session import Validation


class RowProgress:
    """A line for each measure as it ends; a quiet one leaves stdout to JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._done, self._quiet = 0, quiet

    def say(self, row: MeasureRow, count: int) -> None:
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
    from adrenoc.lab.calibrate.session import list_differences, list_facts

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


def say_layer(layer: str, said: str) -> None:
    """Print a line for a layer that has ended."""
    console.print_fields([(layer, said)])


def validation_to_json(done: Validation) -> dict[str, Any]:
    """Return a validation as JSON values."""
    from adrenoc.lab.calibrate.validate.findings import noise_of, overall, share_right

    cost = done.target.cost
    right, clear = share_right(done.joins)
    return {
        "device": done.device.name,
        "driver": done.device.driver,
        "target": done.target.name,
        "preset": done.options.preset,
        "date": done.date.isoformat(),
        "time_s": done.time_s,
        "noise": noise_of(done.kernels),
        "all": overall(done.timed, cost),
        "fitted_to": overall(done.timed, cost, kept_out=False),
        "kept_out": overall(done.timed, cost, kept_out=True),
        "families": done.families,
        "joins_right": right,
        "joins_clear": clear,
        "joins": [{**vars(join), "ratio": join.ratio} for join in done.joins],
        "kernels": done.kernels,
        "left_out": [{"layer": layer, "reason": reason} for layer, reason in done.left_out],
    }


def show_validation(done: Validation) -> None:
    """Show tables of families and of joins, and the sums."""
    from adrenoc.lab.calibrate.validate.findings import noise_of, overall, share_right
    from adrenoc.lab.calibrate.validate.session import list_families, list_joins

    console.blank()
    console.print_title(done.device.name, f"as {done.target.title} chooses")
    console.show_table(list_families(done.families))
    if done.joins:
        console.show_table(list_joins(done.joins))
    right, clear = share_right(done.joins)
    noise = noise_of(done.kernels)
    console.print_fields(
        [
            ("all kernels", str(overall(done.timed, done.target.cost))),
            ("joins", f"{right} right of {clear} that differ by more than a tenth"),
            ("noise", f"two measurements of one schedule differ by {100 * (noise - 1):.1f} %"),
            *((layer, f"left out: {reason}") for layer, reason in done.left_out),
        ]
    )


def fit_to_json(done: Fit) -> dict[str, Any]:
    """Return fitted constants as JSON values."""
    return {
        "fitted_to": {"before": done.fitted.before, "after": done.fitted.after},
        "kept_out": {"before": done.fitted.kept_before, "after": done.fitted.kept_after},
        "joins": {
            name: {"right": right, "clear": clear}
            for name, (right, clear) in _decisions(done).items()
        },
        "changed": [
            {"key": ".".join(key), "before": before, "after": after}
            for key, before, after in done.changed
        ],
        "decisions": done.decisions,
        "confirmed": done.confirmed,
    }


def show_fit(done: Fit) -> None:
    """Show regret before and after, and what was changed."""
    console.blank()
    console.print_title("fitted", "to two thirds of the layers; the others are kept out")
    if done.changed:
        console.print_table(
            ("constant", "before", "after"),
            [(".".join(k), f"{before:.4g}", f"{after:.4g}") for k, before, after in done.changed],
            right=("before", "after"),
        )
    console.print_fields(
        [
            ("fitted layers, before", str(done.fitted.before)),
            ("fitted layers, after", str(done.fitted.after)),
            ("kept out, before", str(done.fitted.kept_before)),
            ("kept out, after", str(done.fitted.kept_after)),
            *(
                (f"joins, {name}", f"{right} right of {clear}")
                for name, (right, clear) in _decisions(done).items()
            ),
            *_confirmed_fields(done),
            *((d.subject, f"{d.taken}: {d.reason}") for d in done.decisions),
        ]
    )


def _confirmed_fields(done: Fit) -> list[tuple[str, str]]:
    """Tell how the new choices of all schedules ran beside the old ones."""
    ran = done.confirmed
    if ran is None or ran.failed:
        return []
    return [
        (
            "new choices, run",
            f"{ran.seen:.3f} of the old ones' time on fitted layers, {ran.kept:.3f} on those kept "
            f"out; {ran.others} kernels choose another schedule",
        )
    ]


def _decisions(done: Fit) -> dict[str, tuple[int, int]]:
    """Count right decisions of those that count, before and after, of all and of those kept out."""
    from adrenoc.lab.calibrate.validate.findings import share_right

    times = {"before": done.joins_before, "after": done.joins_after}
    kept = {name: [join for join in joins if join.kept_out] for name, joins in times.items()}
    return {
        **{f"all, {name}": share_right(joins) for name, joins in times.items()},
        **{f"kept out, {name}": share_right(joins) for name, joins in kept.items()},
    }
