"""Compare the times of a run with those of an earlier one, where that says anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.decode import Decoder
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.device.gpu_state import GpuState, why_not_comparable
from adrenoc.device.result import RunResult

_MOST_MS = 1e9


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


Read = TypeVar("Read")


def read_baseline(path: Path) -> Baseline:
    """Return the run whose `--json` output is in the file `path`.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    return read_printed_run(path, _take_baseline)


def _take_baseline(told: Any) -> Baseline:
    before = {key: told[key] for key in ("device", "driver", "gpu")}
    before["p50_ms"] = told["times"]["p50_ms"]
    baseline: Baseline = Decoder(_wrong).read(Baseline, before, "")
    check_time("times.p50_ms", baseline.p50_ms)
    check_clocks(baseline.gpu)
    return baseline


def read_printed_run(path: Path, take: Callable[[Any], Read]) -> Read:
    """Return what `take` finds in the run whose `--json` output is in the file `path`.

    Raises:
        InputError: the file is missing, or holds something else.
    """
    try:
        return take(read_json(read_plain(path)))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}",
            hint=f"adrenoc run BUNDLE --json > {quote_word(path)}",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no key {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is not what `adrenoc run --json` printed: {reason}",
            hint="adrenoc run BUNDLE --json > run.json",
        ) from error


def check_time(place: str, time_ms: float) -> None:
    """Refuse a time that no run takes.

    Raises:
        ValueError: saying so.
    """
    if not 0 < time_ms <= _MOST_MS:
        raise _wrong(place, f"is {time_ms:g}, expected more than 0")


def check_clocks(states: Sequence[GpuState]) -> None:
    """Refuse clocks that no GPU has.

    Raises:
        ValueError: saying so.
    """
    clocks = [clock for state in states for clock in (state.clock_mhz, state.max_clock_mhz)]
    if min(clocks, default=0) < 0:
        raise _wrong("gpu", f"has a clock of {min(clocks):g} MHz, expected 0 or more")


def _wrong(place: str, what: str) -> ValueError:
    return ValueError(f"{place.removeprefix(': ')} {what}")


def compare_with(before: Baseline, result: RunResult) -> Comparison:
    """Hold a run against an earlier one."""
    p50_ms = before.p50_ms
    return Comparison(
        baseline_p50_ms=p50_ms,
        speedup=p50_ms / result.times.p50_ms if result.times.p50_ms else 0.0,
        not_comparable=find_difference(before, result),
        unknown=name_unread_clocks(before.gpu, result.gpu),
    )


def name_unread_clocks(then: tuple[GpuState, ...], now: tuple[GpuState, ...]) -> str:
    """Whose clock could not be read; empty where both were."""
    was_read, is_read = (any(state.clock_mhz for state in states) for states in (then, now))
    if was_read and is_read:
        return ""
    if not was_read and not is_read:
        return "neither run's clock could be read"
    return f"{'this' if was_read else 'that'} run's clock could not be read"


class Ran(Protocol):
    """What tells where a run was."""

    @property
    def device(self) -> str:
        """The device's name."""

    @property
    def driver(self) -> str:
        """The version of the device's driver."""

    @property
    def gpu(self) -> tuple[GpuState, ...]:
        """What could be read of it."""


def find_difference(before: Ran, result: Ran) -> str:
    """Return why the times of two runs say nothing against each other; empty where they do."""
    was, this = (device.partition(" at ")[0] for device in (before.device, result.device))
    if was != this:
        return f"that was on {was}, this is {this}"
    if before.driver != result.driver:
        return f"that was with the driver {before.driver}, this is {result.driver}"
    return why_not_comparable((*before.gpu, *result.gpu))
