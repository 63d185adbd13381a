"""When a server of RPC sessions stops waiting for one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from adrenoc.device import serve


def test_a_session_without_a_peer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_drivers_print_of_refused_kernels_is_for_a_server_of_its_own(quiet: bool) -> None:
    """A driver counts the errors of each kernel on standard error; probes expect them."""
    server = serve.RpcServer(serve.ServeOptions(quiet=quiet))
    try:
        server.prepare()
        process = server._standby._process.pid
        goes_to = Path(f"/proc/{process}/fd/2").readlink()
        assert (goes_to == Path(os.devnull)) is quiet
        assert os.getsid(process) == process  # which Ctrl-C at a terminal does not reach
    finally:
        server.close()


def test_a_peer_that_stays_gets_all_the_time_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_process_that_died_while_it_waited_is_replaced(tmp_path: Path) -> None:
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
