"""An adb server whose phones are this machine: the real protocol over loopback.

Commands for a phone's shell run in a shell here, files that are pushed are written here, each
phone's `/data/local/tmp` in a folder of its own; what it says of itself is PROPERTIES.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

_SYNC_HEADER = 8
LOG = "host:what-happened"
"""What only this server answers: the files that were pushed, the commands, the open forwards."""
PLUG, UNPLUG = "host:plug:", "host:unplug:"
"""Before a serial number: that phone's cable.  What runs there ends as it is pulled."""
PROPERTIES = {
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.product.model": "A stand-in",
    "ro.soc.model": "SM8650",
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
}
_STORAGE = "/data/local/tmp"


@contextmanager
def fake_adb_process(
    devices: dict[str, str], environment: dict[str, str] | None = None
) -> Iterator[int]:
    """A server in a process of its own, and its port.

    TVM's calls hold the lock of this interpreter while they wait: a server in a thread beside them
    would never answer.
    """
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.runtime.fake_adb", json.dumps(devices), folder]
        _write_getprop(Path(folder) / "getprop")
        told = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **(environment or {})}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **told}
        )
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
            process.wait()


def _write_getprop(path: Path) -> None:
    cases = "".join(f"{name}) echo '{value}';;\n" for name, value in PROPERTIES.items())
    path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
    path.chmod(0o755)


def pull_cable(port: int, serial: str) -> None:
    """Take a phone from the server at `port`."""
    _ask(port, UNPLUG + serial)


def put_cable(port: int, serial: str) -> None:
    """Give a phone to the server at `port`, or give it back."""
    _ask(port, PLUG + serial)


def what_happened(port: int) -> dict[str, list[str]]:
    """The log of the server at `port`."""
    return json.loads(_ask(port, LOG))


def _ask(port: int, request: str) -> str:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(_block(request))
        assert _take(connection, 4) == b"OKAY"
        return _take_request(connection)


class FakeAdb:
    """Serves until the process ends; `port` is where, `commands` what the shell was given."""

    def __init__(self, devices: dict[str, str], folder: Path) -> None:
        self._devices, self._folder = devices, folder
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.commands: list[str] = []
        self.listed: list[str] = []
        """The serial numbers at each time that they were asked for."""
        self.phones: list[str] = []
        """Which phone each command was for."""
        self.pushed: list[str] = []
        self.forwards: dict[str, socket.socket] = {}
        self._shells: dict[str, list[subprocess.Popen[bytes]]] = {}
        """What runs on each phone."""

    def serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def end(self) -> None:
        """End what runs on all phones."""
        for serial in list(self._shells):
            self._end_shells(serial)

    def _serve(self, connection: socket.socket) -> None:
        phone = ""
        with connection, suppress(OSError):
            while request := _take_request(connection):
                if not self._answer(connection, request, phone):
                    return
                phone = request.rpartition(":")[2] if "tport" in request else phone

    def _answer(self, connection: socket.socket, request: str, phone: str) -> bool:
        """Answer one request, of a phone where one was chosen; whether the connection goes on."""
        kind, _, rest = request.partition(":")
        if request == "host:version":
            connection.sendall(b"OKAY" + _block(f"{41:04x}"))
        elif request == "host:devices":
            self.listed.append(" ".join(self._devices))
            lines = "".join(f"{serial}\t{state}\n" for serial, state in self._devices.items())
            connection.sendall(b"OKAY" + _block(lines))
        elif request == LOG:
            told = {"pushed": self.pushed, "commands": self.commands, "phones": self.phones}
            told |= {"forwards": [*self.forwards], "listed": self.listed}
            connection.sendall(b"OKAY" + _block(json.dumps(told)))
        elif request.startswith((PLUG, UNPLUG)):
            self._turn_cable(request)
            connection.sendall(b"OKAY" + _block(""))
        elif request.startswith("host:tport:serial:"):
            return self._choose(connection, request.rpartition(":")[2])
        elif kind == "host-serial":
            self._forwarding(connection, rest.partition(":")[2])
        elif kind == "shell":
            connection.sendall(b"OKAY")
            self._shell(connection, rest, phone)
            return False
        elif kind == "sync":
            connection.sendall(b"OKAY")
            self._sync(connection, phone)
            return False
        else:
            connection.sendall(b"FAIL" + _block(f"unknown request {request}"))
        return kind not in {"host", "host-serial"} or "tport" in request

    def _choose(self, connection: socket.socket, serial: str) -> bool:
        if serial not in self._devices:
            connection.sendall(b"FAIL" + _block(f"device '{serial}' not found"))
            return False
        connection.sendall(b"OKAY" + struct.pack("<Q", 1))
        return True

    def _forwarding(self, connection: socket.socket, command: str) -> None:
        verb, _, pair = command.partition(":")
        if command == "list-forward":
            connection.sendall(b"OKAY" + _block(""))
        elif verb == "forward":
            local, remote = (int(part.removeprefix("tcp:")) for part in pair.split(";"))
            listening = socket.create_server(("127.0.0.1", local))
            self.forwards[f"tcp:{local}"] = listening
            threading.Thread(target=_relay, args=[listening, remote], daemon=True).start()
            connection.sendall(b"OKAYOKAY")
        elif verb == "killforward":
            self.forwards.pop(pair).close()
            connection.sendall(b"OKAYOKAY")

    def _turn_cable(self, request: str) -> None:
        serial = request.rpartition(":")[2]
        if request.startswith(PLUG):
            self._devices[serial] = "device"
        else:
            self._devices.pop(serial, None)
            self._end_shells(serial)

    def _place(self, text: str, phone: str) -> str:
        """A text with the phone's folder for what is its own."""
        return text.replace(_STORAGE, str(self._folder / phone))

    def _shell(self, connection: socket.socket, command: str, phone: str) -> None:
        self.commands.append(command)
        self.phones.append(phone)
        process = subprocess.Popen(
            ["sh", "-c", self._place(command, phone)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._shells.setdefault(phone, []).append(process)
        while piece := os.read(process.stdout.fileno(), 4096):
            connection.sendall(piece)
        process.wait()
        self._shells[phone].remove(process)

    def _end_shells(self, phone: str) -> None:
        for process in list(self._shells.get(phone, ())):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _sync(self, connection: socket.socket, phone: str) -> None:
        while header := _take(connection, _SYNC_HEADER):
            verb, length = header[:4], struct.unpack("<I", header[4:])[0]
            path = self._place(_take(connection, length).decode(), phone)
            if verb == b"STAT":
                facts = Path(path).stat() if Path(path).exists() else None
                numbers = (facts.st_mode, facts.st_size, int(facts.st_mtime)) if facts else (0,) * 3
                connection.sendall(b"STAT" + struct.pack("<III", *numbers))
            elif verb == b"SEND":
                self._receive(connection, path)

    def _receive(self, connection: socket.socket, target: str) -> None:
        name, _, mode = target.rpartition(",")
        content = b""
        while True:
            verb, number = struct.unpack("<4sI", _take(connection, _SYNC_HEADER))
            if verb == b"DONE":
                break
            content += _take(connection, number)
        Path(name).write_bytes(content)
        Path(name).chmod(int(mode) & 0o777)
        self.pushed.append(name)
        connection.sendall(b"OKAY" + struct.pack("<I", 0))


def _take(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count and (piece := connection.recv(count - len(received))):
        received += piece
    return received


def _take_request(connection: socket.socket) -> str:
    length = _take(connection, 4)
    return _take(connection, int(length, 16)).decode() if length else ""


def _block(text: str) -> bytes:
    return f"{len(text):04x}{text}".encode()


def _relay(listening: socket.socket, port: int) -> None:
    while True:
        try:
            near, _ = listening.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", port))
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_pump, args=[source, target], daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Serve until this process is told to end."""
    fake = FakeAdb(json.loads(sys.argv[1]), Path(sys.argv[2]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(fake.port, flush=True)
    try:
        fake.serve()
    finally:
        fake.end()


if __name__ == "__main__":
    main()
