"""Peers of a server that say what they should not: the other half of `scripts/fuzz_rpc`."""

import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

from fuzz.rpc_talk import MAGIC, Talk, received

_LENGTHS = (0, 1, 2, 7, 8, 1023, 1024, 1025, 1 << 16, 1 << 30, (1 << 31) - 1)
_FRAME_LENGTHS = (0, 1, 3, 4, 5, 1 << 20, (1 << 30) + 1, 1 << 40, 1 << 63, (1 << 64) - 1)
_KEY = "secret"
_WAIT_S = 5.0


def attack(port: int, talks: Sequence[Talk], seed: int, number: int, session_share: float) -> str:
    """Case `number` against the server at `port`; what it did, in a word."""
    rng = random.Random(f"{seed}/{number}")
    is_let_in = rng.random() < session_share
    # From an address of its own: one that says a wrong key waits for a second.
    source = (f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0)
    server = ("127.0.0.1", port)
    with (
        suppress(OSError),
        socket.create_connection(server, _WAIT_S, source_address=source) as peer,
    ):
        peer.settimeout(_WAIT_S)
        if not is_let_in:
            _greet_badly(peer, rng)
            return "greeting"
        key = f"client:{_KEY}".encode()
        if rng.random() < 0.2:
            key += rng.choice((b" -timeout=1", b" -timeout=-1", b" -timeout=nan", b" " * 500))
        peer.sendall(struct.pack("<ii", MAGIC, len(key)) + key)
        received(peer, 8)
        received(peer, len("server:secret"))
        _talk_badly(peer, rng.choice(talks), rng)
    return "session" if is_let_in else "greeting"


def _greet_badly(peer: socket.socket, rng: random.Random) -> None:
    """Anything but the key; nobody is let in by it."""
    kind = rng.randrange(6)
    if kind == 0:
        said = rng.randbytes(rng.choice((0, 1, 4, 7, 8, 9, 100, 5000)))
    elif kind == 1:
        said = struct.pack("<iI", MAGIC, rng.choice(_LENGTHS)) + b"client:" * rng.choice(
            (0, 1, 400)
        )
    elif kind == 2:
        said = struct.pack("<ii", MAGIC, -rng.choice((1, 2, 1 << 31))) + b"x" * rng.randrange(50)
    elif kind == 3:
        key = rng.choice((b"client:", b"client:secre", b"client:secretx", b"server:secret", b"\0"))
        key += rng.choice((b"", b" -timeout=1", b"\0", b" " * 900))
        said = struct.pack("<ii", MAGIC, len(key)) + key
    elif kind == 4:
        said = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    else:  # a byte at a time, as far as the patience of this peer goes
        said = struct.pack("<ii", MAGIC, 13) + b"client:secre"
        for byte in said[: rng.randrange(len(said))]:
            peer.sendall(bytes([byte]))
        return
    peer.sendall(said)
    if rng.random() < 0.7:
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def _talk_badly(peer: socket.socket, talk: Talk, rng: random.Random) -> None:
    """Some requests as they should be, then one that is none.

    Handles are a server's own pointers: who names a wrong one runs what lies there, as who is let
    in may.  So no request here names one that it was not given.
    """
    for request in talk.requests[:1]:  # the opening one
        peer.sendall(request)
        received(peer, struct.unpack("<Q", received(peer, 8))[0])
    kind = rng.randrange(7)
    name = rng.choice((b"adrenoc.runtime.version", b"", b"x" * 5000, b"\xff\xfe", b"a\0b"))
    asks = struct.pack("<iiiQ", 9, 1, 8, len(name)) + name
    if kind == 0:
        said = struct.pack("<Q", rng.choice(_FRAME_LENGTHS)) + rng.randbytes(16)
    elif kind == 1:  # cut off
        said = (struct.pack("<Q", len(asks)) + asks)[: rng.randrange(len(asks) + 8)]
    elif kind == 2:  # a code that is none
        said = struct.pack("<Qi", 12, rng.choice((0, 2, 4, 5, 8, 22, 99, -1))) + struct.pack(
            "<q", 0
        )
    elif kind == 3:  # the opening, once more
        said = b"".join(talk.requests[:1] * 3)
    elif kind == 4:
        said = (struct.pack("<Q", len(asks)) + asks) * 50
    elif kind == 5:
        said = struct.pack("<Qi", 4, 1) + rng.randbytes(20)  # leaves, and goes on
    else:
        said = bytes(8) * 100
    peer.sendall(said)
    if rng.random() < 0.5:
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass
