"""The way of one session to a server of TVM's RPC protocol: greeted, watched, and limited.

TVM connects to a process of ours in between (`adrenoc.device.rpc_relay`), never to the server:
what a server sends must not end, hang or misguide the process that runs TVM.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from adrenoc.base.errors import RemoteError
from adrenoc.base.host.proc import own_module
from adrenoc.device.greeting import MAGIC, MISMATCH
from adrenoc.device.tracker import HostPort

LOOPBACK = "127.0.0.1"
_LONGEST_KEY = 1024
_HEAD = struct.Struct("<ii")
_WORDS_BYTES = 1 << 16
# A relay that closed its connection has said why before.
_REASON_MS = 1000
_LAST_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the way ended: `kind` is "left", "late" or "wrong", `reason` what is known of it."""

    kind: str
    reason: str


class Line:
    """A greeted server behind a relay; TVM finds it at `LOOPBACK`, `port`, and shows `key`.

    Raises:
        RemoteError: no server listens there, it does not take the key or does not answer.
    """

    def __init__(
        self, where: HostPort, *, key: str, timeout_s: float, session_s: float = 0.0
    ) -> None:
        self.key = secrets.token_hex(16)
        self._ending: Ending | None = None
        with _connect(where, key, timeout_s, session_s) as server:
            try:
                self._start(server, timeout_s)
            except OSError as error:
                raise RemoteError(
                    f"cannot start the process that talks to the server at {where}: {error}",
                    hint="this machine is short of processes, memory or open files: make room",
                ) from error

    def _start(self, server: socket.socket, timeout_s: float) -> None:
        # None of its ends stays here: where it dies, TVM's connection has to end.
        with socket.create_server((LOOPBACK, 0)) as listening:
            self.port = int(listening.getsockname()[1])
            self._channel, theirs = socket.socketpair()
            with theirs:
                ends = (server.fileno(), listening.fileno(), theirs.fileno())
                self._process = start_relay(ends)
        self._order({"key": self.key, "limit_s": timeout_s})

    def limit_waits(self, timeout_s: float) -> None:
        """Give the server so long for each answer from now on."""
        self._order({"limit_s": timeout_s})

    def _order(self, order: dict[str, object]) -> None:
        with suppress(OSError):  # it has ended: TVM notices
            self._channel.sendall(json.dumps(order).encode() + b"\n")

    def ending(self) -> Ending | None:
        """How it ended, if the server ended it; to be asked once TVM failed."""
        if self._ending is None and self._channel.fileno() >= 0:
            waiting = select.poll()
            waiting.register(self._channel, select.POLLIN)
            words = b""
            with suppress(OSError):
                while waiting.poll(_REASON_MS) and (piece := self._channel.recv(_WORDS_BYTES)):
                    words += piece
            if words.endswith(b"\n"):
                self._ending = Ending(**json.loads(words))
        return self._ending if self._ending and self._ending.kind != "closed" else None

    def cut(self) -> None:
        """End it now: whoever asks the server for something from now on is told at once.

        TVM asks it to free each remote object that goes, and would wait for each answer.
        """
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_S)
            return
        self._process.kill()
        self._process.wait()


def start_relay(ends: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    """A relay for these sockets: the server's, TVM's, and ours."""
    return subprocess.Popen(
        own_module("adrenoc.device.rpc_relay", *map(str, ends)),
        pass_fds=ends,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us
    )


def _connect(where: HostPort, key: str, timeout_s: float, session_s: float) -> socket.socket:
    """A connection to a server that took the key."""
    try:
        server = socket.create_connection((where.host, where.port), timeout_s)
    except (OSError, UnicodeError) as error:
        raise RemoteError(
            f"no server at {where}: {getattr(error, 'strerror', None) or error}",
            hint="adrenoc runtime serve starts one on that machine",
        ) from error
    started = time.monotonic()
    try:
        _greet(server, where, key, started + timeout_s, session_s)
    except OSError as error:
        server.close()
        raise RemoteError(
            f"the server at {where} left or did not answer within {timeout_s:.0f} s "
            f"(after {time.monotonic() - started:.1f} s: {error.strerror or error})",
            hint="look at the server's output (it serves one client at a time); "
            "ADRENOC_TIMEOUT=SECONDS waits longer",
        ) from error
    except RemoteError:
        server.close()
        raise
    return server


def _greet(server: socket.socket, where: HostPort, key: str, end: float, session_s: float) -> None:
    said = f"client:{key}" + (f" -timeout={session_s}" if session_s else "")
    words = said.encode("utf-8", "surrogateescape")
    server.sendall(_HEAD.pack(MAGIC, len(words)) + words)
    (magic,) = struct.unpack("<i", _receive(server, 4, end))
    if magic == MISMATCH:
        raise RemoteError(
            f'the server at {where} does not take the key "{key}"',
            hint="adrenoc run --on KEY@HOST:PORT with the key of the server",
        )
    length = struct.unpack("<i", _receive(server, 4, end))[0] if magic == MAGIC else -1
    if not 0 <= length <= _LONGEST_KEY:
        raise RemoteError(
            f"what listens at {where} is not TVM RPC server",
            hint="adrenoc runtime serve, or adrenoc_rpc on a phone, is one",
        )
    _receive(server, length, end)


def _receive(server: socket.socket, count: int, end: float) -> bytes:
    found = b""
    while len(found) < count:
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        server.settimeout(left_s)
        piece = server.recv(count - len(found))
        if not piece:
            raise ConnectionError("it hung up")
        found += piece
    return found
