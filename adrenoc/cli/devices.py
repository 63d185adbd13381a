"""`adrenoc device list`: where bundles can run.

`adrenoc device warm`: build a bundle's kernels before anybody waits for them.

`adrenoc device report`: what was measured on a device, as one file to send.

`adrenoc device import`: what the lab app measured on a phone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, HeavyCommand, InputPath, OutputPath
from adrenoc.cli.options import output_option
from adrenoc.cli.place_options import (
    HERE,
    PlaceChoice,
    PlaceParam,
    choose_programs,
    place_option,
    program_folder,
    reach,
    timeout_s,
)
from adrenoc.cli.records import argument, give_options, option

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
    console.print_title("tracker", f"{len(tracked)} server{'s' * (len(tracked) != 1)}")
    rows: list[Any] = [
        (device.key, device.address, *_facts(facts))
        for device in tracked
        for facts in device.devices
    ]
    rows += [(d.key, d.address, d.trouble, "", "") for d in tracked if not d.devices]
    if rows:
        console.print_table(("key", "address", *_COLUMNS), rows)


@dataclass(frozen=True, kw_only=True)
class _Warmed:
    bundle: Path = argument(type=InputPath(replaced=True))
    place: PlaceChoice = place_option()
    embed: bool = option(
        "--embed", is_flag=True, help="Put them into the bundle, for devices with the same driver."
    )


@click.command("warm", cls=HeavyCommand)
@give_options(_Warmed)
def warm_command(given: _Warmed) -> int:
    """Build the kernels of BUNDLE for a device, and keep them for the next start."""
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.device.result import ProgramOptions
    from adrenoc.device.run import warm

    opened = open_bundle(given.bundle)
    usual = ProgramOptions(folder=program_folder(given.place))
    with reach(given.place) as address:
        warmed = warm(
            opened,
            device=given.place.cl_device,
            address=address,
            programs=choose_programs(given.place) or usual,
            embed=given.embed,
        )

    def show() -> None:
        console.print_title(opened.manifest.name, f"on {warmed.device}, driver {warmed.driver}")
        programs = warmed.programs
        fields = [
            ("kernels", f"{programs.misses} built, {programs.hits} were there"),
            ("time", console.ms(warmed.build_ms)),
        ]
        if given.embed:
            fields.append(("in the bundle", console.size(warmed.embedded_bytes)))
        fields += [("note", note) for note in (*warmed.notes, *programs.notes())]
        console.print_fields(fields)

    return console.tell(warmed, show)


@dataclass(frozen=True, kw_only=True)
class _Reported:
    files: tuple[Path, ...] = argument(type=InputPath(), nargs=-1, required=True, metavar="FILE...")
    output: Path = output_option(
        "The report; read it before you send it.",
        default=Path("adrenoc-report.json"),
        show_default=True,
        metavar="FILE.json",
    )


@click.command("report", cls=Command)
@give_options(_Reported)
def report_command(given: _Reported) -> int:
    """Collect what adrenoc measured on a device into one file, without anything of yours.

    FILEs are what calibrate, verify, run --json and fleet --json wrote.  Of each go figures,
    and the words of device and driver; names of models, tensors, files, computers and serial
    numbers stay here.
    """
    from adrenoc.pages.device_report import collect, report_text

    output, parts = given.output, collect(given.files)
    text = report_text(parts)
    write_atomically(output, text)

    def show() -> None:
        console.print_title(str(output), console.size(len(text.encode())))
        console.print_table(
            ("file", "what it is", "sent of it"),
            [(str(part.path), part.name, console.size(part.size)) for part in parts],
            right=("sent of it",),
        )
        console.print_fields([("next", f"read {quote_word(output)}, then send it with your issue")])

    rows = [{"file": part.path, "kind": part.name, "bytes": part.size} for part in parts]
    return console.tell({"report": output, "bytes": len(text.encode()), "parts": rows}, show)


@dataclass(frozen=True, kw_only=True)
class _Imported:
    report: Path = argument(type=InputPath())
    output: Path = output_option(
        "A folder for device.json, phone.toml and report.html.",
        type=OutputPath(),
        default=Path("adrenoc-lab"),
        show_default=True,
        metavar="DIR",
    )


@click.command("import", cls=Command)
@give_options(_Imported)
def import_command(given: _Imported) -> int:
    """Read what adrenoc-lab.apk measured: REPORT becomes device.json, phone.toml and a page.

    device.json says what of the driver is right, and whether doing without halves or textures
    helps, as adrenoc device verify does, which finds cheaper ways: the app has no compiler.
    phone.toml is for --device: what a launch takes and memory's rate, where these were measured.
    """
    import datetime

    from adrenoc.pages.lab_report import read_lab_report
    from adrenoc.target.device_report import report_json

    report = read_lab_report(given.report)
    date = datetime.datetime.now(datetime.timezone.utc).date()
    verified, target = report.verified(date), report.target_toml(date)
    given.output.mkdir(parents=True, exist_ok=True)
    write_atomically(given.output / "device.json", report_json(verified))
    if target:
        write_atomically(given.output / "phone.toml", target)
    page = report.page(f"Imported from {given.report.name}.")
    write_atomically(given.output / "report.html", page)
    right = sum(suite.status == "right" for suite in report.suites)

    def show() -> None:
        console.print_title(verified.device.name or "no device", verified.device.driver)
        fields = [("suites", f"{right} of {len(report.suites)} right")]
        fields += [("wrong", finding.text) for finding in verified.findings]
        fields += [("failed", text) for text in verified.failed_once]
        fields += [("avoid", quirk.text) for quirk in verified.quirks]
        fields += [(one.probe, str(one)) for one in report.probes]
        fields += [(one.network, str(one)) for one in report.networks]
        fields += [(one.decoder, str(one)) for one in report.decoders]
        console.print_fields([*fields, ("written", quote_word(given.output))])

    return console.tell(
        {
            "verified": verified,
            "probes": report.probes,
            "networks": report.networks,
            "decoders": report.decoders,
        },
        show,
    )
