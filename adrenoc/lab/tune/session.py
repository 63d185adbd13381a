"""A session with a device: what is uploaded there, and trials that are built and measured there."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError
from adrenoc.base.host.proc import own_module
from adrenoc.device.answers import WrongAnswerError
from adrenoc.device.opencl import choose_device
from adrenoc.device.place import absent_devices, remote_function
from adrenoc.device.profile import read_gpu_state
from adrenoc.device.remote import RemoteAddress, no_runtime, open_session
from adrenoc.device.tracker import HostPort

START_S = 90.0
"""Seconds that a session may take to start: a process, its libraries, a driver that looks for its
devices."""
SESSION_S = 120.0
"""The seconds after which a session is left for a new one, so that others come to the device
too."""
SERVER_GRACE_S = 6.0
"""The seconds that a server gets beyond the limit of a trial: it ends what is late by itself."""
FEWEST_TENSOR_BYTES = 256 << 20
MOST_TENSOR_BYTES = 2 << 30
SHARE_OF_MEMORY = 1 / 16
"""The share of a device's memory for tensors that stay there for the next trials, within those
bounds."""
QUANTUM = 1.001 / 255
"""The largest difference of integers: where sums come in another order, roundings do."""
_FROM_SERVER = "Error caught from RPC call"

Request = Mapping[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TunerAddress:
    """Where to connect to, which device to take there, and the limit of one trial (s)."""

    host: str
    port: int
    key: str
    tracked: bool
    device: str
    limit_s: float


class Session:
    """An open session.

    Raises:
        AdrenocError: no device is there.
        RuntimeError, ValueError, AttributeError, OSError: the connection broke.
    """

    def __init__(self, place: TunerAddress) -> None:
        self._place = place
        # The server ends the session when it is far too old, whatever hangs in it.
        most_s = START_S + SESSION_S + 4 * (place.limit_s + SERVER_GRACE_S)
        address = RemoteAddress(
            where=HostPort(host=place.host, port=place.port),
            key=place.key,
            tracked=place.tracked,
            timeout_s=START_S,
            session_s=most_s,
        )
        with ExitStack() as stack:  # what was opened is closed where the rest fails
            self._stack = stack
            self._open(address)
            self._stack = stack.pop_all()
        self._tensors: dict[tuple[str, str], Any] = {}  # the last one used is the last
        self._tensor_bytes = 0
        self._opened = time.monotonic()
        self.measured = 0

    def _open(self, address: RemoteAddress) -> None:
        opened = self._stack.enter_context(open_session(address))
        self._session = opened.session
        self._stack.callback(self._leave)
        told = self._function("adrenoc.opencl.devices")
        if told is None:
            raise no_runtime(opened.where)
        devices = json.loads(told())
        self._number, facts = choose_device(
            devices,
            self._place.device,
            absent=absent_devices(self._session),
            server=f"the server at {opened.where}",
        )
        self.is_cpu = facts.get("type") == "cpu"
        """Whether what builds kernels takes time from what runs them."""
        self.device = self._device(facts)
        self.facts = facts
        self._room_bytes = _room_bytes(facts)
        self._device_handle = self._session.device("opencl", self._number)
        names = ("start", "is_built", "measure", "repeat", "keep")
        found = [self._function(f"adrenoc.trials.{name}") for name in names]
        functions = [function for function in found if function is not None]
        if len(functions) < len(names):
            raise RemoteError(
                f"the runtime at {opened.where} is an older one and cannot measure for a tuner",
                hint="start adrenoc runtime serve or adrenoc_rpc of this version there",
            )
        self._start, self._is_built, self._measure, self._repeat, self._keep = functions
        opened.line.limit_waits(self._place.limit_s + SERVER_GRACE_S)

    @property
    def is_old(self) -> bool:
        """Whether it has lasted long enough."""
        return time.monotonic() - self._opened > SESSION_S

    def close(self) -> None:
        """End the session; a connection that is broken already does not matter."""
        self.forget()
        with suppress(AdrenocError, OSError):
            self._stack.close()

    def _leave(self) -> None:
        with suppress(RuntimeError, AttributeError):  # it may be closed already
            self._session.get_function("CloseRPCConnection")()

    def _device(self, facts: Mapping[str, Any]) -> Answer:
        state = read_gpu_state(self._function("adrenoc.runtime.gpu_state"))
        return {
            "name": str(facts.get("name", "")),
            "driver": str(facts.get("driver", "")),
            "platform": str(facts.get("platform", "")),
            "clock_mhz": round(state.clock_mhz),
        }

    def _function(self, name: str) -> Callable[..., Any] | None:
        return remote_function(self._session, name)

    # Trials

    def start(self, request: Request) -> int:
        """Begin to build the kernels of a trial; its number there."""
        kernels = [
            {
                "name": variant["kernel"],
                "source": variant["source"],
                "global": variant["work_items"],
                "local": variant["work_group"],
            }
            for variant in request["variants"]
        ]
        text = json.dumps({"kernels": kernels, "limit_s": self._place.limit_s})
        return int(self._start(self._number, text))

    def is_built(self, number: int, wait_ms: int) -> bool:
        """Return whether the kernels of a trial are built, or refused."""
        return bool(self._is_built(number, wait_ms))

    def prepare(self, request: Request) -> list[Any]:
        """Return the tensors of a trial, uploaded where they are not there yet."""
        self._make_room()
        tensors = []
        if _compares(request):
            tensors.append(self._reference(request["reference"]))
        for variant in request["variants"]:
            tensors += [self._tensor(argument, request) for argument in variant["arguments"]]
        return tensors

    def measure(self, number: int, request: Request, tensors: Sequence[Any]) -> Answer:
        """Measure a trial: `measured`, or `refused` with its `kind` and whose fault it is.

        A request with `operations`, which are those of `host_operations.h`, has no variants.

        Raises:
            RuntimeError: the device failed, or the connection broke.
        """
        self.measured += 1
        variants, operations = request["variants"], request.get("operations", [])
        is_bytes = bool(variants) and variants[-1]["bytes"]
        tolerance = max(request["tolerance"], QUANTUM if is_bytes else 0.0)
        settings = {
            "counts": [len(variant["arguments"]) for variant in variants],
            "limit_s": self._place.limit_s,
            "tolerance": tolerance,
            "stop_us": request["stop_us"],
            "bytes": is_bytes,
            "compare": _compares(request),
            **({"operations": operations} if operations else {}),
        }
        found = json.loads(self._measure(number, json.dumps(settings), *tensors))
        _check_result(found, len(variants) or len(operations))
        if "refused" in found:
            return {
                "event": "refused",
                "kind": found["refused"],
                "index": found["index"],
                "detail": found["detail"][-400:],
            }
        if request["write_reference"]:
            self._keep_reference(request["reference"], tensors[-1])
        answer = {"event": "measured", "times_us": found["times_us"], "errors": found["errors"]}
        answer["by_host"] = found.get("by_host") is True
        if request.get("state", False):
            state = read_gpu_state(self._function("adrenoc.runtime.gpu_state"))
            answer |= {"clock_mhz": state.clock_mhz, "temperature_c": state.temperature_c}
        return answer

    def forget(self) -> None:
        """Drop all tensors: the next trials get new ones."""
        self._tensors.clear()
        self._tensor_bytes = 0

    def _make_room(self) -> None:
        """Drop what was not used for longest, until the rest fits."""
        while self._tensor_bytes > self._room_bytes:
            self._drop(next(iter(self._tensors)))

    def _drop(self, key: tuple[str, str]) -> None:
        if key in self._tensors:
            self._tensor_bytes -= _bytes(self._tensors.pop(key))

    def _tensor(self, argument: Mapping[str, Any], request: Request) -> Any:
        shape, dtype, scope = argument["shape"], argument["dtype"], argument["scope"]
        # An output serves all candidates of its task.
        what = argument["file"] or f"{request['reference']} {shape} {dtype}"
        return self._remember((what, scope), lambda: self._upload(argument))

    def _upload(self, argument: Mapping[str, Any]) -> Any:
        import tvm

        scope = argument["scope"]
        tensor = tvm.runtime.empty(
            tuple(argument["shape"]),
            argument["dtype"],
            self._device_handle,
            mem_scope=None if scope == "global" else scope,
        )
        if argument["repeated"]:
            self._repeat(self._copy_to_host(np.load(argument["file"])), tensor)
        elif argument["file"]:
            tensor.copyfrom(np.load(argument["file"]))
        return tensor

    def _copy_to_host(self, value: np.ndarray) -> Any:
        """In the memory of the server."""
        import tvm

        tensor = tvm.runtime.empty(value.shape, str(value.dtype), self._session.cpu())
        tensor.copyfrom(value)
        return tensor

    def _reference(self, file: str) -> Any:
        return self._remember((file, "host"), lambda: self._copy_to_host(np.load(file)))

    def _keep_reference(self, file: str, output: Any) -> None:
        """Have an output here, for later sessions, and there, where most candidates come."""
        import tvm

        _save(file, output.numpy())
        here = tvm.runtime.empty(output.shape, str(output.dtype), self._session.cpu())
        self._keep(output, here)
        self._drop((file, "host"))
        self._remember((file, "host"), lambda: here)

    def _remember(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        tensor = self._tensors.pop(key, None)
        if tensor is None:
            tensor = make()
            self._tensor_bytes += _bytes(tensor)
        self._tensors[key] = tensor
        return tensor


def _room_bytes(facts: Mapping[str, Any]) -> int:
    known = facts.get("limits", {}).get("global_memory_bytes", 0)
    return int(min(MOST_TENSOR_BYTES, max(FEWEST_TENSOR_BYTES, SHARE_OF_MEMORY * known)))


def _bytes(tensor: Any) -> int:
    return math.prod(tensor.shape) * np.dtype(str(tensor.dtype)).itemsize


def read_failure(error: Exception) -> tuple[str, str]:
    """Read how a session failed, and what it said: `failed` is the device's word, `lost` none."""
    if isinstance(error, AdrenocError):
        lost = isinstance(error, RemoteError | DeviceError)
        return "lost" if lost else "failed", error.message
    first, _, rest = str(error).partition("\n")
    detail = next((line.strip() for line in rest.splitlines() if line.strip()), first)
    return "failed" if _FROM_SERVER in first else "lost", detail[:400]


def _check_result(found: Mapping[str, Any], variants: int) -> None:
    """Refuse a result that is of other variants than were sent.

    Raises:
        WrongAnswerError: it is.
    """
    if "refused" in found:
        fits = found["index"] in range(-1, variants)
    else:
        times_us, errors = found["times_us"], found["errors"]
        fits = len(times_us) == len(errors) == variants and all(
            times and min(times) > 0 for times in times_us
        )
    if not fits:
        raise WrongAnswerError(f"adrenoc.trials.measure told of other than {variants} variants")


def _compares(request: Request) -> bool:
    return bool(request["reference"]) and not request["write_reference"]


def _save(reference: str, output: np.ndarray) -> None:
    path = Path(reference)
    partial = path.with_suffix(".part.npy")
    np.save(partial, output)
    partial.replace(path)


GRACE_S = 6.0
"""Seconds that a worker which noticed a time-out itself may take to say so."""

Event = dict[str, Any]


class Worker:
    """A worker process, started ahead and again after it died or was killed.

    `begun` is the trial that the device has, by its number; `overdue` tells that an answer is late.
    """

    def __init__(self, place: TunerAddress) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._due = time.monotonic()
        self.begun: int | None = None

    def start(self) -> None:
        """Start a process where none runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        place = json.dumps(self._place.__dict__)
        self._process = subprocess.Popen(
            own_module("adrenoc.lab.tune.worker", place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tuner
        )
        self._await()

    def send(self, request: dict[str, Any]) -> bool:
        """Hand over a trial; False where the process is gone."""
        process = self._process
        if process is None or process.stdin is None:
            return False
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def event(self, timeout_s: float) -> Event | None:
        """Return the next event that the worker tells; None where there is none in that time.

        Raises:
            EOFError: the process is gone.
        """
        line = self._line(timeout_s)
        if line is None:
            return None
        event: Event = json.loads(line)
        self.begun = event["id"] if event["event"] == "begin" else None
        self._await()
        return event

    @property
    def overdue(self) -> bool:
        """Whether an answer of the worker is late."""
        return time.monotonic() > self._due

    def rest(self) -> None:
        """Tell the worker that it has had nothing to do: what it says next is not late."""
        self._await()

    def kill(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._buffer, self.begun = b"", None
        if process is None:
            return
        with suppress(OSError):
            process.kill()
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()

    def _await(self) -> None:
        limit_s = self._place.limit_s + SERVER_GRACE_S + GRACE_S
        self._due = time.monotonic() + limit_s + (START_S if self.begun is None else 0.0)

    def _line(self, timeout_s: float) -> bytes | None:
        end = time.monotonic() + timeout_s
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        try:
            while b"\n" not in self._buffer:
                left_s = max(0.0, end - time.monotonic())
                if not select.select([process.stdout], [], [], left_s)[0]:
                    return None
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise EOFError
                self._buffer += piece
        except (OSError, ValueError) as error:  # killed by the one who ends the lane
            raise EOFError from error
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
