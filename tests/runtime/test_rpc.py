"""Bundles through TVM's RPC protocol: our two servers, wrong peers, servers that die or hang."""

import errno
import fcntl
import json
import os
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError, OptionError, RemoteError
from adrenoc.base.files.read import sha256_file
from adrenoc.cli.main import main
from adrenoc.device.peers import MAGIC, HostPort, Tracker
from adrenoc.device.remote import RemoteAddress, describe, open_session, run_remote
from tests.commands import ask
from tests.runtime.servers import (
    WAIT_S,
    address_of,
    check_remote,
    free_port,
    greeted,
    native_server,
    python_server,
    tvm_process,
    tvm_server,
    wait_until,
)


def test_python_server(bundle, case, opencl):
    with python_server("--key", "secret") as (_, port):
        check_remote(bundle, case, address_of(port, key="secret"))
        with pytest.raises(RemoteError, match="does not take the key"):
            run_remote(bundle, address_of(port, key="guess"), inputs=case.arrays)
        check_remote(bundle, case, address_of(port, key="secret"))


def test_native_server(bundle, case, runtime, opencl):
    with native_server(runtime, opencl) as (_, port):
        for _ in range(2):
            check_remote(bundle, case, address_of(port))


def test_run_by_command(bundle, runtime, opencl, capsys):
    with native_server(runtime, opencl) as (_, port):
        command = ["run", str(bundle.path), "--on", f"127.0.0.1:{port}", "--repeat", "2", "--json"]
        assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["times"]["runs"] == 2


def test_layers_are_checked_on_a_server(bundle, work, runtime, opencl):
    with native_server(runtime, opencl) as (server, port):
        command = ["run", str(bundle.path), "--on", f"127.0.0.1:{port}", "--repeat", "1"]
        tensors = ask(*command, "--check-layers", work / "two.onnx")["check"]["tensors"]
        # The second session is that of the layers.
        wait_until(lambda: len([line for line in server.heard if "ended" in line]) == 2)
    assert [tensor["name"] for tensor in tensors] == ["mean", "sum", "grown"]


@pytest.mark.parametrize("kind", ["native", "python"])
def test_folders_of_killed_servers_are_removed(kind, serve, bundle, case, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    words = (kind,) if kind == "python" else (kind, "--folder", str(tmp_path))

    def left() -> set[Path]:
        return set(tmp_path.glob("adrenoc-rpc-*"))

    with serve(*words) as (server, port), suppress(RemoteError), open_session(address_of(port)):
        (in_use,) = left()
        # Another server leaves alone what this one uses.
        with serve(*words):
            assert left() == {in_use}
        server.kill()
        server.wait()
    assert left() == {in_use}
    wait_until(lambda: _is_unlocked(in_use))
    with serve(*words) as (_, port):
        assert left() == set()
        check_remote(bundle, case, address_of(port))


def _is_unlocked(folder: Path) -> bool:
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(number)
    return True


def _crash_session(server: int, age_s: float) -> None:
    """Crash the first session of a server that lives for `age_s`.

    A driver's own handler returns from the first signal; what really faults would fault again.
    """
    seen: dict[str, float] = {}
    while True:
        for child in Path(f"/proc/{server}/task/{server}/children").read_text().split():
            if time.monotonic() - seen.setdefault(child, time.monotonic()) >= age_s:
                with suppress(ProcessLookupError):  # it is gone
                    while True:
                        os.kill(int(child), signal.SIGSEGV)
                        time.sleep(0.02)
                return
        time.sleep(0.005)


def _crash_at_work(server: int, folder: Path) -> None:
    """Crash the first session of a server once it does something on the device."""

    def works() -> bool:
        traces = folder.glob("adrenoc-rpc-*/doing")
        return any(b"kernel" in path.read_bytes() for path in traces)

    wait_until(works)
    _crash_session(server, 0)


@pytest.mark.parametrize("age_s", [0.05, 0.2, 0.8, None])
def test_a_session_that_crashes_leaves_the_server(age_s, bundle, case, runtime, opencl, tmp_path):
    """At an age, or when it is at work, however long that takes on a busy machine."""
    with native_server(runtime, opencl, "--folder", str(tmp_path)) as (server, port):
        deed, word = (_crash_at_work, tmp_path) if age_s is None else (_crash_session, age_s)
        killer = threading.Thread(target=deed, args=[server.pid, word])
        killer.start()
        with pytest.raises(RemoteError, match="left or did not answer"):
            run_remote(bundle, address_of(port), inputs=case.arrays, repeat=1000000)
        killer.join(WAIT_S)
        assert not killer.is_alive()
        check_remote(bundle, case, address_of(port))
        crashed = next(line for line in server.heard if "crashed with signal 11" in line)
        if age_s is None:
            doing = "(building|launching) kernel |replaying a command buffer"
            assert re.search(f"; last it was ({doing})", crashed)


def test_a_killed_server_is_a_typed_error(bundle, case, runtime, opencl):
    with native_server(runtime, opencl) as (server, port):
        threading.Timer(1.5, server.kill).start()
        with pytest.raises(RemoteError, match="left or did not answer"):
            run_remote(bundle, address_of(port), inputs=case.arrays, repeat=1000000)
        with pytest.raises(RemoteError, match="no server at"):
            run_remote(bundle, address_of(port), inputs=case.arrays)


@contextmanager
def _listener(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A peer that takes every connection and then does what `answer` does."""
    listening = socket.create_server(("127.0.0.1", 0))
    kept = []

    def take() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            kept.append(connection)
            answer(connection)

    threading.Thread(target=take, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()
        for connection in kept:
            connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: None,
        lambda connection: connection.sendall(struct.pack("<ii", MAGIC, 7) + b"server:"),
    ],
    ids=["says nothing", "only greets"],
)
def test_a_server_that_hangs_is_given_up(bundle, case, answer):
    with _listener(answer) as port, pytest.raises(RemoteError, match="did not answer within 1 s"):
        run_remote(bundle, address_of(port, timeout_s=1.0), inputs=case.arrays)


def test_a_server_of_another_kind_is_named(bundle, case):
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with _listener(greet) as port, pytest.raises(RemoteError, match="is not TVM RPC server"):
        run_remote(bundle, address_of(port), inputs=case.arrays)


def _hang_up(peer: socket.socket) -> None:
    """Say no more and see the server close.

    A server that closes with something unread resets the connection, now or before this call.
    """
    try:
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b""
    except OSError as error:
        assert error.errno in (errno.ECONNRESET, errno.ENOTCONN), error


@pytest.mark.parametrize("kind", ["python", "native"])
def test_wrong_peers_do_not_stop_a_server(kind, bundle, case, serve):
    with serve(kind) as (_, port):
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<ii", MAGIC, 1 << 30)):
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
                peer.sendall(said)
                _hang_up(peer)
        check_remote(bundle, case, address_of(port))


def test_sessions_have_a_limit(runtime, opencl):
    with native_server(runtime, opencl, "--timeout", "1") as (_, port):
        started = time.monotonic()
        with greeted(port) as peer:
            assert peer.recv(100) == b""
        assert time.monotonic() - started > 0.5


@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_peer_may_ask_for_an_earlier_end(kind, serve):
    with serve(kind) as (process, port):
        started = time.monotonic()
        with greeted(port, " -timeout=1") as peer:
            assert peer.recv(100) == b""
        assert time.monotonic() - started > 0.5
        while not any("session" in line for line in process.heard):
            time.sleep(0.05)
    assert "was stopped after 1 s" in "".join(process.heard)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_messages_are_bounded(kind, runtime, opencl):
    if kind == "python":
        server = python_server(ADRENOC_MAX_MESSAGE="1")
    else:
        server = native_server(runtime, opencl, "--max-message", "1")
    with server as (process, port), greeted(port) as peer:
        peer.sendall(struct.pack("<Q", (1 << 20) + 1))
        while peer.recv(1000):  # it says why, and leaves
            pass
    heard = "".join(process.heard)
    assert "announced a message of 1048577 bytes; at most 1048576 are taken" in heard


def test_a_store_takes_what_it_was_promised(bundle, runtime, opencl, tmp_path):
    entry = next(entry for entry in bundle.manifest.files if entry.path == "params.safetensors")
    store = tmp_path / "store"
    with (
        native_server(runtime, opencl, "--store", str(store)) as (_, port),
        open_session(address_of(port)) as opened,
    ):
        session = opened.session
        has, keep = (session.get_function(f"adrenoc.store.{name}") for name in ("has", "keep"))
        assert not has(entry.sha256)
        session.upload(str(bundle.root / entry.path), "file")
        with pytest.raises(Exception, match="has the SHA-256"):
            keep("file", "0" * 64)
        for digest in ("", "../x", "G" * 64):
            with pytest.raises(Exception, match="is named by its SHA-256"):
                has(digest)
        for name in ("../x", "a/b", "", "..", "doing"):
            with pytest.raises(Exception, match="one name without folders"):
                keep(name, entry.sha256)
        keep("file", entry.sha256)
        assert has(entry.sha256)
    assert sha256_file(store / "files" / entry.sha256) == entry.sha256


def test_a_bundle_for_a_phone_does_not_go_to_this_machine(bundle, case, runtime, opencl):
    library = replace(bundle.manifest.library, machine="aarch64")
    phone = replace(bundle.manifest.target, name="adreno:a750", host=False)
    manifest = replace(bundle.manifest, library=library, target=phone)
    with (
        native_server(runtime, opencl) as (_, port),
        pytest.raises(BundleError, match="but the server at") as caught,
    ):
        run_remote(replace(bundle, manifest=manifest), address_of(port), inputs=case.arrays)
    # The hint can be typed: the server is like this machine.
    assert caught.value.hint.endswith("--device host:a750 --preset fp32")


@pytest.mark.parametrize("text", ["", "9090", "host:", "host:x", "host:70000"])
def test_addresses(text):
    with pytest.raises(OptionError, match="expected HOST:PORT"):
        RemoteAddress.parse(text)


@pytest.fixture(scope="module")
def tvm() -> None:
    """What TVM's own tracker and server need."""
    for package in ("tornado", "psutil", "cloudpickle"):
        pytest.importorskip(package, reason="TVM's tracker and server want it")


@pytest.fixture(scope="module")
def tracker(tvm) -> Iterator[int]:
    with tvm_process("rpc_tracker") as port:
        yield port


def _tracked(port: int, key: str, timeout_s: float = WAIT_S) -> RemoteAddress:
    return RemoteAddress.parse(f"127.0.0.1:{port}", key=key, tracked=True, timeout_s=timeout_s)


def test_tvms_server(tvm, bundle, case, opencl):
    with tvm_server("--key", "phone") as port:
        check_remote(bundle, case, address_of(port, key="phone"))
        told = describe(address_of(port, key="phone"))
    assert "tvm-" in told.version
    assert told.devices


@pytest.mark.parametrize("kind", ["native", "python", "tvm"])
def test_servers_of_a_tracker(kind, bundle, case, serve, tracker):
    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", kind)
    with tvm_server(*options) if kind == "tvm" else serve(kind, *options):
        for _ in range(2):
            check_remote(bundle, case, _tracked(tracker, kind))
        known = Tracker(HostPort(host="127.0.0.1", port=tracker), timeout_s=WAIT_S)
        assert kind in {entry.key for entry in known.servers()}
        known.close()


@pytest.mark.parametrize("kind", ["native", "python"])
def test_who_was_given_a_server_may_come_again(kind, serve, tracker):
    """What a fleet proves on a device takes many sessions there; it stays free for one client."""
    key = f"again-{kind}"
    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", key)
    known = Tracker(HostPort(host="127.0.0.1", port=tracker), timeout_s=WAIT_S)
    with serve(kind, *options) as (server, _):
        offer = known.request(key)
        for _ in range(3):
            assert describe(address_of(offer.address.port, key=offer.key)).devices
        wait_until(lambda: sum("ended" in line for line in server.heard) == 3)
        time.sleep(0.5)  # it looks whether its offer stands
        assert known.request(key).key == offer.key
        with pytest.raises(RemoteError, match="no free server"):
            describe(_tracked(tracker, key, timeout_s=3.0))
    known.close()


def test_two_clients_take_turns(bundle, case, runtime, opencl, tracker):
    failures: list[BaseException] = []

    def client() -> None:
        try:
            check_remote(bundle, case, _tracked(tracker, "shared"))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    options = ("--tracker", f"127.0.0.1:{tracker}", "--key", "shared")
    with native_server(runtime, opencl, *options):
        clients = [threading.Thread(target=client) for _ in range(2)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(2 * WAIT_S)
    assert not failures


def test_a_kind_that_nobody_offers(bundle, case, tracker):
    with pytest.raises(RemoteError, match='no free server with the key "nobody"'):
        run_remote(bundle, _tracked(tracker, "nobody", timeout_s=3.0), inputs=case.arrays)


def test_no_tracker_and_what_is_none(tvm, bundle, case, opencl):
    with pytest.raises(RemoteError, match="no tracker at"):
        run_remote(bundle, _tracked(free_port(), "any"), inputs=case.arrays)
    with tvm_server() as port, pytest.raises(RemoteError, match="tracker"):
        run_remote(bundle, _tracked(port, "any", timeout_s=2), inputs=case.arrays)


def test_a_server_outlives_its_tracker(tvm, bundle, case, runtime, opencl):
    port = free_port()
    options = ("--tracker", f"127.0.0.1:{port}", "--key", "late")
    with native_server(runtime, opencl, *options), python_server(*options[:-1], "later"):
        time.sleep(0.5)  # they find no tracker
        with tvm_process("rpc_tracker", port=port):
            check_remote(bundle, case, _tracked(port, "late"))
            check_remote(bundle, case, _tracked(port, "later"))
