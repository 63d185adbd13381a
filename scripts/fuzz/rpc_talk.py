"""Conversations of TVM's RPC protocol: recorded from a real server, and played back damaged.

A message is its length (8 bytes), a code (4 bytes), and what belongs to the code.
"""

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fuzz.damage import places_in

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
