"""Conversations of TVM's RPC protocol: recorded from a real server, and played back damaged.

Peers that attack a server, and a client that runs a bundle on a server that lies.

A message is its length (8 bytes), a code (4 bytes), and what belongs to the code.
"""

import functools
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.damage import places_in
from fuzz.harness import Outcome, judge_work

MAGIC = 0xFF271
SHUTDOWN, RETURN, EXCEPTION, COPY_ACK, FREE = 1, 4, 5, 8, 10
_TEXT = 8
_HEAD = struct.Struct("<Qi")
NOTHING = struct.pack("<Qiii", 12, RETURN, 1, 0)
_GREETING = struct.pack("<ii", MAGIC, 7) + b"server:"
_NUMBERS = (0, 1, -1, 2, 3, 7, 8, 9, 64, 65, 70, 73, 127, 128, 255, 1 << 16, 1 << 30, -(1 << 31))
_LENGTHS = (0, 1, 3, 4, 11, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_TEXTS = (
    *("", "x", "\x1b[2J", "\u202e", "{", "[]", "null", "[" * 5000, '{"a":' * 2000, "9" * 5000),
    *("RPCSessionTimeoutError: x", "The session was not started: ", "CL_OUT_OF_RESOURCES"),
    *("The session was not started: \n\n", "Cannot keep x: y", "Cannot build kernel \x1b[2J", "\n"),
    *("a" * 100_000, "CL_MEM_OBJECT_ALLOCATION_FAILURE", '"\\ud800"', "Error caught from RPC call"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1e308, -1e308, 2**63, 2**200, "", "x", "\x1b[2J", "\ud800"),
    *([], {}, [[]], [None], "a" * 10_000, 0.5, -(2**63), ["x"] * 100, {"name": 1}),
)


@dataclass
class Talk:
    """The answers of a server, in order, but those to requests that free something."""

    answers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)


def received(side: socket.socket, count: int) -> bytes:
    """So many bytes.

    Raises:
        ConnectionError: the other one left.
    """
    pieces = []
    while count:
        piece = side.recv(min(count, 1 << 20))
        if not piece:
            raise ConnectionError
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def message(side: socket.socket) -> bytes:
    """The next message, with its length."""
    head = received(side, 8)
    return head + received(side, struct.unpack("<Q", head)[0])


def code_of(content: bytes) -> int:
    """What kind of message it is."""
    return int(_HEAD.unpack_from(content)[1])


def record(port: int, run: Callable[[int], None]) -> Talk:
    """What the server at `port` says while `run` talks to it, through the port that it is given."""
    talk = Talk()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_between, args=[listening, port, talk], daemon=True)
        thread.start()
        run(listening.getsockname()[1])
        thread.join(30)
    return talk


def _between(listening: socket.socket, port: int, talk: Talk) -> None:
    client, _ = listening.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as server, suppress(OSError):
        head = received(client, 8)
        server.sendall(head + received(client, struct.unpack("<ii", head)[1]))
        head = received(server, 8)
        client.sendall(head + received(server, struct.unpack("<ii", head)[1]))
        while True:
            request = message(client)
            server.sendall(request)
            if code_of(request) == SHUTDOWN:
                return
            answer = message(server)
            client.sendall(answer)
            if code_of(request) != FREE:
                talk.answers.append(answer)
                talk.requests.append(request)


class HostileServer:
    """A server that plays a talk with the damage of one case; one client at a time."""

    def __init__(self, talks: Sequence[Talk], seed: int) -> None:
        self._talks, self._seed = talks, seed
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._number = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def play(self, number: int) -> None:
        """Serve case `number` from now on."""
        self._number = number

    def _serve(self) -> None:
        while True:
            client, _ = self._listening.accept()
            with client, suppress(OSError, struct.error):
                client.settimeout(20)
                self._talk(client, random.Random(f"{self._seed}/{self._number}"))

    def _talk(self, client: socket.socket, rng: random.Random) -> None:
        answers = list(self._talks[self._number % len(self._talks)].answers)
        count = rng.choice((1, 1, 1, 2, 3, 6))
        # Half of the damage comes early, where more is decided.
        reach = len(answers) if rng.random() < 0.5 else min(len(answers), 30)
        damaged = {rng.randrange(reach) for _ in range(count)}
        received(client, struct.unpack("<ii", received(client, 8))[1])
        client.sendall(_greeting(rng) if rng.random() < 0.03 else _GREETING)
        at = 0
        while True:
            request = message(client)
            code = code_of(request)
            if code == SHUTDOWN:
                return
            if code == FREE:
                client.sendall(NOTHING if rng.random() < 0.999 else damage(NOTHING, answers, rng))
                continue
            answer = answers[at] if at < len(answers) else NOTHING
            if at in damaged and not _misbehave(client, answer, answers, rng):
                return
            if at not in damaged:
                client.sendall(answer)
            at += 1


def _greeting(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return rng.randbytes(rng.choice((0, 3, 8, 40, 2000)))
    magic = MAGIC + rng.choice((0, 0, 0, 1, 2, 3))
    return struct.pack("<iI", magic, rng.choice(_LENGTHS) & 0xFFFFFFFF) + b"server:" * rng.choice(
        (0, 1, 100)
    )


def _misbehave(
    client: socket.socket, answer: bytes, answers: Sequence[bytes], rng: random.Random
) -> bool:
    """Answer badly; whether the talk goes on."""
    kind = rng.random()
    if kind < 0.04:
        return False
    if kind < 0.045:
        time.sleep(0.5)  # beyond the limit of time
        return False
    if kind < 0.055:
        for byte in damage(answer, answers, rng)[:40]:
            client.sendall(bytes([byte]))
            time.sleep(0.002)
        return rng.random() < 0.5
    client.sendall(damage(answer, answers, rng))
    return True


def damage(answer: bytes, answers: Sequence[bytes], rng: random.Random) -> bytes:
    """An answer that is none, or a lie."""
    kind = rng.randrange(12)
    if kind < 5:
        return _changed_bytes(bytearray(answer), kind, rng)
    if kind == 5:
        return answer[: rng.randrange(len(answer))]
    if kind == 6:
        return _framed(answer[8:] + rng.randbytes(rng.choice((1, 4, 64))))
    if kind == 7:
        return rng.choice((rng.choice(answers), answer * 2, rng.randbytes(12), rng.randbytes(200)))
    return _error(rng) if kind == 8 else _lie(answer, rng)


def _changed_bytes(content: bytearray, kind: int, rng: random.Random) -> bytes:
    """Bits, the length, the code, or a number in it changed."""
    if kind == 0 or len(content) < 24:
        for _ in range(rng.choice((1, 1, 2, 4))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        struct.pack_into("<Q", content, 0, rng.choice(_LENGTHS))
    elif kind == 2:
        struct.pack_into("<i", content, 8, rng.choice((*range(25), *_NUMBERS)))
    elif kind == 3:
        struct.pack_into(
            "<i", content, rng.randrange(12, len(content) - 3, 4), rng.choice(_NUMBERS)
        )
    else:  # as an extent or a pointer
        struct.pack_into(
            "<Q", content, rng.randrange(12, len(content) - 7, 4), rng.choice(_LENGTHS)
        )
    return bytes(content)


def _framed(body: bytes) -> bytes:
    return struct.pack("<Q", len(body)) + body


def _text(rng: random.Random) -> bytes:
    return rng.choice(_TEXTS).encode("utf-8", "surrogatepass") + (
        b"\xff\xfe" if rng.random() < 0.1 else b""
    )


def _error(rng: random.Random) -> bytes:
    text = _text(rng)
    return _framed(struct.pack("<iiiQ", EXCEPTION, 1, _TEXT, len(text)) + text)


def _lie(answer: bytes, rng: random.Random) -> bytes:
    """Another value of the same kind: a well-formed answer that is not true."""
    # Length, code, two values: the number of a type (12 bytes), and a text (12 bytes and itself).
    head, at = answer[8:], 4 + 4 + 12
    if len(head) >= at + 12 and struct.unpack_from("<i", head, at)[0] == _TEXT:
        text = head[at + 12 :]
        with suppress(ValueError):
            text = _changed(json.loads(text), rng)
        if rng.random() < 0.1:
            text = _text(rng)
        return _framed(head[: at + 4] + struct.pack("<Q", len(text)) + text)
    value = rng.choice((_TEXT, 1, 3, 0))
    body = struct.pack("<ii", RETURN, 2)
    if value == _TEXT:
        text = _text(rng)
        body += struct.pack("<iqiQ", 1, 65, _TEXT, len(text)) + text
    elif value == 0:
        body += struct.pack("<iqi", 1, 0, 0)
    else:
        body += struct.pack("<iqiq", 1, value, value, rng.choice(_NUMBERS))
    return _framed(body)


def _changed(value: Any, rng: random.Random) -> bytes:
    """JSON with one place of it changed."""
    places = places_in(value)
    if not places:
        return json.dumps(rng.choice(_VALUES)).encode()
    owner, key = rng.choice(places)
    if rng.random() < 0.3:
        del owner[key]
    else:
        owner[key] = rng.choice(_VALUES)
    return json.dumps(value).encode()


_GREETING_LENGTHS = (0, 1, 2, 7, 8, 1023, 1024, 1025, 1 << 16, 1 << 30, (1 << 31) - 1)
_FRAME_LENGTHS = (0, 1, 3, 4, 5, 1 << 20, (1 << 30) + 1, 1 << 40, 1 << 63, (1 << 64) - 1)
_KEY = "secret"
_WAIT_S = 5.0


def attack(port: int, talks: Sequence[Talk], seed: int, number: int, session_share: float) -> str:
    """Case `number` against the server at `port`; what it did, in a word."""
    rng = random.Random(f"{seed}/{number}")
    is_let_in = rng.random() < session_share
    # From an address of its own: one that says a wrong key waits for a second.
    source = (f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0)
    server = ("127.0.0.1", port)
    with (
        suppress(OSError),
        socket.create_connection(server, _WAIT_S, source_address=source) as peer,
    ):
        peer.settimeout(_WAIT_S)
        if not is_let_in:
            _greet_badly(peer, rng)
            return "greeting"
        key = f"client:{_KEY}".encode()
        if rng.random() < 0.2:
            key += rng.choice((b" -timeout=1", b" -timeout=-1", b" -timeout=nan", b" " * 500))
        peer.sendall(struct.pack("<ii", MAGIC, len(key)) + key)
        received(peer, 8)
        received(peer, len("server:secret"))
        _talk_badly(peer, rng.choice(talks), rng)
    return "session" if is_let_in else "greeting"


def _greet_badly(peer: socket.socket, rng: random.Random) -> None:
    """Anything but the key; nobody is let in by it."""
    kind = rng.randrange(6)
    if kind == 0:
        said = rng.randbytes(rng.choice((0, 1, 4, 7, 8, 9, 100, 5000)))
    elif kind == 1:
        said = struct.pack("<iI", MAGIC, rng.choice(_GREETING_LENGTHS)) + b"client:" * rng.choice(
            (0, 1, 400)
        )
    elif kind == 2:
        said = struct.pack("<ii", MAGIC, -rng.choice((1, 2, 1 << 31))) + b"x" * rng.randrange(50)
    elif kind == 3:
        key = rng.choice((b"client:", b"client:secre", b"client:secretx", b"server:secret", b"\0"))
        key += rng.choice((b"", b" -timeout=1", b"\0", b" " * 900))
        said = struct.pack("<ii", MAGIC, len(key)) + key
    elif kind == 4:
        said = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    else:  # a byte at a time, as far as the patience of this peer goes
        said = struct.pack("<ii", MAGIC, 13) + b"client:secre"
        for byte in said[: rng.randrange(len(said))]:
            peer.sendall(bytes([byte]))
        return
    peer.sendall(said)
    if rng.random() < 0.7:
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def _talk_badly(peer: socket.socket, talk: Talk, rng: random.Random) -> None:
    """Some requests as they should be, then one that is none.

    Handles are a server's own pointers: who names a wrong one runs what lies there, as who is let
    in may.  So no request here names one that it was not given.
    """
    for request in talk.requests[:1]:  # the opening one
        peer.sendall(request)
        received(peer, struct.unpack("<Q", received(peer, 8))[0])
    kind = rng.randrange(7)
    name = rng.choice((b"adrenoc.runtime.version", b"", b"x" * 5000, b"\xff\xfe", b"a\0b"))
    asks = struct.pack("<iiiQ", 9, 1, 8, len(name)) + name
    if kind == 0:
        said = struct.pack("<Q", rng.choice(_FRAME_LENGTHS)) + rng.randbytes(16)
    elif kind == 1:  # cut off
        said = (struct.pack("<Q", len(asks)) + asks)[: rng.randrange(len(asks) + 8)]
    elif kind == 2:  # a code that is none
        said = struct.pack("<Qi", 12, rng.choice((0, 2, 4, 5, 8, 22, 99, -1))) + struct.pack(
            "<q", 0
        )
    elif kind == 3:  # the opening, once more
        said = b"".join(talk.requests[:1] * 3)
    elif kind == 4:
        said = (struct.pack("<Q", len(asks)) + asks) * 50
    elif kind == 5:
        said = struct.pack("<Qi", 4, 1) + rng.randbytes(20)  # leaves, and goes on
    else:
        said = bytes(8) * 100
    peer.sendall(said)
    if rng.random() < 0.5:
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


TIMEOUT_S = 0.3
"""What is cut off is waited for so long."""


@functools.cache
def _bundle(path: str) -> Any:
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle

    bundle = open_bundle(Path(path))
    specs = bundle.manifest.inputs
    return bundle, {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def judge(path: Path) -> Outcome:
    """Talk to the server that the file names; what came of it."""
    from adrenoc.lab.tune import session

    session.START_S = TIMEOUT_S
    return attempt(json.loads(path.read_text()), timeout_s=TIMEOUT_S)


def attempt(case: dict[str, Any], *, timeout_s: float, raises: bool = False) -> Outcome:
    """The same, without the processes of fuzzing."""
    from adrenoc.device.remote import RemoteAddress, describe, run_remote

    bundle, inputs = _bundle(case["bundle"])
    address = RemoteAddress.parse(
        f"127.0.0.1:{case['port']}", key=case.get("key", ""), timeout_s=timeout_s
    )
    deeds = {
        "describe": lambda: describe(address),
        "tune": lambda: _open_for_tuner(address),
        "run": lambda: run_remote(bundle, address, inputs=inputs, repeat=2, profile=True),
    }
    return judge_work(deeds[case["deed"]], "ran", raises=raises)


def _open_for_tuner(address: Any) -> None:
    """A session as the tuner has it; what it takes for a broken one is refused."""
    from adrenoc.base.errors import RemoteError
    from adrenoc.lab.tune.farm import BROKEN
    from adrenoc.lab.tune.session import DevicePlace, Session

    try:
        Session(DevicePlace(server=address, limit_s=2.0)).close()
    except BROKEN as error:
        raise RemoteError(str(error) or "broken", hint="none") from error


if __name__ == "__main__":
    print(attempt(json.loads(sys.argv[1]), timeout_s=30.0, raises=True))
