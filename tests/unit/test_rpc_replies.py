"""Answers of RPC servers: what is one goes on as it is, everything else is refused."""

import struct

import pytest

from adrenoc.device.rpc_relay import (
    CALL,
    COPY_FROM_REMOTE,
    MOST_BYTES,
    WrongReplyError,
    check_length,
    check_reply,
    copied_bytes,
)

INIT, FIND, ATTRIBUTE = 2, 9, 12
RETURN, EXCEPTION, COPY_ACK = 4, 5, 8
NONE, INT, BOOL, FLOAT, POINTER, DTYPE, VIEW, TEXT, BYTES = 0, 1, 2, 3, 4, 5, 7, 8, 9


def _int(value: int, kind: int = INT) -> bytes:
    return struct.pack("<iq", kind, value)


def _text(text: bytes, kind: int = TEXT) -> bytes:
    return struct.pack("<iQ", kind, len(text)) + text


def _pointer(value: int = 1 << 40) -> bytes:
    return struct.pack("<iQ", POINTER, value)


def _tensor(
    shape: tuple[int, ...] = (1, 4),
    *,
    rank: int | None = None,
    device: tuple[int, int] = (4, 0),
    dtype: tuple[int, int, int] = (2, 32, 1),
    offset: int = 0,
) -> bytes:
    head = struct.pack("<iQiiiBBH", VIEW, 7, *device, len(shape) if rank is None else rank, *dtype)
    return head + struct.pack(f"<{len(shape)}q", *shape) + struct.pack("<Q", offset)


def _returned(*values: bytes) -> bytes:
    return struct.pack("<ii", RETURN, len(values)) + b"".join(values)


NOTHING = struct.pack("<i", NONE)
GOOD = {
    "nothing of the opening": (INIT, _returned(NOTHING)),
    "a function": (FIND, _returned(_pointer())),
    "no function": (FIND, _returned(_pointer(0))),
    "an attribute": (ATTRIBUTE, _returned(_int(7))),
    "an attribute that is a text": (ATTRIBUTE, _returned(_text(b"x"))),
    "a call without a value": (CALL, _returned(_int(NONE), NOTHING)),
    "a number": (CALL, _returned(_int(INT), _int(-3))),
    "a truth": (CALL, _returned(_int(BOOL), _int(1, BOOL))),
    "a float": (CALL, _returned(_int(FLOAT), struct.pack("<id", FLOAT, 0.5))),
    "a short text": (CALL, _returned(_int(11), _text(b"x"))),
    "a text": (CALL, _returned(_int(65), _text("é".encode()))),
    "bytes": (CALL, _returned(_int(66), _text(b"\xff\0", BYTES))),
    "an object": (CALL, _returned(_int(73), _pointer())),
    "a tensor": (CALL, _returned(_int(70), _tensor(), _pointer())),
    "a scalar tensor": (CALL, _returned(_int(70), _tensor(()), _pointer())),
    "an empty tensor": (CALL, _returned(_int(70), _tensor((0, 3)), _pointer())),
    "an error": (FIND, struct.pack("<ii", EXCEPTION, 1) + _text(b"why")),
}
BAD = {
    "nothing": (CALL, b""),
    "half of a code": (CALL, b"\4\0"),
    "a code alone": (CALL, struct.pack("<i", RETURN)),
    "a request": (CALL, struct.pack("<iQi", CALL, 0, 0)),
    "a copy that nobody asked for": (CALL, struct.pack("<i", COPY_ACK) + bytes(8)),
    "no values": (CALL, _returned()),
    "-1 values": (CALL, struct.pack("<ii", RETURN, -1)),
    "2^30 values": (CALL, struct.pack("<ii", RETURN, 1 << 30) + bytes(64)),
    "one value too many": (CALL, _returned(_int(INT), _int(1), _int(1))),
    "one value too few": (CALL, _returned(_int(INT))),
    "another value than it says": (CALL, _returned(_int(65), _int(1))),
    "a truth of 2": (CALL, _returned(_int(BOOL), _int(2, BOOL))),
    "an object by itself": (CALL, _returned(_int(64), struct.pack("<iIq", 64, 64, 0))),
    "a raw tensor": (CALL, _returned(_int(VIEW), _tensor())),
    "an unknown type": (CALL, _returned(_int(63), _pointer())),
    "a type below zero": (CALL, _returned(_int(-1), _pointer())),
    "a dtype": (CALL, _returned(_int(DTYPE), struct.pack("<iQ", DTYPE, 0))),
    "a long text": (CALL, _returned(_int(65), struct.pack("<iQ", TEXT, 1 << 60))),
    "a text beyond its end": (CALL, _returned(_int(65), struct.pack("<iQ", TEXT, 5) + b"x")),
    "bytes that follow": (CALL, _returned(_int(65), _text(b"x")) + b"x"),
    "a tensor without its handle": (CALL, _returned(_int(70), _tensor())),
    "rank -1": (CALL, _returned(_int(70), _tensor((), rank=-1), _pointer())),
    "rank 10^9": (CALL, _returned(_int(70), _tensor(rank=10**9), _pointer())),
    "an extent below zero": (CALL, _returned(_int(70), _tensor((-1,)), _pointer())),
    "a vast tensor": (CALL, _returned(_int(70), _tensor((1 << 30, 1 << 30)), _pointer())),
    "a vast one of nothing": (CALL, _returned(_int(70), _tensor((0, 1 << 62)), _pointer())),
    "no device": (CALL, _returned(_int(70), _tensor(device=(0, 0)), _pointer())),
    "a device of another session": (
        CALL,
        _returned(_int(70), _tensor(device=(132, 0)), _pointer()),
    ),
    "a dtype of no bits": (CALL, _returned(_int(70), _tensor(dtype=(2, 0, 1)), _pointer())),
    "a dtype of no lanes": (CALL, _returned(_int(70), _tensor(dtype=(2, 32, 0)), _pointer())),
    "a vast offset": (CALL, _returned(_int(70), _tensor(offset=1 << 63), _pointer())),
    "a text of the opening": (INIT, _returned(_text(b"x"))),
    "a text in place of a function": (FIND, _returned(_text(b"x"))),
    "an error without a text": (CALL, struct.pack("<ii", EXCEPTION, 0)),
    "an error of a number": (CALL, struct.pack("<ii", EXCEPTION, 1) + _int(1)),
    "an answer to a farewell": (1, _returned(NOTHING)),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers_go_on_as_they_are(name: str) -> None:
    request, message = GOOD[name]
    assert check_reply(request, message) == message


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_refused(name: str) -> None:
    request, message = BAD[name]
    with pytest.raises(WrongReplyError):
        check_reply(request, message)


@pytest.mark.parametrize("name", GOOD)
def test_no_beginning_of_an_answer_is_one(name: str) -> None:
    request, message = GOOD[name]
    for length in range(len(message)):
        with pytest.raises(WrongReplyError):
            check_reply(request, message[:length])


def test_texts_are_mended() -> None:
    """Names of drivers may hold anything; TVM raises where a text is not UTF-8."""
    seen = check_reply(CALL, _returned(_int(65), _text(b"GPU\xff")))
    assert seen == _returned(_int(65), _text("GPU\N{REPLACEMENT CHARACTER}".encode()))
    error = check_reply(CALL, struct.pack("<ii", EXCEPTION, 1) + _text(b"\xff" * 200_000))
    assert len(error) < 200_100
    error[20:].decode()


def test_lengths() -> None:
    assert copied_bytes(COPY_ACK, 4 + 100, asked=100)
    assert not copied_bytes(EXCEPTION, 30, asked=100)
    for code, length in ((COPY_ACK, 4 + 99), (COPY_ACK, 1 << 63), (RETURN, 104)):
        with pytest.raises(WrongReplyError):
            copied_bytes(code, length, asked=100)
    check_length(4)
    check_length(MOST_BYTES)
    for length in (0, 3, MOST_BYTES + 1, 1 << 63):
        with pytest.raises(WrongReplyError):
            check_length(length)
    assert COPY_FROM_REMOTE == 6
