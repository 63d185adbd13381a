"""The servers of a tracker, and what each says of its devices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from adrenoc.base.errors import AdrenocError
from adrenoc.device.remote import RemoteAddress, describe
from adrenoc.device.tracker import HostPort, Tracker


@dataclass(frozen=True, kw_only=True)
class TrackedDevice:
    """A server of a tracker; `devices` are its OpenCL devices, `trouble` why they are not known."""

    key: str
    address: str
    version: str = ""
    machine: str = ""
    devices: tuple[dict[str, Any], ...] = field(default=())
    trouble: str = ""


def find_tracked(tracker: HostPort, *, timeout_s: float) -> tuple[TrackedDevice, ...]:
    """Ask a tracker for its servers, and one free server of each kind for its devices.

    Raises:
        RemoteError: no tracker listens there.
    """
    connection = Tracker(tracker, timeout_s=timeout_s)
    try:
        servers = connection.servers()
    except TimeoutError:
        servers = ()
    finally:
        connection.close()
    told = {key: _ask(tracker, key, timeout_s) for key in {server.key for server in servers}}
    return tuple(replace(told[server.key], address=server.address) for server in servers)


def _ask(tracker: HostPort, key: str, timeout_s: float) -> TrackedDevice:
    address = RemoteAddress(where=tracker, key=key, tracked=True, timeout_s=timeout_s)
    try:
        facts = describe(address)
    except AdrenocError as error:
        return TrackedDevice(key=key, address="", trouble=error.message)
    return TrackedDevice(
        key=key, address="", version=facts.version, machine=facts.machine, devices=facts.devices
    )
