"""Serve TVM's RPC protocol from this machine, one session after the other.

Each session is a Python process of its own (`adrenoc.device.rpc_session`): a crash or a time-out
ends that session and not the server.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress

from adrenoc.errors import RemoteError
from adrenoc.reporter import Reporter

# What both sides of TVM's RPC say first, and what a server answers to a wrong key.
MAGIC = 0xFF271
MISMATCH = MAGIC + 2
_MAX_KEY_BYTES = 1024
_HANDSHAKE_S = 10.0


class RpcServer:
    """A listening server; `port` is where, also when any free port was asked for.

    Raises:
        RemoteError: the address cannot be listened on.
    """

    def __init__(self, *, host: str, port: int, key: str, timeout_s: float) -> None:
        self._key = key
        self._timeout_s = timeout_s
        try:
            self._listening = socket.create_server((host, port))
        except OSError as error:
            raise RemoteError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="adrenoc serve --port 0 takes any free port",
            ) from error
        self.port: int = self._listening.getsockname()[1]

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def serve_one(self, reporter: Reporter) -> None:
        """Wait for a peer and serve it until it leaves; tell the reporter how that went."""
        connection, address = self._listening.accept()
        with connection:
            peer = f"{address[0]}:{address[1]}"
            connection.settimeout(_HANDSHAKE_S)
            try:
                _shake_hands(connection, self._key)
            except (OSError, ValueError) as error:
                reporter.warn(f"refused {peer}: {error}")
                return
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reporter.note(f"session of {peer} {self._run(connection)}")

    def _run(self, connection: socket.socket) -> str:
        """Run the session of a connection, and say how it ended."""
        number = connection.fileno()
        with tempfile.TemporaryDirectory(prefix="adrenoc-rpc-") as folder:
            command = [sys.executable, "-m", "adrenoc.device.rpc_session", str(number), folder]
            session = subprocess.Popen(command, pass_fds=(number,), stdin=subprocess.DEVNULL)
            try:
                code = session.wait(self._timeout_s or None)
            except subprocess.TimeoutExpired:
                return f"was stopped after {self._timeout_s:.0f} s"
            finally:
                session.kill()
                session.wait()
        if code < 0:
            return f"crashed with signal {-code}"
        return "ended" if code == 0 else "failed"


def _shake_hands(connection: socket.socket, key: str) -> None:
    """Greet a peer.

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
    greeting = _receive(connection, length).decode("utf-8", "replace")
    if greeting.partition(" ")[0] != f"client:{key}":
        with suppress(OSError):
            connection.sendall(struct.pack("<i", MISMATCH))
        raise ValueError("it has another key")
    own = f"server:{key}".encode()
    connection.sendall(struct.pack("<ii", MAGIC, len(own)) + own)


def _receive(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionError("it left")
        received += piece
    return received
