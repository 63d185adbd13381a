"""The table that constants are fitted to: schedules of kernels, each with its time.

A CSV file with a header and a row a schedule:

    layer,preset,device,family,digest,actions,time_ms
    conv3x3 64-64@56,fp16,adreno:660,conv2d,4f0c...,"{""pixels"":4,...}",0.0412

`digest` is that of the kernel's signature and `actions` is the schedule as JSON, both as in a
tuning log; what a kernel has to do follows from the layer, which is planned anew.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from adrenoc.base.errors import TuningLogError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.ir.tuning_log import Actions


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One schedule of one kernel, and how long it took."""

    layer: str
    preset: str
    device: str
    family: str
    digest: str
    actions: Actions
    time_ms: float


COLUMNS = tuple(field.name for field in fields(Measurement))


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Return the rows of a table.

    Raises:
        TuningLogError: the file cannot be read, or a row is not one.
    """
    try:
        text = read_plain(path).decode("utf-8")
    except OSError as error:
        raise TuningLogError(f"cannot read {path}: {error.strerror}", hint=_HINT) from error
    except UnicodeDecodeError as error:
        raise TuningLogError(f"{path} is no text in UTF-8, expected a CSV", hint=_HINT) from error
    reader = csv.reader(io.StringIO(text))
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise TuningLogError(f"{path}, line 1: {error}", hint=_HINT) from error
    if tuple(header) != COLUMNS:
        seen, expected = ",".join(header) or "nothing", ",".join(COLUMNS)
        raise TuningLogError(f"{path}, line 1: seen {seen}, expected {expected}", hint=_HINT)
    try:
        rows = [_measurement(path, reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise TuningLogError(f"{path}, line {reader.line_num}: {error}", hint=_HINT) from error
    if not rows:
        raise TuningLogError(f"{path} has no measurement, expected a row a schedule", hint=_HINT)
    return tuple(rows)


def write_measurements(rows: Iterable[Measurement], path: Path) -> None:
    """Write a table, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        actions = json.dumps(row.actions, sort_keys=True, separators=(",", ":"))
        writer.writerow(
            [row.layer, row.preset, row.device, row.family, row.digest, actions, repr(row.time_ms)]
        )
    write_atomically(path, text.getvalue())


_HINT = "a table begins with: " + ",".join(COLUMNS)


def _measurement(path: Path, line: int, row: list[str]) -> Measurement:
    def wrong(column: str, seen: str, expected: str) -> TuningLogError:
        place = f"{path}, line {line}, column {column}"
        return TuningLogError(f"{place}: seen {seen!r}, expected {expected}", hint=_HINT)

    if len(row) != len(COLUMNS):
        seen = f"{len(row)} columns, expected {len(COLUMNS)}"
        raise TuningLogError(f"{path}, line {line}: seen {seen}", hint=_HINT)
    cells = dict(zip(COLUMNS, row, strict=True))
    try:
        actions = read_json(cells["actions"])
    except ValueError:
        actions = None
    if not isinstance(actions, dict):
        raise wrong("actions", cells["actions"], "a schedule as a JSON object")
    try:
        time_ms = float(cells["time_ms"])
    except ValueError:
        time_ms = math.nan
    if not (math.isfinite(time_ms) and time_ms > 0):
        raise wrong("time_ms", cells["time_ms"], "milliseconds above 0")
    named = {name: cells[name] for name in ("layer", "preset", "device", "family", "digest")}
    return Measurement(**named, actions=actions, time_ms=time_ms)
