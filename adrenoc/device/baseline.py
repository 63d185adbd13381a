"""Compare the times of a run with those of an earlier one, where that says anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.device.gpu_state import GpuState, why_not_comparable
from adrenoc.device.result import RunResult
from adrenoc.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How many times as fast as the baseline a run is (p50), or why nobody can tell.

    `unknown` says whose clock could not be read: then the two may have run at different ones.
    """

    baseline_p50_ms: float
    speedup: float
    not_comparable: str = ""
    unknown: str = ""


def compare_with(path: Path, result: RunResult) -> Comparison:
    """Hold a run against the one whose `--json` output is in the file `path`.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        states = tuple(GpuState(**state) for state in told["gpu"])
        p50_ms = float(told["times"]["p50_ms"])
        facts = (str(told["device"]), str(told["driver"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is not what `adrenoc run --json` printed: {type(error).__name__} {error}",
            hint=f"adrenoc run BUNDLE --json > {path}",
        ) from error
    return Comparison(
        baseline_p50_ms=p50_ms,
        speedup=p50_ms / result.times.p50_ms if result.times.p50_ms else 0.0,
        not_comparable=_difference(facts, states, result),
        unknown=_unread_clocks(states, result.gpu),
    )


def _unread_clocks(then: tuple[GpuState, ...], now: tuple[GpuState, ...]) -> str:
    was_read, is_read = (any(state.clock_mhz for state in states) for states in (then, now))
    if was_read and is_read:
        return ""
    if not was_read and not is_read:
        return "neither run's clock could be read"
    return f"{'this' if was_read else 'that'} run's clock could not be read"


def _difference(facts: tuple[str, str], states: tuple[GpuState, ...], result: RunResult) -> str:
    seen: Any = (result.device.partition(" at ")[0], result.driver)
    wanted = (facts[0].partition(" at ")[0], facts[1])
    if seen[0] != wanted[0]:
        return f"that was on {wanted[0]}, this is {seen[0]}"
    if seen[1] != wanted[1]:
        return f"that was with the driver {wanted[1]}, this is {seen[1]}"
    return why_not_comparable((*states, *result.gpu))
