"""Run a bundle on another machine through TVM's RPC protocol.

The peer is `adrenoc serve`, `adrenoc_rpc`, or TVM's own server with adrenoc's OpenCL runtime
loaded.  Every wait has a limit.
"""

from __future__ import annotations

import json
import re
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adrenoc.bundle.buckets import fit
from adrenoc.bundle.bundle import LIBRARY, PARAMS, Bundle
from adrenoc.device.execute import execute
from adrenoc.device.failures import device_failure, diagnosed, first_sentence
from adrenoc.device.fit import check_device, check_inputs, check_version
from adrenoc.device.opencl import choose_device
from adrenoc.device.place import OPENCL, upload
from adrenoc.device.result import Progress, RunOptions, RunResult, ms_since
from adrenoc.device.rpc_limits import SessionLine, limited
from adrenoc.device.rpc_refusal import refusal
from adrenoc.device.tracker import HostPort, Tracker
from adrenoc.errors import BundleError, RemoteError

if TYPE_CHECKING:
    import numpy as np

_FROM_SERVER = "Error caught from RPC call"
# In adrenoc/native/src/file_store.cc.
_NOT_KEPT = re.compile(r"Cannot keep \S+: .+")


@dataclass(frozen=True, kw_only=True)
class RemoteAddress:
    """Where a server is, the key that it asks for, and how long to wait for any answer (s).

    With `tracked`, `where` is a tracker and `key` the kind of server to ask it for.  The server is
    asked to stop a session after `session_s` (0: when it wants), whatever that does then.
    """

    where: HostPort
    key: str = ""
    tracked: bool = False
    timeout_s: float = 60.0
    session_s: float = 0.0

    @staticmethod
    def server(text: str, *, key: str = "", timeout_s: float = 60.0) -> RemoteAddress:
        """A server by `HOST:PORT`.

        Raises:
            OptionError: it is of another form.
        """
        where = HostPort.parse(
            text, what="the server", example="adrenoc run BUNDLE --rpc 127.0.0.1:9090"
        )
        return RemoteAddress(where=where, key=key, timeout_s=timeout_s)

    @staticmethod
    def tracker(text: str, *, key: str, timeout_s: float = 60.0) -> RemoteAddress:
        """Any server of the kind `key` that the tracker at `HOST:PORT` knows.

        Raises:
            OptionError: it is of another form.
        """
        where = HostPort.parse(
            text, what="the tracker", example="adrenoc run BUNDLE --tracker 127.0.0.1:9190 --key K"
        )
        return RemoteAddress(where=where, key=key, tracked=True, timeout_s=timeout_s)


@dataclass(frozen=True, kw_only=True)
class RemoteDevice:
    """A server and what it says of itself; `version` and `machine` are empty where it does not."""

    where: str
    version: str
    machine: str
    devices: tuple[dict[str, Any], ...]


def run_remote(
    bundle: Bundle,
    address: RemoteAddress,
    *,
    inputs: Mapping[str, np.ndarray],
    options: RunOptions | None = None,
    progress: Progress | None = None,
    **changes: object,
) -> RunResult:
    """Run `bundle` with `inputs` on an OpenCL device of the server at `address`.

    Like `adrenoc.device.run.run_bundle`, with times as seen from here: they hold the way there
    and back.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        BundleError: the bundle is for another kind of machine, or another TVM.
        InputError: an input is missing, unknown, or of another shape or dtype.
        DeviceError: the server has no such device, or it lacks what the bundle needs, or failed.
    """
    wanted = replace(options or RunOptions(), **changes)  # type: ignore[arg-type]
    fitted = fit(bundle, inputs)
    check_inputs(fitted.bundle.manifest.inputs, fitted.inputs)
    with remote_place(bundle, address, wanted.device) as (place, where):
        result = execute(place, fitted.bundle, fitted.inputs, wanted, progress or Progress())
        result = replace(result, outputs=fitted.crop(result.outputs))
        sent = f"{place.sent_bytes / 1e6:.1f} MB were sent, {place.kept_bytes / 1e6:.1f} were there"
        return replace(result, device=f"{result.device} at {where}", notes=(*result.notes, sent))


@contextmanager
def remote_place(
    bundle: Bundle, address: RemoteAddress, device: str
) -> Iterator[tuple[RemotePlace, HostPort]]:
    """A device of the server at `address` that can run `bundle`, and where the server is.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        BundleError: the bundle is for another kind of machine, or another TVM.
        DeviceError: the server has no such device, or it lacks what the bundle needs, or failed.
    """
    with open_session(address) as opened, _typed_errors(opened.where, address):
        place = _check_server(opened.session, bundle, device, opened.where)
        with diagnosed(place):
            yield place, opened.where


def describe(address: RemoteAddress) -> RemoteDevice:
    """Ask a server what it is.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        DeviceError: it cannot list its devices.
    """
    with open_session(address) as opened, _typed_errors(opened.where, address):
        session, where = opened.session, opened.where
        version = _remote_function(session, "adrenoc.runtime.version")
        machine = _remote_function(session, "adrenoc.runtime.machine")
        devices = _remote_function(session, "adrenoc.opencl.devices")
        return RemoteDevice(
            where=str(where),
            version="" if version is None else str(version()),
            machine="" if machine is None else str(machine()),
            devices=() if devices is None else tuple(json.loads(devices())),
        )


@dataclass(frozen=True, kw_only=True)
class OpenSession:
    """A session of TVM with the server at `where`, and its connection."""

    session: Any
    where: HostPort
    line: SessionLine


@contextmanager
def open_session(address: RemoteAddress) -> Iterator[OpenSession]:
    """A session with a server.

    Raises:
        RemoteError: the tracker or the server is not there, refuses, or takes too long.
    """
    where, key = address.where, address.key
    if address.tracked:
        tracker = Tracker(where, timeout_s=address.timeout_s)
        try:
            offer = tracker.request(key)
        finally:
            tracker.close()
        where, key = offer.address, offer.key
    else:
        _greet(where, address.timeout_s)
    line = SessionLine(where.host, where.port)
    ended_well = False
    try:
        with _typed_errors(where, address):
            with limited(where.host, where.port, address.timeout_s):
                from tvm import rpc

                session = rpc.connect(
                    where.host, where.port, key=key, session_timeout=address.session_s
                )
            line.limit_waits(address.timeout_s)
        yield OpenSession(session=session, where=where, line=line)
        ended_well = True
    finally:
        if not ended_well:
            line.cut()


def _greet(where: HostPort, timeout_s: float) -> None:
    """See whether anybody listens, so that the usual mistakes get their own messages."""
    try:
        socket.create_connection((where.host, where.port), timeout_s).close()
    except OSError as error:
        raise RemoteError(
            f"no server at {where}: {error.strerror or error}",
            hint="adrenoc serve starts one on that machine",
        ) from error


@contextmanager
def _typed_errors(where: HostPort, address: RemoteAddress) -> Iterator[None]:
    """Turn what TVM raises into an error that says what to do."""
    started = time.perf_counter()
    try:
        yield
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        said = str(error)
        # What the server raised comes with this line before it; all else is the connection.
        if reason := refusal(said):
            raise RemoteError(
                f"the server at {where} did not start a session: {reason.splitlines()[0]}",
                hint="mend it on that machine; for its folder, adrenoc_rpc --folder or TMPDIR of "
                "adrenoc serve name another place",
            ) from error
        if _FROM_SERVER in said.partition("\n")[0]:
            if kept := _NOT_KEPT.search(said):
                raise RemoteError(
                    f"the server at {where} has no place for what is sent: {kept[0]}",
                    hint="make room on that machine; adrenoc_rpc --folder and --store, or TMPDIR "
                    "of adrenoc serve, name other places",
                ) from error
            raise device_failure(
                said,
                where=f"the device of the server at {where}",
                diagnosis=getattr(error, "diagnosis", None),
            ) from error
        if "cannot find server that matches key" in said:
            raise RemoteError(
                f'the server at {where} does not take the key "{address.key}"',
                hint="adrenoc run --rpc HOST:PORT --key KEY with the key of the server",
            ) from error
        raise RemoteError(
            f"the server at {where} left or did not answer within {address.timeout_s:.0f} s "
            f"(after {ms_since(started) / 1000:.1f} s: {first_sentence(said)})",
            hint="look at the server's output (it serves one client at a time); "
            "--timeout SECONDS waits longer",
        ) from error


def _check_server(session: Any, bundle: Bundle, device: str, where: HostPort) -> RemotePlace:
    """Whether the bundle can run there, before anything is sent."""
    server = f"the server at {where}"
    wanted = bundle.manifest.library.machine
    machine = _remote_function(session, "adrenoc.runtime.machine")
    if machine is not None and machine() != wanted:
        raise BundleError(
            f"{bundle.path} was compiled for {bundle.manifest.target.name} ({wanted}), "
            f"but {server} is {machine()}",
            hint=f"adrenoc compile {shlex.quote(bundle.manifest.model.file)} --device DEVICE "
            "of that machine",
        )
    version = _remote_function(session, "adrenoc.runtime.version")
    if version is not None:
        check_version(bundle, str(version()), where=server)
    devices = _remote_function(session, "adrenoc.opencl.devices")
    if devices is None:
        raise RemoteError(
            f"{server} runs without adrenoc's OpenCL runtime",
            hint="start `adrenoc serve` or `adrenoc_rpc` there",
        )
    number, facts = choose_device(json.loads(devices()), device)
    check_device(bundle, facts, where=f"the OpenCL device of {server}")
    return RemotePlace(session, number, facts)


def _remote_function(session: Any, name: str) -> Callable[..., Any] | None:
    try:
        found: Callable[..., Any] = session.get_function(name)
    except AttributeError:  # what TVM raises for a name that the server does not know
        return None
    return found


class RemotePlace:
    """A device of a server; what the server has by digest is not sent again."""

    def __init__(self, session: Any, number: int, facts: dict[str, Any]) -> None:
        self._session = session
        self.number = number
        self.facts = facts
        self.sent_bytes = 0
        self.kept_bytes = 0

    def function(self, name: str) -> Callable[..., Any] | None:
        """See `Place`."""
        return _remote_function(self._session, name)

    def device(self) -> Any:
        """See `Place`."""
        return self._session.device(OPENCL, self.number)

    def cpu(self) -> Any:
        """See `Place`."""
        return self._session.cpu()

    def load(self, bundle: Bundle) -> Any:
        """See `Place`."""
        digest = self._keep(bundle, LIBRARY)
        load = self.function("adrenoc.store.load_module")
        if digest and load is not None:
            return load(digest)
        self._session.upload(str(bundle.library), LIBRARY)
        self.sent_bytes += bundle.library.stat().st_size
        return self._session.load_module(LIBRARY)

    def constants(self, bundle: Bundle) -> list[Any]:
        """See `Place`."""
        specs = bundle.manifest.params
        digest = self._keep(bundle, PARAMS) if specs else ""
        stored = self.function("adrenoc.store.tensor")
        if digest and stored is not None:
            kind = _device_type()
            return [stored(digest, spec.name, kind, self.number, spec.scope) for spec in specs]
        device, arrays = self.device(), bundle.params()
        self.sent_bytes += sum(arrays[spec.name].nbytes for spec in specs)
        return [upload(spec, arrays[spec.name], device) for spec in specs]

    def embedded(self, bundle: Bundle) -> str:
        """See `Place`; the server has a cache of its own."""
        return ""

    def fields(self, result: Any, count: int) -> list[Any]:
        """See `Place`."""
        if hasattr(result, "numpy"):
            return [result]
        # A tuple stays there, and its fields are asked for.
        field = self._session.get_function("vm.builtin.tuple_getitem")
        return [field(result, index) for index in range(count)]

    def _keep(self, bundle: Bundle, path: str) -> str:
        """Have a file of the bundle in the server's store; its digest, or nothing without one."""
        has = self.function("adrenoc.store.has")
        keep = self.function("adrenoc.store.keep")
        if has is None or keep is None:
            return ""
        entry = next(entry for entry in bundle.manifest.files if entry.path == path)
        if has(entry.sha256):
            self.kept_bytes += entry.bytes
            return entry.sha256
        self._session.upload(str(bundle.file(path)), path)
        keep(path, entry.sha256)
        self.sent_bytes += entry.bytes
        return entry.sha256


def _device_type() -> int:
    import tvm

    return int(tvm.runtime.device(OPENCL, 0).dlpack_device_type())
