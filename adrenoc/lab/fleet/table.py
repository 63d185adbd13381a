"""What a fleet found, a line a job: how fast, whether right, how much memory, how warm.

People read the lines as one HTML file; build servers as JUnit's XML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.report import (
    Cell,
    JunitCase,
    JunitSuite,
    Marked,
    Table,
    page,
    show_suites,
    tabulate,
)
from adrenoc.base.text.spelling import count_of, figure, quote_word, show_bytes
from adrenoc.device.result import GpuState, why_not_comparable
from adrenoc.lab.fleet.fleet import DONE, LEFT, JobRow
from adrenoc.lab.fleet.jobs import CALIBRATE, RUN, VERIFY

BAD = ("wrong", "failed", "slower")
SLOWER = 1.1
"""The factor over the baseline's time from which on a job is slower."""


@dataclass(frozen=True, kw_only=True)
class FleetLine:
    """One job.

    `status`: "right" (compared), "done" (nothing to compare with), "wrong", "slower" than the
    baseline, "failed" or "left" (the device went away).  `error` is the
    largest one over its output's range; `before_ms` is p50 of the baseline; figures that a job
    does not give are None.  `driver`, `clock_mhz` and `temperature_c` are the device's.
    """

    action: str
    device: str
    model: str
    target: str
    status: str
    gpu: str = ""
    driver: str = ""
    p50_ms: float | None = None
    p90_ms: float | None = None
    cold_ms: float | None = None
    error: float | None = None
    launches: int | None = None
    memory_bytes: int | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    before_ms: float | None = None
    took_s: float | None = None
    ended: str = ""
    note: str = ""

    @property
    def is_bad(self) -> bool:
        """Return whether a build should stop at it; a device that left is no such thing."""
        return self.status in BAD

    @property
    def spread(self) -> float:
        """Return how much longer than half of the runs the slowest tenth took, as a part of p50."""
        if not self.p50_ms or self.p90_ms is None:
            return 0.0
        return self.p90_ms / self.p50_ms - 1


def lines_of(rows: Sequence[JobRow], before: Sequence[FleetLine] | None) -> tuple[FleetLine, ...]:
    """Return a line for each row; held against a baseline where there is one."""
    lines = tuple(_line(row) for row in rows)
    if before is None:
        return lines
    return tuple(_compare_line(line, find_before(before, line)) for line in lines)


def find_before(baseline: Sequence[FleetLine], line: FleetLine) -> FleetLine | None:
    """Return the earlier line of the same job. Models may lie in another folder now: then the name
    tells, where only one has it."""
    alike = [one for one in baseline if (one.action, one.device) == (line.action, line.device)]
    same = [one for one in alike if one.model == line.model]
    found = same or [one for one in alike if Path(one.model).name == Path(line.model).name]
    return found[0] if len(found) == 1 else None


def read_fleet_baseline(path: Path) -> tuple[FleetLine, ...]:
    """Return the lines of an earlier fleet, from its `--json` output. Raises InputError where the
    file is missing, or holds something else."""
    hint = f"adrenoc device fleet MODEL... --json > {quote_word(path)}"

    def wrong(place: str, what: str) -> InputError:
        return InputError(
            f"{path} is not what `adrenoc device fleet --json` printed: {place} {what}", hint=hint
        )

    try:
        plain = read_json(read_plain(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise wrong("it", f"is no JSON: {error}") from error
    told = plain.get("fleet") if isinstance(plain, dict) else None
    if not isinstance(told, list):
        raise wrong("it", "has no list `fleet`")
    decoder = RecordReader(wrong, defaults=True)
    return tuple(decoder.read(FleetLine, one, f"fleet[{at}]") for at, one in enumerate(told))


def _line(row: JobRow) -> FleetLine:
    job, result = row.job, row.result
    facts: dict[str, Any] = {
        "action": job.action,
        "device": job.device,
        "model": job.model,
        "target": job.target,
    }
    if result is None or row.state != DONE:
        note = row.word or (result.error if result is not None else "")
        return FleetLine(**facts, status=row.state, note=note)
    facts |= {"took_s": round(result.took_s, 3), "ended": result.ended}
    if job.action == RUN:
        return FleetLine(**facts, **_read_run(result.output, result.exit_code))
    status = "done" if result.exit_code == 0 else "failed"
    return FleetLine(
        **facts, status=status, note=result.error or _describe_action(job.action, result.output)
    )


def _read_run(output: Mapping[str, Any], exit_code: int) -> dict[str, Any]:
    check, times = output.get("check"), output.get("times", {})
    status = "done" if check is None else "right" if check["passed"] else "wrong"
    states = output.get("gpu") or [{}]
    notes = list(output.get("notes", ()))
    if check is not None and not check["passed"]:
        notes = [tensor["reason"] for tensor in check["tensors"] if not tensor["passed"]]
    return {
        "status": "failed" if exit_code and status != "wrong" else status,
        "gpu": str(output.get("device", "")).partition(" at ")[0],
        "driver": str(output.get("driver", "")),
        "p50_ms": times.get("p50_ms"),
        "p90_ms": times.get("p90_ms"),
        "cold_ms": times.get("cold_ms"),
        "error": max((tensor["range_error"] for tensor in check["tensors"]), default=None)
        if check is not None
        else None,
        "launches": output.get("launching", {}).get("launches"),
        "memory_bytes": output.get("memory_bytes"),
        "clock_mhz": states[-1].get("clock_mhz") or None,
        "temperature_c": states[-1].get("temperature_c") or None,
        # What was sent says something of the way and nothing of the device.
        "note": "; ".join(note for note in notes if " MB were sent, " not in note),
    }


def _describe_action(action: str, output: Mapping[str, Any]) -> str:
    if action == VERIFY:
        wrong, file = len(output.get("findings", ())), output.get("report", "")
        return f"{wrong} wrong, see {file}" if wrong else ""
    return str(output.get("target_file", "")) if action == CALIBRATE else ""


def _compare_line(line: FleetLine, before: FleetLine | None) -> FleetLine:
    """Return a line with the baseline's time; "slower" where that can be told and is so. It cannot
    where the runs of either fleet were further from each other than the two fleets are."""
    if before is None or before.p50_ms is None or line.p50_ms is None:
        return line
    changes: dict[str, Any] = {"before_ms": before.p50_ms}
    factor, spread = line.p50_ms / before.p50_ms, max(before.spread, line.spread)
    told = f"{factor:.2f} of its time before"
    note = ""
    if reason := _difference(before, line):
        note = f"not comparable: {reason}"
    elif factor > SLOWER and line.status in ("right", "done"):
        if factor > 1 + spread:
            changes["status"], note = "slower", told
        else:
            note = f"{told}, within the spread of {spread:.0%}: more --repeat tells"
    changes["note"] = "; ".join(filter(None, (line.note, note)))
    return replace(line, **changes)


def _difference(before: FleetLine, line: FleetLine) -> str:
    """Return why two times say nothing against each other; empty where they do."""
    if before.gpu != line.gpu:
        return f"that was on {before.gpu}"
    if before.driver != line.driver:
        return f"that was with the driver {before.driver}"
    states = [GpuState(clock_mhz=one.clock_mhz or 0.0) for one in (before, line)]
    return why_not_comparable(states)


def junit_xml(lines: Sequence[FleetLine]) -> str:
    """Return a suite for each device, a case for each job, skipped where the device left."""
    suites = [
        JunitSuite(
            name=device or "here",
            cases=tuple(_case(line) for line in lines if line.device == device),
        )
        for device in dict.fromkeys(line.device for line in lines)
    ]
    return show_suites("adrenoc device fleet", suites)


def _case(line: FleetLine) -> JunitCase:
    message = f"{line.status}: {line.note}" if line.note else line.status
    figures = _figures(line) if line.p50_ms is not None else {}
    return JunitCase(
        group=line.gpu or line.target or line.device or "adrenoc",
        name=f"{line.action} {Path(line.model).name}".strip(),
        took_s=line.took_s or 0.0,
        failure=message if line.is_bad else "",
        skipped=message if line.status == LEFT else "",
        figures=", ".join(f"{k}={v}" for k, v in figures.items()),
    )


def _figures(line: FleetLine) -> dict[str, object]:
    names = ("driver", "p50_ms", "p90_ms", "cold_ms", "error", "launches", "memory_bytes")
    values = {name: getattr(line, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


_FIGURES: dict[str, Callable[[FleetLine], Cell]] = {
    "p50": lambda one: figure(one.p50_ms, ".2f", " ms"),
    "p90": lambda one: figure(one.p90_ms, ".2f", " ms"),
    "cold": lambda one: figure(one.cold_ms, ".0f", " ms"),
    "error": lambda one: figure(one.error, ".1e"),
    "launches": lambda one: one.launches,
    "memory": lambda one: show_bytes(one.memory_bytes),
    "MHz": lambda one: figure(one.clock_mhz, ".0f"),
    "°C": lambda one: figure(one.temperature_c, ".0f"),
    "before": lambda one: figure(one.before_ms, ".2f", " ms"),
}


def list_jobs(lines: Sequence[FleetLine]) -> Table:
    """Return a row for each job; columns of figures that no job has are left out."""
    known = {n: show for n, show in _FIGURES.items() if any(show(line) for line in lines)}
    return tabulate(
        lines,
        {
            "device": lambda one: one.device,
            "GPU": lambda one: one.gpu or one.target,
            "driver": lambda one: one.driver,
            "model": lambda one: (
                f"{'' if one.action == RUN else one.action} {Path(one.model).stem}".strip()
            ),
            "result": lambda one: Marked(one.status, "bad" if one.is_bad else ""),
            **known,
            "note": lambda one: one.note,
        },
        title="All jobs",
    )


def fleet_html(lines: Sequence[FleetLine]) -> str:
    """Return the whole page."""
    bad = sum(job.is_bad for job in lines)
    devices = count_of(len({job.device for job in lines if job.device}), "device")
    return page(
        "A fleet",
        list_jobs(lines),
        about=f"{devices}, {count_of(len(lines), 'job')}, {bad} wrong, slower or failed",
        by="device fleet",
    )
