"""A session's process, started before anybody asks for it: imports and drivers take seconds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress

from adrenoc.base.host.proc import own_module

_READY_BYTES = 1 << 12


class Standby:
    """A process that has loaded what a session needs, and waits for a connection to serve."""

    def __init__(self, *, quiet: bool) -> None:
        """`quiet`: what drivers print of it goes nowhere."""
        self._channel, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            words = ("--wait", str(number), str(os.getpid()))
            command = own_module("adrenoc.device.rpc_session", *words)
            self._process = subprocess.Popen(
                command,
                pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if quiet else None,
                start_new_session=True,  # Ctrl-C is for the server
            )

    def serve(
        self, connection: int, lock: int, folder: str, store: str, max_message_bytes: int
    ) -> subprocess.Popen[bytes] | None:
        """Hand a connection over; the process that serves it, None where it died meanwhile."""
        words = json.dumps([folder, store, max_message_bytes]).encode()
        try:
            socket.send_fds(self._channel, [words], [connection, lock])
        except OSError:
            self.close()
            return None
        self._channel.close()
        return self._process if self._process.poll() is None else None

    def close(self) -> None:
        """End it."""
        self._channel.close()
        with suppress(OSError):
            self._process.kill()
        self._process.wait()


def wait_for_connection(channel: int) -> tuple[int, str, str, int] | None:
    """Wait in the standby process for a connection: its socket, folder, store and limit, or None
    where the server has left."""
    with socket.socket(fileno=channel) as server:
        words, descriptors, _, _ = socket.recv_fds(server, _READY_BYTES, 2)
    if not words:
        return None
    folder, store, max_message_bytes = json.loads(words)
    return descriptors[0], folder, store, max_message_bytes
