"""Runs a bundle on a server that lies: the worker's half of `scripts/fuzz_rpc`.

Relays are forked from a small process, as starting a Python each would take most of the time; what
they do is what `adrenoc.device.remote` has them do.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from fuzz.harness import Outcome, judge_work

TIMEOUT_S = 0.3
"""What is cut off is waited for so long."""


class _Forks:
    """A process that forks relays; started before anything else is imported."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self._ours.close()
            _fork_relays(theirs)
        theirs.close()

    def start(self, ends: tuple[int, int, int]) -> Any:
        """A relay for these sockets."""
        socket.send_fds(self._ours, [b"x"], list(ends))
        self._ours.recv(1)
        return self

    def wait(self, timeout: float | None = None) -> int:
        """They end by themselves."""
        return 0

    def kill(self) -> None:
        """They end by themselves."""


def _fork_relays(channel: socket.socket) -> None:
    from adrenoc.device import rpc_relay

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        words, ends, _, _ = socket.recv_fds(channel, 1, 3)
        if not words:
            os._exit(0)
        if os.fork() == 0:
            channel.close()
            code = 70
            try:
                code = rpc_relay.main(*ends)
            finally:
                os._exit(code)
        for end in ends:
            os.close(end)
        channel.sendall(b"x")


@functools.cache
def _prepared() -> Any:
    from adrenoc.device import remote

    remote.start_relay = _Forks().start
    from adrenoc.lab.tune import session

    session.START_S = TIMEOUT_S
    return remote


@functools.cache
def _bundle(path: str) -> Any:
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle

    bundle = open_bundle(Path(path))
    specs = bundle.manifest.inputs
    return bundle, {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}


def judge(path: Path) -> Outcome:
    """Talk to the server that the file names; what came of it."""
    case = json.loads(path.read_text())
    _prepared()
    return attempt(case, timeout_s=TIMEOUT_S)


def attempt(case: dict[str, Any], *, timeout_s: float, raises: bool = False) -> Outcome:
    """The same, without the processes of fuzzing."""
    from adrenoc.device.remote import RemoteAddress, describe, run_remote

    bundle, inputs = _bundle(case["bundle"])
    address = RemoteAddress.server(
        f"127.0.0.1:{case['port']}", key=case.get("key", ""), timeout_s=timeout_s
    )
    deeds = {
        "describe": lambda: describe(address),
        "tune": lambda: _open_for_tuner(address),
        "run": lambda: run_remote(bundle, address, inputs=inputs, repeat=2, profile=True),
    }
    return judge_work(deeds[case["deed"]], "ran", raises=raises)


def _open_for_tuner(address: Any) -> None:
    """A session as the tuner has it; what it takes for a broken one is refused."""
    from adrenoc.base.errors import RemoteError
    from adrenoc.lab.tune.session import DevicePlace, Session
    from adrenoc.lab.tune.trial_queue import BROKEN

    try:
        Session(DevicePlace(server=address, limit_s=2.0)).close()
    except BROKEN as error:
        raise RemoteError(str(error) or "broken", hint="none") from error


if __name__ == "__main__":
    print(attempt(json.loads(sys.argv[1]), timeout_s=30.0, raises=True))
