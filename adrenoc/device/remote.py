"""Run a bundle on another machine through TVM's RPC protocol.

The peer is `adrenoc runtime serve`, `adrenoc_rpc`, or TVM's own server with our OpenCL runtime
loaded.  Every wait has a limit.

TVM connects to a process of ours in between (`adrenoc.device.rpc_relay`), never to the server:
what a server sends must not end, hang or misguide the process that runs TVM.
"""

from __future__ import annotations

import json
import platform
import re
import secrets
import select
import shlex
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from adrenoc.base.errors import AdrenocError, BundleError, RemoteError
from adrenoc.base.host.proc import own_module
from adrenoc.base.reporter import ms_since
from adrenoc.bundle.buckets import fit
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.answers import WrongAnswerError
from adrenoc.device.execute import execute
from adrenoc.device.fit import (
    Chosen,
    check_device,
    check_inputs,
    check_version,
    choose_edition,
    compile_again,
    device_failure,
    diagnose,
    first_sentence,
    run_with_edition,
    twin_name,
)
from adrenoc.device.peers import MAGIC, MISMATCH, HostPort, TrackedServer, Tracker
from adrenoc.device.place import RemotePlace, absent_devices, choose_device, remote_function
from adrenoc.device.result import Progress, RunOptions, RunResult
from adrenoc.device.rpc_session import refusal

if TYPE_CHECKING:
    import numpy as np


LOOPBACK = "127.0.0.1"
_LONGEST_KEY = 1024
_HEAD = struct.Struct("<ii")
_WORDS_BYTES = 1 << 16
# A relay that closed its connection has said why before.
_REASON_MS = 1000
_LAST_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the way ended: `kind` is "left", "late" or "wrong", `reason` what is known of it."""

    kind: str
    reason: str


class RelayedServer:
    """A greeted server behind a relay; TVM finds it at `LOOPBACK`, `port`, and shows `key`. Raises
    RemoteError where no server listens there, it does not take the key or does not answer."""

    def __init__(
        self, where: HostPort, *, key: str, timeout_s: float, session_s: float = 0.0
    ) -> None:
        self.key = secrets.token_hex(16)
        self._ending: Ending | None = None
        with _connect(where, key, timeout_s, session_s) as server:
            try:
                self._start(server, timeout_s)
            except OSError as error:
                raise RemoteError(
                    f"cannot start the process that talks to the server at {where}: {error}",
                    hint="this machine is short of processes, memory or open files: make room",
                ) from error

    def _start(self, server: socket.socket, timeout_s: float) -> None:
        # None of its ends stays here: where it dies, TVM's connection has to end.
        with socket.create_server((LOOPBACK, 0)) as listening:
            self.port = int(listening.getsockname()[1])
            self._channel, theirs = socket.socketpair()
            with theirs:
                ends = (server.fileno(), listening.fileno(), theirs.fileno())
                self._process = subprocess.Popen(
                    own_module("adrenoc.device.rpc_relay", *map(str, ends)),
                    pass_fds=ends,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for us
                )
        self._order({"key": self.key, "limit_s": timeout_s})

    def limit_waits(self, timeout_s: float) -> None:
        """Give the server so long for each answer from now on."""
        self._order({"limit_s": timeout_s})

    def _order(self, order: dict[str, object]) -> None:
        with suppress(OSError):  # it has ended: TVM notices
            self._channel.sendall(json.dumps(order).encode() + b"\n")

    def ending(self) -> Ending | None:
        """Return how it ended, if the server ended it; to be asked once TVM failed."""
        if self._ending is None and self._channel.fileno() >= 0:
            waiting = select.poll()
            waiting.register(self._channel, select.POLLIN)
            words = b""
            with suppress(OSError):
                while waiting.poll(_REASON_MS) and (piece := self._channel.recv(_WORDS_BYTES)):
                    words += piece
            if words.endswith(b"\n"):
                self._ending = Ending(**json.loads(words))
        return self._ending if self._ending and self._ending.kind != "closed" else None

    def cut(self) -> None:
        """End it now: whoever asks the server for something from now on is told at once. TVM asks
        it to free each remote object that goes, and would wait for each answer."""
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_S)
            return
        self._process.kill()
        self._process.wait()


def _connect(where: HostPort, key: str, timeout_s: float, session_s: float) -> socket.socket:
    try:
        server = socket.create_connection((where.host, where.port), timeout_s)
    except (OSError, UnicodeError) as error:
        raise RemoteError(
            f"no server at {where}: {getattr(error, 'strerror', None) or error}",
            hint="adrenoc runtime serve starts one on that machine",
        ) from error
    started = time.monotonic()
    try:
        _greet(server, where, key, started + timeout_s, session_s)
    except OSError as error:
        server.close()
        raise RemoteError(
            f"the server at {where} left or did not answer within {timeout_s:.0f} s "
            f"(after {time.monotonic() - started:.1f} s: {error.strerror or error})",
            hint="look at the server's output (it serves one client at a time); "
            "ADRENOC_TIMEOUT=SECONDS waits longer",
        ) from error
    except RemoteError:
        server.close()
        raise
    return server


def _greet(server: socket.socket, where: HostPort, key: str, end: float, session_s: float) -> None:
    said = f"client:{key}" + (f" -timeout={session_s}" if session_s else "")
    words = said.encode("utf-8", "surrogateescape")
    server.sendall(_HEAD.pack(MAGIC, len(words)) + words)
    (magic,) = struct.unpack("<i", _receive(server, 4, end))
    if magic == MISMATCH:
        raise RemoteError(
            f'the server at {where} does not take the key "{key}"',
            hint="adrenoc run --on KEY@HOST:PORT with the key of the server",
        )
    length = struct.unpack("<i", _receive(server, 4, end))[0] if magic == MAGIC else -1
    if not 0 <= length <= _LONGEST_KEY:
        raise RemoteError(
            f"what listens at {where} is not TVM RPC server",
            hint="adrenoc runtime serve, or adrenoc_rpc on a phone, is one",
        )
    _receive(server, length, end)


def _receive(server: socket.socket, count: int, end: float) -> bytes:
    found = b""
    while len(found) < count:
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        server.settimeout(left_s)
        piece = server.recv(count - len(found))
        if not piece:
            raise ConnectionError("it hung up")
        found += piece
    return found


LATE = "no answer in time"
"""What the error of a server that does not answer says."""
_FROM_SERVER = "Error caught from RPC call"
# What TVM raises as an AttributeError.
_NO_FUNCTION = "Module has no function"
# In adrenoc/native/src/rpc/rpc_session.cc.
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
    def parse(
        text: str, *, key: str = "", tracked: bool = False, timeout_s: float = 60.0
    ) -> RemoteAddress:
        """Return a server by `HOST:PORT`, or any of the kind `key` that the tracker there knows.
        Raises OptionError where it is of another form."""
        what = "the tracker" if tracked else "the server"
        example = "tracker:K@127.0.0.1:9190" if tracked else "127.0.0.1:9090"
        where = HostPort.parse(text, what=what, example=f"adrenoc run BUNDLE --on {example}")
        return RemoteAddress(where=where, key=key, tracked=tracked, timeout_s=timeout_s)


def is_like_here(address: RemoteAddress) -> bool:
    """Return whether a server's machine is of this computer's kind, as `host:DEVICE` needs. It is
    not known to be where the server no longer answers."""
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

    Like `adrenoc.device.run.run_bundle`, with times as seen from here: they hold the way there and
    back. With `others`, inputs of the same shapes, it also runs among runs of these. Raises
    RemoteError where the server is not there, refuses, is cut off or takes too long; BundleError
    where the bundle is for another kind of machine, or another TVM; InputError where an input is
    missing, unknown, or of another shape or dtype; DeviceError where the server has no such device,
    or it lacks what the bundle needs, or failed.
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
    """Open a device of the server at `address` that can run `bundle`.

    Raises RemoteError where the server is not there, refuses, is cut off or takes too long;
    BundleError where the bundle is for another kind of machine, or another TVM; DeviceError where
    the server has no such device, or it lacks what the bundle needs, or failed.
    """
    with open_session(address) as opened, _type_errors(opened.where, address, opened.line):
        place = _check_server(opened.session, bundle, device, opened.where)
        with diagnose(place):
            yield place


def describe(address: RemoteAddress) -> RemoteDevice:
    """Ask a server what it is. Raises RemoteError where the server is not there, refuses, is cut
    off or takes too long; DeviceError where it cannot list its devices."""
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
    line: RelayedServer


@contextmanager
def open_session(address: RemoteAddress) -> Iterator[OpenSession]:
    """Open a session with a server. Raises RemoteError where the tracker or the server is not
    there, refuses, or takes too long."""
    where, key = address.where, address.key
    if address.tracked:
        with closing(Tracker(where, timeout_s=address.timeout_s)) as tracker:
            offer = tracker.request(key)
        where, key = offer.address, offer.key
    line = RelayedServer(where, key=key, timeout_s=address.timeout_s, session_s=address.session_s)
    try:
        with _type_errors(where, address, line):
            from tvm import rpc

            session = rpc.connect(LOOPBACK, line.port, key=line.key)
        yield OpenSession(session=session, where=where, line=line)
    finally:
        line.cut()


@contextmanager
def _type_errors(where: HostPort, address: RemoteAddress, line: RelayedServer) -> Iterator[None]:
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
    """Return the error for a server of another kind than ours."""
    return RemoteError(
        f"the server at {where} runs without adrenoc's OpenCL runtime",
        hint="start `adrenoc runtime serve` or `adrenoc_rpc` there",
    )


def _check_server(session: Any, bundle: Bundle, device: str, where: HostPort) -> RemotePlace:
    """Return whether the bundle can run there, before anything is sent."""
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


@dataclass(frozen=True, kw_only=True)
class TrackedDevice:
    """A server of a tracker; `devices` are its OpenCL devices, `trouble` why they are not known."""

    key: str
    address: str
    version: str = ""
    machine: str = ""
    devices: tuple[dict[str, Any], ...] = field(default=())
    trouble: str = ""


def find_tracked(tracker: HostPort, *, timeout_s: float) -> tuple[TrackedDevice, ...]:
    """Ask a tracker for its servers, and one free server of each kind for its devices. Raises
    RemoteError where no tracker listens there."""
    servers: tuple[TrackedServer, ...] = ()
    with closing(Tracker(tracker, timeout_s=timeout_s)) as connection, suppress(TimeoutError):
        servers = connection.servers()
    told = {key: _ask(tracker, key, timeout_s) for key in {server.key for server in servers}}
    return tuple(replace(told[server.key], address=server.address) for server in servers)


def _ask(tracker: HostPort, key: str, timeout_s: float) -> TrackedDevice:
    address = RemoteAddress(where=tracker, key=key, tracked=True, timeout_s=timeout_s)
    try:
        facts = describe(address)
    except AdrenocError as error:
        return TrackedDevice(key=key, address="", trouble=error.message)
    return TrackedDevice(
        key=key, address="", version=facts.version, machine=facts.machine, devices=facts.devices
    )
