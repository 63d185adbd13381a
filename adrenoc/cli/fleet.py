"""`adrenoc device fleet`: models on many devices at once, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import CheckFailedError, RemoteError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.host.variables import read_number
from adrenoc.base.text.report import Title
from adrenoc.base.text.spelling import count_of
from adrenoc.cli import console
from adrenoc.cli.console import say_aside
from adrenoc.cli.guarded import Command, OutputPath, argument, give_options, option, wants_json
from adrenoc.cli.model_params import TARGETS, Parsed, read_duration
from adrenoc.cli.options import (
    MOST_SECONDS,
    PlaceChoice,
    html_option,
    junit_option,
    output_option,
    places_option,
    preset_option,
    repeat_option,
)

if TYPE_CHECKING:
    from adrenoc.base.errors import AdrenocError
    from adrenoc.base.host.proc import Result
    from adrenoc.lab.fleet.fleet import FleetMember, TrackedKind
    from adrenoc.lab.fleet.jobs import FleetOptions, Job
    from adrenoc.lab.fleet.table import FleetLine
    from adrenoc.target.device_set import DeviceSet
    from adrenoc.target.target import Target

_ACTIONS = ("run", "verify", "calibrate")


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of `adrenoc device fleet`, as they were typed."""

    models: tuple[Path, ...] = argument(nargs=-1, metavar="MODEL...")
    places: tuple[PlaceChoice, ...] = places_option("A device, or all of a kind at a tracker")
    target: Target | DeviceSet | None = option(
        "--device DEVICE",
        type=TARGETS,
        help="What to compile for; several between commas, or `all`, go into one bundle.  "
        "[default: what each device says it is]",
    )
    preset: str | None = preset_option()
    actions: tuple[str, ...] = option(
        "--do",
        type=click.Choice(_ACTIONS),
        default=("run",),
        help="What to do on each device; may be repeated.",
    )
    repeat: int = repeat_option()
    budget_s: float = option(
        "--budget TIME", type=Parsed(read_duration), default="5m", help="For one calibration."
    )
    baseline: Path | None = option(
        "--baseline FILE.json",
        help="Compare the times with a fleet whose --json output is there: more than 10 % is "
        "slower, where clocks let anybody tell.",
    )
    folder: Path = output_option(
        "Bundles and results; the same command goes on where one stopped.",
        type=OutputPath(),
        default=Path("fleet"),
        metavar="DIR",
    )
    page: Path | None = html_option("The table as a page")
    junit: Path | None = junit_option("The table")

    def __post_init__(self) -> None:
        from adrenoc.target.device_set import DeviceSet

        if not self.models and not set(self.actions) <= {"verify", "calibrate"}:
            raise click.UsageError("Missing argument 'MODEL...'")
        if "verify" in self.actions and isinstance(self.target, DeviceSet):
            raise click.UsageError(
                "--do verify is for one kind of GPU, not for several; without --device each device "
                "is asked what it is"
            )


@click.command("fleet", cls=Command)
@give_options(_Given)
def fleet_command(given: _Given) -> int:
    """Run MODELs on many devices at once: right, how fast, how much memory, in one table.

    Each bundle is made once for each kind of GPU.  A device that leaves is a row of the table, and
    no error unless none answered; the same command goes on where one was stopped, does again what
    failed, and measures nothing else twice.
    """
    from adrenoc.lab.fleet.fleet import run_fleet
    from adrenoc.lab.fleet.jobs import ResultStore
    from adrenoc.lab.fleet.table import lines_of, list_jobs, read_fleet_baseline

    members, tracked = _places(given)
    before = None if given.baseline is None else read_fleet_baseline(given.baseline)
    rows = run_fleet(
        _fleet_options(given),
        members,
        tracked,
        ResultStore(given.folder),
        on_end=(lambda *_: None) if wants_json() else _say,
    )
    lines = lines_of(rows, before)
    if given.page is not None:
        from adrenoc.lab.fleet.table import fleet_html

        write_atomically(given.page, fleet_html(lines))
    if given.junit is not None:
        from adrenoc.lab.fleet.table import junit_xml

        write_atomically(given.junit, junit_xml(lines))
    good = sum(line.status in ("right", "done") for line in lines)
    title = Title(text="fleet", detail=f"{count_of(len(lines), 'row')}, {good} good")
    return console.tell({"fleet": lines}, title, list_jobs(lines), error=find_error(lines))


def find_error(lines: Sequence[FleetLine]) -> AdrenocError | None:
    """Return what the command ends with: something is bad, or no device answered at all."""
    bad = [line for line in lines if line.is_bad]
    if bad:
        return CheckFailedError(
            f"{len(bad)} of {count_of(len(lines), 'row')} "
            f"{'is' if len(bad) == 1 else 'are'} wrong, slower or failed; the first is "
            f"{_describe_line(bad[0])}",
            hint="the same command does again what was wrong or failed; -o OTHER measures all anew",
        )
    if lines and all(line.status == "left" for line in lines):
        return RemoteError(
            f"nothing was measured: no device answered; the first is {_describe_line(lines[0])}",
            hint="adrenoc device list tells which are reached; the same command goes on from here",
        )
    return None


def _fleet_options(given: _Given) -> FleetOptions:
    from adrenoc.lab.fleet.jobs import FleetOptions

    limit_s = read_number("ADRENOC_FLEET_LIMIT", 1800.0, least=1.0, most=MOST_SECONDS)
    patience_s = read_number("ADRENOC_FLEET_PATIENCE", 60.0, least=0.0, most=MOST_SECONDS)
    return FleetOptions(
        models=given.models,
        actions=tuple(dict.fromkeys(given.actions)),
        target="" if given.target is None else given.target.option,
        preset=given.preset or "",
        repeat=given.repeat,
        budget_s=given.budget_s,
        limit_s=limit_s,
        patience_s=patience_s,
    )


def _describe_line(line: FleetLine) -> str:
    what = Path(line.model).name or line.action
    where = f" on {line.device}" if line.device else ""
    return f"{what}{where}: {line.status}{line.note and f', {line.note}'}"


def _places(given: _Given) -> tuple[tuple[FleetMember, ...], tuple[TrackedKind, ...]]:
    from adrenoc.device.peers import HostPort
    from adrenoc.lab.fleet.fleet import FleetMember, TrackedKind

    if not given.places:
        raise click.UsageError(
            "name devices: --on adb:SERIAL, --on HOST:PORT or --on tracker:KIND@HOST:PORT"
        )
    reached: dict[str, tuple[str, ...]] = {}
    kinds = {}
    for place in given.places:
        if place.adb == "" or not place.is_remote:
            raise click.UsageError(f"--on {place.text} names no device of a fleet: adb:SERIAL")
        if place.adb is not None:
            reached[place.adb] = ("--on", f"adb:{place.adb}")
        elif place.tracker:
            if not place.key:
                raise click.UsageError(
                    f"--on {place.text} needs a kind of device: tracker:KIND@HOST:PORT"
                )
            example = "--on tracker:KIND@127.0.0.1:9190"
            where = HostPort.parse(place.tracker, what="the tracker", example=example)
            kinds[place.text] = TrackedKind(tracker=where, key=place.key)
        else:
            example = "--on 127.0.0.1:9090"
            name = str(HostPort.parse(place.where, what="the server", example=example))
            reached[name] = ("--on", f"{place.key}@{name}" if place.key else name)
    if reached and kinds:
        raise click.UsageError("a tracker names its devices itself: no others beside it")
    members = (FleetMember(name=name, options=words) for name, words in reached.items())
    return tuple(members), tuple(kinds.values())


def _say(job: Job, result: Result) -> None:
    where = f" on {job.device}" if job.device else ""
    what = f" {Path(job.model).name}" if job.model else ""
    target = f" for {job.target}" if job.action == "compile" else ""
    ending = "" if result.exit_code == 0 else f": {result.error or 'wrong values'}"
    say_aside(f"  {job.action}{what}{target}{where}, {result.took_s:.1f} s{ending}")
