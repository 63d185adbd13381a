"""A session with a device: what is uploaded there, and trials that are built and measured there."""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from adrenoc.base.errors import AdrenocError, DeviceError, RemoteError
from adrenoc.device.answers import WrongAnswerError, check_answers
from adrenoc.device.place import absent_devices, choose_device, remote_function
from adrenoc.device.remote import RemoteAddress, no_runtime, open_session
from adrenoc.device.result import read_gpu_state
from adrenoc.ir.tuning_log import TunedDevice
from adrenoc.lab.tune.tasks import Argument, Variant

START_S = 90.0
"""Seconds that a session may take to start: a process, its libraries, a driver."""
SESSION_S = 120.0
"""The seconds after which a session is left for a new one, so that others come to the device."""
SERVER_GRACE_S = 6.0
"""The seconds that a server gets beyond the limit of a trial: it ends what is late by itself."""
FEWEST_TENSOR_BYTES = 256 << 20
MOST_TENSOR_BYTES = 2 << 30
SHARE_OF_MEMORY = 1 / 16
"""The share of a device's memory for tensors that stay there for the next trials."""
QUANTUM = 1.001 / 255
"""The largest difference of integers: where sums come in another order, roundings do."""
_FROM_SERVER = "Error caught from RPC call"

ABSENT = "absent"
"""What refuses a trial where no device is there."""


@dataclass(frozen=True, kw_only=True)
class DevicePlace:
    """Where to connect to, which device to take there, and the limit of one trial (s)."""

    server: RemoteAddress
    cl_device: str = ""
    limit_s: float = 20.0


@dataclass(frozen=True, kw_only=True)
class MeasureJob:
    """What a device measures: variants in turn, compared with the `reference` file.

    `tag` is for the one who asked.  A variant alone that takes longer than `stop_us` is measured
    once.  `operations`, those of `trial_measure.h`, stand in for variants.  `careful`: nothing
    else is built or measured beside it.  `tells_state`: the clock and the heat are asked for, too.
    """

    tag: Any = None
    variants: tuple[Variant, ...] = ()
    operations: tuple[Mapping[str, str | int], ...] = ()
    reference: Path | None = None
    write_reference: bool = False
    tolerance: float = 0.0
    stop_us: float = 0.0
    attempts: int = 1
    careful: bool = False
    tells_state: bool = False

    @property
    def compares(self) -> bool:
        """Return whether outputs are held against the reference."""
        return self.reference is not None and not self.write_reference


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What came of variants or operations in turn: for each, the time of one in each round (us).

    `refused` is empty where they were measured, else the kind of what was wrong, of the variant
    `index` where that is known.  `build_ms` is of all of them together; `output`, where it was
    asked for, is that of the last; `clock_mhz` and `temperature_c` are 0 where the device does not
    tell.  `by_host`: its events told of no time, so the host's clock did.
    """

    times_us: tuple[tuple[float, ...], ...] = ()
    errors: tuple[float, ...] = ()
    refused: str = ""
    index: int = -1
    detail: str = ""
    build_ms: float = 0.0
    output: np.ndarray | None = None
    clock_mhz: float = 0.0
    temperature_c: float = 0.0
    by_host: bool = False


class Session:
    """An open session. Raises AdrenocError where no device is there; RuntimeError, ValueError,
    AttributeError or OSError where the connection broke."""

    def __init__(self, place: DevicePlace) -> None:
        self._place = place
        # The server ends the session when it is far too old, whatever hangs in it.
        most_s = START_S + SESSION_S + 4 * (place.limit_s + SERVER_GRACE_S)
        address = replace(place.server, timeout_s=START_S, session_s=most_s)
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
        self._session, self._line = opened.session, opened.line
        self._stack.callback(self._leave)
        told = remote_function(self._session, "adrenoc.opencl.devices")
        if told is None:
            raise no_runtime(opened.where)
        devices = json.loads(told())
        self._number, facts = choose_device(
            devices,
            self._place.cl_device,
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
        self._start, self._is_built, self._measure, self._repeat, self._keep = (
            self._function(f"adrenoc.trials.{name}") for name in names
        )
        opened.line.limit_waits(self._place.limit_s + SERVER_GRACE_S)

    @property
    def is_old(self) -> bool:
        """Return whether it has lasted long enough."""
        return time.monotonic() - self._opened > SESSION_S

    def cut(self) -> None:
        """End the connection at once, for another thread than the one that uses it."""
        self._line.cut()

    def close(self) -> None:
        """End the session; a connection that is broken already does not matter."""
        self.forget()
        with suppress(AdrenocError, OSError):
            self._stack.close()

    def _leave(self) -> None:
        with suppress(RuntimeError, AttributeError):  # it may be closed already
            self._session.get_function("CloseRPCConnection")()

    def _device(self, facts: Mapping[str, Any]) -> TunedDevice:
        state = read_gpu_state(self._function("adrenoc.runtime.gpu_state"))
        return TunedDevice(
            name=str(facts.get("name", "")),
            driver=str(facts.get("driver", "")),
            platform=str(facts.get("platform", "")),
            clock_mhz=round(state.clock_mhz),
        )

    def _function(self, name: str) -> Callable[..., Any]:
        return check_answers(name, self._session.get_function(name))

    # Trials

    def start(self, job: MeasureJob) -> int:
        """Begin to build the kernels of a trial; its number there."""
        kernels = [
            {
                "name": variant.kernel,
                "source": variant.source,
                "global": variant.work_items,
                "local": variant.work_group,
            }
            for variant in job.variants
        ]
        text = json.dumps({"kernels": kernels, "limit_s": self._place.limit_s})
        return int(self._start(self._number, text))

    def is_built(self, number: int, wait_ms: int) -> bool:
        """Return whether the kernels of a trial are built, or refused."""
        return bool(self._is_built(number, wait_ms))

    def prepare(self, job: MeasureJob) -> list[Any]:
        """Return the tensors of a trial, uploaded where they are not there yet."""
        while self._tensor_bytes > self._room_bytes:
            self._drop(next(iter(self._tensors)))
        tensors = [self._reference(str(job.reference))] if job.compares else []
        for variant in job.variants:
            tensors += [self._tensor(argument, job) for argument in variant.arguments]
        return tensors

    def measure(self, number: int, job: MeasureJob, tensors: Sequence[Any]) -> TrialResult:
        """Measure a trial; one that is refused tells its kind and whose fault it is. Raises
        RuntimeError where the device failed, or the connection broke."""
        self.measured += 1
        is_bytes = bool(job.variants) and job.variants[-1].bytes
        settings = {
            "counts": [len(variant.arguments) for variant in job.variants],
            "limit_s": self._place.limit_s,
            "tolerance": max(job.tolerance, QUANTUM if is_bytes else 0.0),
            "stop_us": job.stop_us,
            "bytes": is_bytes,
            "compare": job.compares,
            **({"operations": job.operations} if job.operations else {}),
        }
        found = json.loads(self._measure(number, json.dumps(settings), *tensors))
        _check_result(found, len(job.variants) or len(job.operations))
        if "refused" in found:
            return TrialResult(
                refused=found["refused"], index=found["index"], detail=found["detail"][-400:]
            )
        if job.write_reference and job.reference is not None:
            self._keep_reference(job.reference, tensors[-1])
        result = TrialResult(
            times_us=tuple(map(tuple, found["times_us"])),
            errors=tuple(found["errors"]),
            by_host=found.get("by_host") is True,
        )
        if not job.tells_state:
            return result
        state = read_gpu_state(self._function("adrenoc.runtime.gpu_state"))
        return replace(result, clock_mhz=state.clock_mhz, temperature_c=state.temperature_c)

    def forget(self) -> None:
        """Drop all tensors: the next trials get new ones."""
        self._tensors.clear()
        self._tensor_bytes = 0

    def _drop(self, key: tuple[str, str]) -> None:
        if key in self._tensors:
            self._tensor_bytes -= _bytes(self._tensors.pop(key))

    def _tensor(self, argument: Argument, job: MeasureJob) -> Any:
        # An output serves all candidates of its task.
        what = argument.file or f"{job.reference} {argument.shape} {argument.dtype}"
        return self._remember((what, argument.scope), lambda: self._upload(argument))

    def _upload(self, argument: Argument) -> Any:
        scope = None if argument.scope == "global" else argument.scope
        tensor = tvm.runtime.empty(
            argument.shape, argument.dtype, self._device_handle, mem_scope=scope
        )
        if argument.repeated:
            self._repeat(self._copy_to_host(np.load(argument.file)), tensor)
        elif argument.file:
            tensor.copyfrom(np.load(argument.file))
        return tensor

    def _copy_to_host(self, value: np.ndarray) -> Any:
        tensor = tvm.runtime.empty(value.shape, str(value.dtype), self._session.cpu())
        tensor.copyfrom(value)
        return tensor

    def _reference(self, file: str) -> Any:
        return self._remember((file, "host"), lambda: self._copy_to_host(np.load(file)))

    def _keep_reference(self, path: Path, output: Any) -> None:
        """Have an output here, for later sessions, and there, where most candidates come."""
        partial = path.with_suffix(".part.npy")
        np.save(partial, output.numpy())
        partial.replace(path)
        here = tvm.runtime.empty(output.shape, str(output.dtype), self._session.cpu())
        self._keep(output, here)
        self._drop((str(path), "host"))
        self._remember((str(path), "host"), lambda: here)

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
    """Refuse a result that is of other variants than were sent. Raises WrongAnswerError where it
    is."""
    if "refused" in found:
        fits = found["index"] in range(-1, variants)
    else:
        times_us, errors = found["times_us"], found["errors"]
        fits = len(times_us) == len(errors) == variants and all(
            times and min(times) > 0 for times in times_us
        )
    if not fits:
        raise WrongAnswerError(f"adrenoc.trials.measure told of other than {variants} variants")
