"""Run a bundle on another machine through TVM's RPC protocol.

The peer is `adrenoc serve`, `adrenoc_rpc`, or TVM's own server with adrenoc's OpenCL runtime
loaded.  Every wait has a limit.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adrenoc.bundle import LIBRARY, Bundle
from adrenoc.device.opencl import choose_device
from adrenoc.device.run import RunResult, Times, check_inputs, ms_since, percentile, upload
from adrenoc.errors import BundleError, DeviceError, OptionError, RemoteError

if TYPE_CHECKING:
    import numpy as np

_FROM_SERVER = "Error caught from RPC call"
_DESCRIPTORS = Path("/proc/self/fd")


@dataclass(frozen=True, kw_only=True)
class RemoteAddress:
    """Where a server listens, the key that it asks for, and how long to wait for any answer (s)."""

    host: str
    port: int
    key: str = ""
    timeout_s: float = 60.0

    @staticmethod
    def parse(text: str, *, key: str = "", timeout_s: float = 60.0) -> RemoteAddress:
        """Read `HOST:PORT`.

        Raises:
            OptionError: it is of another form.
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise OptionError(
                f'the address of the server is "{text}", expected HOST:PORT',
                hint="adrenoc run BUNDLE --rpc 127.0.0.1:9090",
            )
        return RemoteAddress(host=host, port=int(port), key=key, timeout_s=timeout_s)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def run_remote(
    bundle: Bundle,
    address: RemoteAddress,
    *,
    inputs: Mapping[str, np.ndarray],
    device: str = "",
    repeat: int = 10,
    warmup: int = 1,
) -> RunResult:
    """Run `bundle` with `inputs` on an OpenCL device of the server at `address`.

    Like `adrenoc.device.run.run_bundle`, with times as seen from here: they hold the way there
    and back.

    Raises:
        RemoteError: the server is not there, refuses, is cut off or takes too long.
        BundleError: the bundle is for another kind of machine.
        InputError: an input is missing, unknown, or of another shape or dtype.
        DeviceError: the server has no such device, or the device failed.
    """
    check_inputs(bundle.manifest.inputs, inputs)
    _greet(address)
    with _typed_errors(address):
        with _limited(address):
            session = _connect(address)
        number, name = _check_server(session, bundle, device, address)
        return _run(
            session,
            bundle,
            inputs,
            number=number,
            name=f"{name} at {address}",
            repeat=repeat,
            warmup=warmup,
        )


def _greet(address: RemoteAddress) -> None:
    """See whether anybody listens, so that the usual mistakes get their own messages."""
    try:
        socket.create_connection((address.host, address.port), address.timeout_s).close()
    except OSError as error:
        raise RemoteError(
            f"no server at {address}: {error.strerror or error}",
            hint="adrenoc serve starts one on that machine",
        ) from error


def _connect(address: RemoteAddress) -> Any:
    from tvm import rpc

    session = rpc.connect(address.host, address.port, key=address.key)
    # From now on the system ends each wait by itself.
    seconds = int(address.timeout_s)
    limit = struct.pack("ll", seconds, int((address.timeout_s - seconds) * 1e6))
    for connection in _connections(address):
        with connection:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, limit)
    return session


@contextmanager
def _limited(address: RemoteAddress) -> Iterator[None]:
    """Cut the connections to `address` when the block takes longer than its limit.

    TVM makes the socket itself, and waits for the handshake without end.
    """
    timer = threading.Timer(address.timeout_s, _cut, [address])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(address: RemoteAddress) -> None:
    for connection in _connections(address):
        with connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _connections(address: RemoteAddress) -> list[socket.socket]:
    """The sockets of this process that are connected to `address`, as descriptors of our own."""
    found = []
    hosts = {info[4][0] for info in socket.getaddrinfo(address.host, address.port)}
    for entry in _DESCRIPTORS.iterdir():
        try:
            if not str(entry.readlink()).startswith("socket:"):
                continue
            candidate = socket.socket(fileno=socket.dup(int(entry.name)))
        except OSError:
            continue  # it was closed meanwhile
        with suppress(OSError):
            peer = candidate.getpeername()
            if isinstance(peer, tuple) and peer[0] in hosts and peer[1] == address.port:
                found.append(candidate)
                continue
        candidate.close()
    return found


@contextmanager
def _typed_errors(address: RemoteAddress) -> Iterator[None]:
    """Turn what TVM raises into an error that says what to do."""
    started = time.perf_counter()
    try:
        yield
    except (RuntimeError, ValueError, MemoryError) as error:
        lines = str(error).strip().splitlines() or ["no message"]
        # What the server raised comes with this line before it; all else is the connection.
        if _FROM_SERVER in lines[0]:
            raise DeviceError(
                f"the device of the server at {address} failed: {lines[min(1, len(lines) - 1)]}",
                hint="look at the server's output, or choose another device with --cl-device",
            ) from error
        if "cannot find server that matches key" in lines[0]:
            raise RemoteError(
                f'the server at {address} does not take the key "{address.key}"',
                hint="adrenoc run --rpc HOST:PORT --key KEY with the key of the server",
            ) from error
        raise RemoteError(
            f"the server at {address} left or did not answer within {address.timeout_s:.0f} s "
            f"(after {ms_since(started) / 1000:.1f} s: {lines[0]})",
            hint="look at the server's output; --timeout SECONDS waits longer",
        ) from error


def _check_server(
    session: Any, bundle: Bundle, device: str, address: RemoteAddress
) -> tuple[int, str]:
    """Whether the bundle can run there; returns the number and the name of the device."""
    machine = _remote_function(session, "adrenoc.runtime.machine")
    wanted = bundle.manifest.library.machine
    if machine is not None and machine() != wanted:
        raise BundleError(
            f"{bundle.path} was compiled for {bundle.manifest.target.name} ({wanted}), "
            f"but the server at {address} is {machine()}",
            hint=f"adrenoc compile {bundle.manifest.model.file} --device DEVICE of that machine",
        )
    devices = _remote_function(session, "adrenoc.opencl.devices")
    if devices is None:
        raise RemoteError(
            f"the server at {address} runs without adrenoc's OpenCL runtime",
            hint="start `adrenoc serve` or `adrenoc_rpc` there",
        )
    number, facts = choose_device(json.loads(devices()), device)
    return number, str(facts["name"])


def _remote_function(session: Any, name: str) -> Callable[[], Any] | None:
    try:
        found: Callable[[], Any] = session.get_function(name)
    except AttributeError:  # what TVM raises for a name that the server does not know
        return None
    return found


def _run(
    session: Any,
    bundle: Bundle,
    inputs: Mapping[str, np.ndarray],
    *,
    number: int,
    name: str,
    repeat: int,
    warmup: int,
) -> RunResult:
    import tvm
    from tvm import relax

    device = session.device("opencl", number)
    started = time.perf_counter()
    session.upload(str(bundle.library), LIBRARY)
    module = session.load_module(LIBRARY)
    machine = relax.VirtualMachine(module, [device, session.cpu()])
    arrays = bundle.params()
    params = [upload(spec, arrays[spec.name], device) for spec in bundle.manifest.params]
    device.sync()
    load_ms = ms_since(started)
    started = time.perf_counter()
    session.get_function("adrenoc.opencl.build_all")(module, number)
    build_ms = ms_since(started)

    args = [tvm.runtime.tensor(inputs[spec.name], device) for spec in bundle.manifest.inputs]
    # Not `set_input`: over RPC it copies textures to buffers.
    main = machine["main"]

    def timed() -> tuple[float, Any]:
        begun = time.perf_counter()
        result = main(*args, *params)
        device.sync()
        return ms_since(begun), result

    first_ms, result = timed()
    for _ in range(warmup):
        timed()
    warm_ms = sorted(timed()[0] for _ in range(max(1, repeat)))
    specs = bundle.manifest.outputs
    tensors = [result]
    if not hasattr(result, "numpy"):  # a tuple stays there, and its fields are asked for
        field = session.get_function("vm.builtin.tuple_getitem")
        tensors = [field(result, index) for index in range(len(specs))]
    return RunResult(
        device=name,
        outputs={s.name: tensor.numpy() for s, tensor in zip(specs, tensors, strict=True)},
        times=Times(
            load_ms=load_ms,
            build_ms=build_ms,
            first_ms=first_ms,
            cold_ms=load_ms + build_ms + first_ms,
            p50_ms=percentile(warm_ms, 50),
            p90_ms=percentile(warm_ms, 90),
            p99_ms=percentile(warm_ms, 99),
            runs=len(warm_ms),
        ),
    )
