"""How a server greets its peers: one limit for each, and nobody waits for another."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.device.greeting import MAGIC, MISMATCH, Greetings, Peer
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


def test_silent_and_slow_peers_keep_nobody_waiting(listening: socket.socket) -> None:
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


def test_the_limit_is_for_the_whole_greeting(listening: socket.socket) -> None:
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
def test_wrong_peers_are_told_of(listening: socket.socket, said: bytes, reason: str) -> None:
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


def test_a_key_may_hold_blanks(listening: socket.socket) -> None:
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


def test_keys_are_not_found_by_trying(listening: socket.socket) -> None:
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


def test_who_only_looks_is_not_told_of(listening: socket.socket) -> None:
    greetings, refused = Greetings(listening, own_key=""), list[str]()
    _connect(listening).close()
    with _connect(listening) as good:
        good.sendall(_GREETING)
        assert _wait(greetings, refused) is not None
    assert refused == []


def test_a_crowd_sends_away_who_came_first(listening: socket.socket) -> None:
    greetings, refused = Greetings(listening, own_key="", limit_s=WAIT_S), list[str]()
    with ExitStack() as open_sockets:
        for _ in range(140):
            open_sockets.enter_context(_connect(listening))
            greetings.wait("secret", tick_s=0.0, refused=refused.append)
        good = open_sockets.enter_context(_connect(listening))
        good.sendall(_GREETING)
        assert _wait(greetings, refused) is not None
    assert refused and all(said.endswith("too many others came") for said in refused)


def test_a_closed_server_waits_no_more(listening: socket.socket) -> None:
    greetings = Greetings(listening, own_key="")
    listening.close()
    with pytest.raises(OSError, match="the server was closed"):
        _wait(greetings, [])


@given(said=st.binary(max_size=40), kept=st.integers(0, 40))
@examples(60)
def test_whatever_is_said_the_next_peer_is_greeted(said: bytes, kept: int) -> None:
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
