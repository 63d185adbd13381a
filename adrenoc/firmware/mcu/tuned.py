"""What a tuning log says of a core: times of schedules, and those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.schedule import Measured
from adrenoc.ir.tuning_log import Status, Trial, actions_key, choose_trials, find_log, read_log


def measured_of(trials: Sequence[Trial]) -> Measured:
    """Return the last time of each schedule; one that ever failed is out.

    Only the times of one device are comparable: those of the device with most trials count.
    """
    names = [t.device.name for t in trials if t.status is Status.OK]
    most = max(dict.fromkeys(names), key=names.count, default="")
    times_us: dict[str, dict[str, float]] = {}
    failed = {trial.key for trial in trials if trial.status is not Status.OK}
    for trial in trials:
        if trial.status is Status.OK and trial.device.name == most and trial.key not in failed:
            known = times_us.setdefault(trial.kernel, {})
            known[actions_key(trial.actions)] = trial.median_us
    return Measured(times_us=times_us, failed=frozenset(failed))


def measured_in(log: str, core: Core) -> tuple[Measured, list[Decision]]:
    """Return what a log has for a core, with a decision where it was measured on another one.

    Raises:
        TuningLogError: it cannot be read, or is no log.
    """
    path: Path = find_log(log)
    trials, warning = choose_trials(read_log(path), core.name, str(path))
    decisions = []
    if warning:
        decisions.append(
            Decision(subject="the whole model", taken=f"schedules of {path.name}", reason=warning)
        )
    return measured_of(trials), decisions
