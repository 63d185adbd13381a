"""`adrenoc device verify`: is a device right, and what does its driver have to do without?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.durations import DurationParam
from adrenoc.cli.guarded import HeavyCommand, OutputPath, wants_json
from adrenoc.cli.model_params import TargetParam
from adrenoc.cli.place_options import place_options
from adrenoc.cli.resumed import finish_resumed, open_resume, resume_option

if TYPE_CHECKING:
    from adrenoc.lab.prove.verify_device import Verification
    from adrenoc.target.target import Target

_PRECISIONS = ("mixed", "fp32", "fp16")


@click.command("verify", cls=HeavyCommand)
@place_options()
@click.option(
    "--device",
    "listed",
    type=TargetParam(),
    default=None,
    metavar="DEVICE",
    help="The device whose kernels to verify.  [default: what it calls itself]",
)
@click.option(
    "--budget",
    "budget_s",
    type=DurationParam(),
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long to look for what helps, where something is wrong.",
)
@click.option(
    "--precision",
    "precisions",
    type=click.Choice(_PRECISIONS),
    multiple=True,
    help="Verify this alone; may be repeated.  [default: all that the device has]",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="Verify cases with PART in their names alone, such as conv2d; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    default=Path("device.json"),
    show_default=True,
    metavar="FILE",
    help="The report, for --device-report FILE.",
)
@resume_option()
@click.pass_context
def verify_device_command(
    ctx: click.Context,
    /,
    listed: Target | None,
    budget_s: float,
    precisions: tuple[str, ...],
    only: tuple[str, ...],
    output: Path,
    resume_file: Path | None,
    **where: Any,
) -> None:
    """Run every kernel family on a device, and hold each result against the reference.

    What goes wrong is tried again in simpler forms.  What helps is written to a report, and
    `adrenoc compile MODEL --device-report FILE` does without it.
    """
    as_json = wants_json()
    from adrenoc.base.errors import CheckFailedError
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.cli import console
    from adrenoc.cli.place_options import choose_place, reach
    from adrenoc.lab.prove.session import VerifyRequest, pick_cases, run_verification
    from adrenoc.target.device_report import report_json

    if not pick_cases(only):
        raise click.UsageError(f"no case has {' or '.join(only)} in its name")
    place, resume = choose_place(**where), open_resume(resume_file)
    with reach(place) as address:
        request = VerifyRequest(
            place=address,
            cl_device=place.cl_device,
            limit_s=place.timeout_s,
            budget_s=budget_s,
            listed=listed,
            only=only,
            precisions=precisions,
            resume=resume,
        )
        done = run_verification(request, say=console.print_progress if as_json else _say)
    write_atomically(output, report_json(done.report))
    if as_json:  # one object, whatever it says
        console.print_json(_plain(done, output))
        finish_resumed(resume, "runs of suites", quiet=as_json)
        ctx.exit(0 if done.report.is_right else CheckFailedError.exit_code)
    _show(done, output)
    finish_resumed(resume, "runs of suites", quiet=as_json)
    _raise_if_wrong(done)


def _say(what: str, told: str) -> None:
    from adrenoc.cli import console

    console.print_fields([(what, told)])


def _plain(done: Verification, output: Path) -> dict[str, Any]:
    return {"report": str(output), "target": done.target.name, **vars(done.report)}


def _show(done: Verification, output: Path) -> None:
    from adrenoc.cli import console

    report = done.report
    console.blank()
    console.print_title(report.device.name, f"driver {report.device.driver}")
    for finding in report.findings:
        console.print_fields([(finding.case, finding.text)])
    for text in report.failed_once:
        console.print_fields([("failed as a whole", text)])
    for quirk in report.quirks:
        console.print_fields([("avoid", quirk.text)])
    run = report.suites
    told = f"{run.cases} cases by {run.kernels} kernels, {len(report.findings)} wrong"
    if report.findings and report.is_right:
        told += f"; all are right without what {output} lists"
    console.print_verdict(report.is_right, told)
    console.print_fields([("report", str(output)), ("next", _next(done, output))])


def _next(done: Verification, output: Path) -> str:
    option = f" --device-report {quote_word(output)}" if done.report.quirks else ""
    return f"adrenoc compile MODEL --device {done.target.option}{option}"


def _raise_if_wrong(done: Verification) -> None:
    from adrenoc.base.errors import CheckFailedError

    if done.is_cut:
        raise CheckFailedError(
            f"{len(done.left)} cases are wrong on {done.device.name}, and the --budget was spent "
            f"before all was tried; the first: {done.left[0]}",
            hint="adrenoc device verify --budget 1h, or --only with a part of a case's name",
        )
    if done.left:
        raise CheckFailedError(
            f"{len(done.left)} cases stay wrong on {done.device.name}, whatever is left out; the "
            f"first: {done.left[0]}",
            hint="send the report with the driver's name; --device host --preset fp32 runs here",
        )
    if not done.report.is_right:
        failed = "; ".join(done.report.failed_once) or "too many cases of it failed"
        raise CheckFailedError(
            f"a suite could not be judged on {done.device.name}: {failed}",
            hint="adrenoc device verify --timeout 600 where it is only slow, or --only with a part "
            "of a case's name",
        )
