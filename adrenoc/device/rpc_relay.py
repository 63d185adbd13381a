"""A process between TVM's end of an RPC session and a server that nobody vouches for.

`python -m adrenoc.device.rpc_relay SERVER LISTENING CHANNEL`, started by `adrenoc.device.rpc_line`:
SERVER is a socket to a server that was greeted, TVM connects to LISTENING, and CHANNEL leads to who
started this.  Lines of JSON come from there (the key that TVM shows, how long to wait for answers),
and one goes back at the end, with the reason.  Whatever a server sends is held against what it was
asked (`adrenoc.device.rpc_replies`), and every request and answer has a limit in time: TVM sees
whole answers that it can read, or a connection that was closed.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from contextlib import suppress

from adrenoc.device.greeting import Greetings
from adrenoc.device.rpc_replies import (
    CODE_BYTES,
    COPY_FROM_REMOTE,
    HEAD,
    LENGTH,
    SHUTDOWN,
    WrongReplyError,
    check_length,
    check_reply,
    copied_bytes,
)

_PIECE_BYTES = 1 << 20
# Who sends or takes less than that is as good as one that hangs.
_SLOWEST_BYTES_A_S = 16 << 10
_TICK_S = 1.0
_WORDS_BYTES = 1 << 12


class EndError(Exception):
    """The session is over: `kind` is "left", "late" or "wrong" of the server, "closed" of us."""

    def __init__(self, kind: str, reason: str = "") -> None:
        super().__init__(reason)
        self.kind = kind


class Orders:
    """What who started this process says: `key` first, `limit_s` then and again later."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.channel = channel
        self.key = ""
        self.limit_s = 0.0
        self._words = b""

    def take(self) -> None:
        """Take what there is.

        Raises:
            EndError: the other end was closed.
        """
        try:
            words = self.channel.recv(_WORDS_BYTES)
        except BlockingIOError:
            return
        except OSError:
            words = b""
        if not words:
            raise EndError("closed")
        *lines, self._words = (self._words + words).split(b"\n")
        for line in lines:
            order = json.loads(line)
            self.key = order.get("key", self.key)
            self.limit_s = order.get("limit_s", self.limit_s)

    def wait(self) -> None:
        """Wait for the next."""
        select.select([self.channel], [], [])
        self.take()


class Relay:
    """Hands requests to a server, and its answers back where they are what they should be."""

    def __init__(self, server: socket.socket, client: socket.socket, orders: Orders) -> None:
        for one in (server, client):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server, self._client, self._orders = server, client, orders
        self._end = 0.0
        self._takes = True

    def run(self) -> None:
        """Relay until somebody leaves.

        Raises:
            EndError, WrongReplyError: always, with the reason.
        """
        while True:
            code, asked = self._hand_on_request()
            if code == SHUTDOWN:
                raise EndError("closed")
            self._hand_back_answer(code, asked)

    def _hand_on_request(self) -> tuple[int, int]:
        """Return the code of a request, and the number that it ends with: of a copy, how many
        bytes."""
        piece = self._receive_from_client(HEAD.size)
        length, code = HEAD.unpack(piece)
        self._orders.take()
        self._end = time.monotonic() + self._orders.limit_s
        left, tail = length - CODE_BYTES, b""
        while left > 0:
            more = self._receive_from_client(min(left, _PIECE_BYTES), least=1)
            left -= len(more)
            tail = (tail + more[-LENGTH.size :])[-LENGTH.size :]
            self._send_to_server(piece + more)
            piece = b""
        self._send_to_server(piece)
        self._takes = True
        return code, LENGTH.unpack(tail)[0] if len(tail) == LENGTH.size else 0

    def _hand_back_answer(self, request: int, asked: int) -> None:
        self._end = time.monotonic() + self._orders.limit_s
        head = self._receive_from_server(HEAD.size)
        length, kind = HEAD.unpack(head)
        if request == COPY_FROM_REMOTE and copied_bytes(kind, length, asked=asked):
            self._send_to_client(head)
            left = asked
            while left:
                piece = self._receive_from_server(min(left, _PIECE_BYTES), least=1)
                left -= len(piece)
                self._send_to_client(piece)
            return
        check_length(length)
        rest = self._receive_from_server(length - CODE_BYTES)
        reply = check_reply(request, head[LENGTH.size :] + rest)
        self._send_to_client(LENGTH.pack(len(reply)) + reply)

    # Each side

    def _receive_from_client(self, most: int, *, least: int = 0) -> bytes:
        """So many bytes, at least `least` where that is given."""
        return self._receive(self._client, most, least or most)

    def _receive_from_server(self, most: int, *, least: int = 0) -> bytes:
        try:
            return self._receive(self._server, most, least or most)
        except OSError as error:
            raise EndError("left", error.strerror or str(error)) from error

    def _send_to_client(self, data: bytes) -> None:
        try:
            self._send(self._client, data)
        except OSError as error:
            raise EndError("closed") from error

    def _send_to_server(self, data: bytes) -> None:
        """Send, unless the server takes no more of a request: it has answered then, or left."""
        if self._takes:
            try:
                self._send(self._server, data)
            except OSError:
                self._takes = False

    def _receive(self, side: socket.socket, most: int, least: int) -> bytes:
        pieces, have = [], 0
        while have < least:
            try:
                piece = side.recv(min(most - have, _PIECE_BYTES))
            except BlockingIOError:
                self._wait(side, select.POLLIN)
                continue
            if not piece:
                raise EndError("closed" if side is self._client else "left", "it hung up")
            if side is self._server:
                self._extend_deadline(len(piece))
            pieces.append(piece)
            have += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _send(self, side: socket.socket, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                sent = side.send(left)
            except BlockingIOError:
                self._wait(side, select.POLLOUT)
                continue
            if side is self._server:
                self._extend_deadline(sent)
            left = left[sent:]

    def _extend_deadline(self, count: int) -> None:
        self._end += count / _SLOWEST_BYTES_A_S

    def _wait(self, side: socket.socket, event: int) -> None:
        """Wait for one side; for the server only until its time is over."""
        waiting = select.poll()
        waiting.register(self._orders.channel, select.POLLIN)
        waiting.register(side, event)
        timeout_ms = None
        if side is self._server:
            waiting.register(self._client, select.POLLRDHUP)
            timeout_ms = max(0.0, self._end - time.monotonic()) * 1000
        ready = {number for number, _ in waiting.poll(timeout_ms)}
        if not ready:
            raise EndError("late")
        if self._orders.channel.fileno() in ready:
            self._orders.take()
        if side is self._server and self._client.fileno() in ready:
            raise EndError("closed")


def main(server: int, listening: int, channel: int) -> int:
    """Relay one session, and say how it ended."""
    orders = Orders(socket.socket(fileno=channel))
    remote = socket.socket(fileno=server)
    client = None
    try:
        orders.wait()
        client = _own_client(socket.socket(fileno=listening), orders)
        Relay(remote, client, orders).run()
    except EndError as error:
        told = {"kind": error.kind, "reason": str(error)}
    except WrongReplyError as error:
        told = {"kind": "wrong", "reason": str(error)}
    except (OSError, MemoryError) as error:
        told = {"kind": "left", "reason": str(error) or "no memory for what it sent"}
    # Before the connections close: whoever notices that asks for the reason.
    with suppress(OSError):
        orders.channel.sendall(json.dumps(told).encode() + b"\n")
    remote.close()
    if client is not None:
        client.close()
    return 0


def _own_client(listening: socket.socket, orders: Orders) -> socket.socket:
    """TVM's connection: others of this machine may come to the port too, without the key."""
    greetings = Greetings(listening, own_key="")
    while True:
        peer = greetings.wait(orders.key, tick_s=_TICK_S, refused=lambda why: None)
        if peer is not None:
            listening.close()
            return peer.connection
        orders.take()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
