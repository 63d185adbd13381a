"""The table of a fleet as JUnit's XML, which build servers read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.text.junit import JunitCase, JunitSuite, show_suites
from adrenoc.lab.fleet.table import FleetLine

_SKIPPED = ("left", "waiting")


def junit_xml(lines: Sequence[FleetLine]) -> str:
    """Return a suite for each device, a case for each job; jobs of a device that left are
    skipped."""
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
        skipped=message if line.status in _SKIPPED and not line.is_bad else "",
        figures=", ".join(f"{k}={v}" for k, v in figures.items()),
    )


def _figures(line: FleetLine) -> dict[str, object]:
    names = ("driver", "p50_ms", "p90_ms", "cold_ms", "error", "launches", "memory_bytes")
    values = {name: getattr(line, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
