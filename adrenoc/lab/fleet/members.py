"""Where a fleet's devices are, and by which options a command reaches one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adrenoc.device.tracker import HostPort, Tracker

TRACKER_WAIT_S = 3.0


@dataclass(frozen=True, kw_only=True)
class FleetMember:
    """A device that is always reached in the same way; `options` are a command's."""

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """All devices of the kind `key` that TVM's tracker knows."""

    tracker: HostPort
    key: str

    def names(self) -> tuple[str, ...]:
        """The devices that are connected now.

        Raises:
            RemoteError: no tracker is there.
        """
        with _connect(self.tracker) as tracker:
            return tuple(server.address for server in tracker.servers() if server.key == self.key)

    def next_free(self) -> FleetMember:
        """Wait for a device that has nothing to do, and take it.

        Raises:
            RemoteError: no tracker is there, or none becomes free in time.
        """
        with _connect(self.tracker) as tracker:
            offer = tracker.request(self.key)
        words = ("--on", f"{offer.key}@{offer.address}")
        return FleetMember(name=str(offer.address), options=words)


def server(address: str, key: str) -> FleetMember:
    """The member of a server at `HOST:PORT`.

    Raises:
        OptionError: the address is of another form.
    """
    where = str(HostPort.parse(address, what="the server", example="--on 127.0.0.1:9090"))
    return FleetMember(name=where, options=("--on", f"{key}@{where}" if key else where))


def phone(serial: str) -> FleetMember:
    """Return the member of a phone that adb knows by its serial number."""
    return FleetMember(name=serial, options=("--on", f"adb:{serial}"))


@contextmanager
def _connect(where: HostPort) -> Iterator[Tracker]:
    tracker = Tracker(where, timeout_s=TRACKER_WAIT_S)
    try:
        yield tracker
    finally:
        tracker.close()
