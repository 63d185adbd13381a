"""Limits for the sockets that TVM makes by itself and then waits on without end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_SYN_SENT = 2  # the first byte of TCP_INFO while a connection is being made


@contextmanager
def limited(host: str, port: int, timeout_s: float) -> Iterator[None]:
    """Cut the connections to `host:port` when the block takes longer than `timeout_s`."""
    timer = threading.Timer(timeout_s, _cut, [host, port])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class SessionLine:
    """The connection of one session to `host:port`: the one that was made since this began."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._others = self._own_ports()

    def limit_waits(self, timeout_s: float) -> None:
        """Let the system end each wait on it after `timeout_s`."""
        seconds = int(timeout_s)
        limit = struct.pack("ll", seconds, int((timeout_s - seconds) * 1e6))
        for connection in self._made_since():
            with connection:
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    connection.setsockopt(socket.SOL_SOCKET, option, limit)

    def cut(self) -> None:
        """End it now: whoever asks the server for something from now on is told at once.

        TVM asks it to free each remote object that goes, and would wait for each answer.
        """
        for connection in self._made_since():
            with connection, suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _made_since(self) -> Iterator[socket.socket]:
        for connection in _connections(self._host, self._port):
            if _own_port(connection) in self._others:
                connection.close()
            else:
                yield connection

    def _own_ports(self) -> frozenset[int]:
        ports = set()
        for connection in _connections(self._host, self._port):
            with connection:
                ports.add(_own_port(connection))
        return frozenset(ports)


def _own_port(connection: socket.socket) -> int:
    with suppress(OSError):
        return int(connection.getsockname()[1])
    return 0


def _cut(host: str, port: int) -> None:
    for connection in _connections(host, port):
        with connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _connections(host: str, port: int) -> list[socket.socket]:
    """The sockets of this process to `host:port`, as descriptors of our own.

    One that is being connected has no peer yet: it counts, since nothing else here connects
    without a limit.
    """
    found = []
    with suppress(OSError):
        hosts = {info[4][0] for info in socket.getaddrinfo(host, port)}
        for entry in _DESCRIPTORS.iterdir():
            candidate = _socket_of(entry)
            if candidate is None:
                continue
            if _is_to(candidate, hosts, port):
                found.append(candidate)
            else:
                candidate.close()
    return found


def _socket_of(entry: Path) -> socket.socket | None:
    try:
        if not str(entry.readlink()).startswith("socket:"):
            return None
        return socket.socket(fileno=socket.dup(int(entry.name)))
    except OSError:
        return None  # it was closed meanwhile


def _is_to(candidate: socket.socket, hosts: set[str | int], port: int) -> bool:
    try:
        peer = candidate.getpeername()
    except OSError:
        with suppress(OSError):
            state = candidate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            return state[0] == _SYN_SENT
        return False
    return isinstance(peer, tuple) and peer[0] in hosts and peer[1] == port
