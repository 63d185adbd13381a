"""Servers of TVM's RPC protocol as processes, for the tests."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from adrenoc import native
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.peers import MAGIC
from adrenoc.device.remote import RemoteAddress, run_remote
from adrenoc.native.android.runtime_build import Runtime
from tests.patience import WAIT_S
from tests.runtime.programs import Case

SOFTWARE = Path(sys.prefix) / "lib"
# What lets any program find the software device.
SOFTWARE_ENVIRONMENT = {
    "LD_LIBRARY_PATH": str(SOFTWARE),
    "OCL_ICD_FILENAMES": str(SOFTWARE / "libintelocl.so"),
}


@contextmanager
def server_process(*command: object, **extra: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server process and its port, told by the JSON that it prints first."""
    server = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **extra},
    )
    try:
        said = ""
        while (port := re.search(r'"port": (\d+)', said)) is None:
            line = server.stdout.readline()
            assert line, f"the server ended: {said}"
            said += line
        # What it says later must not fill the pipe.
        server.heard = [said]
        threading.Thread(target=_listen, args=[server], daemon=True).start()
        yield server, int(port[1])
    finally:
        server.kill()
        server.wait()


def _listen(server: subprocess.Popen[str]) -> None:
    for line in server.stdout or ():
        server.heard.append(line)


Served = AbstractContextManager[tuple["subprocess.Popen[str]", int]]


def python_server(*options: str, **environment: str) -> Served:
    command = (sys.executable, "-m", "adrenoc", "runtime", "serve", "--port", "0", "--json")
    return server_process(*command, *options, **{**SOFTWARE_ENVIRONMENT, **environment})


def native_server(runtime: Runtime, opencl: str, *options: str) -> Served:
    return server_process(
        *(runtime.server, "--port", "0", "--opencl", opencl, *options), **SOFTWARE_ENVIRONMENT
    )


@contextmanager
def greeted(port: int, key: str = "") -> Iterator[socket.socket]:
    """A peer that a server with this key has taken."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
        greet(peer, key)
        yield peer


def greet(peer: socket.socket, key: str = "") -> None:
    peer.sendall(greeting(key))
    assert peer.recv(100).endswith(b"server:")


def greeting(key: str = "") -> bytes:
    """What a client says first."""
    said = f"client:{key}".encode()
    return struct.pack("<ii", MAGIC, len(said)) + said


def address_of(port: int, **options: object) -> RemoteAddress:
    return RemoteAddress.parse(f"127.0.0.1:{port}", **{"timeout_s": WAIT_S, **options})


def check_remote(bundle: Bundle, case: Case, address: RemoteAddress) -> None:
    """Run a bundle at a server, which computes what Python computes."""
    result = run_remote(bundle, address, inputs=case.arrays, repeat=2)
    assert address.tracked or str(address.where) in result.device
    case.check(result.outputs)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, with a limit."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def tvm_process(
    module: str, *options: str, port: int | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """`python -m tvm.exec.MODULE` at a free port, with adrenoc's OpenCL runtime in reach."""
    port = port or free_port()
    command = [sys.executable, "-m", f"tvm.exec.{module}", "--host", host]
    command += ["--port", str(port), "--port-end", str(port + 1), *options]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **SOFTWARE_ENVIRONMENT},
        start_new_session=True,
    )
    try:
        _wait_for(port, process)
        yield port
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and process.poll() is None:
        if _is_listening(port):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on {port}")


def _is_listening(port: int) -> bool:
    """Without connecting: the tracker would take that for a client."""
    listening = "0A"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == listening for row in rows)


def tvm_server(*options: str) -> AbstractContextManager[int]:
    return tvm_process("rpc_server", "--load-library", str(native.build()), *options)
