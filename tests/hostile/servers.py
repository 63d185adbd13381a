"""Hostile servers and trackers: greetings, messages, and answers that lie."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from adrenoc.device.peers import MAGIC, MISMATCH
from tests.hostile.bundles import whole
from tests.hostile.case import Case
from tests.hostile.models import NAMES
from tests.patience import WAIT_S

Serve = Callable[[socket.socket], None]

_GREETING = struct.pack("<ii", MAGIC, 7) + b"server:"
_SHUTDOWN, _CALL, _RETURN, _EXCEPTION, _COPY_ACK, _FIND, _FREE = 1, 3, 4, 5, 8, 9, 10
_TEXT = 8
_NOTHING = struct.pack("<iii", _RETURN, 1, 0)
_TRACKER_MAGIC = 0x2F271
_DEVICE = {
    **{"name": "GPU", "platform": "P", "driver": "1", "type": "gpu", "c_version": 300},
    **{"fp16": True, "extensions": []},
    "images": {"supported": True, "max_width": 4096, "max_height": 4096, "max_layers": 2048},
    "limits": {
        **{"max_work_group_size": 1024, "local_memory_bytes": 32768},
        "global_memory_bytes": 1 << 30,
    },
}


@contextmanager
def listening(serve: Serve) -> Iterator[int]:
    """A server that does this with each connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_take, args=[listener, serve], daemon=True).start()
        yield listener.getsockname()[1]


def _take(listener: socket.socket, serve: Serve) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_do, args=[connection, serve], daemon=True).start()


def _do(connection: socket.socket, serve: Serve) -> None:
    with connection, suppress(OSError, struct.error):
        connection.settimeout(WAIT_S)
        serve(connection)


def _exactly(side: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = side.recv(count - len(found))
        if not piece:
            raise ConnectionError
        found += piece
    return found


# --- servers -------------------------------------------------------------------------------------


def _says(content: bytes) -> Serve:
    """The same to everybody, whatever they say."""

    def serve(side: socket.socket) -> None:
        side.sendall(content)
        while side.recv(1 << 16):
            pass

    return serve


def _answers(answer: Callable[[int, bytes], bytes | None]) -> Serve:
    """A greeting, then the body that `answer` has for each request's code and content."""

    def serve(side: socket.socket) -> None:
        _exactly(side, struct.unpack("<ii", _exactly(side, 8))[1])
        side.sendall(_GREETING)
        while True:
            (length,) = struct.unpack("<Q", _exactly(side, 8))
            body = _exactly(side, length)
            (code,) = struct.unpack_from("<i", body)
            if code == _SHUTDOWN:
                return
            reply = _NOTHING if code == _FREE else answer(code, body)
            if reply is None:
                return
            side.sendall(struct.pack("<Q", len(reply)) + reply)

    return serve


def _text(words: str | bytes) -> bytes:
    content = words if isinstance(words, bytes) else words.encode("utf-8", "surrogatepass")
    return struct.pack("<iiiqiQ", _RETURN, 2, 1, 65, _TEXT, len(content)) + content


def _error(words: str) -> bytes:
    content = words.encode()
    return struct.pack("<iiiQ", _EXCEPTION, 1, _TEXT, len(content)) + content


def _tells(texts: dict[str, bytes]) -> Serve:
    """Functions by name, each with what its call returns; others are not there."""
    names = list(texts)

    def answer(code: int, body: bytes) -> bytes:
        if code == _FIND:
            name = body[20:].decode("utf-8", "replace")
            handle = names.index(name) + 1 if name in names else 0
            return struct.pack("<iiiQ", _RETURN, 1, 4, handle)
        if code == _CALL:
            return texts[names[struct.unpack_from("<Q", body, 4)[0] - 1]]
        return _NOTHING

    return _answers(answer)


def _device(**changes: object) -> bytes:
    return _text(json.dumps([{**_DEVICE, **changes}]))


_HEADS: dict[str, Serve] = {
    "nothing at all": lambda side: None,
    "silence": lambda side: side.recv(1) and None,
    "HTTP": _says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "zeros": _says(bytes(4096)),
    "another key": _says(struct.pack("<i", MISMATCH)),
    "a key below zero": _says(struct.pack("<ii", MAGIC, -5)),
    "a vast key": _says(struct.pack("<ii", MAGIC, 1 << 30)),
    "a greeting alone": _says(_GREETING),
    "a message of 2^64 bytes": _says(_GREETING + b"\xff" * 8),
    "a message of 2^40 bytes": _says(_GREETING + struct.pack("<Q", 1 << 40)),
    "messages of nothing": _says(_GREETING + bytes(1 << 16)),
    "noise": _says(_GREETING + bytes(range(256)) * 64),
    "half of a message": _says(_GREETING + struct.pack("<Qi", 100, _RETURN)),
}
_REPLIES: dict[str, bytes | None] = {
    "leaves": None,
    "an unknown kind": struct.pack("<i", 99),
    "a request": struct.pack("<iQi", _CALL, 0, 0),
    "a farewell": struct.pack("<i", _SHUTDOWN),
    "a copy": struct.pack("<i", _COPY_ACK) + bytes(64),
    "-1 values": struct.pack("<ii", _RETURN, -1),
    "2^30 values": struct.pack("<ii", _RETURN, 1 << 30),
    "an unknown type": struct.pack("<iii", _RETURN, 1, 63),
    "a text of 2^60 bytes": struct.pack("<iiiQ", _RETURN, 1, _TEXT, 1 << 60),
    "a tensor of rank -1": struct.pack("<iiiQiii", _RETURN, 1, 7, 0, 1, 0, -1) + bytes(12),
    "an object": struct.pack("<iiiI", _RETURN, 1, 64, 64) + bytes(8),
    "an error without text": struct.pack("<ii", _EXCEPTION, 0),
    "an error of a number": struct.pack("<iiiq", _EXCEPTION, 1, 1, 5),
    "an error with escapes": _error("\x1b[2J\x1b]0;x\x07\u202e"),
    "an empty error": _error(""),
    "a long error": _error("x" * (1 << 20)),
    "a refusal of nothing": _error("The session was not started: \n"),
    "a time-out": _error("RPCSessionTimeoutError: x"),
}
_LIES: dict[str, bytes] = {
    "no JSON": _text("{"),
    "no list": _text("{}"),
    "a list of numbers": _text("[1]"),
    "no name": _text("[{}]"),
    "no devices": _text("[]"),
    "a name that is a number": _device(name=7),
    "a name with escapes": _device(name="\x1b[2J\x9b"),
    "half a character": _text('[{"name": "\\ud800"}]'),
    "not UTF-8": _text(b"\xff\xfe"),
    "deep": _text("[" * 100_000),
    "long numbers": _text(json.dumps([{**_DEVICE, "c_version": 300}]).replace("300", "3" * 5000)),
    "a version that is a text": _device(c_version="300"),
    "images without limits": _device(images={"supported": True}),
    "limits that are texts": _device(limits={"max_work_group_size": "x"}),
    "no limits": _device(limits={}),
    "a number": struct.pack("<iiiqiq", _RETURN, 2, 1, 1, 1, 5),
    "nothing": struct.pack("<iiiqi", _RETURN, 2, 1, 0, 0),
}

# --- trackers ------------------------------------------------------------------------------------


def _tracker(answer: bytes, *, length: int | None = None) -> Serve:
    def serve(side: socket.socket) -> None:
        _exactly(side, 4)
        side.sendall(struct.pack("<i", _TRACKER_MAGIC))
        while True:
            _exactly(side, struct.unpack("<i", _exactly(side, 4))[0])
            side.sendall(struct.pack("<i", len(answer) if length is None else length) + answer)

    return serve


_TRACKERS: dict[str, Serve] = {
    "nothing at all": lambda side: None,
    "zeros": _says(bytes(64)),
    "an answer below zero": _tracker(b"", length=-1),
    "a vast answer": _tracker(b"", length=(1 << 31) - 1),
    "a short answer": _tracker(b"[0", length=100),
    **{
        text.decode("utf-8", "replace")[:24]: _tracker(text)
        for text in (
            *(b"{", b"[]", b"null", b"[0]", b"[0, null]", b"[0, {}]", b"[1, 2, 3]", b"\xff\xfe"),
            *(b'[0, {"server_info": 1}]', b'[0, {"server_info": [1, {}, {"key": []}]}]'),
            *(b"[0, [1, 2, 3]]", b'[0, ["x", 0, "k"]]', b'[0, ["x", 70000, "k"]]'),
            *(b'[0, ["\\u001b[2J", 1, "k"]]', b'[0, ["' + b"x" * 5000 + b'", 1, "k"]]'),
            *(b'[0, ["a\\u0000b", 1, "k"]]', b'[0, ["127.0.0.1", 1, "\\ud800"]]'),
            *(b"[" * 100_000, b"9" * 5000, b'[0, ["127.0.0.1", 1, "k"]]'),
            b'[0, {"server_info": [{"key": "server:\\u001b[2J", "addr": [1, 2]}]}]',
        )
    },
}


def cases() -> Iterator[Case]:
    yield from _servers()
    yield from _phones()


def _servers() -> Iterator[Case]:
    run = ("run", "b", "--on", "127.0.0.1:{port}")
    made = {"make": whole, "family": "servers", "codes": frozenset({21, 22, 28})}
    for name, serve in _HEADS.items():
        yield Case(**made, name=name, command=run, serve=serve)
    for name, reply in _REPLIES.items():
        serve = _answers(lambda code, body, reply=reply: reply)
        yield Case(**made, name=f"{name}, to the first request", command=run, serve=serve)
    for name, reply in _REPLIES.items():
        found = struct.pack("<iiiQ", _RETURN, 1, 4, 1)

        def late(
            code: int, body: bytes, reply: bytes | None = reply, found: bytes = found
        ) -> bytes | None:
            return reply if code == _CALL else found if code == _FIND else _NOTHING

        serve = _answers(late)
        yield Case(**made, name=f"{name}, to a call", command=run, serve=serve)
    for name, lie in _LIES.items():
        serve = _tells({"adrenoc.opencl.devices": lie})
        yield Case(**made, name=f"devices: {name}", command=run, serve=serve)
    tracked = "127.0.0.1:{port}"
    for name, serve in _TRACKERS.items():
        for command in (
            ("device", "list", "--on", f"tracker:{tracked}"),
            ("run", "b", "--on", f"tracker:k@{tracked}"),
        ):
            yield Case(
                **{**made, "family": "trackers", "codes": frozenset({0, 28})},
                name=f"{name}, {command[0]}",
                command=command,
                serve=serve,
            )


_CODES = frozenset({0, 30})
_RUN = ("run", "b", "--on", "adb")


def _block(text: bytes) -> bytes:
    return f"{len(text):04x}".encode() + text


def _replies(content: bytes) -> Serve:
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
    return _exactly(side, int(_exactly(side, 4), 16))


_READY = b"phone\tdevice\n"
_SERVERS: dict[str, Serve] = {
    "nothing at all": lambda side: None,
    "zeros": _replies(bytes(4096)),
    "HTTP": _replies(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a length that is none": _replies(b"OKAYzzzz"),
    "a length that is cut off": _replies(b"OKAY00"),
    "a length below zero": _replies(b"OKAY-001"),
    "less than promised": _replies(b"OKAYffffab"),
    "a failure without a reason": _replies(b"FAIL"),
    "a failure of a wrong length": _replies(b"FAIL+ 1x"),
    "a failure with escapes": _replies(b"FAIL" + _block(NAMES["clear"].encode())),
    "a failure that is not UTF-8": _replies(b"FAIL" + _block(b"\xff\xfe")),
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


def _phones() -> Iterator[Case]:
    case = partial(Case, "adb servers")
    for name, serve in _SERVERS.items():
        for command in (("device", "list", "--json"), _RUN):
            yield case(
                f"{name}, {' '.join(command[:3])}",
                _made,
                command,
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
        title = f"{variable}={value[:12].encode('unicode_escape').decode()} of {len(value)}"
        environment = {variable: value, "PATH": "/nowhere"}
        yield case(title, command=("device", "list"), codes=_CODES, environment=environment)
    yield case(
        "an empty host",
        command=("device", "list"),
        codes=_CODES,
        environment={
            "ANDROID_ADB_SERVER_HOST": "",
            "ANDROID_ADB_SERVER_PORT": "{port}",
            "PATH": "/nowhere",
        },
        serve=_replies(bytes(4096)),
    )
    yield case(
        "an empty port",
        command=("device", "list"),
        codes=_CODES,
        environment={
            "ANDROID_ADB_SERVER_HOST": "127.0.0.2",
            "ANDROID_ADB_SERVER_PORT": "",
            "PATH": "/nowhere",
        },
    )


def _made(folder: Path) -> None:
    whole(folder)
    (folder / "r").mkdir()
