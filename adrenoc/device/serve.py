"""Serve TVM's RPC protocol from this machine, one session after the other.

Each session is a Python process of its own (`adrenoc.device.rpc_session`): a crash or a time-out
ends that session and not the server.
"""

from __future__ import annotations

import secrets
import select
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adrenoc.device.session_folder import remove_left_folders, session_folder
from adrenoc.device.tracker import TICK_S, HostPort, TrackerEntry
from adrenoc.errors import RemoteError
from adrenoc.reporter import Reporter

# What both sides of TVM's RPC say first, and what a server answers to a wrong key.
MAGIC = 0xFF271
MISMATCH = MAGIC + 2
_MAX_KEY_BYTES = 1024
_HANDSHAKE_S = 10.0
# The file in a session's folder that tells what it does.
_TRACE = "doing"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How to serve.

    `host` is the address to listen on and `port` 0 for any free one; `key` what peers have to
    know, or with a `tracker` the kind of device that this server offers there, at the address
    `advertised` (empty: the one that the tracker sees).  `session_s` stops a session, 0 never
    does; `store` keeps what peers sent; a longer message than `max_message_bytes` ends a session.
    """

    host: str = "127.0.0.1"
    port: int = 0
    key: str = ""
    tracker: HostPort | None = None
    advertised: str = ""
    session_s: float = 600.0
    store: Path | None = None
    max_message_bytes: int = 1 << 30


class RpcServer:
    """A listening server; `port` is where, also when any free port was asked for.

    Raises:
        RemoteError: the address cannot be listened on.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        try:
            if options.store is not None:
                options.store.mkdir(parents=True, exist_ok=True)
            self._listening = socket.create_server((options.host, options.port))
        except OSError as error:
            raise RemoteError(
                f"cannot listen on {options.host}:{options.port}: {error.strerror or error}",
                hint="adrenoc serve --port 0 takes any free port",
            ) from error
        # A server that was killed could not do it.
        remove_left_folders()
        self.port: int = self._listening.getsockname()[1]
        self._entry: TrackerEntry | None = None
        if options.tracker is not None:
            self._entry = TrackerEntry(
                options.tracker, key=options.key, host=options.advertised or None, port=self.port
            )

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def serve_one(self, reporter: Reporter) -> None:
        """Wait for a peer and serve it until it leaves; tell the reporter how that went."""
        connection, address = self._accept(reporter)
        expected = self._options.key if self._entry is None else self._entry.session_key
        with connection:
            peer = f"{address[0]}:{address[1]}"
            connection.settimeout(_HANDSHAKE_S)
            try:
                asked_s = _shake_hands(connection, expected, own_key=self._options.key)
            except _LeftInSilenceError:
                return  # somebody looked whether anybody listens
            except (OSError, ValueError) as error:
                reporter.warn(f"refused {peer}: {error}")
                return
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A peer that vanished without a word is noticed after a minute.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (
                (socket.TCP_KEEPIDLE, 20),
                (socket.TCP_KEEPINTVL, 10),
                (socket.TCP_KEEPCNT, 3),
            ):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            limits = [s for s in (asked_s, self._options.session_s) if s > 0]
            try:
                ending = self._run(connection, min(limits, default=0))
            except OSError as error:  # no room for its folder, no process: the next may have
                reporter.warn(f"session of {peer} was not started: {error}")
                return
            reporter.note(f"session of {peer} {ending}")

    def _accept(self, reporter: Reporter) -> tuple[socket.socket, tuple[str, int]]:
        """The next connection; keeps the tracker's entry alive meanwhile."""
        if self._entry is None:
            return self._listening.accept()
        if wrong := self._entry.offer():
            reporter.warn(f"{wrong}; tried again every {TICK_S:.0f} s")
        while not select.select([self._listening], [], [], TICK_S)[0]:
            self._entry.keep()
        return self._listening.accept()

    def _run(self, connection: socket.socket, limit_s: float) -> str:
        """Run the session of a connection, at most `limit_s` (0: for ever); say how it ended."""
        number, options = connection.fileno(), self._options
        store = "" if options.store is None else str(options.store)
        with session_folder() as made:
            folder = made.path
            command = [sys.executable, "-m", "adrenoc.device.rpc_session", str(number), str(folder)]
            command += [store, str(options.max_message_bytes)]
            session = subprocess.Popen(
                command, pass_fds=(number, made.lock), stdin=subprocess.DEVNULL
            )
            try:
                code = session.wait(limit_s or None)
            except subprocess.TimeoutExpired:
                return f"was stopped after {limit_s:.0f} s{_last_deed(folder)}"
            finally:
                session.kill()
                session.wait()
            if code < 0:
                return f"crashed with signal {-code}{_last_deed(folder)}"
        return "ended" if code == 0 else "failed"


def _last_deed(folder: Path) -> str:
    """What a session did last, as its trace file tells; empty when it did nothing on a device."""
    try:
        text = (folder / _TRACE).read_bytes().partition(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""
    return f"; last it was {text}" if text else ""


class _LeftInSilenceError(ConnectionError):
    """The peer left before it said anything."""


def _shake_hands(connection: socket.socket, expected_key: str, *, own_key: str) -> float:
    """Greet a peer; returns after how many seconds it wants the session stopped, 0 for never.

    Raises:
        ValueError: it speaks another protocol or has another key.
        OSError: it left, or said nothing for long.
    """
    magic, length = struct.unpack("<ii", _receive(connection, 8))
    if magic != MAGIC:
        raise ValueError("it does not speak TVM's RPC protocol")
    if not 0 < length <= _MAX_KEY_BYTES:
        raise ValueError(f"its key has {length} bytes")
    # Options may follow the key: "client:KEY -timeout=60".
    greeting, *wishes = _receive(connection, length).split(b" ")
    if not secrets.compare_digest(greeting, f"client:{expected_key}".encode()):
        with suppress(OSError):
            connection.sendall(struct.pack("<i", MISMATCH))
        raise ValueError("it has another key")
    own = f"server:{own_key}".encode()
    connection.sendall(struct.pack("<ii", MAGIC, len(own)) + own)
    return _asked_limit_s(wishes)


def _asked_limit_s(wishes: list[bytes]) -> float:
    for wish in wishes:
        name, _, value = wish.partition(b"=")
        if name == b"-timeout":
            with suppress(ValueError):
                seconds = float(value)
                return seconds if 0 < seconds < float("inf") else 0.0
    return 0.0


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError("it left") if received else _LeftInSilenceError("it left")
        received += piece
    return received
