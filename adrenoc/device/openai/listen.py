"""A socket to listen on, and the web server on it."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from adrenoc.base.errors import OptionError

_KEEP_ALIVE_S = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address, bound before the model is loaded.

    Raises:
        OptionError: the address is not this machine's, or taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    there = socket.socket(family, socket.SOCK_STREAM)
    try:
        there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        there.bind((host, port))
    except OSError as error:
        there.close()
        raise OptionError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}",
            hint="--port 0 takes any free port",
        ) from error
    return there


def listen(app: Any, there: socket.socket) -> None:
    """Serve an application until a signal ends the process."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=_KEEP_ALIVE_S
    )
    uvicorn.Server(config).run(sockets=[there])
