"""`adrenoc device calibrate`: measure a device, and write what it is as a target file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.files.outputs import check_file_can_be_written, write_atomically
from adrenoc.base.text.report import Fields, Part
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import HeavyCommand, give_options, option, wants_json
from adrenoc.cli.model_params import TARGET, Parsed, read_duration
from adrenoc.cli.options import (
    PlaceChoice,
    finish_resumed,
    html_option,
    open_resume,
    output_option,
    place_option,
    preset_option,
    reach,
    resume_option,
    timeout_s,
)

if TYPE_CHECKING:
    from adrenoc.base.files.resume import Resume
    from adrenoc.device.remote import RemoteAddress
    from adrenoc.lab.calibrate.measure import MeasureRow
    from adrenoc.lab.calibrate.session import Calibration, DeviceRequest
    from adrenoc.lab.calibrate.validate.session import Fit, Validation
    from adrenoc.target.target import Target

_MOST_BUDGET_S = 3600.0
_BUDGET_S, _VALIDATION_S = 300.0, 1200.0
"""Of a calibration, and of a validation beside it."""
_OUTPUT = Path("device.toml")


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the command line asks for."""

    place: PlaceChoice = place_option()
    listed: Target | None = option(
        "--device DEVICE",
        type=TARGET,
        help="The device to compare with and to build on, and with --validate to validate.  "
        "[default: what it calls itself]",
    )
    asked_s: float | None = option(
        "--budget TIME",
        type=Parsed(read_duration),
        help="Stop after so long; the most important is measured first.  [default: 5m; with "
        "--validate 20m]",
    )
    only: tuple[str, ...] = option(
        "--only PART",
        help="Measure what has PART in its name alone, such as local; may be repeated.",
    )
    validates: str | None = option(
        "--validate [fit]",
        is_flag=False,
        flag_value="measure",
        type=click.Choice(("measure", "fit")),
        help="Measure schedules of 30 layers, and tell how well the cost model chooses; without "
        "--device that of the file that is written first.  `fit` also fits the cost model's "
        "constants to what was measured, and writes them into the target file.",
    )
    preset: str | None = preset_option()
    named: Path | None = output_option(
        "The target file, for --device FILE.  [default: device.toml]"
    )
    page: Path | None = html_option("The report")
    resume_file: Path | None = resume_option()

    def __post_init__(self) -> None:
        from adrenoc.lab.calibrate.session import pick_measures

        if self.asked_s is not None and not 0 < self.asked_s <= _MOST_BUDGET_S:
            raise click.UsageError("--budget is to be above 0 and at most 1h")
        if self.preset is not None and not self.validate:
            raise click.UsageError("--preset goes with --validate")
        if self.resume_file is not None and self.validate:
            raise click.UsageError("--resume goes without --validate")
        if self.named is not None and not self.writes:
            raise click.UsageError(
                "--validate --device without fit writes no target file, so --output has no use"
            )
        found: object = pick_measures(self.only)
        kind = "measure"
        if self.validate:
            from adrenoc.lab.calibrate.validate.table import wanted_rows

            found, kind = wanted_rows(self.only), "layer"
        if not found:
            raise click.UsageError(f"no {kind} has {' or '.join(self.only)} in its name")

    @property
    def validate(self) -> bool:
        return self.validates is not None

    @property
    def fit(self) -> bool:
        return self.validates == "fit"

    @property
    def output(self) -> Path:
        return self.named or _OUTPUT

    @property
    def calibrates(self) -> bool:
        return not self.validate or self.listed is None

    @property
    def writes(self) -> bool:
        return self.calibrates or self.fit


@click.command("calibrate", cls=HeavyCommand)
@give_options(_Asked)
def calibrate_command(asked: _Asked) -> None:
    """Measure a device with small kernels, and write a target file of it.

    `adrenoc compile MODEL --device FILE` then reckons with what was measured.
    """
    from adrenoc.device import remote
    from adrenoc.target.gpu_file import check_output_name

    if asked.writes:
        check_output_name(asked.output)
        check_file_can_be_written(asked.output)
    resume = open_resume(asked.resume_file)
    with reach(asked.place) as address:
        done = _calibrate(asked, address, resume) if asked.calibrates else None
        validation = _validate(asked, address) if asked.validate else None
        fitted = None
        if validation is not None and asked.fit:
            fitted = _fit_and_write(asked, validation, address)
        tells_next = asked.writes and not wants_json()
        is_like_here = tells_next and (address is None or remote.is_like_here(address))
    _report(asked, done, validation, fitted)
    finish_resumed(resume, "measures")
    if tells_next:
        file = quote_word(f"host:{asked.output}" if is_like_here else str(asked.output))
        console.draw(Fields(pairs=[("next", f"adrenoc compile MODEL --device {file}")]))


def _request_of(asked: _Asked, address: RemoteAddress | None) -> DeviceRequest:
    from adrenoc.lab.calibrate.session import DeviceRequest

    return DeviceRequest(
        place=address,
        cl_device=asked.place.cl_device,
        budget_s=asked.asked_s or (_VALIDATION_S if asked.validate else _BUDGET_S),
        limit_s=timeout_s(20.0),
        listed=asked.listed,
        only=asked.only,
    )


def _calibrate(asked: _Asked, address: RemoteAddress | None, resume: Resume) -> Calibration:
    from adrenoc.lab.calibrate.session import run_calibration

    request = _request_of(asked, address)
    if asked.validate:
        request = replace(request, budget_s=min(request.budget_s, _BUDGET_S), only=())
    request = replace(request, resume=resume)
    done = run_calibration(request, say=_RowProgress().say)
    _write_target(asked.output, done.toml)
    return done


def _validate(asked: _Asked, address: RemoteAddress | None) -> Validation:
    from adrenoc.ir.options import resolve_options
    from adrenoc.lab.calibrate.validate.session import ValidationRequest, run_validation
    from adrenoc.lab.calibrate.validate.table import wanted_rows
    from adrenoc.target.target import load_target

    target = asked.listed or load_target(str(asked.output))
    request = ValidationRequest(
        **vars(_request_of(asked, address)),
        target=target,
        options=resolve_options(target, preset=asked.preset).options,
        rows=wanted_rows(asked.only),
    )
    return run_validation(request, say=console.print_step)


def _fit_and_write(asked: _Asked, validation: Validation, address: RemoteAddress | None) -> Fit:
    """Fit constants, have the device confirm them, and write the target file. Raises DeviceError
    where too little was measured to fit to, RemoteError where the device went away."""
    from adrenoc.lab.calibrate.validate.session import confirm_choices, fit_validation, fitted_toml
    from adrenoc.lab.calibrate.validate.table import wanted_rows

    request = _request_of(asked, address)
    fitted = fit_validation(
        validation, wanted_rows(asked.only), lambda cost: confirm_choices(request, validation, cost)
    )
    _write_target(asked.output, fitted_toml(validation, fitted))
    return fitted


def _write_target(path: Path, text: str) -> None:
    """Write a target file; what could not be read again is not written."""
    from adrenoc.target.gpu_file import OwnFile
    from adrenoc.target.target import load_own_target

    load_own_target(OwnFile(path=path, name=path.name, text=text), host=False)
    write_atomically(path, text)


def _report(
    asked: _Asked, done: Calibration | None, validation: Validation | None, fitted: Fit | None
) -> None:
    from adrenoc.pages import calibration_page as shown

    told: dict[str, Any] = {}
    parts: list[Part | Iterable[Part]] = []
    if done is not None:
        told = shown.calibration_to_json(done, asked.output)
        parts += [shown.calibration_parts(done), shown.tell_calibration(done, asked.output)]
    if validation is not None:
        told["validation"] = shown.validation_to_json(validation)
        parts.append(shown.validation_parts(validation))
    if fitted is not None:
        told["fit"] = {**shown.fit_to_json(fitted), "target_file": str(asked.output)}
        parts.append(shown.fit_parts(fitted))
    if asked.page is not None:
        write_atomically(asked.page, shown.calibration_html(done, validation))
        parts.append(Fields(pairs=[("report", str(asked.page))]))
    if not wants_json():
        console.blank()
    console.tell(told, *parts)


class _RowProgress:
    """A line for each measure as it ends."""

    def __init__(self) -> None:
        self._done = 0

    def say(self, row: MeasureRow, count: int) -> None:
        self._done += 1
        told = row.figure if row.is_measured else f"{row.status}: {row.reason}"
        spread = f", spread {100 * row.spread:.0f} %" if row.samples > 1 else ""
        state = f", {row.state}" if row.state else ""
        console.print_step(f"{self._done}/{count} {row.name}", f"{told}{spread}{state}")
