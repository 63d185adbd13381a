"""`adrenoc calibrate`: measure a device, and write what it is as a target file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.durations import DurationParam
from adrenoc.cli.guarded import HeavyCommand, OutputPath
from adrenoc.cli.options import TargetParam, json_option
from adrenoc.cli.place_options import place_options

if TYPE_CHECKING:
    from adrenoc.calibrate.calibrate import Row
    from adrenoc.calibrate.session import Calibration
    from adrenoc.target.target import Target

_MOST_BUDGET_S = 3600.0


@click.command("calibrate", cls=HeavyCommand)
@place_options()
@click.option(
    "--device",
    "listed",
    type=TargetParam(),
    default=None,
    metavar="DEVICE",
    help="The listed device to compare with and to build on.  [default: what it calls itself]",
)
@click.option(
    "--budget",
    "budget_s",
    type=DurationParam(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="Stop after so long; the most important is measured first.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="Measure what has PART in its name alone, such as local; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    default=Path("device.toml"),
    show_default=True,
    metavar="FILE",
    help="The target file, for --device FILE.",
)
@click.option(
    "--html",
    "page",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The report with its curves as one HTML file.",
)
@json_option()
def calibrate_command(
    cl_device: str,
    server: str | None,
    tracker: str | None,
    adb: str | None,
    runtime: Path | None,
    key: str,
    timeout_s: float,
    listed: Target | None,
    budget_s: float,
    only: tuple[str, ...],
    output: Path,
    page: Path | None,
    as_json: bool,
) -> None:
    """Measure a device with small kernels, and write a target file of it.

    `adrenoc compile MODEL --device FILE` then reckons with what was measured.
    """
    from adrenoc.calibrate.session import Request, run_calibration, wanted
    from adrenoc.cli import console
    from adrenoc.cli.place_options import choose_place, reached
    from adrenoc.files.outputs import write_atomically
    from adrenoc.target.own_file import OwnFile, check_output_name
    from adrenoc.target.target import load_own_target

    if not 0 < budget_s <= _MOST_BUDGET_S:
        raise click.UsageError("--budget is to be above 0 and at most 1h")
    if not wanted(only):
        raise click.UsageError(f"no measure has {' or '.join(only)} in its name")
    check_output_name(output)
    place = choose_place(
        cl_device=cl_device,
        server=server,
        tracker=tracker,
        adb=adb,
        runtime=runtime,
        key=key,
        timeout_s=timeout_s,
    )
    with reached(place) as address:
        request = Request(
            place=address,
            cl_device=cl_device,
            budget_s=budget_s,
            limit_s=min(timeout_s, 20.0),
            listed=listed,
            only=only,
        )
        done = run_calibration(request, say=_silent if as_json else _Progress().say)
    # What could not be read again is not written.
    load_own_target(OwnFile(path=output, name=output.name, text=done.toml), host=False)
    write_atomically(output, done.toml)
    if page is not None:
        from adrenoc.calibrate.page import calibration_html

        write_atomically(page, calibration_html(done))
    if as_json:
        console.print_json(_plain(done, output))
        return
    _show(done, output, page)


def _silent(row: Row, count: int) -> None:
    """With --json nothing is said before the end."""


class _Progress:
    """A line for each measure as it ends."""

    def __init__(self) -> None:
        self._done = 0

    def say(self, row: Row, count: int) -> None:
        from adrenoc.cli import console

        self._done += 1
        told = _figure(row) if row.is_measured else f"{row.status}: {row.reason}"
        spread = f", spread {100 * row.spread:.0f} %" if row.samples > 1 else ""
        console.print_fields([(f"{self._done}/{count} {row.name}", f"{told}{spread}")])


def _figure(row: Row) -> str:
    return row.word or f"{row.value:.4g} {row.unit}"


def _plain(done: Calibration, output: Path) -> dict[str, Any]:
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
        "measures": measured.rows,
    }


def _show(done: Calibration, output: Path, page: Path | None) -> None:
    from adrenoc.cli import console

    console.blank()
    console.print_title(done.measured.device.name, f"beside {done.listed.title}")
    console.print_table(
        ("value", "measured", "spread", "listed", "ratio", "what it means for choices"),
        [
            (
                found.key,
                f"{found.measured:.4g}",
                f"{100 * found.spread:.0f} %",
                "" if found.listed is None else f"{found.listed:.4g}",
                "" if found.ratio is None else f"{found.ratio:.2f}",
                found.means,
            )
            for found in done.differences
        ],
        right=("measured", "spread", "listed", "ratio"),
    )
    rows = done.measured.rows
    counted = [sum(row.status == status for row in rows) for status in ("measured", "failed")]
    console.print_verdict(True, f"{output}: {counted[0]} measured, {counted[1]} failed")
    fields = [("report", str(page))] if page is not None else []
    fields.append(("next", f"adrenoc compile MODEL --device {output}"))
    console.print_fields(fields)
