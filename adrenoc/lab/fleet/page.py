"""The table of a fleet as one HTML file: devices against models, then each job with figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.text.amounts import count_of, show_ms
from adrenoc.base.text.html_page import cell, line, number, page, part, table
from adrenoc.lab.fleet.table import COLUMNS, NUMBERS, FleetLine
from adrenoc.lab.fleet.work import RUN

_KINDS = {"right": "good", "done": "good", "wrong": "bad", "failed": "bad", "slower": "bad"}


def fleet_html(lines: Sequence[FleetLine]) -> str:
    """Return the whole page."""
    bad = sum(job.is_bad for job in lines)
    devices = count_of(len({job.device for job in lines if job.device}), "device")
    return page(
        "A fleet",
        part("p50 of each model", _grid(lines)),
        part("All jobs", _jobs(lines)),
        about=f"{devices}, {count_of(len(lines), 'job')}, {bad} wrong, slower or failed",
        by="device fleet",
    )


def _grid(lines: Sequence[FleetLine]) -> str:
    """Return a row for each device, a column for each model."""
    runs = {(job.device, job.model): job for job in lines if job.action == RUN}
    models = list(dict.fromkeys(model for _, model in runs))
    devices = list(dict.fromkeys(device for device, _ in runs))
    told = {job.device: job for job in runs.values() if job.gpu}
    rows = [
        line(
            cell(device),
            cell(told[device].gpu if device in told else ""),
            cell(told[device].driver if device in told else ""),
            *(_time(runs.get((device, model))) for model in models),
        )
        for device in devices
    ]
    names = ("device", "GPU", "driver", *(Path(model).stem for model in models))
    return table(names, "".join(rows))


def _time(job: FleetLine | None) -> str:
    if job is None:
        return cell("")
    time = "" if job.p50_ms is None else show_ms(job.p50_ms)
    if not time or job.is_bad:
        return cell(", ".join(filter(None, (job.status, time))), _KINDS.get(job.status, "quiet"))
    return number(time)


def _jobs(lines: Sequence[FleetLine]) -> str:
    """Return a row for each job; columns of figures that no job has are left out."""
    texts = [dict(zip(COLUMNS, job.cells(), strict=True)) for job in lines]
    names = [n for n in COLUMNS if n not in NUMBERS or any(text[n] for text in texts)]
    kinds = [_KINDS.get(job.status, "quiet") for job in lines]
    rows = [
        line(*(_cell(name, text[name], kind) for name in names))
        for text, kind in zip(texts, kinds, strict=True)
    ]
    return table(names, "".join(rows))


def _cell(name: str, text: str, kind: str) -> str:
    if name in NUMBERS:
        return number(text)
    return cell(text, kind if name == "result" else "")
