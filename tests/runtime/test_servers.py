"""Our two servers: peers that say nothing, signals that end them, and who may reach them."""

import os
import signal
import socket
import struct
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from adrenoc.cli.main import main
from adrenoc.device.peers import MAGIC, MISMATCH
from adrenoc.native.android.runtime_build import Runtime
from tests.commands import run_program
from tests.runtime.servers import (
    SOFTWARE_ENVIRONMENT,
    WAIT_S,
    Served,
    native_server,
    python_server,
    server_process,
    wait_until,
)

_KEY = b"client:"
_GREETING = struct.pack("<ii", MAGIC, len(_KEY)) + _KEY


def _serve(kind: str, runtime: Runtime, opencl: str, *options: str) -> Served:
    if kind == "python":
        return python_server(*options)
    return native_server(runtime, opencl, *options)


def _greet(peer: socket.socket) -> None:
    peer.sendall(_GREETING)
    assert peer.recv(100).endswith(b"server:")


@pytest.mark.parametrize("kind", ["python", "native"])
def test_peers_that_say_nothing_lock_nobody_out(kind, runtime, opencl):
    """One after the other, each would take ten seconds."""
    with _serve(kind, runtime, opencl) as (_, port), ExitStack() as peers:
        for count in range(12):
            silent = socket.create_connection(("127.0.0.1", port), WAIT_S)
            peers.enter_context(silent).sendall(_GREETING[:count])
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
            _greet(peer)


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_signal_ends_the_session_too(kind, number, runtime, opencl, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = () if kind == "python" else ("--folder", str(tmp_path))
    with (
        _serve(kind, runtime, opencl, *options) as (server, port),
        socket.create_connection(("127.0.0.1", port), WAIT_S) as peer,
    ):
        _greet(peer)
        wait_until(lambda: bool(_children(server.pid)))
        (session,) = _children(server.pid)
        (folder,) = tmp_path.glob("adrenoc-rpc-*")
        server.send_signal(number)
        assert server.wait(WAIT_S) in (-number, 128 + number)
        assert not folder.exists()
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
        wait_until(lambda: not _lives(session))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_session_ends_with_its_server(tmp_path, monkeypatch):
    """Also where that had no time to end it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with (
        python_server() as (server, port),
        socket.create_connection(("127.0.0.1", port), WAIT_S) as peer,
    ):
        _greet(peer)
        # What is asked of a session is answered when it has started, and so is bound to the server.
        peer.sendall(struct.pack("<QiQ", 12, 1, 0))
        wait_until(lambda: bool(_children(server.pid)))
        (session,) = _children(server.pid)
        with suppress(ConnectionResetError):
            peer.recv(1)
        server.kill()
        wait_until(lambda: not _lives(session))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_the_world_needs_a_key(host, runtime, capsys):
    assert main(["runtime", "serve", "--host", host, "--port", "0"]) == 2
    assert "lets anybody who reaches it run any code here" in capsys.readouterr().err
    done = run_program([str(runtime.server), "--host", host, "--port", "0"], timeout=WAIT_S)
    assert done.returncode == 2
    assert "name a --key" in done.stderr


def test_a_tracker_tells_its_key_to_all(runtime, capsys):
    """So a server of a tracker stays on its own machine, too."""
    words = ["--host", "0.0.0.0", "--port", "0", "--tracker", "127.0.0.1:9", "--key", "secret"]
    assert main(["runtime", "serve", *words]) == 2
    assert "a tracker gives the key to whoever asks" in " ".join(capsys.readouterr().err.split())
    done = run_program([str(runtime.server), *words], timeout=WAIT_S)
    assert done.returncode == 2
    assert "a tracker gives the key to whoever asks" in done.stderr


@pytest.mark.parametrize("kind", ["python", "native"])
def test_keys_are_not_found_by_trying(kind, runtime):
    """As fast as one peer after the other can ask, with the key in between."""
    command: tuple[object, ...] = (sys.executable, "-m", "adrenoc", "runtime", "serve", "--json")
    if kind == "native":
        command = (runtime.server,)
    words = (*command, "--port", "0", "--key", "a b")
    with server_process(*words, **SOFTWARE_ENVIRONMENT) as (_, port):
        assert _ask(port, b"client:a b").endswith(b"server:a b")
        started, guesses = time.monotonic(), 0
        while time.monotonic() - started < 3:
            assert _ask(port, b"client:a") == struct.pack("<i", MISMATCH)
            guesses += 1
        assert guesses <= 5
        assert _ask(port, b"client:a b -timeout=9").endswith(b"server:a b")


def _ask(port: int, said: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
        peer.sendall(struct.pack("<ii", MAGIC, len(said)) + said)
        return peer.recv(100)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_who_names_a_key_is_open_to_the_world(kind, runtime):
    command: tuple[object, ...] = (sys.executable, "-m", "adrenoc", "runtime", "serve", "--json")
    if kind == "native":
        command = (runtime.server,)
    words = (*command, "--host", "0.0.0.0", "--port", "0", "--key", "secret")
    with (
        server_process(*words, **SOFTWARE_ENVIRONMENT) as (_, port),
        socket.create_connection(("127.0.0.1", port), WAIT_S) as peer,
    ):
        key = b"client:secret"
        peer.sendall(struct.pack("<ii", MAGIC, len(key)) + key)
        assert b"server:" in peer.recv(100)
