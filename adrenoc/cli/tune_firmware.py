"""`adrenoc firmware tune`: schedules are measured under QEMU, or on a board behind a command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.durations import DurationParam
from adrenoc.cli.firmware import CoreModel
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.place_options import timeout_s
from adrenoc.cli.records import give_options, group_of, option

if TYPE_CHECKING:
    from adrenoc.firmware.mcu.boards import Board
    from adrenoc.firmware.mcu.core import Core


@dataclass(frozen=True, kw_only=True)
class TuningBudget:
    """How much is tried, and which logs it begins from and ends in."""

    trials: int = option(
        "--trials",
        type=click.IntRange(min=0),
        default=200,
        show_default=True,
        help="Schedules to measure in all, those in the log included.",
    )
    budget_s: float = option(
        "--budget",
        type=DurationParam(),
        default=0.0,
        metavar="TIME",
        help="Stop after so long, and what is in flight then: 30m.",
    )
    output: Path | None = option(
        "-o",
        "--output",
        type=OutputPath(is_file=True),
        metavar="FILE",
        help="The log; one that exists is continued.  [default: MODEL's name with .tune.json]",
    )
    more_logs: tuple[Path, ...] = option(
        "--from",
        type=InputPath(replaced=True),
        multiple=True,
        metavar="FILE",
        help="A log of other models or devices to begin from; may be repeated.",
    )

    def log_of(self, model: Path) -> Path:
        """Return the log to write, or to go on with."""
        return self.output or Path(f"{model.stem}.tune.json")


@dataclass(frozen=True, kw_only=True)
class _Tuned(CoreModel):
    budget: TuningBudget = group_of(TuningBudget)
    executor: str | None = option(
        "--executor",
        metavar="CMD",
        help="A command that builds and runs programs on a board of yours, in place of QEMU; "
        "docs/how-to/microcontrollers.md says what it reads and prints.",
    )


@click.command("tune", cls=HeavyCommand)
@give_options(_Tuned)
def tune_firmware_command(given: _Tuned) -> None:
    """Measure schedules of the layers of an int8 MODEL and keep them in a log.

    `adrenoc firmware compile MODEL --tuning-log FILE` takes the best.  Without --executor
    instructions are counted under QEMU.  With --json one object a line, the last the result.
    """
    from adrenoc.cli import console
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, show_result
    from adrenoc.firmware.mcu.boards import EmulatedBoard, ExecutorBoard
    from adrenoc.lab.tune.firmware import FirmwareTuneRequest, tune_firmware

    model, core, wanted = given.model, given.core, given.budget
    _check_choices(core)
    log = wanted.log_of(model)
    request = FirmwareTuneRequest(
        model=model,
        core=core,
        log=log,
        trials=wanted.trials,
        budget_s=wanted.budget_s,
        more_logs=wanted.more_logs,
    )

    def board() -> Board:
        if given.executor is not None:
            return ExecutorBoard(given.executor, limit_s=timeout_s(20.0))
        return EmulatedBoard(core, limit_s=timeout_s(20.0))

    if wants_json():
        observer = JsonObserver()
        observer.result(tune_firmware(request, board, observer), log)
        return
    with LiveObserver(model.name, core.name) as live:
        result = tune_firmware(request, board, live)
    show_result(result, f"adrenoc firmware compile {quote_word(model)} --device {core.name}", log)
    if given.executor is None:
        told = "an instruction under QEMU is a nanosecond here: not cycles, and not of a board"
        console.print_fields([("times", told)])


def _check_choices(core: Core) -> None:
    """Refuse a core whose kernels have one schedule each."""
    from adrenoc.base.errors import OptionError

    if core.is_processor or not core.has_dsp:
        raise OptionError(
            f"kernels for {core.name} have one schedule each: there is nothing to tune",
            hint=f"adrenoc firmware compile MODEL --device {core.name}",
        )
