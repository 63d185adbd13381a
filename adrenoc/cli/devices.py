"""`adrenoc device list`: where bundles can run.

`adrenoc device warm`: build a bundle's kernels before anybody waits for them.

`adrenoc device report`: what was measured on a device, as one file to send.

`adrenoc device import`: what the lab app measured on a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.report import Fields, Part, Title, tabulate
from adrenoc.base.text.spelling import count_of, quote_word, show_bytes, show_ms
from adrenoc.cli import console
from adrenoc.cli.guarded import Command, HeavyCommand, InputPath, OutputPath
from adrenoc.cli.model_params import Parsed
from adrenoc.cli.options import output_option
from adrenoc.cli.place_options import (
    HERE,
    PlaceChoice,
    choose_programs,
    place_option,
    program_folder,
    reach,
    read_place,
    timeout_s,
)
from adrenoc.cli.records import argument, give_options, option

if TYPE_CHECKING:
    from adrenoc.device.adb import AdbDevice
    from adrenoc.device.remote import TrackedDevice

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Listed:
    place: PlaceChoice = option(
        "--on PLACE",
        type=Parsed(read_place),
        default=HERE,
        help="Ask one for its OpenCL devices: adb:SERIAL, a phone, or [KEY@]HOST:PORT, a server; "
        "or list the servers of TVM's tracker: tracker:HOST:PORT.  [default: list phones]",
    )


@click.command("list", cls=Command)
@give_options(_Listed)
def devices_command(given: _Listed) -> int:
    """List phones that are connected by adb, the servers of a tracker, or what one of them has.

    The OpenCL devices of this machine are shown by `adrenoc doctor`.
    """
    from adrenoc.device.remote import find_tracked
    from adrenoc.device.tracker import HostPort

    place, wait_s = given.place, timeout_s(5.0)
    if place.tracker and not place.key:
        example = "adrenoc device list --on tracker:127.0.0.1:9190"
        where = HostPort.parse(place.tracker, what="the tracker", example=example)
        tracked = find_tracked(where, timeout_s=wait_s)
        return console.tell({"tracker": tracked}, _tracked_parts(tracked))
    if place.is_remote:
        return _describe(place, wait_s)
    from adrenoc.device.adb import list_devices

    phones = list_devices(timeout_s=wait_s)
    return console.tell({"adb": phones}, _phone_parts(phones))


def _describe(place: PlaceChoice, wait_s: float) -> int:
    """Describe a server, or one of ours on a phone: what runs there, and its OpenCL devices."""
    from adrenoc.device.remote import describe

    with reach(place, wait_s) as address:
        assert address is not None
        found = describe(address)

    count = count_of(len(found.devices), "OpenCL device")
    detail = f"{found.machine}, adrenoc {found.version}, {count}"
    title = Title(text=place.adb or found.where, detail=detail)
    listed = tabulate(found.devices, _facts_of(lambda facts: facts))
    return console.tell({"server": found}, title, listed)


def _facts_of(read: Callable[[T], dict[str, Any]]) -> dict[str, Callable[[T], str]]:
    """Return the columns of an OpenCL device: its name, driver and abilities."""
    return {
        "GPU": lambda one: str(read(one).get("name", "")),
        "driver": lambda one: str(read(one).get("driver", "")),
        "facts": lambda one: _tell_abilities(read(one)),
    }


def _tell_abilities(facts: dict[str, Any]) -> str:
    if "limits" not in facts:
        return ""
    sides = " x ".join(map(str, facts["limits"].get("max_work_item_sizes", ())))
    halves = ", fp16" if facts["fp16"] else ""
    groups = f", work-groups of {facts['limits']['max_work_group_size']}"
    return f"OpenCL C {facts['c_version'] / 100:.1f}{halves}{groups}{sides and f' ({sides})'}"


def _phone_parts(phones: Sequence[AdbDevice]) -> Iterator[Part]:
    yield Title(text="adb", detail=count_of(len(phones), "device"))
    if not phones:
        yield Fields(pairs=[("hint", "connect a phone with USB debugging switched on")])
    yield tabulate(
        phones,
        {
            "serial": lambda one: one.serial,
            "state": lambda one: one.state,
            "model": lambda one: one.model,
            "SoC": lambda one: one.soc,
            "GPU": lambda one: one.gpu,
            "ABI": lambda one: one.abi,
            "Android": lambda one: one.android,
            "OpenCL": lambda one: one.trouble or one.opencl,
        },
    )


def _tracked_parts(tracked: Sequence[TrackedDevice]) -> list[Part]:
    rows = [(server, facts) for server in tracked for facts in server.devices]
    rows += [(server, {}) for server in tracked if not server.devices]
    listed = tabulate(
        rows,
        {
            "key": lambda one: one[0].key,
            "address": lambda one: one[0].address,
            **_facts_of(lambda one: one[1] or {"name": one[0].trouble}),
        },
    )
    return [Title(text="tracker", detail=count_of(len(tracked), "server")), listed]


@dataclass(frozen=True, kw_only=True)
class _Warmed:
    bundle: Path = argument(type=InputPath(replaced=True))
    place: PlaceChoice = place_option()
    embed: bool = option(
        "--embed", help="Put them into the bundle, for devices with the same driver."
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

    programs = warmed.programs
    embedded = [("in the bundle", show_bytes(warmed.embedded_bytes))] if given.embed else []
    fields = [
        ("kernels", f"{programs.misses} built, {programs.hits} were there"),
        ("time", show_ms(warmed.build_ms)),
        *embedded,
        *(("note", note) for note in (*warmed.notes, *programs.notes())),
    ]
    where = f"on {warmed.device}, driver {warmed.driver}"
    title = Title(text=opened.manifest.name, detail=where)
    return console.tell(warmed, title, Fields(pairs=fields))


@dataclass(frozen=True, kw_only=True)
class _Reported:
    files: tuple[Path, ...] = argument(nargs=-1, required=True, metavar="FILE...")
    output: Path = output_option(
        "The report; read it before you send it.",
        default=Path("adrenoc-report.json"),
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

    listed = tabulate(
        parts,
        {
            "file": lambda part: str(part.path),
            "what it is": lambda part: part.name,
            "sent of it": lambda part: show_bytes(part.size),
        },
    )
    size = len(text.encode())
    rows = [{"file": part.path, "kind": part.name, "bytes": part.size} for part in parts]
    return console.tell(
        {"report": output, "bytes": size, "parts": rows},
        Title(text=str(output), detail=show_bytes(size)),
        listed,
        Fields(pairs=[("next", f"read {quote_word(output)}, then send it with your issue")]),
    )


@dataclass(frozen=True, kw_only=True)
class _Imported:
    report: Path = argument()
    output: Path = output_option(
        "A folder for device.json, phone.toml and report.html.",
        type=OutputPath(),
        default=Path("adrenoc-lab"),
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

    fields = [("suites", f"{right} of {len(report.suites)} right")]
    fields += [("wrong", finding.text) for finding in verified.findings]
    fields += [("failed", text) for text in verified.failed_once]
    fields += [("avoid", quirk.text) for quirk in verified.quirks]
    fields += [(one.probe, str(one)) for one in report.probes]
    fields += [(one.network, str(one)) for one in report.networks]
    fields += [(one.decoder, str(one)) for one in report.decoders]
    told = {name: getattr(report, name) for name in ("probes", "networks", "decoders")}
    return console.tell(
        {"verified": verified, **told},
        Title(text=verified.device.name or "no device", detail=verified.device.driver),
        Fields(pairs=[*fields, ("written", quote_word(given.output))]),
    )
