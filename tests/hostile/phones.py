"""Hostile adb servers: what they answer, and the variables that lead to them."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.bundles import bundle
from tests.hostile.case import Case
from tests.hostile.models import NAMES

Serve = Callable[[socket.socket], None]

_CODES = frozenset({0, 30})
_RUN = ("run", "b", "--on", "adb")


def _block(text: bytes) -> bytes:
    return f"{len(text):04x}".encode() + text


def _says(content: bytes) -> Serve:
    """The same to everybody."""

    def serve(side: socket.socket) -> None:
        side.recv(1 << 16)
        side.sendall(content)

    return serve


def _lists(devices: bytes, shell: bytes = b"", *, endless: bool = False) -> Serve:
    """A server that lists these devices, whose shells say this."""

    def serve(side: socket.socket) -> None:
        while heard := _request(side):
            if heard == b"host:version":
                side.sendall(b"OKAY" + _block(b"0029"))
            elif heard == b"host:devices":
                side.sendall(b"OKAY" + _block(devices))
            elif heard.startswith(b"host:tport"):
                side.sendall(b"OKAY" + bytes(8))
            elif heard.startswith(b"shell"):
                side.sendall(b"OKAY" + shell)
                while endless:
                    side.sendall(bytes(1 << 20))
                return
            else:
                side.sendall(b"FAIL" + _block(NAMES["clear"].encode()))

    return serve


def _request(side: socket.socket) -> bytes:
    head = _exactly(side, 4)
    return _exactly(side, int(head, 16)) if head else b""


def _exactly(side: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (piece := side.recv(count - len(found))):
        found += piece
    return found


_READY = b"phone\tdevice\n"
_SERVERS: dict[str, Serve] = {
    "nothing at all": lambda side: None,
    "zeros": _says(bytes(4096)),
    "HTTP": _says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a length that is none": _says(b"OKAYzzzz"),
    "a length that is cut off": _says(b"OKAY00"),
    "a length below zero": _says(b"OKAY-001"),
    "less than promised": _says(b"OKAYffffab"),
    "a failure without a reason": _says(b"FAIL"),
    "a failure of a wrong length": _says(b"FAIL+ 1x"),
    "a failure with escapes": _says(b"FAIL" + _block(NAMES["clear"].encode())),
    "a failure that is not UTF-8": _says(b"FAIL" + _block(b"\xff\xfe")),
    "devices that are not UTF-8": _lists(b"\xff\xfe\tdevice\n"),
    "devices with escapes": _lists(b"\x1b[2J\t\x1b]0;x\x07\n"),
    "a device called ../..": _lists(b"../..\tdevice\n"),
    "a device of no state": _lists(b"phone\n\t\n"),
    "5,000 devices": _lists(b"a\toffline\n" * 5000),
    "two that are ready": _lists(b"a\tdevice\nb\tdevice\n"),
    "a shell that says nothing": _lists(_READY),
    "a shell with escapes": _lists(_READY, b"model=\x1b[2J\nabi=\xc2\x9b\nopencl=/x\n"),
    "a shell that is not UTF-8": _lists(_READY, b"model=\xff\xfe\nopencl=/x\n"),
    "an API of other digits": _lists(_READY, "api=\u0663\u00b2\nopencl=/x\n".encode()),
    "an API of 5,000 digits": _lists(_READY, b"api=" + b"9" * 5000 + b"\nopencl=/x\n"),
    "a shell that never ends": _lists(_READY, endless=True),
}


def cases() -> Iterator[Case]:
    for name, serve in _SERVERS.items():
        for command in (("device", "list", "--json"), _RUN):
            yield Case(
                family="adb servers",
                name=f"{name}, {' '.join(command[:3])}",
                make=_made,
                command=command,
                codes=_CODES if command != _RUN else Case.codes,
                environment={
                    "ANDROID_ADB_SERVER_PORT": "{port}",
                    "PATH": "/nowhere",
                    "ADRENOC_RUNTIME": "r",
                },
                serve=serve,
            )
    # One that is empty counts as unset; adb's own server is started by none of these.
    ports = ("x", "-1", "0", "99999", "9" * 5000, "\u0665", "1.5")
    hosts = ("a" * 300, "..", "\x1b[2J", "x:1", "a\u200b", "127.0.0.2")
    for variable, value in (
        *(("ANDROID_ADB_SERVER_PORT", value) for value in ports),
        *(("ANDROID_ADB_SERVER_HOST", value) for value in hosts),
    ):
        yield Case(
            family="adb servers",
            name=f"{variable}={value[:12].encode('unicode_escape').decode()} of {len(value)}",
            command=("device", "list"),
            codes=_CODES,
            environment={variable: value, "PATH": "/nowhere"},
        )
    yield Case(
        family="adb servers",
        name="an empty host",
        command=("device", "list"),
        codes=_CODES,
        environment={
            "ANDROID_ADB_SERVER_HOST": "",
            "ANDROID_ADB_SERVER_PORT": "{port}",
            "PATH": "/nowhere",
        },
        serve=_says(bytes(4096)),
    )
    yield Case(
        family="adb servers",
        name="an empty port",
        command=("device", "list"),
        codes=_CODES,
        environment={
            "ANDROID_ADB_SERVER_HOST": "127.0.0.2",
            "ANDROID_ADB_SERVER_PORT": "",
            "PATH": "/nowhere",
        },
    )


def _made(folder: Path) -> None:
    bundle(lambda b: None)(folder)
    (folder / "r").mkdir()
