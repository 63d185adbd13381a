"""`adrenoc device list`: where bundles can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import Command, wants_json
from adrenoc.cli.options import MOST_SECONDS, FiniteRange
from adrenoc.cli.place_options import runtime_option

if TYPE_CHECKING:
    from adrenoc.cli.place_options import PlaceChoice
    from adrenoc.device.adb import AdbDevice
    from adrenoc.device.find import TrackedDevice

_COLUMNS = ("GPU", "driver", "facts")


@click.command("list", cls=Command)
@click.option("--tracker", metavar="HOST:PORT", help="List the servers that TVM's tracker knows.")
@click.option("--rpc", "server", metavar="HOST:PORT", help="Ask this server for its devices.")
@click.option(
    "--adb", metavar="SERIAL", help="Ask the phone of this serial number for its OpenCL devices."
)
@runtime_option()
@click.option("--key", default="", help="The key that the server asks for.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=MOST_SECONDS),
    default=5.0,
    show_default=True,
    help="Seconds to wait for any answer.",
)
def devices_command(
    tracker: str | None,
    server: str | None,
    adb: str | None,
    runtime: Path | None,
    key: str,
    timeout_s: float,
) -> None:
    """List phones that are connected by adb, the servers of a tracker, or what one of them has.

    The OpenCL devices of this machine are shown by `adrenoc doctor`.
    """
    as_json = wants_json()
    from adrenoc.cli import console
    from adrenoc.cli.place_options import choose_place
    from adrenoc.device.find import find_tracked
    from adrenoc.device.tracker import HostPort

    if sum(place is not None for place in (tracker, server, adb)) > 1:
        raise click.UsageError("--rpc, --tracker and --adb name different places")
    if server is not None or adb is not None:
        place = choose_place(
            cl_device="",
            server=server,
            tracker=None,
            adb=adb,
            runtime=runtime,
            key=key,
            timeout_s=timeout_s,
        )
        _describe(place, as_json=as_json)
        return
    if tracker is not None:
        example = "adrenoc device list --tracker 127.0.0.1:9190"
        where = HostPort.parse(tracker, what="the tracker", example=example)
        tracked = find_tracked(where, timeout_s=timeout_s)
        if as_json:
            console.print_json({"tracker": tracked})
            return
        _show_tracked(tracked)
        return
    from adrenoc.device.adb import list_devices

    phones = list_devices(timeout_s=timeout_s)
    if as_json:
        console.print_json({"adb": phones})
        return
    _show_phones(phones)


def _describe(place: PlaceChoice, *, as_json: bool) -> None:
    """One server, or a server of ours on a phone: what runs there, and its OpenCL devices."""
    from adrenoc.cli import console
    from adrenoc.cli.place_options import reach
    from adrenoc.device.remote import describe

    with reach(place) as address:
        assert address is not None
        found = describe(address)
    if as_json:
        console.print_json({"server": found})
        return
    count = console.count_of(len(found.devices), "OpenCL device")
    console.print_title(
        place.adb or found.where, f"{found.machine}, adrenoc {found.version}, {count}"
    )
    if found.devices:
        console.print_table(_COLUMNS, [_facts(device) for device in found.devices])


def _facts(facts: dict[str, Any]) -> tuple[str, str, str]:
    """Name, driver and what it can of one OpenCL device."""
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
