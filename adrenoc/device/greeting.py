"""Greet the peers of a server, many at once: one that says nothing keeps nobody else waiting.

A greeting of TVM's RPC protocol is two numbers and a key.  Each peer has one limit for all of it,
counted from its connection, so that a byte a second does not hold a place either.  Who says a wrong
key waits before anybody of that address is heard again: keys are not found by trying.
"""

import errno
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

# What both sides of TVM's RPC say first, and what a server answers to a wrong key.
MAGIC = 0xFF271
MISMATCH = MAGIC + 2
_MAX_KEY_BYTES = 1024
_HEAD = struct.Struct("<ii")
_LIMIT_S = 10.0
# More peers at once than a server has any use for; the one that came first has to go then.
_MOST_PEERS = 128
# Where no descriptor is left to accept a connection with.
_PAUSE_S = 0.1
# Nobody of an address that said a wrong key is heard for so long.
_WRONG_KEY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A peer that was greeted: its socket and address, and the limit that it asks for (0: none)."""

    connection: socket.socket
    name: str
    asked_s: float


@dataclass(kw_only=True)
class _Greeting:
    """A peer that has not said everything yet."""

    connection: socket.socket
    host: str
    name: str
    end: float
    received: bytearray = field(default_factory=bytearray)


class _WrongPeerError(Exception):
    """What a peer does wrong; empty for one that only looked whether anybody listens."""


class _WrongKeyError(_WrongPeerError):
    """A peer does not know the key."""


class Greetings:
    """The peers that wait at a listening socket; `own_key` is what the server calls itself."""

    def __init__(
        self, listening: socket.socket, *, own_key: str, limit_s: float = _LIMIT_S
    ) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._own_key = own_key
        self._limit_s = limit_s
        self._waiting: dict[int, _Greeting] = {}
        self._unheard_until: dict[str, float] = {}

    def wait(
        self, expected_key: str, *, tick_s: float, refused: Callable[[str], None]
    ) -> Peer | None:
        """Return the first peer that says `expected_key`; None when none did for `tick_s`.

        `refused` is told of each that was sent away, with the reason. Raises OSError where the
        listening socket was closed, by another thread too.
        """
        end = time.monotonic() + tick_s
        while True:
            # At least one look, so that what came while nobody looked is not late.
            listening = self._listening.fileno()
            if listening < 0:
                self._leave_all()
            for number in self._ready(listening, end):
                if number == listening:
                    self._accept(refused)
                elif self._waiting[number].host in self._unheard_until:
                    continue  # another of its address was wrong just now
                elif peer := self._hear(self._waiting[number], expected_key, refused):
                    return peer
            now = time.monotonic()
            for greeting in [g for g in self._waiting.values() if g.end <= now]:
                self._send_away(greeting, f"it took more than {self._limit_s:.0f} s", refused)
            if now >= end:
                return None

    def _leave_all(self) -> NoReturn:
        for greeting in self._waiting.values():
            greeting.connection.close()
        self._waiting.clear()
        raise OSError(errno.EBADF, "the server was closed")

    def _ready(self, listening: int, end: float) -> list[int]:
        poll = select.poll()
        now = time.monotonic()
        self._unheard_until = {h: until for h, until in self._unheard_until.items() if until > now}
        for number, greeting in self._waiting.items():
            if greeting.host not in self._unheard_until:
                poll.register(number, select.POLLIN)
        # Last: who came first may have to go for who comes now.
        poll.register(listening, select.POLLIN)
        ends = [greeting.end for greeting in self._waiting.values()]
        left_s = min(end, *ends, *self._unheard_until.values()) - now if ends else end - now
        return [number for number, _ in poll.poll(max(0.0, left_s) * 1000)]

    def _accept(self, refused: Callable[[str], None]) -> None:
        try:
            connection, address = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            refused(f"a peer: {error.strerror}")
            time.sleep(_PAUSE_S)
            return
        if len(self._waiting) >= _MOST_PEERS:
            oldest = next(iter(self._waiting.values()))
            self._send_away(oldest, "too many others came", refused)
        connection.setblocking(False)
        name = f"{address[0]}:{address[1]}"
        self._waiting[connection.fileno()] = _Greeting(
            connection=connection, host=address[0], name=name, end=time.monotonic() + self._limit_s
        )

    def _hear(
        self, greeting: _Greeting, expected_key: str, refused: Callable[[str], None]
    ) -> Peer | None:
        """Take what a peer says; itself when that is all."""
        try:
            said = _whole(greeting)
            if said is None:
                return None
            asked_s = self._answer(greeting.connection, said, expected_key)
        except (_WrongPeerError, OSError) as error:
            if isinstance(error, _WrongKeyError):
                self._unheard_until[greeting.host] = time.monotonic() + _WRONG_KEY_S
            self._send_away(greeting, str(error), refused)
            return None
        del self._waiting[greeting.connection.fileno()]
        greeting.connection.settimeout(None)
        return Peer(connection=greeting.connection, name=greeting.name, asked_s=asked_s)

    def _answer(self, connection: socket.socket, said: bytes, expected_key: str) -> float:
        # Options may follow the key, which may hold spaces itself: "client:KEY -timeout=60".
        wanted = f"client:{expected_key}".encode("utf-8", "surrogateescape")
        key, wishes = said[: len(wanted)], said[len(wanted) :]
        if not secrets.compare_digest(key, wanted) or wishes[:1] not in (b"", b" "):
            with suppress(OSError):
                connection.sendall(struct.pack("<i", MISMATCH))
            raise _WrongKeyError("it has another key")
        own = f"server:{self._own_key}".encode("utf-8", "surrogateescape")
        connection.sendall(_HEAD.pack(MAGIC, len(own)) + own)  # goes at once: nothing went before
        return _read_limit_s(wishes.split(b" "))

    def _send_away(self, greeting: _Greeting, reason: str, refused: Callable[[str], None]) -> None:
        del self._waiting[greeting.connection.fileno()]
        greeting.connection.close()
        if reason:
            refused(f"{greeting.name}: {reason}")


def _whole(greeting: _Greeting) -> bytes | None:
    """Return what a peer said after the two numbers, once all of it has come.

    Raises:
        _WrongPeerError: it speaks another protocol, or left.
    """
    received = greeting.received
    wanted = _HEAD.size
    if len(received) >= wanted:
        wanted += _key_bytes(received)
    piece = greeting.connection.recv(wanted - len(received))
    if not piece:
        raise _WrongPeerError("it left" if received else "")
    received += piece
    if len(received) < _HEAD.size or len(received) < _HEAD.size + _key_bytes(received):
        return None
    return bytes(received[_HEAD.size :])


def _key_bytes(received: bytearray) -> int:
    magic, length = _HEAD.unpack_from(received)
    if magic != MAGIC:
        raise _WrongPeerError("it does not speak TVM's RPC protocol")
    if not 0 < length <= _MAX_KEY_BYTES:
        raise _WrongPeerError(f"its key has {length} bytes")
    return int(length)


def _read_limit_s(wishes: list[bytes]) -> float:
    for wish in wishes:
        name, _, value = wish.partition(b"=")
        if name == b"-timeout":
            with suppress(ValueError):
                seconds = float(value)
                return seconds if 0 < seconds < float("inf") else 0.0
    return 0.0
