"""Serve TVM's RPC protocol from this machine, one session after the other.

Each session is a Python process of its own (`adrenoc.device.rpc_session`) with a folder of its own:
a crash or a time-out ends that session and not the server, and what it left behind is removed.
"""

import ipaddress
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import RemoteError
from adrenoc.base.files.aside import lock_new, remove_if_left, remove_locked, temporary_name
from adrenoc.base.files.read import private_folder
from adrenoc.base.reporter import Reporter
from adrenoc.device.peers import TICK_S, Greetings, HostPort, Peer, TrackerEntry
from adrenoc.device.rpc_session import Standby, refuse

# How often one that waits for peers, or for the end of a session, looks at other things.
_TICK_S = 1.0
_SESSION_TICK_S = 0.1
# A session whose peer has left has so long to clean up; then it is ended, and has so long to go.
_LEFT_S = 5.0
_KILLED_S = 5.0
# Processes that are started for a session: one that waited may have been killed meanwhile.
_STARTS = 2
# The file in a session's folder that tells what it does.
_TRACE = "doing"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How to serve.

    `host` is the address to listen on and `port` 0 for any free one; `key` what peers have to
    know, or with a `tracker` the kind of device that this server offers there, at the address
    `advertised` (empty: the one that the tracker sees).  `session_s` stops a session, 0 never
    does; `store` keeps what peers sent; a longer message than `max_message_bytes` ends a session.
    `quiet`: nothing is printed of sessions, as drivers do of each kernel that they refuse.
    """

    host: str = "127.0.0.1"
    port: int = 0
    key: str = ""
    tracker: HostPort | None = None
    advertised: str = ""
    session_s: float = 600.0
    store: Path | None = None
    max_message_bytes: int = 1 << 30
    quiet: bool = False


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RpcServer:
    """A listening server; `port` is where, also when any free port was asked for. Raises
    RemoteError where the address cannot be listened on."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        try:
            if options.store is not None:
                private_folder(options.store)
            self._listening = socket.create_server((options.host, options.port))
        except OSError as error:
            raise RemoteError(
                f"cannot listen on {options.host}:{options.port}: {error.strerror or error}",
                hint="adrenoc runtime serve --port 0 takes any free port",
            ) from error
        # A server that was killed could not do it.
        remove_left_folders()
        self.port: int = self._listening.getsockname()[1]
        self._greetings = Greetings(self._listening, own_key=options.key)
        self._standby: Standby | None = None
        self._served = 0
        self._entry: TrackerEntry | None = None
        if options.tracker is not None:
            self._entry = TrackerEntry(
                options.tracker, key=options.key, host=options.advertised or None, port=self.port
            )

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()
        if self._standby is not None:
            self._standby.close()

    def prepare(self) -> None:
        """Start the process of the next session ahead."""
        if self._standby is None:
            self._standby = Standby(quiet=self._options.quiet)

    def serve_one(self, reporter: Reporter) -> None:
        """Wait for a peer and serve it until it leaves; tell the reporter how that went."""
        greeted = self._wait_for_peer(reporter)
        with greeted.connection as connection:
            peer = greeted.name
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A peer that vanished without a word is noticed after a minute.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (
                (socket.TCP_KEEPIDLE, 20),
                (socket.TCP_KEEPINTVL, 10),
                (socket.TCP_KEEPCNT, 3),
            ):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            limits = [s for s in (greeted.asked_s, self._options.session_s) if s > 0]
            try:
                ending = self._run(connection, min(limits, default=0))
            except OSError as error:  # no room for its folder, no process: the next may have
                reporter.warn(f"session of {peer} was not started: {error}")
                refuse(connection, str(error))
                return
            reporter.note(f"session of {peer} {ending}")

    def _wait_for_peer(self, reporter: Reporter) -> Peer:
        """Return the next peer that knows the key; keeps the tracker's entry alive meanwhile."""
        entry, key = self._entry, self._options.key
        if entry is not None and (wrong := entry.offer()):
            reporter.warn(f"{wrong}; tried again every {TICK_S:.0f} s")
        while True:
            peer = self._greetings.wait(
                key if entry is None else entry.session_key,
                tick_s=_TICK_S if entry is None else TICK_S,
                refused=lambda why: reporter.warn(f"refused {why}"),
            )
            if peer is not None:
                return peer
            if entry is not None:
                entry.keep()

    def _run(self, connection: socket.socket, limit_s: float) -> str:
        """Run the session of a connection, at most `limit_s` (0: for ever); say how it ended."""
        number, options = connection.fileno(), self._options
        store = "" if options.store is None else str(options.store)
        with session_folder() as made:
            folder = made.path
            session = self._session(number, made.lock, str(folder), store)
            try:
                code = _wait(session, connection, limit_s)
            except _StoppedError as stopped:
                return f"was stopped {stopped}{_last_deed(folder)}"
            finally:
                session.kill()
                # One that a driver holds does not go: it must not hold the server too.
                with suppress(subprocess.TimeoutExpired):
                    session.wait(_KILLED_S)
            if code < 0:
                return f"crashed with signal {-code}{_last_deed(folder)}"
        return "ended" if code == 0 else "failed"

    def _session(self, number: int, lock: int, folder: str, store: str) -> subprocess.Popen[bytes]:
        """Return the process that serves the connection `number`. Who has come twice comes again:
        from then on the next one's process is started ahead."""
        for _ in range(_STARTS):
            waiting = self._standby or Standby(quiet=self._options.quiet)
            self._standby = None
            longest = self._options.max_message_bytes
            session = waiting.serve(number, lock, folder, store, longest)
            if session is not None:
                self._served += 1
                if self._served > 1:
                    self.prepare()
                return session
        raise OSError("its process died")


class _StoppedError(Exception):
    """A session goes on that nobody waits for any more; says when it was stopped."""


def _wait(session: subprocess.Popen[bytes], connection: socket.socket, limit_s: float) -> int:
    """Wait for a session; its exit code.

    Raises:
        _StoppedError: it took longer than `limit_s` (0: no limit), or its peer has left: a launch
            that hangs would keep the server from everybody else.
    """
    watched = select.poll()
    watched.register(connection, select.POLLRDHUP)
    started = time.monotonic()
    left = None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return session.wait(_SESSION_TICK_S)
        now = time.monotonic()
        if limit_s and now - started > limit_s:
            raise _StoppedError(f"after {limit_s:.0f} s")
        if left is None and watched.poll(0):
            left = now
        if left is not None and now - left > _LEFT_S:
            raise _StoppedError(f"{_LEFT_S:.0f} s after its peer had left")


def _last_deed(folder: Path) -> str:
    """Return what a session did last, as its trace file tells, if anything on a device."""
    try:
        text = (folder / _TRACE).read_bytes().partition(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""
    return f"; last it was {text}" if text else ""


# As adrenoc/native/runtime/tools/rpc_host.h has it.
_PREFIX = "adrenoc-rpc-"


@dataclass(frozen=True, kw_only=True)
class SessionFolder:
    """A folder, locked while this process or another that has `lock` open lives."""

    path: Path
    lock: int


@contextmanager
def session_folder() -> Iterator[SessionFolder]:
    """Make a folder for a session, which is removed at the end. Raises OSError where there is no
    room for one."""
    path, lock = lock_new(lambda: temporary_name(_PREFIX), 0o700)
    try:
        yield SessionFolder(path=path, lock=lock)
    finally:
        remove_locked(path, lock)


def remove_left_folders() -> int:
    """Remove the folders of sessions that no process uses any more; returns how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody uses it
            removed += remove_if_left(path)
    return removed
