"""`adrenoc device list`: where bundles can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import Command
from adrenoc.cli.place_options import HERE, PlaceChoice, PlaceParam, reach, timeout_s
from adrenoc.cli.records import give_options, option

if TYPE_CHECKING:
    from adrenoc.device.adb import AdbDevice
    from adrenoc.device.find import TrackedDevice

_COLUMNS = ("GPU", "driver", "facts")


@dataclass(frozen=True, kw_only=True)
class _Listed:
    place: PlaceChoice = option(
        "--on",
        type=PlaceParam(),
        default=HERE,
        metavar="PLACE",
        help="Ask one for its OpenCL devices: adb:SERIAL, a phone, or [KEY@]HOST:PORT, a server; "
        "or list the servers of TVM's tracker: tracker:HOST:PORT.  [default: list phones]",
    )


@click.command("list", cls=Command)
@give_options(_Listed)
def devices_command(given: _Listed) -> int:
    """List phones that are connected by adb, the servers of a tracker, or what one of them has.

    The OpenCL devices of this machine are shown by `adrenoc doctor`.
    """
    from adrenoc.cli import console
    from adrenoc.device.find import find_tracked
    from adrenoc.device.tracker import HostPort

    place, wait_s = given.place, timeout_s(5.0)
    if place.tracker and not place.key:
        example = "adrenoc device list --on tracker:127.0.0.1:9190"
        where = HostPort.parse(place.tracker, what="the tracker", example=example)
        tracked = find_tracked(where, timeout_s=wait_s)
        return console.tell({"tracker": tracked}, lambda: _show_tracked(tracked))
    if place.is_remote:
        return _describe(place, wait_s)
    from adrenoc.device.adb import list_devices

    phones = list_devices(timeout_s=wait_s)
    return console.tell({"adb": phones}, lambda: _show_phones(phones))


def _describe(place: PlaceChoice, wait_s: float) -> int:
    """Describe a server, or one of ours on a phone: what runs there, and its OpenCL devices."""
    from adrenoc.cli import console
    from adrenoc.device.remote import describe

    with reach(place, wait_s) as address:
        assert address is not None
        found = describe(address)

    def show() -> None:
        count = console.count_of(len(found.devices), "OpenCL device")
        console.print_title(
            place.adb or found.where, f"{found.machine}, adrenoc {found.version}, {count}"
        )
        if found.devices:
            console.print_table(_COLUMNS, [_facts(device) for device in found.devices])

    return console.tell({"server": found}, show)


def _facts(facts: dict[str, Any]) -> tuple[str, str, str]:
    """List name, driver and abilities of one OpenCL device."""
    sides = " x ".join(map(str, facts["limits"].get("max_work_item_sizes", ())))
    halves = ", fp16" if facts["fp16"] else ""
    groups = f", work-groups of {facts['limits']['max_work_group_size']}"
    return (
        str(facts.get("name", "")),
        str(facts.get("driver", "")),
        f"OpenCL C {facts['c_version'] / 100:.1f}{halves}{groups}{sides and f' ({sides})'}",
    )


def _show_phones(phones: tuple[AdbDevice, ...]) -> None:
    from adrenoc.cli import console

    console.print_title("adb", f"{len(phones)} device{'s' * (len(phones) != 1)}")
    if not phones:
        console.print_fields([("hint", "connect a phone with USB debugging switched on")])
        return
    rows = [
        (p.serial, p.state, p.model, p.soc, p.gpu, p.abi, p.android, p.trouble or p.opencl)
        for p in phones
    ]
    console.print_table(
        ("serial", "state", "model", "SoC", "GPU", "ABI", "Android", "OpenCL"), rows
    )


def _show_tracked(tracked: tuple[TrackedDevice, ...]) -> None:
    from adrenoc.cli import console

    console.print_title("tracker", f"{len(tracked)} server{'s' * (len(tracked) != 1)}")
    rows: list[Any] = [
        (device.key, device.address, *_facts(facts))
        for device in tracked
        for facts in device.devices
    ]
    rows += [(d.key, d.address, d.trouble, "", "") for d in tracked if not d.devices]
    if rows:
        console.print_table(("key", "address", *_COLUMNS), rows)
