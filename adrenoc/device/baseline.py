"""Compare the times of a run with those of an earlier one, where that says anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adrenoc.device.gpu_state import GpuState, why_not_comparable
from adrenoc.device.result import RunResult
from adrenoc.errors import InputError
from adrenoc.files.read import read_plain
from adrenoc.text.json_text import read_json


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How many times as fast as the baseline a run is (p50), or why nobody can tell.

    `unknown` says whose clock could not be read: then the two may have run at different ones.
    """

    baseline_p50_ms: float
    speedup: float
    not_comparable: str = ""
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What is known of an earlier run."""

    p50_ms: float
    device: str
    driver: str
    gpu: tuple[GpuState, ...]


def read_baseline(path: Path) -> Baseline:
    """The run whose `--json` output is in the file `path`.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        told = read_json(read_plain(path))
        return Baseline(
            p50_ms=float(told["times"]["p50_ms"]),
            device=str(told["device"]),
            driver=str(told["driver"]),
            gpu=tuple(GpuState(**state) for state in told["gpu"]),
        )
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}",
            hint=f"adrenoc run BUNDLE --json > {path}",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is not what `adrenoc run --json` printed: {type(error).__name__} {error}",
            hint=f"adrenoc run BUNDLE --json > {path}",
        ) from error


def compare_with(before: Baseline, result: RunResult) -> Comparison:
    """Hold a run against an earlier one."""
    p50_ms = before.p50_ms
    return Comparison(
        baseline_p50_ms=p50_ms,
        speedup=p50_ms / result.times.p50_ms if result.times.p50_ms else 0.0,
        not_comparable=_difference(before, result),
        unknown=_unread_clocks(before.gpu, result.gpu),
    )


def _unread_clocks(then: tuple[GpuState, ...], now: tuple[GpuState, ...]) -> str:
    was_read, is_read = (any(state.clock_mhz for state in states) for states in (then, now))
    if was_read and is_read:
        return ""
    if not was_read and not is_read:
        return "neither run's clock could be read"
    return f"{'this' if was_read else 'that'} run's clock could not be read"


def _difference(before: Baseline, result: RunResult) -> str:
    was, this = (device.partition(" at ")[0] for device in (before.device, result.device))
    if was != this:
        return f"that was on {was}, this is {this}"
    if before.driver != result.driver:
        return f"that was with the driver {before.driver}, this is {result.driver}"
    return why_not_comparable((*before.gpu, *result.gpu))
