"""Run a bundle on another machine through TVM's RPC protocol.

The peer is `adrenoc runtime serve`, `adrenoc_rpc`, or TVM's own server with our OpenCL runtime
loaded.  Every wait has a limit.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import AdrenocError, BundleError, RemoteError
from adrenoc.bundle.buckets import fit
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.answers import WrongAnswerError
from adrenoc.device.choose_edition import Chosen, choose_edition, run_with_edition
from adrenoc.device.compiled_for import compile_again, twin_name
from adrenoc.device.execute import execute
from adrenoc.device.failures import device_failure, diagnose, first_sentence
from adrenoc.device.fit import check_device, check_inputs, check_version
from adrenoc.device.opencl import choose_device
from adrenoc.device.remote_place import RemotePlace, absent_devices, remote_function
from adrenoc.device.result import Progress, RunOptions, RunResult, ms_since
from adrenoc.device.rpc_line import LOOPBACK, Line
from adrenoc.device.rpc_refusal import refusal
from adrenoc.device.tracker import HostPort, Tracker

if TYPE_CHECKING:
    import numpy as np

LATE = "no answer in time"
"""What the error of a server that does not answer says."""
_FROM_SERVER = "Error caught from RPC call"
# What TVM raises as an AttributeError.
_NO_FUNCTION = "Module has no function"
# In adrenoc/native/src/files/file_store.cc.
_NOT_KEPT = re.compile(r"Cannot keep \S+: .+")


@dataclass(frozen=True, kw_only=True)
class RemoteAddress:
    """Where a server is, the key that it asks for, and how long to wait for any answer (s).

    With `tracked`, `where` is a tracker and `key` the kind of server to ask it for.  The server is
    asked to stop a session after `session_s` (0: when it wants), whatever that does then.
    `phone` is the serial number of the phone that this command started it on.
    """

    where: HostPort
    key: str = ""
    tracked: bool = False
    timeout_s: float = 60.0
    session_s: float = 0.0
    phone: str = ""

    @staticmethod
    def server(text: str, *, key: str = "", timeout_s: float = 60.0) -> RemoteAddress:
        """A server by `HOST:PORT`.

        Raises:
            OptionError: it is of another form.
        """
        where = HostPort.parse(
            text, what="the server", example="adrenoc run BUNDLE --on 127.0.0.1:9090"
        )
        return RemoteAddress(where=where, key=key, timeout_s=timeout_s)

    @staticmethod
    def tracker(text: str, *, key: str, timeout_s: float = 60.0) -> RemoteAddress:
        """Any server of the kind `key` that the tracker at `HOST:PORT` knows.

        Raises:
            OptionError: it is of another form.
        """
        where = HostPort.parse(
            text, what="the tracker", example="adrenoc run BUNDLE --on tracker:K@127.0.0.1:9190"
        )
        return RemoteAddress(where=where, key=key, tracked=True, timeout_s=timeout_s)


def is_like_here(address: RemoteAddress) -> bool:
    """Whether a server's machine is of this computer's kind, which `host:DEVICE` compiles for.

    It is not known to be where the server no longer answers.
    """
    try:
        return describe(address).machine == platform.machine()
    except AdrenocError:
        return False


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
    others: Mapping[str, np.ndarray] | None = None,
    steps: Sequence[Mapping[str, np.ndarray]] = (),
    **changes: object,
) -> RunResult:
    """Run `bundle` with `inputs` on an OpenCL device of the server at `address`.

    Like `adrenoc.device.run.run_bundle`, with times as seen from here: they hold the way there
    and back.  With `others`, inputs of the same shapes, it also runs among runs of these.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        BundleError: the bundle is for another kind of machine, or another TVM.
        InputError: an input is missing, unknown, or of another shape or dtype.
        DeviceError: the server has no such device, or it lacks what the bundle needs, or failed.
    """
    wanted = replace(options or RunOptions(), **changes)  # type: ignore[arg-type]
    fitted = fit(bundle, inputs)
    check_inputs(fitted.bundle.manifest.inputs, fitted.inputs)
    told = progress or Progress()

    def run_edition(place: RemotePlace, chosen: Chosen) -> RunResult:
        part = fit(chosen.bundle, inputs)
        among = None if others is None else fit(chosen.bundle, others).inputs
        result = execute(place, part.bundle, part.inputs, wanted, told, others=among, steps=steps)
        sent = f"{place.sent_bytes / 1e6:.1f} MB were sent, {place.kept_bytes / 1e6:.1f} were there"
        device = f"{result.device} at {place.where}"
        return replace(result, device=device, notes=(*result.notes, sent))

    result = run_with_edition(
        bundle, lambda: remote_place(bundle, address, wanted.device), run_edition, told
    )
    return replace(result, outputs=fitted.crop(result.outputs))


@contextmanager
def remote_place(bundle: Bundle, address: RemoteAddress, device: str) -> Iterator[RemotePlace]:
    """A device of the server at `address` that can run `bundle`.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        BundleError: the bundle is for another kind of machine, or another TVM.
        DeviceError: the server has no such device, or it lacks what the bundle needs, or failed.
    """
    with open_session(address) as opened, _type_errors(opened.where, address, opened.line):
        place = _check_server(opened.session, bundle, device, opened.where)
        with diagnose(place):
            yield place


def describe(address: RemoteAddress) -> RemoteDevice:
    """Ask a server what it is.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        DeviceError: it cannot list its devices.
    """
    with open_session(address) as opened, _type_errors(opened.where, address, opened.line):
        session, where = opened.session, opened.where
        version = remote_function(session, "adrenoc.runtime.version")
        machine = remote_function(session, "adrenoc.runtime.machine")
        devices = remote_function(session, "adrenoc.opencl.devices")
        return RemoteDevice(
            where=str(where),
            version="" if version is None else str(version()),
            machine="" if machine is None else str(machine()),
            devices=() if devices is None else tuple(json.loads(devices())),
        )


@dataclass(frozen=True, kw_only=True)
class OpenSession:
    """A session of TVM with the server at `where`, and the way there."""

    session: Any
    where: HostPort
    line: Line


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
    line = Line(where, key=key, timeout_s=address.timeout_s, session_s=address.session_s)
    try:
        with _type_errors(where, address, line):
            from tvm import rpc

            session = rpc.connect(LOOPBACK, line.port, key=line.key)
        yield OpenSession(session=session, where=where, line=line)
    finally:
        line.cut()


@contextmanager
def _type_errors(where: HostPort, address: RemoteAddress, line: Line) -> Iterator[None]:
    """Turn what TVM raises into an error that says what to do."""
    started = time.perf_counter()
    try:
        yield
    except AttributeError as error:
        if _NO_FUNCTION not in str(error):
            raise
        raise RemoteError(
            f"the server at {where} cannot do what a run needs: {error}",
            hint="start adrenoc runtime serve or adrenoc_rpc of this version there",
        ) from error
    except (RuntimeError, ValueError, TypeError, MemoryError) as error:
        said = str(error)
        # What the server raised comes with this line before it; all else is the connection.
        if reason := refusal(said):
            raise RemoteError(
                f"the server at {where} did not start a session: {reason.splitlines()[0]}",
                hint="mend it on that machine; for its folder, adrenoc_rpc --folder or TMPDIR of "
                "adrenoc runtime serve name another place",
            ) from error
        if _FROM_SERVER in said.partition("\n")[0]:
            if kept := _NOT_KEPT.search(said):
                raise RemoteError(
                    f"the server at {where} has no place for what is sent: {kept[0]}",
                    hint="make room on that machine; adrenoc_rpc --folder and --store, or TMPDIR "
                    "of adrenoc runtime serve, name other places",
                ) from error
            raise device_failure(
                said,
                where=f"the device of the server at {where}",
                diagnosis=getattr(error, "diagnosis", None),
            ) from error
        ending = line.ending()
        if isinstance(error, WrongAnswerError) or (ending is not None and ending.kind == "wrong"):
            wrong = first_sentence(said) if ending is None else ending.reason
            raise RemoteError(
                f"the server at {where} answered what is no answer to what it was asked: {wrong}",
                hint="start adrenoc runtime serve or adrenoc_rpc of this version there; do "
                "not use a server that you do not trust",
            ) from error
        why = first_sentence(said)
        if ending is not None:
            why = LATE if ending.kind == "late" else ending.reason
        told = "look at the server's output (it serves one client at a time)"
        if address.phone:
            told = f"adb -s {address.phone} logcat -d shows what the phone's driver said"
        raise RemoteError(
            f"the server at {where} left or did not answer within {address.timeout_s:.0f} s "
            f"(after {ms_since(started) / 1000:.1f} s: {why})",
            hint=f"{told}; ADRENOC_TIMEOUT=SECONDS waits longer",
        ) from error


def no_runtime(where: HostPort) -> RemoteError:
    """The error for a server of another kind than ours."""
    return RemoteError(
        f"the server at {where} runs without adrenoc's OpenCL runtime",
        hint="start `adrenoc runtime serve` or `adrenoc_rpc` there",
    )


def _check_server(session: Any, bundle: Bundle, device: str, where: HostPort) -> RemotePlace:
    """Whether the bundle can run there, before anything is sent."""
    server = f"the server at {where}"
    wanted = bundle.manifest.library.machine
    machine = remote_function(session, "adrenoc.runtime.machine")
    if machine is not None and machine() != wanted:
        target = bundle.manifest.target.name
        is_like_this = machine() == platform.machine()
        device = shlex.quote(twin_name(bundle)) if is_like_this else "DEVICE of that machine"
        raise BundleError(
            f"{bundle.path} was compiled for {target} ({wanted}), but {server} is {machine()}",
            hint=compile_again(bundle, device),
        )
    version = remote_function(session, "adrenoc.runtime.version")
    if version is not None:
        check_version(bundle, str(version()), where=server)
    devices = remote_function(session, "adrenoc.opencl.devices")
    if devices is None:
        raise no_runtime(where)
    found = json.loads(devices())
    absent = absent_devices(session)
    number, facts = choose_device(found, device, absent=absent, server=server)
    chosen = choose_edition(bundle, facts)
    check_device(chosen.bundle, facts, where=f"the OpenCL device of {server}")
    return RemotePlace(session, number, facts, where=str(where))
