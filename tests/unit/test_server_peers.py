"""Servers: how they greet their peers, what answers are held against, how long they wait."""

import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.device import serve
from adrenoc.device.answers import WrongAnswerError, check_answers
from adrenoc.device.peers import MAGIC, MISMATCH, Greetings, Peer
from adrenoc.device.rpc_relay import (
    CALL,
    COPY_FROM_REMOTE,
    MOST_BYTES,
    WrongReplyError,
    check_length,
    check_reply,
    copied_bytes,
)
from tests.examples import examples
from tests.patience import WAIT_S

_KEY = b"client:secret -timeout=5"
_GREETING = struct.pack("<ii", MAGIC, len(_KEY)) + _KEY


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


def _connect(listening: socket.socket) -> socket.socket:
    return socket.create_connection(listening.getsockname(), WAIT_S)


def _wait(greetings: Greetings, refused: list[str]) -> Peer | None:
    return greetings.wait("secret", tick_s=WAIT_S, refused=refused.append)


def test_silent_and_slow_peers_keep_nobody_waiting(listening):
    greetings, refused = Greetings(listening, own_key="me", limit_s=WAIT_S), list[str]()
    with ExitStack() as open_sockets:
        started = time.monotonic()
        for count in range(40):
            silent = open_sockets.enter_context(_connect(listening))
            silent.sendall(_GREETING[: count % 12])
        good = open_sockets.enter_context(_connect(listening))
        good.sendall(_GREETING)
        peer = _wait(greetings, refused)
        assert peer is not None and peer.asked_s == 5.0
        assert peer.name == "{}:{}".format(*good.getsockname())
        assert good.recv(100) == struct.pack("<ii", MAGIC, 9) + b"server:me"
        assert time.monotonic() - started < WAIT_S / 2
        # Those that waited are still greeted when they have said the rest.
        silent.sendall(_GREETING[39 % 12 :])
        peer = _wait(greetings, refused)
        assert peer is not None and peer.name == "{}:{}".format(*silent.getsockname())
    assert refused == []


def test_the_limit_is_for_the_whole_greeting(listening):
    """A byte now and then does not make it longer."""
    greetings, refused = Greetings(listening, own_key="", limit_s=0.3), list[str]()
    stop = threading.Event()
    with _connect(listening) as slow:

        def drip() -> None:
            for byte in _GREETING[:-1]:
                if stop.wait(0.05):
                    return
                try:
                    slow.sendall(bytes([byte]))
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        end = time.monotonic() + WAIT_S
        while not refused and time.monotonic() < end:
            assert greetings.wait("secret", tick_s=0.05, refused=refused.append) is None
        stop.set()
        dripping.join()
    assert [said.partition(": ")[2] for said in refused] == ["it took more than 0 s"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not speak TVM's RPC protocol"),
        (struct.pack("<ii", MAGIC, 1 << 30), "its key has 1073741824 bytes"),
        (struct.pack("<ii", MAGIC, -1), "its key has -1 bytes"),
        (struct.pack("<ii", MAGIC, 8) + b"client:x", "it has another key"),
        (b"\x71", "it left"),
    ],
)
def test_wrong_peers_are_told_of(listening, said, reason):
    greetings, refused = Greetings(listening, own_key=""), list[str]()
    with _connect(listening) as wrong, _connect(listening) as good:
        wrong.sendall(said)
        wrong.shutdown(socket.SHUT_WR)
        while not refused:
            assert greetings.wait("secret", tick_s=0.05, refused=refused.append) is None
        if "another key" in reason:
            assert wrong.recv(100) == struct.pack("<i", MISMATCH)
        good.sendall(_GREETING)
        assert _wait(greetings, refused) is not None
    assert [said.partition(": ")[2] for said in refused] == [reason]


def test_a_key_may_hold_blanks(listening):
    greetings, refused = Greetings(listening, own_key="a b"), list[str]()
    for said, asked_s in ((b"client:a b", 0.0), (b"client:a b -timeout=7", 7.0)):
        with _connect(listening) as peer:
            peer.sendall(struct.pack("<ii", MAGIC, len(said)) + said)
            came = greetings.wait("a b", tick_s=WAIT_S, refused=refused.append)
            assert came is not None and came.asked_s == asked_s
            came.connection.close()
    for said in (b"client:a", b"client:a bc", b"client:a b\0"):
        with _connect(listening) as peer:
            peer.sendall(struct.pack("<ii", MAGIC, len(said)) + said)
            count = len(refused)
            while len(refused) == count:
                assert greetings.wait("a b", tick_s=0.05, refused=refused.append) is None


def test_keys_are_not_found_by_trying(listening):
    """However many come at once, an address has one wrong key a second."""
    greetings, refused = Greetings(listening, own_key=""), list[str]()
    wrong = struct.pack("<ii", MAGIC, 8) + b"client:x"
    with ExitStack() as open_sockets:
        for _ in range(50):
            open_sockets.enter_context(_connect(listening)).sendall(wrong)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert greetings.wait("secret", tick_s=0.1, refused=refused.append) is None
    assert 1 <= len(refused) <= 4
    assert set(said.partition(": ")[2] for said in refused) == {"it has another key"}


def test_who_only_looks_is_not_told_of(listening):
    greetings, refused = Greetings(listening, own_key=""), list[str]()
    _connect(listening).close()
    with _connect(listening) as good:
        good.sendall(_GREETING)
        assert _wait(greetings, refused) is not None
    assert refused == []


def test_a_crowd_sends_away_who_came_first(listening):
    greetings, refused = Greetings(listening, own_key="", limit_s=WAIT_S), list[str]()
    with ExitStack() as open_sockets:
        for _ in range(140):
            open_sockets.enter_context(_connect(listening))
            greetings.wait("secret", tick_s=0.0, refused=refused.append)
        open_sockets.enter_context(_connect(listening)).sendall(_GREETING)
        assert _wait(greetings, refused) is not None
    assert refused and all(said.endswith("too many others came") for said in refused)


def test_a_closed_server_waits_no_more(listening):
    greetings = Greetings(listening, own_key="")
    listening.close()
    with pytest.raises(OSError, match="the server was closed"):
        _wait(greetings, [])


@given(said=st.binary(max_size=40), kept=st.integers(0, 40))
@examples(60)
def test_whatever_is_said_the_next_peer_is_greeted(said, kept):
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        greetings = Greetings(listening, own_key="")
        with _connect(listening) as wrong, _connect(listening) as good:
            wrong.sendall(_GREETING[:kept][:-1] + said)
            good.sendall(_GREETING)
            names = set()
            while "{}:{}".format(*good.getsockname()) not in names:
                peer = _wait(greetings, [])
                names.add(peer.name)
                peer.connection.close()


DEVICE = {
    **{"name": "GPU", "platform": "P", "driver": "1", "c_version": 300, "fp16": False},
    "images": {"supported": False},
    "limits": {"max_work_group_size": 1, "local_memory_bytes": 1, "global_memory_bytes": 1},
}
GOOD = {
    "adrenoc.opencl.devices": [DEVICE],
    "adrenoc.opencl.memory_stats": {"allocated_bytes": 1, "peak_bytes": 2, "reuses": 3},
    "adrenoc.opencl.profile_stop": [["kernel", 1, 2]],
    "adrenoc.opencl.build_finish": {"hits": 1, "misses": 0, "damaged": 0},
    "adrenoc.runtime.gpu_state": {"model": "x", "temperature_mc": -5},
    "adrenoc.trials.measure": {"times_us": [[1.5, 2]], "errors": [0.0]},
    "adrenoc.opencl.hints": [{"hint": "h", "asked": "low", "given_by": "", "reason": "r"}],
    "report": {"mode": "x", "reason": "", "launches": 1, "api_calls": 2, "host_ms": 0.5},
}
BAD = {
    "adrenoc.opencl.devices": ({}, [1], [{}], [{**DEVICE, "images": {"supported": True}}], "x"),
    "adrenoc.opencl.memory_stats": ([], {"allocated_bytes": 1}, {"peak_bytes": True}),
    "adrenoc.opencl.profile_stop": ([["kernel", 1]], [["kernel", -1, 2]], [[1, 1, 1]], {}),
    "adrenoc.opencl.build_finish": ({"hits": 1}, {"hits": "1", "misses": 0, "damaged": 0}),
    "adrenoc.runtime.gpu_state": ([], {"model": 1}, {"clock_hz": "fast"}),
    "adrenoc.trials.measure": (
        {},
        {"times_us": [1], "errors": []},
        {"times_us": [[1.0]], "errors": [math.nan]},
        {"refused": 1},
    ),
    "report": ({}, {**GOOD["report"], "host_ms": float("nan")}, {**GOOD["report"], "more": 1}),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers_come_as_they_are(name):
    text = json.dumps(GOOD[name])
    assert check_answers(name, lambda: text)() == text


@pytest.mark.parametrize("name", BAD)
def test_lies_are_refused(name):
    for lie in (*map(json.dumps, BAD[name]), "{", "", None, 5, b"x", "[" * 10_000):
        with pytest.raises(WrongAnswerError, match=name):
            check_answers(name, lambda lie=lie: lie)()


def test_arguments_go_on():
    assert check_answers("adrenoc.store.has", lambda digest: digest == "x")("x")
    for lie in ("yes", 2, None, []):
        with pytest.raises(WrongAnswerError):
            check_answers("adrenoc.store.has", lambda digest, lie=lie: lie)("x")


def test_what_nobody_reads_may_be_anything():
    """Of a loop on a server, as of any function that has no form."""
    assert check_answers("allow", lambda bits: None)(b"\1") is None


def test_a_session_without_a_peer_is_not_waited_for(monkeypatch):
    """It may hang in a driver, and would keep the server from everybody else."""
    monkeypatch.setattr(serve, "_LEFT_S", 0.2)
    mine, peers = socket.socketpair()
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with mine, subprocess.Popen(command) as session:
        peers.sendall(b"a request that nobody reads")
        peers.close()
        with pytest.raises(serve._StoppedError, match="after its peer had left"):
            serve._wait(session, mine, 0)
        session.kill()


@pytest.mark.parametrize("quiet", [True, False])
def test_what_drivers_print_of_refused_kernels_is_for_a_server_of_its_own(quiet):
    """A driver counts the errors of each kernel on standard error; probes expect them."""
    server = serve.RpcServer(serve.ServeOptions(quiet=quiet))
    try:
        server.prepare()
        process = server._standby._process.pid
        assert (Path(f"/proc/{process}/fd/2").readlink() == Path(os.devnull)) is quiet
        assert os.getsid(process) == process  # which Ctrl-C at a terminal does not reach
    finally:
        server.close()


def test_a_peer_that_stays_gets_all_the_time_that_there_is(monkeypatch):
    monkeypatch.setattr(serve, "_LEFT_S", 0.0)
    mine, peers = socket.socketpair()
    with mine, peers:
        # Data that waits to be read is no farewell.
        peers.sendall(b"a request")
        with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as session:
            assert serve._wait(session, mine, 0) == 3
        command = [sys.executable, "-c", "import time; time.sleep(1000)"]
        with subprocess.Popen(command) as session:
            with pytest.raises(serve._StoppedError, match="after 1 s"):
                serve._wait(session, mine, 1)
            session.kill()


def test_a_process_that_died_while_it_waited_is_replaced(tmp_path):
    server = serve.RpcServer(serve.ServeOptions(quiet=True))
    mine, peers = socket.socketpair()
    with mine, peers, (tmp_path / "lock").open("w") as lock:
        server.prepare()
        dead = server._standby._process
        dead.kill()
        dead.wait()
        session = server._session(mine.fileno(), lock.fileno(), str(tmp_path), "")
        assert session.pid != dead.pid
        session.kill()
        session.wait()
    server.close()


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
GOOD_REPLIES = {
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
BAD_REPLIES = {
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


@pytest.mark.parametrize("name", GOOD_REPLIES)
def test_answers_go_on_as_they_are(name):
    request, message = GOOD_REPLIES[name]
    assert check_reply(request, message) == message


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_what_is_no_answer_is_refused(name):
    request, message = BAD_REPLIES[name]
    with pytest.raises(WrongReplyError):
        check_reply(request, message)


@pytest.mark.parametrize("name", GOOD_REPLIES)
def test_no_beginning_of_an_answer_is_one(name):
    request, message = GOOD_REPLIES[name]
    for length in range(len(message)):
        with pytest.raises(WrongReplyError):
            check_reply(request, message[:length])


def test_texts_are_mended():
    """Names of drivers may hold anything; TVM raises where a text is not UTF-8."""
    seen = check_reply(CALL, _returned(_int(65), _text(b"GPU\xff")))
    assert seen == _returned(_int(65), _text("GPU\N{REPLACEMENT CHARACTER}".encode()))
    error = check_reply(CALL, struct.pack("<ii", EXCEPTION, 1) + _text(b"\xff" * 200_000))
    assert len(error) < 200_100
    error[20:].decode()


def test_lengths():
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
