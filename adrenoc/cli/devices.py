"""`adrenoc devices`: where bundles can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from adrenoc.cli.guarded import Command
from adrenoc.cli.options import MOST_SECONDS, FiniteRange, json_option

if TYPE_CHECKING:
    from adrenoc.device.adb import AdbDevice
    from adrenoc.device.find import TrackedDevice


@click.command("devices", cls=Command)
@click.option("--tracker", metavar="HOST:PORT", help="List the servers that TVM's tracker knows.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1, max=MOST_SECONDS),
    default=5.0,
    show_default=True,
    help="Seconds to wait for any answer.",
)
@json_option()
def devices_command(tracker: str | None, timeout_s: float, as_json: bool) -> None:
    """List phones that are connected by adb, and the servers of a tracker.

    The OpenCL devices of this machine are shown by `adrenoc doctor`.
    """
    from adrenoc.cli import console
    from adrenoc.device.find import find_tracked
    from adrenoc.device.tracker import HostPort

    if tracker is not None:
        example = "adrenoc devices --tracker 127.0.0.1:9190"
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
        (
            device.key,
            device.address,
            str(facts.get("name", "")),
            str(facts.get("driver", "")),
            f"OpenCL C {facts['c_version'] / 100:.1f}{', fp16' if facts['fp16'] else ''}",
        )
        for device in tracked
        for facts in device.devices
    ]
    rows += [(d.key, d.address, d.trouble, "", "") for d in tracked if not d.devices]
    if rows:
        console.print_table(("key", "address", "GPU", "driver", "facts"), rows)
