"""`--rounding-floor` of `run`: what rounding alone costs on the inputs of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from adrenoc.bundle.bundle import Bundle
    from adrenoc.check.accuracy.result import Floor
    from adrenoc.cli.steps import Steps
    from adrenoc.device.result import RunResult


def check_floor(with_floor: bool, reference: Path | None) -> None:
    """Refuse a floor without a model to compare with.

    Raises:
        click.UsageError: there is none.
    """
    if with_floor and reference is None:
        raise click.UsageError("--rounding-floor is for --check MODEL")


def measure_floor(
    with_floor: bool,
    bundle: Bundle,
    model: Path | None,
    several: Steps,
    result: RunResult,
) -> Floor | None:
    """The floor on the first inputs, where it was asked for."""
    if not with_floor or model is None:
        return None
    from adrenoc.check.accuracy.bundle_floor import floor_of_bundle
    from adrenoc.cli import console

    with console.ConsoleReporter() as reporter:
        return floor_of_bundle(
            bundle,
            model,
            inputs=several.named,
            outputs=result.outputs,
            expected=several.expected[0],
            reporter=reporter,
        )


def plain_floor(floor: Floor | None) -> dict[str, Any]:
    """The floor as a key of `--json`, where there is one."""
    from adrenoc.cli.show_accuracy import finite

    return {} if floor is None else {"rounding_floor": finite(asdict(floor))}


def show_floor(floor: Floor | None) -> None:
    """The floor as a line, where there is one."""
    from adrenoc.cli import console
    from adrenoc.cli.show_accuracy import floor_text

    if floor is not None:
        console.print_fields([("rounding floor", floor_text(floor))])
