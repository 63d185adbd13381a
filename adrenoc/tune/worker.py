"""A process that takes one candidate after the other to a device and measures it there.

`python -m adrenoc.tune.worker` reads a JSON request a line and answers with JSON lines: first
that a device is there, then what came of the candidate.  The tuner ends this process when an
answer is late, so nothing here has to survive a device.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from adrenoc.device.gpu_state import GpuState, read_gpu_state
from adrenoc.device.opencl import choose_device
from adrenoc.device.remote import RemoteAddress, open_session
from adrenoc.device.tracker import HostPort
from adrenoc.errors import AdrenocError, DeviceError, RemoteError

REPLAYS = 3
WARM_RUNS = 2
MEASUREMENTS = 7
MIN_MEASUREMENT_MS = 3
"""A measurement repeats a short kernel until it takes so long."""
SERVER_GRACE_S = 6.0
"""What a server gets beyond the limit: its session counts from before it can work."""
LATE = 0.9
"""A session that breaks after so much of its limit was ended for it."""
_FROM_SERVER = "Error caught from RPC call"

Answer = dict[str, Any]


class _RefusedError(Exception):
    """The candidate failed: `kind` is the answer's, the text its detail."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def main() -> int:
    """Serve requests until the tuner closes the input."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _serve(request, lambda a: _send(answers, a))
        gc.collect()  # the last references of the session, which keep the server busy
        _send(answers, answer)
    return 0


def _send(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _serve(request: Mapping[str, Any], tell: Callable[[Answer], None]) -> Answer:
    """One candidate; `tell` is called when a device is there.

    The answer's `event` is `measured`, `refused` (the candidate's fault, or the device died of
    it) or `absent` (no device).
    """
    connected, opened, limit_s = False, time.monotonic(), request["limit_s"]
    try:
        with _session(request) as (session, where):
            opened = time.monotonic()
            number, facts = choose_device(
                json.loads(session.get_function("adrenoc.opencl.devices")()), request["device"]
            )
            tell({"event": "connected", "where": where, "device": _device(session, facts)})
            connected = True
            return {"event": "measured", **_measure(session, number, request)}
    except _RefusedError as refused:
        return {"event": "refused", "kind": refused.kind, "detail": str(refused)}
    except AdrenocError as error:
        kind = "lost" if isinstance(error, RemoteError | DeviceError) else "failed"
        detail = error.message
    except (RuntimeError, ValueError, AttributeError, OSError, MemoryError) as error:
        first, _, rest = str(error).partition("\n")
        kind = "failed" if _FROM_SERVER in first else "lost"
        detail = next((line.strip() for line in rest.splitlines() if line.strip()), first)[:400]
    if not connected:
        return {"event": "absent", "detail": detail}
    # The wait has a limit, and the server ends a session that takes too long.
    if kind == "lost" and time.monotonic() - opened > LATE * limit_s:
        kind, detail = "timeout", f"no end within {limit_s:.0f} s"
    return {"event": "refused", "kind": kind, "detail": detail}


@contextmanager
def _session(request: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    place = request["place"]
    address = RemoteAddress(
        where=HostPort(host=place["host"], port=place["port"]),
        key=place["key"],
        tracked=place["tracked"],
        timeout_s=request["limit_s"],
        session_s=request["limit_s"] + SERVER_GRACE_S,
    )
    with open_session(address) as (session, where):
        try:
            yield session, str(where)
        finally:
            with suppress(RuntimeError, AttributeError):  # it may be closed already
                session.get_function("CloseRPCConnection")()


def _device(session: Any, facts: Mapping[str, Any]) -> Answer:
    try:
        state = read_gpu_state(session.get_function("adrenoc.runtime.gpu_state"))
    except AttributeError:
        state = GpuState()  # an older runtime
    return {
        "name": str(facts.get("name", "")),
        "driver": str(facts.get("driver", "")),
        "platform": str(facts.get("platform", "")),
        "clock_mhz": round(state.clock_mhz),
    }


def _measure(session: Any, number: int, request: Mapping[str, Any]) -> Answer:
    device = session.device("opencl", number)
    runs = [_Loaded(session, device, number, v, i) for i, v in enumerate(request["variants"])]
    outputs = [run.replayed() for run in runs]
    _compare(outputs[-1], request)
    times = [[] for _ in runs]  # type: list[list[float]]
    for _ in range(MEASUREMENTS):
        for run, collected in zip(runs, times, strict=True):  # in turn: what disturbs, disturbs all
            collected.append(run.time_us())
    return {"times_us": times, "error": _error(outputs[-1], request)}


class _Loaded:
    """A candidate on the device, with its tensors."""

    def __init__(
        self, session: Any, device: Any, number: int, variant: Mapping[str, Any], place: int
    ) -> None:
        import tvm

        self._device = device
        name = f"variant{place}.so"
        session.upload(variant["library"], name)
        module = session.load_module(name)
        try:
            session.get_function("adrenoc.opencl.build_all")(module, number)
        except RuntimeError as error:
            if _FROM_SERVER not in str(error).partition("\n")[0]:
                raise
            raise _RefusedError("build", str(error)[-400:]) from error
        self._tensors = []
        for argument in variant["arguments"]:
            scope = None if argument["scope"] == "global" else argument["scope"]
            tensor = tvm.runtime.empty(
                tuple(argument["shape"]), argument["dtype"], device, mem_scope=scope
            )
            if argument["file"]:
                tensor.copyfrom(np.load(argument["file"]))
            self._tensors.append(tensor)
        self._function = module["kernel"]
        self._evaluator = module.time_evaluator(
            "kernel", device, number=1, repeat=1, min_repeat_ms=MIN_MEASUREMENT_MS
        )

    def replayed(self) -> np.ndarray:
        """The output, equal in every bit over replays onto different old contents."""
        out, digests = self._tensors[-1], set()
        for replay in range(REPLAYS):
            out.copyfrom(np.full(out.shape, replay + 1).astype(out.dtype))
            self._function(*self._tensors)
            self._device.sync()
            value = out.numpy()
            digests.add(hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest())
        if len(digests) > 1:
            raise _RefusedError(
                "unstable", f"{len(digests)} different outputs in {REPLAYS} runs on the same input"
            )
        for _ in range(WARM_RUNS):
            self._function(*self._tensors)
        self._device.sync()
        return np.asarray(value)

    def time_us(self) -> float:
        """Microseconds of one run, by the device's own clock where it has one."""
        return float(self._evaluator(*self._tensors).mean * 1e6)


def _error(output: np.ndarray, request: Mapping[str, Any]) -> float:
    """The largest difference to the reference, relative to its largest value."""
    if request["write_reference"] or not request["reference"]:
        return 0.0
    wanted = np.load(request["reference"]).astype(np.float64)
    got = output.astype(np.float64)
    if not np.array_equal(np.isfinite(got), np.isfinite(wanted)):
        return float("inf")
    finite = np.isfinite(wanted)
    if not finite.any():
        return 0.0
    largest = float(np.abs(wanted[finite]).max()) or 1.0
    return float(np.abs(got[finite] - wanted[finite]).max()) / largest


def _compare(output: np.ndarray, request: Mapping[str, Any]) -> None:
    if request["write_reference"]:
        path = Path(request["reference"])
        partial = path.with_suffix(".part.npy")
        np.save(partial, output)
        partial.replace(path)
        return
    error = _error(output, request)
    if error > request["tolerance"]:
        raise _RefusedError(
            "wrong",
            f"off by {error:.1e} of the largest value, at most {request['tolerance']:.1e}",
        )


if __name__ == "__main__":
    sys.exit(main())
