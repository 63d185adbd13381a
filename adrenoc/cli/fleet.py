"""`adrenoc device fleet`: models on many devices at once, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.cli.durations import DurationParam
from adrenoc.cli.guarded import Command, InputPath, OutputPath, wants_json
from adrenoc.cli.model_params import TargetParam
from adrenoc.cli.options import (
    MOST_SECONDS,
    FiniteRange,
    give_record,
    preset_option,
)
from adrenoc.cli.place_options import runtime_option

if TYPE_CHECKING:
    from adrenoc.base.errors import AdrenocError
    from adrenoc.lab.fleet.members import FleetMember, Tracked
    from adrenoc.lab.fleet.plan import FleetOptions
    from adrenoc.lab.fleet.table import FleetLine
    from adrenoc.lab.fleet.work import Job, Result
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

_DEEDS = ("run", "verify", "calibrate", "tune")


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of `adrenoc device fleet`, as they were typed."""

    models: tuple[Path, ...]
    servers: tuple[str, ...]
    tracker: str | None
    serials: tuple[str, ...]
    runtime: Path | None
    keys: tuple[str, ...]
    target: Target | DeviceSet | None
    preset: str | None
    deeds: tuple[str, ...]
    check: bool
    tolerance: float | None
    repeat: int
    budget_s: float
    limit_s: float
    patience_s: float
    timeout_s: float
    jobs: int
    again: bool
    baseline: Path | None
    slower_percent: float
    folder: Path
    page: Path | None
    junit: Path | None


@click.command("fleet", cls=Command)
@click.argument("models", type=InputPath(), nargs=-1, metavar="MODEL...")
@click.option(
    "--rpc",
    "servers",
    multiple=True,
    metavar="HOST:PORT",
    help="A device where `adrenoc runtime serve` or `adrenoc_rpc` runs; may be repeated.",
)
@click.option(
    "--tracker",
    metavar="HOST:PORT",
    help="All devices of each --key that TVM's tracker there knows.",
)
@click.option("--adb", "serials", multiple=True, metavar="SERIAL", help="A phone; may be repeated.")
@runtime_option()
@click.option(
    "--key",
    "keys",
    multiple=True,
    help="With --tracker a kind of device, may be repeated; else the key of the servers.",
)
@click.option(
    "--device",
    "target",
    type=TargetParam(sets=True),
    default=None,
    metavar="DEVICE",
    help="What to compile for; several between commas, or `all`, go into one bundle.  "
    "[default: what each device says it is]",
)
@preset_option()
@click.option(
    "--do",
    "deeds",
    type=click.Choice(_DEEDS),
    multiple=True,
    default=("run",),
    show_default=True,
    help="What to do on each device; may be repeated.",
)
@click.option(
    "--check/--no-check",
    default=True,
    help="Compare with onnxruntime or LiteRT.  [default: check]",
)
@click.option(
    "--tolerance",
    type=FiniteRange(min=0.0),
    help="Largest error over the output's range.  [default: 1e-4 in fp32, else 1e-2]",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="Runs to time."
)
@click.option(
    "--budget",
    "budget_s",
    type=DurationParam(),
    default="5m",
    show_default=True,
    metavar="TIME",
    help="For one calibration or tuning.",
)
@click.option(
    "--limit",
    "limit_s",
    type=DurationParam(),
    default="30m",
    show_default=True,
    metavar="TIME",
    help="For any one command; then it is stopped.",
)
@click.option(
    "--patience",
    "patience_s",
    type=DurationParam(),
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long a device may be away before it counts as left.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=MOST_SECONDS),
    default=60.0,
    show_default=True,
    help="Seconds to wait for any answer of a device.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Commands side by side on this computer, some 0.5 GB each.",
)
@click.option("--again", is_flag=True, help="Do again what failed before.")
@click.option(
    "--baseline",
    type=InputPath(),
    metavar="FILE.json",
    help="Compare the times with a fleet whose --json output is there.",
)
@click.option(
    "--slower-than",
    "slower_percent",
    type=FiniteRange(min=0.0, max=1000.0),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="With --baseline: what counts as slower, where clocks let anybody tell.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=OutputPath(),
    default=Path("fleet"),
    show_default=True,
    metavar="DIR",
    help="Bundles and results; the same command goes on where one stopped.",
)
@click.option(
    "--html", "page", type=OutputPath(is_file=True), metavar="FILE", help="The table as a page."
)
@click.option(
    "--junit",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The table as JUnit's XML, for continuous integration.",
)
@click.pass_context
@give_record(_Given)
def fleet_command(ctx: click.Context, given: _Given) -> None:
    """Run MODELs on many devices at once: right, how fast, how much memory, in one table.

    Each bundle is made once for each kind of GPU.  A device that leaves is a row of the table, and
    no error unless none answered; the same command goes on where one was stopped, and measures
    nothing twice.
    """
    from adrenoc.cli import console
    from adrenoc.lab.fleet.fleet import run_fleet
    from adrenoc.lab.fleet.store import Store
    from adrenoc.lab.fleet.table import lines_of, read_fleet_baseline

    if not given.models and not set(given.deeds) <= {"verify", "calibrate"}:
        raise click.UsageError("Missing argument 'MODEL...'")
    _check_deeds(given)
    members, tracked = _places(given)
    before = None if given.baseline is None else read_fleet_baseline(given.baseline)
    report = run_fleet(
        _fleet_options(given),
        members,
        tracked,
        Store(given.folder),
        again=given.again,
        on_end=_silent if wants_json() else _say,
    )
    lines = lines_of(report, before, slower_percent=given.slower_percent)
    _write_reports(given, lines)
    error = find_error(lines)
    if wants_json():
        console.print_json({"fleet": lines})
        ctx.exit(0 if error is None else error.exit_code)
    _show(lines)
    if error is not None:
        raise error


def find_error(lines: Sequence[FleetLine]) -> AdrenocError | None:
    """What the command ends with: something is bad, or no device answered at all."""
    from adrenoc.base.errors import CheckFailedError, RemoteError
    from adrenoc.cli import console

    bad = [line for line in lines if line.is_bad]
    if bad:
        return CheckFailedError(
            f"{len(bad)} of {console.count_of(len(lines), 'row')} "
            f"{'is' if len(bad) == 1 else 'are'} wrong, slower or failed; the first is "
            f"{_describe_line(bad[0])}",
            hint="--again does again what was wrong or failed; -o OTHER measures all anew",
        )
    if lines and all(line.status == "left" for line in lines):
        return RemoteError(
            f"nothing was measured: no device answered; the first is {_describe_line(lines[0])}",
            hint="adrenoc device list tells which are reached; the same command goes on from here",
        )
    return None


def _check_deeds(given: _Given) -> None:
    """Refuse what is done for one kind of GPU, where a bundle is for several."""
    from adrenoc.target.device_set import DeviceSet

    single = {"verify", "tune"} & set(given.deeds)
    if single and isinstance(given.target, DeviceSet):
        raise click.UsageError(
            f"--do {min(single)} is for one kind of GPU, not for several; without --device each "
            "device is asked what it is"
        )


def _fleet_options(given: _Given) -> FleetOptions:
    from adrenoc.lab.fleet.plan import FleetOptions

    return FleetOptions(
        models=given.models,
        deeds=tuple(dict.fromkeys(given.deeds)),
        target="" if given.target is None else given.target.option,
        preset=given.preset or "",
        check=given.check,
        tolerance=given.tolerance,
        repeat=given.repeat,
        budget_s=given.budget_s,
        limit_s=given.limit_s,
        patience_s=given.patience_s,
        timeout_s=given.timeout_s,
        jobs=given.jobs,
    )


def _write_reports(given: _Given, lines: tuple[FleetLine, ...]) -> None:
    """Write the table as a page and as JUnit's XML, where they are asked for."""
    from adrenoc.base.files.outputs import write_atomically

    if given.page is not None:
        from adrenoc.lab.fleet.page import fleet_html

        write_atomically(given.page, fleet_html(lines))
    if given.junit is not None:
        from adrenoc.lab.fleet.junit import junit_xml

        write_atomically(given.junit, junit_xml(lines))


def _describe_line(line: FleetLine) -> str:
    what = Path(line.model).name or line.deed
    where = f" on {line.device}" if line.device else ""
    return f"{what}{where}: {line.status}{line.note and f', {line.note}'}"


def _places(given: _Given) -> tuple[tuple[FleetMember, ...], tuple[Tracked, ...]]:
    """The devices that the options name."""
    from adrenoc.device.tracker import HostPort
    from adrenoc.lab.fleet.members import Tracked, phone, server

    if not (given.servers or given.serials or given.tracker):
        raise click.UsageError("name devices: --rpc HOST:PORT, --tracker HOST:PORT or --adb SERIAL")
    if given.runtime is not None and not given.serials:
        raise click.UsageError("--runtime is what phones run: name them by --adb SERIAL")
    if given.tracker is not None:
        if given.servers or given.serials:
            raise click.UsageError("--tracker names its devices by --key, without --rpc or --adb")
        if not given.keys:
            raise click.UsageError("--tracker needs --key, the kind of device")
        example = "--tracker 127.0.0.1:9190"
        where = HostPort.parse(given.tracker, what="the tracker", example=example)
        return (), tuple(Tracked(tracker=where, key=key) for key in dict.fromkeys(given.keys))
    if len(given.keys) > 1:
        raise click.UsageError("servers without a tracker have one --key")
    found = [server(address, given.keys[0] if given.keys else "") for address in given.servers]
    found += [phone(serial, given.runtime) for serial in given.serials]
    return tuple({member.name: member for member in found}.values()), ()


def _silent(job: Job, result: Result) -> None:
    """With --json nothing is said before the end."""


def _say(job: Job, result: Result) -> None:
    """One line of stderr for each job that ends."""
    from adrenoc.cli.terminal import say_aside

    where = f" on {job.device}" if job.device else ""
    what = f" {Path(job.model).name}" if job.model else ""
    target = f" for {job.target}" if job.deed == "compile" else ""
    ending = "" if result.exit_code == 0 else f": {result.error or 'wrong values'}"
    say_aside(f"  {job.deed}{what}{target}{where}, {result.took_s:.1f} s{ending}")


def _show(lines: tuple[FleetLine, ...]) -> None:
    from adrenoc.cli import console
    from adrenoc.lab.fleet.table import COLUMNS, NUMBERS

    good = sum(line.status in ("right", "done") for line in lines)
    console.print_title("fleet", f"{console.count_of(len(lines), 'row')}, {good} good")
    console.print_table(COLUMNS, [line.cells() for line in lines], right=NUMBERS)
