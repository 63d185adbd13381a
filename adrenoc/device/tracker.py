"""TVM's tracker: servers offer themselves there under a key, clients ask it for one.

A message is its length in four bytes, then JSON.  An offer is good for one client, which gets the
server's key with a random part, and may come again by it: what is proven or measured takes many
sessions.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import struct
from dataclasses import dataclass
from typing import Any

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
