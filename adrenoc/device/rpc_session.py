"""One RPC session in a process of its own: `python -m adrenoc.device.rpc_session CHANNEL SERVER`.

SERVER is the process of the server, and the session comes through the socket CHANNEL once all is
loaded: the socket of a peer with which hands were shaken, the folder that takes what it uploads,
the one that keeps it for later sessions (empty for nowhere), and the length of the longest message.
Imports and drivers take seconds, so that a server that has had a peer twice starts the next one's
process ahead (`Standby`).

A peer that cannot be served is told the reason, in TVM's own protocol: a connection that is only
closed says nothing but "Connection reset by peer".
"""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress

from adrenoc.base.errors import AdrenocError
from adrenoc.base.host.proc import own_module
from adrenoc.base.text.spelling import printable

# Leads each reason, also where adrenoc/native/src/rpc/rpc_session.cc gives one.
REFUSED = "The session was not started: "
# TVM's code of a message that tells an error, and its number for the type of a plain text.
_EXCEPTION = 5
_TEXT = 8
# What the peer sent on its way is taken and dropped for so long: closed before, it would not see
# the answer.
_DRAIN_S = 5.0


def refuse(connection: socket.socket, reason: str) -> None:
    """Answer the first request of a peer, with which hands were shaken, by the reason."""
    text = (REFUSED + reason).encode()
    body = struct.pack("<iiiQ", _EXCEPTION, 1, _TEXT, len(text)) + text
    end = time.monotonic() + _DRAIN_S
    with suppress(OSError):
        connection.settimeout(_DRAIN_S)
        connection.sendall(struct.pack("<Q", len(body)) + body)
        connection.shutdown(socket.SHUT_WR)
        while time.monotonic() < end and connection.recv(1 << 16):
            pass


def refusal(said: str) -> str:
    """Return the reason in what TVM raised at the peer's side, or nothing."""
    _, found, reason = said.partition(REFUSED)
    return reason.strip() if found else ""


_READY_BYTES = 1 << 12


class Standby:
    """A process that loads what a session needs, and waits for a connection to serve."""

    def __init__(self, *, quiet: bool) -> None:
        """`quiet`: what drivers print of it goes nowhere."""
        self._channel, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                own_module("adrenoc.device.rpc_session", str(number), str(os.getpid())),
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


_PR_SET_PDEATHSIG = 1


def load() -> str:
    """Load TVM and the OpenCL runtime; why that failed, or nothing."""
    try:
        import tvm  # noqa: F401  (the runtime registers itself there)

        from adrenoc import native

        native.use_software_device()
        native.load()
    except (AdrenocError, ImportError, OSError) as error:
        print(f"adrenoc runtime serve: {error}", file=sys.stderr)
        return str(error)
    return ""


def main(channel: int) -> int:
    """Load, wait for a connection, and serve it until the peer leaves; returns the exit code. The
    peer is told of a failure to load."""
    failure = load()
    if not failure:
        import tvm_ffi

        with suppress(RuntimeError):  # the peer will hear of it
            tvm_ffi.get_global_func("adrenoc.opencl.devices")()  # drivers take their time
    with socket.socket(fileno=channel) as server:
        words, descriptors, _, _ = socket.recv_fds(server, _READY_BYTES, 2)
    if not words:
        return 0  # the server has left
    if failure:
        with socket.socket(fileno=descriptors[0]) as connection:
            refuse(connection, failure)
        return 1
    try:
        tvm_ffi.get_global_func("adrenoc.rpc.serve")(descriptors[0], *json.loads(words))
    except (RuntimeError, ValueError) as error:  # the peer vanished in the middle of a message
        print(f"adrenoc runtime serve: {printable(str(error).splitlines()[0])}", file=sys.stderr)
        return 1
    return 0


def _end_with(server: int) -> None:
    """Have the system end this process with the server's, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before the line above
        sys.exit(1)


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    sys.exit(main(int(sys.argv[1])))
