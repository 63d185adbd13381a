"""One verification: reach the device, run the suites there, and hand back what was found.

Runs are kept, so that a verification which was killed goes on.  What comes next follows from what
came of the runs so far: with the same runs it is the same.
"""

import base64
import io
import json
import platform
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import sha256_bytes
from adrenoc.base.files.resume import Resume
from adrenoc.base.text.json_text import read_json
from adrenoc.device.opencl import choose_device
from adrenoc.device.remote import RemoteAddress, RemoteDevice, describe, run_remote
from adrenoc.device.result import Progress
from adrenoc.lab.calibrate.measure import DeviceFacts
from adrenoc.lab.calibrate.session import DeviceRequest, listed_for
from adrenoc.lab.prove.cases import Case
from adrenoc.lab.prove.examine import GoneError, SuiteBench, SuiteRuns
from adrenoc.lab.prove.suite import CASES, MEMORIES, PRECISIONS, BuiltSuite, Suite, all_suites
from adrenoc.lab.prove.verify_device import Say, Verification, verify_device
from adrenoc.lab.tune.session import START_S
from adrenoc.lab.tune.tune_model import local_server
from adrenoc.target.target import Target, host_twin

REPEATS = 6
"""Warm runs of a suite: the driver's recordings are tried from the second on."""
PAUSES_S = (0.5, 2.0, 5.0, 10.0)
"""Seconds to wait before a server that ended a session, or a device after a reset, is asked."""


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(DeviceRequest):
    """What to verify where; `precisions` are some of `PRECISIONS`, all where there is none."""

    precisions: tuple[str, ...] = ()
    memories: tuple[str, ...] = MEMORIES


def run_verification(request: VerifyRequest, *, say: Say = lambda what, told: None) -> Verification:
    """Verify a device. Raises RemoteError where the device cannot be reached, DeviceError where
    there is none, DependencyError where what computes the references is missing."""
    with ExitStack() as stack:
        address = request.place or stack.enter_context(local_server())
        folder = stack.enter_context(TemporaryFolder("verify"))
        address = replace(address, timeout_s=request.limit_s)
        # Its first session may be one that loads libraries and looks for drivers.
        there = describe(replace(address, timeout_s=max(START_S, request.limit_s)))
        _, facts = choose_device(list(there.devices), request.cl_device)
        device = DeviceFacts.from_facts(facts)
        target = _target(request.listed or listed_for(device), there, device)
        bench: SuiteBench = RemoteBench(address, request.cl_device)
        if request.resume is not None:
            bench = KeptBench(bench, request.resume, device)
        suites = pick_suites(request, target)
        try:
            return verify_device(
                bench, device, target, suites, folder, budget_s=request.budget_s, say=say
            )
        except GoneError as gone:
            raise RemoteError(
                f"the device did not come back after it failed: {gone}",
                hint="ADRENOC_TIMEOUT=600 adrenoc device verify, where it is slow; else look at it "
                "and at the server's output, and begin again with --only",
            ) from gone


def pick_cases(only: tuple[str, ...]) -> tuple[Case, ...]:
    """Return the cases whose titles hold one of these parts."""
    return tuple(c for c in CASES if not only or any(part in c.title for part in only))


def pick_suites(request: VerifyRequest, target: Target) -> tuple[Suite, ...]:
    """Return the suites that were asked for."""
    suites = all_suites(pick_cases(request.only), half_type=target.limits.fp16)
    precisions = request.precisions or PRECISIONS
    return tuple(s for s in suites if s.precision in precisions and s.memory in request.memories)


def _target(listed: Target, there: RemoteDevice, device: DeviceFacts) -> Target:
    """Return the listed device, with a CPU part for its machine, with halves or not."""
    target = host_twin(listed) if there.machine.startswith(platform.machine()) else listed
    if not device.lacks("cl_khr_fp16"):
        return target
    limits = replace(target.limits, fp16=False)
    return replace(target, gpu=replace(target.gpu, limits=limits))


def _move(values: np.ndarray) -> np.ndarray:
    """Other numbers, of which every operator makes others; none of them leaves its range."""
    return 0.5 * values + np.float32(0.25)


class RemoteBench:
    """Runs suites at a server, each in a session of its own: what hangs or crashes ends that."""

    def __init__(self, address: RemoteAddress, cl_device: str) -> None:
        self._address, self._cl_device = address, cl_device

    def run(self, made: BuiltSuite) -> SuiteRuns:
        """Run a suite several times at the server, in a session of its own."""
        progress = Progress()
        try:
            result = run_remote(
                made.bundle,
                self._address,
                inputs=made.inputs,
                others={name: _move(values) for name, values in made.inputs.items()},
                device=self._cl_device,
                repeat=REPEATS,
                progress=progress,
            )
        except RemoteError as error:
            # The next suite is not to be blamed for what this one left behind.
            self._wait(error)
            raise
        return SuiteRuns(
            first=progress.outputs,
            last=result.outputs,
            among=tuple(own for _, own in result.among_others),
            others=tuple(other for other, _ in result.among_others),
        )

    def _wait(self, error: RemoteError) -> None:
        """Wait until the server answers again; a session that hangs is ended there. Raises
        GoneError where it does not."""
        for pause_s in PAUSES_S:
            time.sleep(pause_s)
            with suppress(AdrenocError):
                describe(self._address)
                return
        raise GoneError(error.message) from error


class KeptBench:
    """A bench that runs what the file of an interrupted verification of the device lacks."""

    def __init__(self, bench: SuiteBench, resume: Resume, device: DeviceFacts) -> None:
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
    """Write all outputs, each array once: most runs give the bits of another."""
    arrays: dict[str, np.ndarray] = {}

    def keep(outputs: Mapping[str, np.ndarray]) -> dict[str, str]:
        keys = {}
        for name, values in outputs.items():
            told = repr((values.shape, str(values.dtype))).encode() + values.tobytes()
            keys[name] = sha256_bytes(told)
            arrays[keys[name]] = values
        return keys

    kept = [keep(outputs) for outputs in (runs.first, runs.last, *runs.among, *runs.others)]
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    content = base64.b64encode(stream.getvalue()).decode()
    return {"outputs": kept, "among": len(runs.among), "arrays": content}


def _read_runs(told: Mapping[str, Any]) -> SuiteRuns:
    with np.load(io.BytesIO(base64.b64decode(told["arrays"])), allow_pickle=False) as held:
        arrays = dict(held)
    first, last, *rest = (
        {name: arrays[key] for name, key in keys.items()} for keys in told["outputs"]
    )
    among = told["among"]
    return SuiteRuns(first=first, last=last, among=tuple(rest[:among]), others=tuple(rest[among:]))
