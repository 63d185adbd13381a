"""Phones that are connected by adb: what they are, and a server of ours on one of them.

The server listens to the phone alone, behind a key for this one session; adb forwards a port.  It
needs no other file of a runtime, and is pushed where the phone lacks it, under its digest.
"""

import re
import secrets
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.errors import AdbError, DependencyError
from adrenoc.base.files.read import adb_server_place, sha256_file
from adrenoc.base.host.extras import pip_install
from adrenoc.base.text.json_text import read_json
from adrenoc.device.peers import HostPort
from adrenoc.device.remote import RemoteAddress
from adrenoc.native.android.runtime_toolchain import MIN_API

# Where a shell may write and run programs.
DEVICE_FOLDER = "/data/local/tmp/adrenoc"
SERVER = "adrenoc_rpc"
_COMPLETE = "complete"
_MOST_ANSWER_BYTES = 1 << 20
_MOST_DEVICES = 256
_NUMBER = re.compile(r"[0-9]{1,9}")
_READY = "device"
_ADB = "adb"
_STATES = {
    "unauthorized": "it does not trust this computer: allow USB debugging on its screen",
    "offline": "it does not answer: plug it in again, or restart it",
    "no permissions": "this user may not open the USB device: add a udev rule for it",
}
# What is made of an answer that is none: no number where one belongs, cut off.
_NO_ANSWER = (ValueError, OverflowError, EOFError)
_LAST_PORT = 65535
_ADB_PORT = 5037
# Where a server is that adb starts when none answers.
_OURS = ("127.0.0.1", "localhost", "::1")
_CONNECT_S = 3
# One line each: "key=value".  What cannot be read is left out.
_FACTS = (
    'echo "abi=$(getprop ro.product.cpu.abi)";'
    'echo "model=$(getprop ro.product.model)";'
    'echo "soc=$(getprop ro.soc.model)";'
    'echo "android=$(getprop ro.build.version.release)";'
    'echo "api=$(getprop ro.build.version.sdk)";'
    'echo "gpu=$(cat /sys/class/kgsl/kgsl-3d0/gpu_model 2>/dev/null)";'
    "for d in /vendor/lib64 /system/vendor/lib64 /vendor/lib /system/vendor/lib; do"
    ' f=$d/libOpenCL.so; [ -e $f ] && echo "opencl=$f"; done; true'
)


@dataclass(frozen=True, kw_only=True)
class AdbDevice:
    """A device that adb lists; facts are empty where the device is not `ready` or does not tell."""

    serial: str
    state: str
    abi: str = ""
    model: str = ""
    soc: str = ""
    android: str = ""
    api: str = ""
    gpu: str = ""
    opencl: str = ""

    @property
    def is_ready(self) -> bool:
        """Return whether commands can be given to it."""
        return self.state == _READY

    @property
    def is_too_old(self) -> bool:
        """Return whether its Android lacks what the runtime calls."""
        return _NUMBER.fullmatch(self.api) is not None and int(self.api) < MIN_API

    @property
    def title(self) -> str:
        """Model, GPU and Android of the device, as far as it tells."""
        android = f"Android {self.android}" if self.android else ""
        return ", ".join(fact for fact in (self.model, self.gpu, android) if fact) or self.state

    @property
    def trouble(self) -> str:
        """Why the device cannot be used, and what helps; empty where it can."""
        if not self.is_ready:
            return _STATES.get(self.state, f"its state is {self.state}")
        if self.is_too_old:
            return f"it has Android {self.android} (API level {self.api}), expected {MIN_API}"
        if not self.opencl:
            return "it has no libOpenCL.so in /vendor: its GPU has no OpenCL for programs"
        return ""


def list_devices(*, timeout_s: float) -> tuple[AdbDevice, ...]:
    """Return each device that adb knows, with what it tells of itself. Raises DependencyError where
    the package adbutils is missing; AdbError where there is no adb, or it does not answer."""
    adbutils, client = _client(timeout_s)
    with _type_errors(adbutils, _ADB):
        with client.make_connection() as connection:
            connection.send_command("host:devices")
            connection.check_okay()
            lines = connection.read_string_block().splitlines()
        found = [line.split("\t", 1) for line in lines if "\t" in line]
        if len(found) > _MOST_DEVICES:
            raise ValueError(f"it lists {len(found)} devices, expected up to {_MOST_DEVICES}")
        return tuple(
            _describe(client.device(serial), serial, state, timeout_s) for serial, state in found
        )


def pick_device(serial: str, *, timeout_s: float) -> AdbDevice:
    """Return the device of that serial number; without one the only device that is there. Raises
    DependencyError where the package adbutils is missing; AdbError where there is no such device,
    more than one, or it cannot be used."""
    devices = list_devices(timeout_s=timeout_s)
    listed = ", ".join(f"{device.serial} ({device.state})" for device in devices)
    fitting = [d for d in devices if d.serial == serial or (not serial and d.is_ready)]
    if not fitting and devices and not serial:
        fitting = list(devices)
    if not fitting:
        missing = f"no device {serial}" if serial else "no device"
        raise AdbError(
            f"adb has {missing}" + (f"; there is {listed}" if listed else ""),
            hint="connect a phone with USB debugging switched on; adb devices lists it",
        )
    if len(fitting) > 1:
        raise AdbError(f"adb has more than one device: {listed}", hint="name one: --on adb:SERIAL")
    if not fitting[0].is_ready or fitting[0].is_too_old:
        raise AdbError(
            f"the device {fitting[0].serial} cannot be used: {fitting[0].trouble}",
            hint="adb devices shows its state",
        )
    return fitting[0]


@contextmanager
def adb_server(
    device: AdbDevice, runtime: Path, *, timeout_s: float, folder: str = ""
) -> Iterator[RemoteAddress]:
    """Our server on a device, for as long as the block takes, and how to reach it.

    `runtime` is the folder of a runtime for the device (`adrenoc runtime build`); `folder` is where
    it goes on the device, empty for DEVICE_FOLDER. Raises DependencyError where the package
    adbutils or the runtime's server is missing; AdbError where adb failed, or the server does not
    start.
    """
    adbutils, client = _client(timeout_s)
    phone = client.device(device.serial)
    key = secrets.token_hex(16)
    with _type_errors(adbutils, f"the device {device.serial}"):
        folder = folder or DEVICE_FOLDER
        place = _push(phone, runtime / SERVER, folder, timeout_s)
        output, pid, port = _start(phone, place, folder, key, timeout_s)
        local_port = phone.forward_port(port)
    try:
        where = HostPort(host="127.0.0.1", port=local_port)
        yield RemoteAddress(where=where, key=key, timeout_s=timeout_s, phone=device.serial)
    finally:
        with suppress(adbutils.AdbError, OSError, *_NO_ANSWER):
            _shell(phone, f"kill {pid}", timeout_s)
            phone.forward_remove(f"tcp:{local_port}", raise_non_found=False)
        output.close()


def _push(phone: Any, server: Path, folder: str, timeout_s: float) -> str:
    """Have the server on the phone; returns its folder there. Raises DependencyError where the
    runtime has no server."""
    if not server.is_file():
        raise DependencyError(
            f"the runtime in {server.parent} has no {SERVER}, which runs on the device",
            hint="unset ADRENOC_RUNTIME, and one is built",
        )
    place = f"{folder}/runtime-{sha256_file(server)[:24]}"
    there = _shell(phone, f"mkdir -p {place} && ls {place}", timeout_s).split()
    if _COMPLETE not in there:
        phone.sync.push(server, f"{place}/{SERVER}", mode=0o755, check=True)
        _shell(phone, f"touch {place}/{_COMPLETE}", timeout_s)
    return place


def _start(phone: Any, place: str, folder: str, key: str, timeout_s: float) -> tuple[Any, int, int]:
    """Start the server; returns its output, which keeps it alive, its process and its port."""
    arguments = ["--port", "0", "--key", key, "--folder", folder, "--store", f"{folder}/store"]
    command = f"echo $$; cd {place} && exec ./{SERVER} {shlex.join(arguments)} 2>&1"
    output = phone.shell(command, stream=True)
    output.conn.settimeout(timeout_s)
    end = time.monotonic() + timeout_s
    said = ""
    while time.monotonic() < end and len(said) < _MOST_ANSWER_BYTES:
        piece = output.recv(4096)
        said += piece.decode("utf-8", "replace")
        lines = said.splitlines()
        # Its number goes into a command: nothing but digits.
        for line in lines[1:] if lines and _NUMBER.fullmatch(lines[0]) else ():
            with suppress(ValueError, KeyError, TypeError):
                return output, int(lines[0]), _port(read_json(line)["port"])
        if not piece:
            break
    output.close()
    # The first line is the number of the process.
    reason = said.partition("\n")[2].strip() or "it said nothing"
    raise AdbError(
        f"{SERVER} does not start on the device: {reason}",
        hint=f"adb shell {place}/{SERVER} --version",
    )


def _port(told: Any) -> int:
    if not isinstance(told, int) or not 0 < told <= _LAST_PORT:
        raise ValueError(f"{told} is no port")
    return told


def _shell(phone: Any, command: str, timeout_s: float) -> str:
    """Return what a command says on the phone. Raises ValueError where it says more than any of
    ours, or does not stop."""
    connection = phone.shell(command, stream=True)
    end = time.monotonic() + timeout_s
    said = b""
    try:
        connection.conn.settimeout(timeout_s)
        while piece := connection.recv(1 << 16):
            said += piece
            if len(said) > _MOST_ANSWER_BYTES or time.monotonic() > end:
                raise ValueError("its shell does not stop to speak")
    finally:
        connection.close()
    return said.decode("utf-8", "replace")


def _describe(phone: Any, serial: str, state: str, timeout_s: float) -> AdbDevice:
    if state != _READY:
        return AdbDevice(serial=serial, state=state)
    lines = _shell(phone, _FACTS, timeout_s).splitlines()
    told = dict(line.split("=", 1) for line in reversed(lines) if "=" in line)
    known = ("abi", "model", "soc", "android", "api", "gpu", "opencl")
    return AdbDevice(serial=serial, state=state, **{k: told.get(k, "").strip() for k in known})


def _client(timeout_s: float) -> tuple[Any, Any]:
    try:
        import adbutils
    except ImportError as error:
        raise DependencyError(
            "the package adbutils, which speaks to adb, is missing", hint=pip_install("adb")
        ) from error
    address = _address()
    if address.host not in _OURS and not _answers(address):
        # A package that finds no server starts one on this computer: no use where another is meant.
        raise AdbError(
            f"no adb server answers at {address}, where ANDROID_ADB_SERVER_HOST says that it is",
            hint="unset ANDROID_ADB_SERVER_HOST, or run there: adb -a nodaemon server",
        )
    return adbutils, adbutils.AdbClient(address.host, address.port, socket_timeout=timeout_s)


def _address() -> HostPort:
    """Return where adb's own variables say that its server is; an empty one is unset."""
    host, port = adb_server_place()
    port = port or str(_ADB_PORT)
    if not _NUMBER.fullmatch(port) or not 0 < int(port) <= _LAST_PORT:
        raise AdbError(
            f"the variable ANDROID_ADB_SERVER_PORT holds no port: {port[:40]!r},"
            f" expected 1 to {_LAST_PORT}",
            hint="unset ANDROID_ADB_SERVER_PORT",
        )
    return HostPort(host=host or _OURS[0], port=int(port))


def _answers(address: HostPort) -> bool:
    # A name that IDNA cannot hold is no OSError.
    with suppress(OSError, UnicodeError):
        socket.create_connection((address.host, address.port), timeout=_CONNECT_S).close()
        return True
    return False


@contextmanager
def _type_errors(adbutils: Any, what: str) -> Iterator[None]:
    """Turn what adbutils raises into an error that says what to do."""
    try:
        yield
    except (adbutils.AdbError, OSError, RuntimeError, *_NO_ANSWER) as error:
        # What adbutils says before it could start a server, in its words or the system's.
        if what == _ADB and (isinstance(error, FileNotFoundError) or "No adb exe" in str(error)):
            raise AdbError(
                "there is no program adb to start a server with",
                hint="apt-get install adb, or put the platform tools of Android's SDK on the PATH",
            ) from error
        raise AdbError(
            f"{what} failed: {str(error).strip() or type(error).__name__}",
            hint="adb devices shows what is connected; adb kill-server starts anew",
        ) from error
