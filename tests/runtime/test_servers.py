"""Our two servers: peers that say nothing, signals that end them, and who may reach them."""

import json
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.cli.main import main
from adrenoc.device.peers import MISMATCH
from adrenoc.native.android.runtime_build import LIBRARY, SERVER, Runtime
from adrenoc.native.android.systemd_unit import (
    UNIT,
    Service,
    find_unit_place,
    install_unit,
    print_unit,
)
from tests.commands import refuse, run_program
from tests.runtime.servers import (
    SOFTWARE_ENVIRONMENT,
    WAIT_S,
    Served,
    greeted,
    greeting,
    python_server,
    server_process,
    wait_until,
)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_peers_that_say_nothing_lock_nobody_out(kind, serve):
    """One after the other, each would take ten seconds."""
    with serve(kind) as (_, port), ExitStack() as peers:
        for count in range(12):
            silent = socket.create_connection(("127.0.0.1", port), WAIT_S)
            peers.enter_context(silent).sendall(greeting()[:count])
        peers.enter_context(greeted(port))


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_signal_ends_the_session_too(kind, number, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    options = () if kind == "python" else ("--folder", str(tmp_path))
    with serve(kind, *options) as (server, port), greeted(port) as peer:
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
    with python_server() as (server, port), greeted(port) as peer:
        # What is asked of a session is answered when it has started, and so is bound to the server.
        peer.sendall(struct.pack("<QiQ", 12, 1, 0))
        wait_until(lambda: bool(_children(server.pid)))
        (session,) = _children(server.pid)
        with suppress(ConnectionResetError):
            peer.recv(1)
        server.kill()
        wait_until(lambda: not _lives(session))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_the_world_needs_a_key(host, runtime):
    assert "lets anybody who reaches it run any code here" in refuse(
        2, "runtime", "serve", "--host", host, "--port", "0"
    )
    done = run_program([str(runtime.server), "--host", host, "--port", "0"], timeout=WAIT_S)
    assert done.returncode == 2
    assert "name a --key" in done.stderr


def test_a_tracker_tells_its_key_to_all(runtime):
    """So a server of a tracker stays on its own machine, too."""
    words = ["--host", "0.0.0.0", "--port", "0", "--tracker", "127.0.0.1:9", "--key", "secret"]
    assert "a tracker gives the key to whoever asks" in refuse(2, "runtime", "serve", *words)
    done = run_program([str(runtime.server), *words], timeout=WAIT_S)
    assert done.returncode == 2
    assert "a tracker gives the key to whoever asks" in done.stderr


@pytest.mark.parametrize("kind", ["python", "native"])
def test_keys_are_not_found_by_trying(kind, runtime):
    """As fast as one peer after the other can ask, with the key in between."""
    with _serve_the_key(kind, runtime, "a b") as (_, port):
        assert _ask(port, "a b").endswith(b"server:a b")
        started, guesses = time.monotonic(), 0
        while time.monotonic() - started < 3:
            assert _ask(port, "a") == struct.pack("<i", MISMATCH)
            guesses += 1
        assert guesses <= 5
        assert _ask(port, "a b -timeout=9").endswith(b"server:a b")


def _serve_the_key(kind: str, runtime: Runtime, key: str, *options: str) -> Served:
    """A server of a kind, which needs no device for a greeting."""
    command: tuple[object, ...] = (sys.executable, "-m", "adrenoc", "runtime", "serve", "--json")
    if kind == "native":
        command = (runtime.server,)
    return server_process(*command, *options, "--port", "0", "--key", key, **SOFTWARE_ENVIRONMENT)


def _ask(port: int, key: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as peer:
        peer.sendall(greeting(key))
        return peer.recv(100)


@pytest.mark.parametrize("kind", ["python", "native"])
def test_who_names_a_key_is_open_to_the_world(kind, runtime):
    with _serve_the_key(kind, runtime, "secret", "--host", "0.0.0.0") as (_, port):
        assert b"server:" in _ask(port, "secret")


def _lines(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


@pytest.fixture
def folder(tmp_path) -> Path:
    """A runtime whose server is any program of this machine, open to all as far as it goes."""
    made = tmp_path / "a runtime"
    made.mkdir()
    shutil.copy(Path(sys.executable).resolve(), made / SERVER)
    (made / LIBRARY).write_bytes(b"")
    return made


def test_words_reach_the_server_as_they_are(folder):
    words = ("--key", 'a "b" 100% $c \\d')
    text = print_unit(Service(folder=folder, words=words, environment=("RUSTICL_ENABLE=a b",)))
    (command,) = _lines(text, "ExecStart")
    # What systemd makes of % and $ in a line.
    split = [w.replace("%%", "%").replace("$$", "$") for w in shlex.split(command)]
    assert split[:3] == [str(folder / SERVER), *words]
    assert split[3:] == ["--folder", "%S/adrenoc-rpc", "--store", "%C/adrenoc-rpc"]
    assert '"RUSTICL_ENABLE=a b"' in _lines(text, "Environment")


def test_a_unit_of_the_system_runs_as_a_user_of_its_own(folder):
    system, own = (
        print_unit(Service(folder=folder, words=(), for_user=user)) for user in (False, True)
    )
    assert "DynamicUser=yes\n" in system
    assert "WantedBy=multi-user.target" in system
    assert "DynamicUser" not in own
    assert "SupplementaryGroups" not in own
    assert "WantedBy=default.target" in own


@pytest.mark.parametrize("for_user", [False, True])
def test_systemd_takes_it(folder, tmp_path, *, for_user):
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    unit = tmp_path / UNIT
    unit.write_text(print_unit(Service(folder=folder, words=("--port", "1"), for_user=for_user)))
    done = run_program(
        [analyse, "verify", "--man=no", *(["--user"] if for_user else []), str(unit)],
        timeout=WAIT_S,
    )
    told = [line for line in done.stderr.splitlines() if UNIT in line or "adrenoc" in line]
    assert told == []
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=whenever"))
    assert "whenever" in run_program([analyse, "verify", "--man=no", str(unit)]).stderr


def test_others_do_not_read_the_key(folder, tmp_path):
    service = Service(folder=folder, words=("--key", "secret"), for_user=True)
    assert install_unit(service, tmp_path / "units" / UNIT).stat().st_mode & 0o077 == 0


def test_its_place_is_where_systemd_looks(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_unit_place(for_user=True) == tmp_path / "systemd/user" / UNIT
    assert find_unit_place(for_user=False) == Path("/etc/systemd/system") / UNIT


def test_the_command_writes_it_and_says_how_to_go_on(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    words = ["runtime", "install-unit", "--user", "--runtime", str(folder)]
    assert main(words) == 0
    output = tmp_path / "config/systemd/user" / UNIT
    assert "systemctl --user enable --now adrenoc-rpc.service" in capsys.readouterr().out
    assert str(folder) in output.read_text()
    assert "--key" in refuse(2, *words, "--", "--host", "0.0.0.0")


def test_what_could_not_start_is_refused(folder, tmp_path):
    output = tmp_path / UNIT
    with pytest.raises(DependencyError, match=f"holds no {SERVER}"):
        install_unit(Service(folder=tmp_path / "nowhere", words=()), output)
    tmp_path.chmod(0o700)
    with pytest.raises(OptionError, match="closed to other users"):
        install_unit(Service(folder=folder, words=()), output)
    with pytest.raises(OptionError, match="NAME=VALUE"):
        install_unit(Service(folder=folder, words=(), environment=("x",), for_user=True), output)
    with pytest.raises(OptionError, match="control character"):
        install_unit(Service(folder=folder, words=("--key", "a\nb"), for_user=True), output)
    content = bytearray((folder / SERVER).read_bytes())
    content[18] = 0x28  # another machine
    (folder / SERVER).write_bytes(content)
    with pytest.raises(DependencyError, match="expected one for this"):
        install_unit(Service(folder=folder, words=(), for_user=True), output)
    assert not output.exists()


_OWN = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


@pytest.mark.nightly
def test_an_attack_from_another_machine_fails(runtime):
    pytest.importorskip("tornado", reason="pip install '.[tune]'")
    if shutil.which("ip") is None or subprocess.run([*_OWN, "true"], check=False).returncode:
        pytest.skip(
            "no namespaces of networks here: apt-get install iproute2, and let unshare -rn run"
        )
    command = [*_OWN, sys.executable, "-m", "tests.runtime.two_networks", str(runtime.server)]
    done = run_program(command, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {way: said["opened"] for way, said in told.items()} == dict.fromkeys(told, 0)
    assert all(said["owner"] == "taken" for said in told.values())
    assert told["a key"]["tries"] <= 5  # in three seconds
    assert told["a tracker at 127.0.0.1"]["tracker"] == "no tracker answers"
    # Whoever asks gets the key, and reaches no server with it.
    assert told["a tracker at 0.0.0.0"]["tracker"] == "it gives the key"
