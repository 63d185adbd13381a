"""`adrenoc tune run` for microcontrollers: under QEMU, or on a board behind a command."""

from __future__ import annotations

from pathlib import Path

import click

from adrenoc.cli.firmware import refuse_others
from adrenoc.firmware.mcu.boards import Board, EmulatedBoard, ExecutorBoard
from adrenoc.firmware.mcu.core import Core
from adrenoc.lab.tune.firmware import FirmwareTuneRequest, tune_firmware

_ALLOWED = ("model", "target", "trials", "budget", "limit_s", "output", "more_logs", "executor")


def tune_core(
    ctx: click.Context,
    model: Path,
    core: Core,
    log: Path,
    limits: tuple[int, float, float],
    more_logs: tuple[Path, ...],
    executor: str | None,
    *,
    as_json: bool,
) -> None:
    """Measure schedules of a model's layers; `limits` are trials, seconds, and seconds a program.

    Raises:
        OptionError: the core has no schedules to choose from.
    """
    from adrenoc.cli import console
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, show_result

    refuse_others(ctx, {*_ALLOWED, "as_json"})
    _check_choices(core)
    trials, budget_s, limit_s = limits
    request = FirmwareTuneRequest(
        model=model, core=core, log=log, trials=trials, budget_s=budget_s, more_logs=more_logs
    )

    def board() -> Board:
        if executor is not None:
            return ExecutorBoard(executor, limit_s=limit_s)
        return EmulatedBoard(core, limit_s=limit_s)

    if as_json:
        observer = JsonObserver()
        observer.result(tune_firmware(request, board, observer), log)
        return
    with LiveObserver(model.name, core.name) as live:
        result = tune_firmware(request, board, live)
    show_result(result, model, core.name, log)
    if executor is None:
        told = "an instruction under QEMU is a nanosecond here: not cycles, and not of a board"
        console.print_fields([("times", told)])


def _check_choices(core: Core) -> None:
    """Refuse a core whose kernels have one schedule each."""
    from adrenoc.base.errors import OptionError

    if core.is_processor or not core.has_dsp:
        raise OptionError(
            f"kernels for {core.name} have one schedule each: there is nothing to tune",
            hint=f"adrenoc compile MODEL --device {core.name}",
        )
