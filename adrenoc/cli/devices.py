"""`adrenoc device`: list where bundles run, verify what is right there, build kernels before
anybody waits, report what was measured and import what the lab app did; `adrenoc prove`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adrenoc.base.errors import CheckFailedError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.text.report import Fields, Part, Title, Verdict, tabulate
from adrenoc.base.text.spelling import count_of, quote_word, show_bytes, show_ms
from adrenoc.cli import console
from adrenoc.cli.guarded import (
    Command,
    HeavyCommand,
    InputPath,
    OutputPath,
    argument,
    give_options,
    option,
    wants_json,
)
from adrenoc.cli.model_params import TARGET, Parsed, read_duration
from adrenoc.cli.options import (
    HERE,
    PlaceChoice,
    choose_programs,
    finish_resumed,
    open_resume,
    output_option,
    place_option,
    program_folder,
    reach,
    read_place,
    resume_option,
    timeout_s,
)

if TYPE_CHECKING:
    from adrenoc.device.adb import AdbDevice
    from adrenoc.device.remote import TrackedDevice
    from adrenoc.lab.prove.verify_device import Verification
    from adrenoc.target.target import Target


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
    from adrenoc.device.peers import HostPort
    from adrenoc.device.remote import find_tracked

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
    from adrenoc.target.device_set import report_json

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


_PRECISIONS = ("mixed", "fp32", "fp16")


@dataclass(frozen=True, kw_only=True)
class _Verified:
    place: PlaceChoice = place_option()
    listed: Target | None = option(
        "--device DEVICE",
        type=TARGET,
        help="The device whose kernels to verify.  [default: what it calls itself]",
    )
    budget_s: float = option(
        "--budget TIME",
        type=Parsed(read_duration),
        default="10m",
        help="How long to look for what helps, where something is wrong.",
    )
    precisions: tuple[str, ...] = option(
        "--precision",
        type=click.Choice(_PRECISIONS),
        help="Verify this alone; may be repeated.  [default: all that the device has]",
    )
    only: tuple[str, ...] = option(
        "--only PART",
        help="Verify cases with PART in their names alone, such as conv2d; may be repeated.",
    )
    output: Path = output_option(
        "The report, for --device DEVICE+FILE.", default=Path("device.json")
    )
    resume_file: Path | None = resume_option()


@click.command("verify", cls=HeavyCommand)
@give_options(_Verified)
def verify_device_command(given: _Verified) -> int:
    """Run every kernel family on a device, and hold each result against the reference.

    What goes wrong is tried again in simpler forms.  What helps is written to a report, and
    `adrenoc compile MODEL --device DEVICE+FILE` does without it.
    """
    from adrenoc.lab.prove.verify_device import VerifyRequest, pick_cases, run_verification
    from adrenoc.target.device_set import report_json

    if not pick_cases(given.only):
        raise click.UsageError(f"no case has {' or '.join(given.only)} in its name")
    resume = open_resume(given.resume_file)
    with reach(given.place) as address:
        request = VerifyRequest(
            place=address,
            cl_device=given.place.cl_device,
            limit_s=timeout_s(),
            budget_s=given.budget_s,
            listed=given.listed,
            only=given.only,
            precisions=given.precisions,
            resume=resume,
        )
        done = run_verification(request, say=console.print_step)
    write_atomically(given.output, report_json(done.report))

    told = {"report": str(given.output), "target": done.target.name, **vars(done.report)}
    if not wants_json():
        console.blank()
    console.tell(told, _list_parts(done, given.output))
    finish_resumed(resume, "runs of suites")
    error = find_wrong(done)
    if error is not None and not wants_json():
        raise error
    return 0 if error is None else error.exit_code


def _list_parts(done: Verification, output: Path) -> Iterator[Part]:
    report = done.report
    yield Title(text=report.device.name, detail=f"driver {report.device.driver}")
    yield Fields(
        pairs=[
            *((finding.case, finding.text) for finding in report.findings),
            *(("failed as a whole", text) for text in report.failed_once),
            *(("avoid", quirk.text) for quirk in report.quirks),
        ]
    )
    run = report.suites
    told = f"{run.cases} cases by {run.kernels} kernels, {len(report.findings)} wrong"
    if report.findings and report.is_right:
        told += f"; all are right without what {output} lists"
    yield Verdict(passed=report.is_right, text=told)
    yield Fields(pairs=[("report", str(output)), ("next", _next(done, output))])


def _next(done: Verification, output: Path) -> str:
    device = done.target.option + (f"+{output}" if done.report.quirks else "")
    return f"adrenoc compile MODEL --device {quote_word(device)}"


def find_wrong(done: Verification) -> CheckFailedError | None:
    """Return what the command ends with, None where all is right."""
    if done.is_cut:
        return CheckFailedError(
            f"{len(done.left)} cases are wrong on {done.device.name}, and the --budget was spent "
            f"before all was tried; the first: {done.left[0]}",
            hint="adrenoc device verify --budget 1h, or --only with a part of a case's name",
        )
    if done.left:
        return CheckFailedError(
            f"{len(done.left)} cases stay wrong on {done.device.name}, whatever is left out; the "
            f"first: {done.left[0]}",
            hint="send the report with the driver's name; --device host --preset fp32 runs here",
        )
    if not done.report.is_right:
        failed = "; ".join(done.report.failed_once) or "too many cases of it failed"
        return CheckFailedError(
            f"a suite could not be judged on {done.device.name}: {failed}",
            hint="ADRENOC_TIMEOUT=600 adrenoc device verify where it is only slow, or --only with "
            "a part of a case's name",
        )
    return None


@dataclass(frozen=True, kw_only=True)
class _Proven:
    bundle: Path = argument(type=InputPath(replaced=True))
    model: Path = argument()


@click.command("prove", cls=HeavyCommand)
@give_options(_Proven)
def prove_command(given: _Proven) -> int:
    """Put inputs and what MODEL makes of them into BUNDLE, for `adrenoc_verify` in an app.

    On a phone that nobody has tried, an app then asks once whether the driver computes the model
    rightly, and falls back where it does not.
    """
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.lab.prove.proof import put_proof

    opened = open_bundle(given.bundle)
    proof = put_proof(opened, given.model, seed=0)
    size = len(proof.to_json().encode("utf-8"))

    shapes = f" in {len(proof.trials)} shapes" if len(proof.trials) > 1 else ""
    fields = [
        ("compared", f"{proof.values} numbers{shapes}"),
        ("in the bundle", show_bytes(size)),
        *(("left out", what) for what in proof.left_out),
        ("next", "adrenoc_verify of adrenoc.h, in an app"),
    ]
    title = Title(text=opened.manifest.name, detail=f"with numbers of {proof.reference}")
    told = {"bundle": str(given.bundle), "bytes": size, "values": proof.values}
    more = {"reference": proof.reference, "left_out": proof.left_out}
    return console.tell({**told, **more}, title, Fields(pairs=fields))
