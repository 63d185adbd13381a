"""A process between TVM's end of an RPC session and a server that nobody vouches for.

`python -m adrenoc.device.rpc_relay SERVER LISTENING CHANNEL`, started by `adrenoc.device.remote`:
SERVER is a socket to a server that was greeted, TVM connects to LISTENING, and CHANNEL leads to who
started this. Lines of JSON come from there (the key that TVM shows, how long to wait for answers),
and one goes back at the end, with the reason.

TVM's own reader believes a peer: it makes room for the length that a message claims, for counts and
shapes below zero too, and hands pointers on to whoever asked. Here each answer is held against the
request that it belongs to, its own length and a limit in time, before TVM sees the first byte of
it: TVM sees whole answers that it can read, or a connection that was closed. A message is its
length (8 bytes), a code (4 bytes) and what belongs to the code.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from contextlib import suppress

from adrenoc.device.peers import Greetings

HEAD = struct.Struct("<Qi")
LENGTH = struct.Struct("<Q")
CODE_BYTES = 4
# Codes of messages.
SHUTDOWN = 1
_INIT_SERVER = 2
CALL = 3
_RETURN = 4
_EXCEPTION = 5
COPY_FROM_REMOTE = 6
_COPY_TO_REMOTE = 7
_COPY_ACK = 8
_FIRST_SYSCALL = 9
_GET_ATTRIBUTE = 12
_LAST_SYSCALL = 21
# Types of values, as TVM numbers them.
_NONE, _INT, _BOOL, _FLOAT, _POINTER = 0, 1, 2, 3, 4
_TENSOR_VIEW, _TEXT, _BYTES = 7, 8, 9
_SMALL_TEXT, _SMALL_BYTES = 11, 12
_FIRST_OBJECT, _TEXT_OBJECT, _BYTES_OBJECT, _TENSOR, _LAST_OBJECT = 64, 65, 66, 70, 1 << 16
# How the value of each type travels: the type that stands before it there.
_TRAVELS = {
    **{kind: (kind,) for kind in (_NONE, _INT, _BOOL, _FLOAT, _POINTER)},
    _TENSOR: (_TENSOR_VIEW, _POINTER),
    **dict.fromkeys((_SMALL_TEXT, _TEXT_OBJECT), (_TEXT,)),
    **dict.fromkeys((_SMALL_BYTES, _BYTES_OBJECT), (_BYTES,)),
}
# A tensor's data, device, rank and dtype; then its shape and its offset.
_TENSOR_HEAD = struct.Struct("<QiiiBBH")
_MOST_RANK = 16
_MOST_TENSOR_BYTES = 1 << 40
_MOST_DEVICE_TYPE = 127
_MOST_DEVICES = 1 << 16
_DTYPE_CODES = range(18)
_DTYPE_BITS = (1, 2, 4, 6, 8, 16, 32, 64)
_MOST_LANES = 64
# The largest that is no tensor's content: a built kernel.
MOST_BYTES = 256 << 20
# A driver's log is longer at times, and nobody reads all of it.
_MOST_ERROR_BYTES = 64 << 10


class WrongReplyError(Exception):
    """What a server sent is no answer to what it was asked."""


def copied_bytes(code: int, length: int, *, asked: int) -> bool:
    """Return whether a message is the `asked` bytes of a tensor, or an error. Raises
    WrongReplyError where it is neither."""
    if code == _EXCEPTION:
        return False
    if code != _COPY_ACK or length != CODE_BYTES + asked:
        raise WrongReplyError(
            f"{asked} bytes of a tensor were asked for, and it sent {length} of kind {code}"
        )
    return True


def check_length(length: int) -> None:
    """Refuse a message before there is room for it. Raises WrongReplyError where it is too short
    for a code, or longer than any answer."""
    if not CODE_BYTES <= length <= MOST_BYTES:
        raise WrongReplyError(f"it announced an answer of {length} bytes")


def check_reply(request: int, message: bytes) -> bytes:
    """Return the answer to a request of that code, as TVM may read it: `message` from its code on.
    Raises WrongReplyError where it is none."""
    reader = _Reader(message)
    code = reader.number("<i")
    if code == _EXCEPTION:
        if reader.number("<i") != 1 or not reader.value((_TEXT,)):
            raise WrongReplyError("it sent an error without a text")
        reader.end()
        text = reader.text[:_MOST_ERROR_BYTES].decode("utf-8", "replace").encode()
        return struct.pack("<iiiQ", _EXCEPTION, 1, _TEXT, len(text)) + text
    if code != _RETURN:
        raise WrongReplyError(f"it sent a message of kind {code}, where an answer was due")
    count = reader.number("<i")
    if request == CALL:
        fitting = _check_call(reader, count)
    elif request in (_INIT_SERVER, _COPY_TO_REMOTE):
        fitting = count == 1 and reader.value((_NONE,))
    elif request == _GET_ATTRIBUTE:
        fitting = count == 1 and reader.value((_NONE, _INT, _BOOL, _FLOAT, _TEXT))
    elif _FIRST_SYSCALL <= request <= _LAST_SYSCALL:
        fitting = count == 1 and reader.value((_NONE, _POINTER))
    else:
        raise WrongReplyError(f"it answered a request of kind {request}, which has no answer")
    if not fitting:
        raise WrongReplyError(f"it answered a request of kind {request} by another kind of value")
    reader.end()
    return reader.rewritten()


def _check_call(reader: _Reader, count: int) -> bool:
    """Return what a function returned: the number of its type, then the value."""
    if not reader.value((_INT,)):
        return False
    kind = reader.integer
    if kind not in _TRAVELS and not _FIRST_OBJECT <= kind <= _LAST_OBJECT:
        raise WrongReplyError(f"it returned a value of the type {kind}, which there is not")
    travels = _TRAVELS.get(kind, (_POINTER,))
    return count == 1 + len(travels) and all(reader.value((kind,)) for kind in travels)


class _Reader:
    """Reads a message from front to end, and never beyond."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 0
        self.integer = 0
        """The last whole number that was read."""
        self.text = b""
        """The last text that was read."""
        self._text_at = -1

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def value(self, kinds: tuple[int, ...]) -> bool:
        """Pass over a value; whether it is of one of these kinds."""
        kind = self.number("<i")
        if kind not in kinds:
            return False
        if kind in (_INT, _BOOL):
            self.integer = self.number("<q")
            return kind == _INT or self.integer in (0, 1)
        if kind in (_FLOAT, _POINTER):
            self._take(8)
        elif kind in (_TEXT, _BYTES):
            length = self.number("<Q")
            at = self._at
            content = self._take(length)
            if kind == _TEXT:
                self.text, self._text_at = content, at
        elif kind == _TENSOR_VIEW:
            self._tensor()
        return True

    def end(self) -> None:
        if self._at != len(self._message):
            raise WrongReplyError(f"{len(self._message) - self._at} bytes follow its answer")

    def rewritten(self) -> bytes:
        """Return the message, with texts that are not UTF-8, as names of drivers may be, as such. A
        text ends its message, and its length stands before it."""
        if self._text_at < 0:
            return self._message
        try:
            self.text.decode("utf-8")
        except UnicodeDecodeError:
            text = self.text.decode("utf-8", "replace").encode()
            head = self._message[: self._text_at - LENGTH.size]
            return head + LENGTH.pack(len(text)) + text
        return self._message

    def _tensor(self) -> None:
        head = _TENSOR_HEAD.unpack(self._take(_TENSOR_HEAD.size))
        _, device_type, device, rank, code, bits, lanes = head
        if not (0 < device_type <= _MOST_DEVICE_TYPE and 0 <= device < _MOST_DEVICES):
            raise WrongReplyError(f"it returned a tensor of the device {device_type}:{device}")
        if code not in _DTYPE_CODES or bits not in _DTYPE_BITS or not 0 < lanes <= _MOST_LANES:
            raise WrongReplyError(f"it returned a tensor of the type {code}, {bits} x {lanes} bits")
        if not 0 <= rank <= _MOST_RANK:
            raise WrongReplyError(f"it returned a tensor of {rank} dimensions")
        size = bits * lanes
        for extent in struct.unpack(f"<{rank}q", self._take(8 * rank)):
            size *= max(extent, 1)
            if extent < 0 or size > 8 * _MOST_TENSOR_BYTES:
                raise WrongReplyError(f"it returned a tensor with the extent {extent}")
        if self.number("<Q") > _MOST_TENSOR_BYTES:
            raise WrongReplyError("it returned a tensor that begins beyond all memory")

    def _take(self, count: int) -> bytes:
        if count > len(self._message) - self._at:
            raise WrongReplyError("its answer ends before it is whole")
        found = self._message[self._at : self._at + count]
        self._at += count
        return found


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
        """Take what there is. Raises EndError where the other end was closed."""
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
        """Relay until somebody leaves. It always ends with EndError or WrongReplyError, which say
        why."""
        while True:
            code, asked = self._hand_on_request()
            if code == SHUTDOWN:
                raise EndError("closed")
            self._hand_back_answer(code, asked)

    def _hand_on_request(self) -> tuple[int, int]:
        """Return the code of a request, and its last number: of a copy, the bytes."""
        piece = self._receive(self._client, HEAD.size, HEAD.size)
        length, code = HEAD.unpack(piece)
        self._orders.take()
        self._end = time.monotonic() + self._orders.limit_s
        left, tail = length - CODE_BYTES, b""
        while left > 0:
            more = self._receive(self._client, min(left, _PIECE_BYTES), 1)
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
