"""`adrenoc device verify`: is a device right, and what does its driver have to do without?

`adrenoc prove`: a bundle gets numbers by which an app tells whether a driver is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import CheckFailedError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.report import Fields, Part, Title, Verdict
from adrenoc.base.text.spelling import quote_word, show_bytes
from adrenoc.cli import console
from adrenoc.cli.guarded import HeavyCommand, InputPath, wants_json
from adrenoc.cli.model_params import TARGET, Parsed, read_duration
from adrenoc.cli.options import finish_resumed, open_resume, output_option, resume_option
from adrenoc.cli.place_options import PlaceChoice, place_option, reach, timeout_s
from adrenoc.cli.records import argument, give_options, option

if TYPE_CHECKING:
    from adrenoc.lab.prove.verify_device import Verification
    from adrenoc.target.target import Target


_PRECISIONS = ("mixed", "fp32", "fp16")


@dataclass(frozen=True, kw_only=True)
class _Verified:
    place: PlaceChoice = place_option()
    listed: Target | None = option(
        "--device DEVICE",
        type=TARGET,
        help="The device whose kernels to verify.  [default: what it calls itself]",
    )
    budget_s: float = option(
        "--budget TIME",
        type=Parsed(read_duration),
        default="10m",
        help="How long to look for what helps, where something is wrong.",
    )
    precisions: tuple[str, ...] = option(
        "--precision",
        type=click.Choice(_PRECISIONS),
        help="Verify this alone; may be repeated.  [default: all that the device has]",
    )
    only: tuple[str, ...] = option(
        "--only PART",
        help="Verify cases with PART in their names alone, such as conv2d; may be repeated.",
    )
    output: Path = output_option(
        "The report, for --device DEVICE+FILE.", default=Path("device.json")
    )
    resume_file: Path | None = resume_option()


@click.command("verify", cls=HeavyCommand)
@give_options(_Verified)
def verify_device_command(given: _Verified) -> int:
    """Run every kernel family on a device, and hold each result against the reference.

    What goes wrong is tried again in simpler forms.  What helps is written to a report, and
    `adrenoc compile MODEL --device DEVICE+FILE` does without it.
    """
    from adrenoc.lab.prove.session import VerifyRequest, pick_cases, run_verification
    from adrenoc.target.device_report import report_json

    if not pick_cases(given.only):
        raise click.UsageError(f"no case has {' or '.join(given.only)} in its name")
    resume = open_resume(given.resume_file)
    with reach(given.place) as address:
        request = VerifyRequest(
            place=address,
            cl_device=given.place.cl_device,
            limit_s=timeout_s(),
            budget_s=given.budget_s,
            listed=given.listed,
            only=given.only,
            precisions=given.precisions,
            resume=resume,
        )
        done = run_verification(request, say=console.print_step)
    write_atomically(given.output, report_json(done.report))

    told = {"report": str(given.output), "target": done.target.name, **vars(done.report)}
    if not wants_json():
        console.blank()
    console.tell(told, _list_parts(done, given.output))
    finish_resumed(resume, "runs of suites")
    error = find_wrong(done)
    if error is not None and not wants_json():
        raise error
    return 0 if error is None else error.exit_code


def _list_parts(done: Verification, output: Path) -> Iterator[Part]:
    report = done.report
    yield Title(text=report.device.name, detail=f"driver {report.device.driver}")
    yield Fields(
        pairs=[
            *((finding.case, finding.text) for finding in report.findings),
            *(("failed as a whole", text) for text in report.failed_once),
            *(("avoid", quirk.text) for quirk in report.quirks),
        ]
    )
    run = report.suites
    told = f"{run.cases} cases by {run.kernels} kernels, {len(report.findings)} wrong"
    if report.findings and report.is_right:
        told += f"; all are right without what {output} lists"
    yield Verdict(passed=report.is_right, text=told)
    yield Fields(pairs=[("report", str(output)), ("next", _next(done, output))])


def _next(done: Verification, output: Path) -> str:
    device = done.target.option + (f"+{output}" if done.report.quirks else "")
    return f"adrenoc compile MODEL --device {quote_word(device)}"


def find_wrong(done: Verification) -> CheckFailedError | None:
    """Return what the command ends with, None where all is right."""
    if done.is_cut:
        return CheckFailedError(
            f"{len(done.left)} cases are wrong on {done.device.name}, and the --budget was spent "
            f"before all was tried; the first: {done.left[0]}",
            hint="adrenoc device verify --budget 1h, or --only with a part of a case's name",
        )
    if done.left:
        return CheckFailedError(
            f"{len(done.left)} cases stay wrong on {done.device.name}, whatever is left out; the "
            f"first: {done.left[0]}",
            hint="send the report with the driver's name; --device host --preset fp32 runs here",
        )
    if not done.report.is_right:
        failed = "; ".join(done.report.failed_once) or "too many cases of it failed"
        return CheckFailedError(
            f"a suite could not be judged on {done.device.name}: {failed}",
            hint="ADRENOC_TIMEOUT=600 adrenoc device verify where it is only slow, or --only with "
            "a part of a case's name",
        )
    return None


@dataclass(frozen=True, kw_only=True)
class _Proven:
    bundle: Path = argument(type=InputPath(replaced=True))
    model: Path = argument()


@click.command("prove", cls=HeavyCommand)
@give_options(_Proven)
def prove_command(given: _Proven) -> int:
    """Put inputs and what MODEL makes of them into BUNDLE, for `adrenoc_verify` in an app.

    On a phone that nobody has tried, an app then asks once whether the driver computes the model
    rightly, and falls back where it does not.
    """
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.lab.prove.proof import put_proof

    opened = open_bundle(given.bundle)
    proof = put_proof(opened, given.model, seed=0)
    size = len(proof.to_json().encode("utf-8"))

    shapes = f" in {len(proof.trials)} shapes" if len(proof.trials) > 1 else ""
    fields = [
        ("compared", f"{proof.values} numbers{shapes}"),
        ("in the bundle", show_bytes(size)),
        *(("left out", what) for what in proof.left_out),
        ("next", "adrenoc_verify of adrenoc.h, in an app"),
    ]
    title = Title(text=opened.manifest.name, detail=f"with numbers of {proof.reference}")
    told = {"bundle": str(given.bundle), "bytes": size, "values": proof.values}
    more = {"reference": proof.reference, "left_out": proof.left_out}
    return console.tell({**told, **more}, title, Fields(pairs=fields))
