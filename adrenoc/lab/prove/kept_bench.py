"""Runs of suites that are kept, so that a verification which was killed goes on.

What comes next follows from what came of the runs so far: with the same runs it is the same.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from adrenoc.base.errors import DeviceError, RemoteError
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.json_text import read_json
from adrenoc.lab.calibrate.device import Device
from adrenoc.lab.prove.examine import SuiteBench, SuiteRuns
from adrenoc.lab.prove.suite import BuiltSuite


class KeptBench:
    """A bench that runs what the file of an interrupted verification of the device lacks."""

    def __init__(self, bench: SuiteBench, resume: Resume, device: Device) -> None:
        self._bench, self._resume, self._device = bench, resume, device.identity

    def run(self, made: BuiltSuite) -> SuiteRuns:
        """Return what came of a suite, now or before; see `SuiteBench`."""
        what = f"{made.bundle.path.name} on {self._device}"
        came = self._resume.take(what)
        if came is not None:
            return _read_came(came)
        try:
            runs = self._bench.run(made)
        except (DeviceError, RemoteError) as error:
            kind = "remote" if isinstance(error, RemoteError) else "device"
            told = {"error": kind, "message": error.message, "hint": error.hint}
            self._resume.put(what, json.dumps(told))
            raise
        self._resume.put(what, json.dumps({"runs": _write_runs(runs)}))
        return runs


def _read_came(came: str) -> SuiteRuns:
    told = read_json(came)
    if "error" in told:
        kind = RemoteError if told["error"] == "remote" else DeviceError
        raise kind(told["message"], hint=told["hint"])
    return _read_runs(told["runs"])


def _write_runs(runs: SuiteRuns) -> dict[str, Any]:
    """All outputs; where a run gave the bits of the first of its kind, these stand for it."""
    arrays: dict[str, np.ndarray] = {}
    kinds = {"same": (runs.first, runs.last, *runs.among), "other": runs.others}
    for kind, every in kinds.items():
        for number, outputs in enumerate(every):
            for name, values in outputs.items():
                if not (number and _has_bits(values, every[0].get(name))):
                    arrays[_array_name(kind, number, name)] = values
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    names = {kind: [list(outputs) for outputs in every] for kind, every in kinds.items()}
    return {"names": names, "arrays": base64.b64encode(stream.getvalue()).decode()}


def _read_runs(told: Mapping[str, Any]) -> SuiteRuns:
    with np.load(io.BytesIO(base64.b64decode(told["arrays"])), allow_pickle=False) as held:
        arrays = dict(held)

    def find(kind: str, number: int, name: str) -> np.ndarray:
        own = arrays.get(_array_name(kind, number, name))
        return arrays[_array_name(kind, 0, name)] if own is None else own

    same, other = (
        tuple(
            {name: find(kind, number, name) for name in names}
            for number, names in enumerate(told["names"][kind])
        )
        for kind in ("same", "other")
    )
    return SuiteRuns(first=same[0], last=same[1], among=same[2:], others=other)


def _array_name(kind: str, number: int, name: str) -> str:
    return f"{kind} {number} {name}"


def _has_bits(values: np.ndarray, first: np.ndarray | None) -> bool:
    if first is None or (values.shape, values.dtype) != (first.shape, first.dtype):
        return False
    return values.tobytes() == first.tobytes()
