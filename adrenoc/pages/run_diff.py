"""Two runs of `adrenoc run --json` held against each other: times with their spread, a verdict.

A verdict is given where it is sound, and nowhere else: the same device and driver; clocks that were
read and are the same; enough runs of each, told one by one, that did not drift while they ran; the
middle halves of the two apart; and a rank test (Mann and Whitney's) by which less than one in a
hundred such pairs of equal runs would come out so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import quote_word
from adrenoc.device.result import GpuState, KernelTime, Times, percentile, why_not_comparable

FASTER, SLOWER, EQUAL, OPEN = "faster", "slower", "no difference", "open"
_LEAST_RUNS = 8
_MOST_MS = 1e9
_MOST_CHANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class PrintedRun:
    """What `--json` of a run told; `warm_ms` is empty in those of older versions."""

    device: str
    driver: str
    gpu: tuple[GpuState, ...]
    times: Times
    kernels: tuple[KernelTime, ...]
    warm_ms: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimeChange:
    """One time of both runs, in milliseconds; None where a run has none."""

    name: str
    before_ms: float | None
    after_ms: float | None


@dataclass(frozen=True, kw_only=True)
class RunDiff:
    """What came out. `verdict` is "faster", "slower", "no difference" (none that these runs could
    tell) or "open", with the `reason`. `speedup` is of the medians. `spread_ms` are the quartiles
    of the runs before and after, where they are told."""

    before: str
    after: str
    verdict: str
    reason: str
    speedup: float
    times: tuple[TimeChange, ...]
    kernels: tuple[TimeChange, ...]
    spread_ms: tuple[tuple[float, float], ...] = ()


def read_run(path: Path) -> PrintedRun:
    """Return the run whose `--json` output is in the file `path`. Raises InputError where the file
    is missing, or holds something else."""
    try:
        told = read_json(read_plain(path))
        keys = ("device", "driver", "gpu", "times", "kernels")
        plain = {key: told[key] for key in keys} | {"warm_ms": told.get("warm_ms", [])}
        run: PrintedRun = RecordReader(_wrong).read(PrintedRun, plain, "")
        times = {f"warm_ms[{number}]": time_ms for number, time_ms in enumerate(run.warm_ms)}
        for place, time_ms in ({"times.p50_ms": run.times.p50_ms} | times).items():
            if not 0 < time_ms <= _MOST_MS:
                raise _wrong(place, f"is {time_ms:g}, expected more than 0")
        clocks = [clock for state in run.gpu for clock in (state.clock_mhz, state.max_clock_mhz)]
        if min(clocks, default=0) < 0:
            raise _wrong("gpu", f"has a clock of {min(clocks):g} MHz, expected 0 or more")
        return run
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


def _wrong(place: str, what: str) -> ValueError:
    return ValueError(f"{place.removeprefix(': ')} {what}")


def compare_runs(before: Path, after: Path) -> RunDiff:
    """Hold two runs against each other. Raises InputError where a file is missing, or no run."""
    was, now = read_run(before), read_run(after)
    verdict, reason = _judge(was, now)
    return RunDiff(
        before=str(before),
        after=str(after),
        verdict=verdict,
        reason=reason,
        speedup=was.times.p50_ms / now.times.p50_ms,
        times=tuple(
            TimeChange(
                name=name,
                before_ms=getattr(was.times, f"{name}_ms"),
                after_ms=getattr(now.times, f"{name}_ms"),
            )
            for name in ("load", "build", "first", "cold", "p50", "p90", "p99")
        ),
        kernels=_compare_kernels(was.kernels, now.kernels),
        spread_ms=tuple(_quartiles(run.warm_ms) for run in (was, now) if run.warm_ms),
    )


def _judge(was: PrintedRun, now: PrintedRun) -> tuple[str, str]:
    """Return the verdict, and why."""
    if doubt := _find_doubt(was, now):
        return OPEN, doubt
    chance = rank_chance(was.warm_ms, now.warm_ms)
    low, high = sorted((_quartiles(was.warm_ms), _quartiles(now.warm_ms)))
    said = f"by chance in {chance:.2g} of such pairs"
    if chance >= _MOST_CHANCE or low[1] >= high[0]:
        apart = "apart" if low[1] < high[0] else "overlapping"
        return EQUAL, f"middle halves {apart}; {said}"
    verdict = FASTER if now.times.p50_ms < was.times.p50_ms else SLOWER
    return verdict, f"middle halves apart; {said}"


def _find_doubt(was: PrintedRun, now: PrintedRun) -> str:
    """Return why the two say nothing against each other; empty where they do."""
    if difference := _find_difference(was, now):
        return difference
    for name, run in (("before", was), ("after", now)):
        if not run.warm_ms:
            return f"the file of the run {name} does not tell its runs one by one"
        if len(run.warm_ms) < _LEAST_RUNS:
            counted = f"{len(run.warm_ms)} runs {name}"
            return f"{counted} are too few, expected {_LEAST_RUNS}: --repeat 20"
        half = len(run.warm_ms) // 2
        if rank_chance(run.warm_ms[:half], run.warm_ms[half:]) < _MOST_CHANCE:
            return f"the runs {name} drifted while they ran"
    return ""


def _find_difference(was: PrintedRun, now: PrintedRun) -> str:
    """Return what was not the same on the two devices; empty where all was that counts."""
    there, here = (run.device.partition(" at ")[0] for run in (was, now))
    if there != here:
        return f"that was on {there}, this is {here}"
    if was.driver != now.driver:
        return f"that was with the driver {was.driver}, this is {now.driver}"
    if changed := why_not_comparable((*was.gpu, *now.gpu)):
        return changed
    was_read, is_read = (any(state.clock_mhz for state in run.gpu) for run in (was, now))
    if was_read and is_read:
        return ""
    unread = "this" if was_read else "that" if is_read else "neither"
    could = "could" if unread == "neither" else "could not"
    return f"{unread} run's clock {could} be read: they may have been at different ones"


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    return percentile(values, 25), percentile(values, 75)


def rank_chance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how often ranks would part so far by chance, from both sides; by the normal curve."""
    count, others = len(first), len(second)
    whole = count + others
    _, place, alike = np.unique([*first, *second], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(alike) - (alike - 1) / 2)[place]  # from 1, equals share theirs
    rank_sum, ties = float(ranks[:count].sum()), float((alike**3 - alike).sum())
    middle = count * (whole + 1) / 2
    variance = count * others / 12 * (whole + 1 - ties / (whole * (whole - 1)))
    if variance <= 0:
        return 1.0
    distance = max(0.0, abs(rank_sum - middle) - 0.5) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))


def _compare_kernels(
    before: Sequence[KernelTime], after: Sequence[KernelTime]
) -> tuple[TimeChange, ...]:
    """Kernels by name, the largest change first; of one run each, so that none has a verdict."""
    was, now = ({kernel.name: kernel.time_ms for kernel in run} for run in (before, after))
    changes = [
        TimeChange(name=name, before_ms=was.get(name), after_ms=now.get(name))
        for name in dict.fromkeys((*was, *now))
    ]
    return tuple(sorted(changes, key=lambda c: -abs((c.after_ms or 0.0) - (c.before_ms or 0.0))))
