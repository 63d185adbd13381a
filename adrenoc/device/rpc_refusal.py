"""What a server answers to a peer that it cannot serve: the reason, in TVM's own protocol.

A connection that is only closed tells the peer nothing but "Connection reset by peer".
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress

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
