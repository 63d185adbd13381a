"""`adrenoc device calibrate`: measure a device, and write what it is as a target file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.durations import DurationParam
from adrenoc.cli.guarded import HeavyCommand, OutputPath, wants_json
from adrenoc.cli.model_params import TargetParam
from adrenoc.cli.options import preset_option
from adrenoc.cli.place_options import place_options
from adrenoc.cli.resumed import finish_resumed, open_resume, resume_option

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume
    from adrenoc.device.remote import RemoteAddress
    from adrenoc.lab.calibrate.session import Calibration
    from adrenoc.lab.calibrate.validate.fit import Fit
    from adrenoc.lab.calibrate.validate.session import Validation
    from adrenoc.target.target import Target

_MOST_BUDGET_S = 3600.0
_BUDGET_S, _VALIDATION_S = 300.0, 1200.0
"""Of a calibration, and of a validation beside it."""
_OUTPUT = Path("device.toml")


@click.command("calibrate", cls=HeavyCommand)
@place_options()
@click.option(
    "--device",
    "listed",
    type=TargetParam(),
    default=None,
    metavar="DEVICE",
    help="The device to compare with and to build on, and with --validate to validate.  "
    "[default: what it calls itself]",
)
@click.option(
    "--budget",
    "budget_s",
    type=DurationParam(),
    metavar="TIME",
    help="Stop after so long; the most important is measured first.  [default: 5m; with "
    "--validate 20m]",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="Measure what has PART in its name alone, such as local; may be repeated.",
)
@click.option(
    "--validate",
    is_flag=True,
    help="Measure schedules of 30 layers, and tell how well the cost model chooses; without "
    "--device that of the file that is written first.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="With --validate: fit the cost model's constants to what was measured, and write them "
    "into the target file.",
)
@preset_option()
@click.option(
    "-o",
    "--output",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The target file, for --device FILE.  [default: device.toml]",
)
@click.option(
    "--html",
    "page",
    type=OutputPath(is_file=True),
    metavar="FILE",
    help="The report with its drawings as one HTML file.",
)
@resume_option()
def calibrate_command(
    listed: Target | None,
    budget_s: float | None,
    only: tuple[str, ...],
    validate: bool,
    fit: bool,
    preset: str | None,
    output: Path | None,
    page: Path | None,
    resume_file: Path | None,
    **where: Any,
) -> None:
    """Measure a device with small kernels, and write a target file of it.

    `adrenoc compile MODEL --device FILE` then reckons with what was measured.
    """
    as_json = wants_json()
    from adrenoc.base.files.outputs import check_file_can_be_written
    from adrenoc.cli import console
    from adrenoc.cli.place_options import choose_place, reach
    from adrenoc.device import remote
    from adrenoc.target.own_file import check_output_name

    asked = _Asked(
        cl_device=where["cl_device"],
        limit_s=min(where["timeout_s"], 20.0),
        budget_s=budget_s or (_VALIDATION_S if validate else _BUDGET_S),
        listed=listed,
        only=only,
        validate=validate,
        fit=fit,
        preset=preset,
        output=output or _OUTPUT,
        quiet=as_json,
    )
    if budget_s is not None and not 0 < budget_s <= _MOST_BUDGET_S:
        raise click.UsageError("--budget is to be above 0 and at most 1h")
    _check_words(asked, output, resume_file)
    if asked.writes:
        check_output_name(asked.output)
        check_file_can_be_written(asked.output)
    place, resume = choose_place(**where), open_resume(resume_file)
    with reach(place) as address:
        done = _calibrate(asked, address, resume) if asked.calibrates else None
        validation = _validate(asked, address) if validate else None
        fitted = None
        if validation is not None and fit:
            fitted = _fit_and_write(asked, validation, address)
        tells_next = asked.writes and not asked.quiet
        is_like_here = tells_next and (address is None or remote.is_like_here(address))
    _report(asked, done, validation, fitted, page)
    finish_resumed(resume, "measures", quiet=as_json)
    if tells_next:
        file = quote_word(f"host:{asked.output}" if is_like_here else str(asked.output))
        console.print_fields([("next", f"adrenoc compile MODEL --device {file}")])


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the command line asks for."""

    cl_device: str
    limit_s: float
    budget_s: float
    listed: Target | None
    only: tuple[str, ...]
    validate: bool
    fit: bool
    preset: str | None
    output: Path
    quiet: bool

    @property
    def calibrates(self) -> bool:
        """Whether the device is measured with small kernels."""
        return not self.validate or self.listed is None

    @property
    def writes(self) -> bool:
        """Whether a target file is written."""
        return self.calibrates or self.fit


def _check_words(asked: _Asked, output: Path | None, resume_file: Path | None) -> None:
    """Refuse options that do not go with each other.

    Raises:
        UsageError: naming them.
    """
    from adrenoc.lab.calibrate.session import pick_measures

    for name, given in (("--preset", asked.preset is not None), ("--fit", asked.fit)):
        if given and not asked.validate:
            raise click.UsageError(f"{name} goes with --validate")
    if resume_file is not None and asked.validate:
        raise click.UsageError("--resume goes without --validate")
    if output is not None and not asked.writes:
        raise click.UsageError(
            "--validate --device without --fit writes no target file, so --output has no use"
        )
    found: object = pick_measures(asked.only)
    named = "measure"
    if asked.validate:
        from adrenoc.lab.calibrate.validate.table import wanted_rows

        found, named = wanted_rows(asked.only), "layer"
    if not found:
        raise click.UsageError(f"no {named} has {' or '.join(asked.only)} in its name")


def _calibrate(asked: _Asked, address: RemoteAddress | None, resume: Resume) -> Calibration:
    """Measure with small kernels, and write the target file."""
    from adrenoc.cli.show_calibration import RowProgress
    from adrenoc.lab.calibrate.session import Request, run_calibration

    request = Request(
        place=address,
        cl_device=asked.cl_device,
        budget_s=min(asked.budget_s, _BUDGET_S) if asked.validate else asked.budget_s,
        limit_s=asked.limit_s,
        listed=asked.listed,
        only=() if asked.validate else asked.only,
        resume=resume,
    )
    done = run_calibration(request, say=RowProgress(quiet=asked.quiet).say)
    _write_target(asked.output, done.toml)
    return done


def _validate(asked: _Asked, address: RemoteAddress | None) -> Validation:
    """Measure schedules of layers as the target has them."""
    from adrenoc.cli import console
    from adrenoc.cli.show_validation import say_layer
    from adrenoc.ir.options import resolve_options
    from adrenoc.lab.calibrate.validate.session import ValidationRequest, run_validation
    from adrenoc.lab.calibrate.validate.table import wanted_rows
    from adrenoc.target.target import load_target

    target = asked.listed or load_target(str(asked.output))
    request = ValidationRequest(
        place=address,
        cl_device=asked.cl_device,
        budget_s=asked.budget_s,
        limit_s=asked.limit_s,
        target=target,
        options=resolve_options(target, preset=asked.preset).options,
        rows=wanted_rows(asked.only),
    )
    return run_validation(request, say=console.print_progress if asked.quiet else say_layer)


def _fit_and_write(asked: _Asked, validation: Validation, address: RemoteAddress | None) -> Fit:
    """Fit constants, have the device confirm them, and write the target file.

    Raises:
        DeviceError: too little was measured to fit to.
        RemoteError: the device went away.
    """
    from adrenoc.lab.calibrate.session import Reach
    from adrenoc.lab.calibrate.validate.fit import fit_validation
    from adrenoc.lab.calibrate.validate.fitted_file import fitted_toml
    from adrenoc.lab.calibrate.validate.session import confirm_choices
    from adrenoc.lab.calibrate.validate.table import wanted_rows

    reach = Reach(
        place=address, cl_device=asked.cl_device, budget_s=asked.budget_s, limit_s=asked.limit_s
    )
    fitted = fit_validation(
        validation,
        wanted_rows(asked.only),
        lambda cost: confirm_choices(reach, validation, cost),
    )
    _write_target(asked.output, fitted_toml(validation, fitted))
    return fitted


def _write_target(path: Path, text: str) -> None:
    """Write a target file; what could not be read again is not written."""
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.target.own_file import OwnFile
    from adrenoc.target.target import load_own_target

    load_own_target(OwnFile(path=path, name=path.name, text=text), host=False)
    write_atomically(path, text)


def _report(
    asked: _Asked,
    done: Calibration | None,
    validation: Validation | None,
    fitted: Fit | None,
    page: Path | None,
) -> None:
    """Write the page, and tell what was found."""
    from adrenoc.cli import console
    from adrenoc.cli.show_calibration import plain_calibration, show_calibration
    from adrenoc.cli.show_validation import plain_fit, plain_validation, show_fit, show_validation

    if page is not None:
        _write_page(page, done, validation)
    if asked.quiet:
        told = {} if done is None else plain_calibration(done, asked.output)
        if validation is not None:
            told["validation"] = plain_validation(validation)
        if fitted is not None:
            told["fit"] = {**plain_fit(fitted), "target_file": str(asked.output)}
        console.print_json(told)
        return
    if done is not None:
        show_calibration(done, asked.output)
    if validation is not None:
        show_validation(validation)
    if fitted is not None:
        show_fit(fitted)
    if page is not None:
        console.print_fields([("report", str(page))])


def _write_page(path: Path, done: Calibration | None, validation: Validation | None) -> None:
    from adrenoc.base.files.outputs import write_atomically
    from adrenoc.base.text.html_page import page
    from adrenoc.lab.calibrate.page import calibration_sections
    from adrenoc.lab.calibrate.validate.page import validation_sections

    sections = []
    name = ""
    if validation is not None:
        sections.append(validation_sections(validation))
        name = validation.device.name
    if done is not None:
        sections.append(calibration_sections(done))
        name = done.measured.device.name
    write_atomically(path, page(f"{name}, measured", *sections))
