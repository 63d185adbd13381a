"""A server of this machine's own OpenCL device, so that tuning here takes the same way."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from adrenoc import native
from adrenoc.base.reporter import SilentReporter
from adrenoc.device.remote import RemoteAddress
from adrenoc.device.serve import RpcServer, ServeOptions
from adrenoc.device.tracker import HostPort

_MOST_END_S = 15.0
"""What a session takes at most that is stopped because its peer has left."""


@contextmanager
def local_server() -> Iterator[RemoteAddress]:
    """Serve on loopback while the block runs; each session is a process of its own."""
    key = secrets.token_hex(16)
    native.build()  # a session would be late that has to compile it first
    server = RpcServer(ServeOptions(key=key, session_s=0, quiet=True))
    server.prepare()

    def serve() -> None:
        while True:
            try:
                server.serve_one(SilentReporter())
            except OSError:  # closed
                return

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    try:
        yield RemoteAddress(where=HostPort(host="127.0.0.1", port=server.port), key=key)
    finally:
        server.close()
        # Until the last session has ended and its folder is removed.
        serving.join(_MOST_END_S)
