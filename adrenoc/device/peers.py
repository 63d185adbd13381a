"""Peers of TVM's RPC protocol: the tracker, where servers offer themselves under a key, and the
greeting of those that connect to a server, many at once.

A tracker's message is its length in four bytes, then JSON. An offer is good for one client, which
gets the server's key with a random part, and may come again by it: what is proven or measured takes
many sessions. A greeting is two numbers and a key. Each peer has one limit for all of it, counted
from its connection, so that a byte a second does not hold a place either. Who says a wrong key
waits before anybody of that address is heard again: keys are not found by trying.
"""

from __future__ import annotations

import errno
import json
import re
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from adrenoc.base.errors import OptionError, RemoteError
from adrenoc.base.text.json_text import read_json

_MAGIC = 0x2F271
_PUT, _REQUEST, _UPDATE_INFO, _SUMMARY, _PENDING_KEYS = 3, 4, 5, 6, 7
_SUCCESS = 0
_MAX_MESSAGE_BYTES = 1 << 20
_LONGEST_HOST = 253
TICK_S = 2.0
# A client that got the key has this many ticks to come.
_PATIENCE_TICKS = 3


@dataclass(frozen=True, kw_only=True)
class HostPort:
    """Where something listens."""

    host: str
    port: int

    @staticmethod
    def parse(text: str, *, what: str, example: str) -> HostPort:
        """Read `HOST:PORT`; `what` it is the address of, and `example` for messages. Raises
        OptionError where it is of another form."""
        host, _, port = text.rpartition(":")
        if not _is_host(host) or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            raise OptionError(
                f'the address of {what} is "{text}", expected HOST:PORT', hint=example
            )
        return HostPort(host=host.strip("[]"), port=int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _is_host(host: str) -> bool:
    """Return whether names are looked up for such a text: they have parts of up to 63 letters."""
    try:
        return bool(host.encode("idna")) and len(host) <= _LONGEST_HOST and "\0" not in host
    except UnicodeError:
        return False


@dataclass(frozen=True, kw_only=True)
class TrackedServer:
    """One server that a tracker knows; `key` is the kind of device."""

    key: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A server that a tracker gave us, which asks for `key`."""

    address: HostPort
    key: str


class Tracker:
    """A connection to a tracker, every wait limited. Raises RemoteError where none listens there,
    or it does not answer as one."""

    def __init__(self, address: HostPort, *, timeout_s: float) -> None:
        self._address = address
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout_s)
            self._socket.sendall(struct.pack("<i", _MAGIC))
            magic = struct.unpack("<i", self._receive(4))[0]
        except OSError as error:
            raise RemoteError(
                f"no tracker at {address}: {error.strerror or error}",
                hint="python -m tvm.exec.rpc_tracker --port 9190 starts one",
            ) from error
        if magic != _MAGIC:
            raise self._strange()

    def close(self) -> None:
        """Leave the tracker; what this connection offered is withdrawn."""
        self._socket.close()

    def request(self, key: str) -> Offer:
        """Wait for a server of the kind `key`. Raises RemoteError where none becomes free in
        time."""
        try:
            answer = self._ask([_REQUEST, key, "adrenoc", 1])
        except TimeoutError as error:
            raise RemoteError(
                f'the tracker at {self._address} has no free server with the key "{key}"',
                hint="adrenoc device list --on tracker:HOST:PORT lists them",
            ) from error
        match answer:
            case [0, [str(host), int(port), str(session_key)]] if 0 < port < 65536:
                return Offer(address=HostPort(host=host, port=port), key=session_key)
        raise self._strange()

    def servers(self) -> tuple[TrackedServer, ...]:
        """Return all servers that are connected to the tracker."""
        match self._ask([_SUMMARY]):
            case [0, {"server_info": list(entries)}]:
                return tuple(_server(entry) for entry in entries if isinstance(entry, dict))
        raise self._strange()

    def introduce(self, key: str, *, host: str | None, port: int) -> None:
        """Say who we are: a server of the kind `key`."""
        if self._ask([_UPDATE_INFO, {"key": f"server:{key}", "addr": [host, port]}]) != _SUCCESS:
            raise self._strange()

    def put(self, key: str, *, host: str | None, port: int, session_key: str) -> None:
        """Offer a server to one client; without `host` at the address that the tracker sees."""
        if self._ask([_PUT, key, [port, session_key], host]) != _SUCCESS:
            raise self._strange()

    def pending_keys(self) -> set[str]:
        """Return the session keys that we offered and no client has got."""
        answer = self._ask([_PENDING_KEYS])
        if not isinstance(answer, list):
            raise self._strange()
        return {str(key) for key in answer}

    def _ask(self, request: list[Any]) -> Any:
        text = json.dumps(request).encode()
        try:
            self._socket.sendall(struct.pack("<i", len(text)) + text)
            length = struct.unpack("<i", self._receive(4))[0]
            if not 0 <= length <= _MAX_MESSAGE_BYTES:
                raise self._strange()
            return read_json(self._receive(length))
        except TimeoutError:
            raise
        except OSError as error:
            raise RemoteError(
                f"the tracker at {self._address} left: {error.strerror or error}",
                hint="start it again: python -m tvm.exec.rpc_tracker",
            ) from error
        except ValueError as error:
            raise self._strange() from error

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            if not piece:
                raise ConnectionError("it closed the connection")
            received += piece
        return received

    def _strange(self) -> RemoteError:
        return RemoteError(
            f"what listens at {self._address} is not TVM's tracker",
            hint="python -m tvm.exec.rpc_tracker --port 9190 starts one",
        )


def _server(entry: dict[str, Any]) -> TrackedServer:
    address = entry.get("addr")
    shown = ":".join(str(part) for part in address) if isinstance(address, list) else "?"
    return TrackedServer(key=str(entry.get("key", "")).removeprefix("server:"), address=shown)


class TrackerEntry:
    """A server's own entry, kept alive: offered anew after each session and each restart."""

    def __init__(self, tracker: HostPort, *, key: str, host: str | None, port: int) -> None:
        self._where = tracker
        self._key = key
        self._host = host
        self._port = port
        self._tracker: Tracker | None = None
        self._ticks_taken = 0
        self.session_key = f"{self._key}:{secrets.token_hex(16)}"

    def offer(self) -> str:
        """Offer the server to one client; returns what went wrong, or nothing."""
        self._ticks_taken = 0
        try:
            if self._is_pending():
                return ""  # who had a session before came back by the key, and the offer stands
            if self._tracker is None:
                self._tracker = Tracker(self._where, timeout_s=TICK_S)
                self._tracker.introduce(self._key, host=self._host, port=self._port)
            self._tracker.put(
                self._key, host=self._host, port=self._port, session_key=self.session_key
            )
        except (RemoteError, TimeoutError) as error:
            self._leave()
            return str(error) or "the tracker does not answer"
        return ""

    def keep(self) -> None:
        """Keep the entry alive; to be called every `TICK_S` while nobody comes."""
        is_pending = self._is_pending()
        self._ticks_taken = 0 if is_pending else self._ticks_taken + 1
        if self._tracker is None or self._ticks_taken > _PATIENCE_TICKS:
            self.offer()

    def _is_pending(self) -> bool:
        """Return whether no client has been given the key that was offered last."""
        try:
            return self._tracker is not None and self.session_key in self._tracker.pending_keys()
        except (RemoteError, OSError):
            self._leave()
            return False

    def _leave(self) -> None:
        if self._tracker is not None:
            self._tracker.close()
        self._tracker = None


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
        listening socket was closed, by another thread too."""
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
