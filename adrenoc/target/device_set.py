"""Several GPUs that one bundle has kernels for, and what a driver was found to get wrong.

`adreno:660,adreno:750`, `all`, or a file:

    [[device]]
    target = "adreno:750"
    [[device]]
    target = "adreno:750"                  # the same GPU with the driver that the report is of
    report = "pixel.device.json"

A report, `device.json` of `adrenoc device verify`, holds quirks in the form of a target file's, so
that what is known of a driver can go into `targets/gpu/` as it is.  Compiling with one is compiling
for a target file of one's own that builds on the device and adds these quirks: a bundle carries
that file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import overload

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import read_plain, read_toml, sha256_bytes
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.spelling import printable, quote_word
from adrenoc.target.gpu import Quirk
from adrenoc.target.gpu_file import OwnFile, is_for_host, own_path
from adrenoc.target.target import Target, list_targets, load_own_target, load_target

FORMAT = 1
_MOST_BYTES = 1 << 20
_MOST_QUIRKS = 64
_REPORT_HINT = "adrenoc device verify -o device.json makes a report"


@dataclass(frozen=True, kw_only=True)
class ReportedDevice:
    """What was verified; `gpu` is the number of an Adreno ("750"), empty for another device."""

    name: str
    driver: str
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportedFinding:
    """A case that went wrong, in words, and the words of the quirk that helps; none if nothing."""

    case: str
    suite: str
    text: str
    helps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReportedSuites:
    """What was run: suites, their cases, and different kernels in all."""

    names: tuple[str, ...]
    cases: int
    kernels: int
    launches: int


@dataclass(frozen=True, kw_only=True)
class DeviceReport:
    """A whole report; `is_right`: with these quirks every case that was run is."""

    format: int
    device: ReportedDevice
    date: str
    suites: ReportedSuites
    is_right: bool
    quirks: tuple[Quirk, ...] = ()
    findings: tuple[ReportedFinding, ...] = ()
    failed_once: tuple[str, ...] = ()
    """What the driver said where a suite failed as a whole alone, and whether it came again."""


def report_json(report: DeviceReport) -> str:
    """Return the text of `device.json`."""
    return json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n"


def read_report(path: Path) -> DeviceReport:
    """Read a report."""

    def wrong(where: str, what: str) -> TargetError:
        return TargetError(f"the device report {where} {what}", hint=_REPORT_HINT)

    try:
        plain = read_json(read_plain(path, _MOST_BYTES))
    except OSError as error:
        raise TargetError(
            f"cannot read the device report {path}: {error.strerror or error}", hint=_REPORT_HINT
        ) from error
    except ValueError as error:
        raise wrong(str(path), f"is not JSON: {error}") from error
    if isinstance(plain, dict) and plain.get("format", FORMAT) != FORMAT:
        raise wrong(str(path), f"has the format {plain['format']!r}, expected {FORMAT}")
    report: DeviceReport = RecordReader(
        (lambda where, what: wrong(printable(where), printable(what)))
    ).read(DeviceReport, plain, str(path))
    if len(report.quirks) > _MOST_QUIRKS:
        raise wrong(f"{path}: quirks", f"has {len(report.quirks)}, expected {_MOST_QUIRKS} at most")
    return report


def load_listed(number: str) -> Target:
    """Return the listed Adreno of a number that a driver tells ("750"), or what stands for all."""
    try:
        return load_target(f"adreno:a{number}" if number else "adreno")  # 870 is a Snapdragon too
    except TargetError:
        return load_target("adreno")


def apply_report(target: Target, report: DeviceReport, path: Path) -> Target:
    """Return the target without what the report says that its driver gets wrong."""
    listed = target.gpu.name
    if report.device.gpu and listed[:1].isdigit() and report.device.gpu != listed:
        raise TargetError(
            f"the device report {path} is of Adreno {report.device.gpu.upper()}, expected one of "
            f"Adreno {listed.upper()}, which --device {target.name} is",
            hint="adrenoc compile MODEL --device "
            + quote_word(f"{load_listed(report.device.gpu).name}+{path}"),
        )
    if not report.quirks:
        return target
    text = "\n".join((_base_text(target), *_quirk_lines(report.quirks))) + "\n"
    stem = re.sub(r"[^A-Za-z0-9]+", "_", target.name.removesuffix(".toml")).strip("_")
    file = OwnFile(
        path=path, name=f"{stem}_as_reported.toml", text=text, device=f"{target.option}+{path}"
    )
    return load_own_target(file, host=target.host)


def _base_text(target: Target) -> str:
    if target.own is not None:
        return target.own.text.rstrip() + "\n"
    base = re.sub("^host$", "adreno", re.sub("^host:(?=a[0-9]|sm|[0-9])", "adreno:", target.name))
    return f"title = {json.dumps(target.title)}\nbase = {json.dumps(base)}\n"


def _quirk_lines(quirks: tuple[Quirk, ...]) -> Iterator[str]:
    """Quirks as TOML; JSON's texts, numbers and lists are TOML's too."""
    for quirk in quirks:
        yield "[[quirks]]"
        for key, value in asdict(quirk).items():
            if value not in (None, (), []):
                shown = printable(value) if isinstance(value, str) else value
                yield f"{key} = {json.dumps(shown, ensure_ascii=False)}"


ALL = "all"
_HINT = "adrenoc compile MODEL --device adreno:660,adreno:750; adrenoc targets lists them"
_ADRENO = re.compile(r"\d{3}[a-z]?|x\d-\d\d")
_MOST = 64
_DIGEST_LETTERS = 8


@dataclass(frozen=True, kw_only=True)
class SetMember:
    """One GPU of a set, by the number that its driver tells; with `driver` for that one alone."""

    target: Target
    gpu: str
    driver: str = ""

    @property
    def folder(self) -> str:
        """Return a name for it that no other member has."""
        if self.driver:
            return f"a{self.gpu}-{sha256_bytes(self.driver.encode())[:_DIGEST_LETTERS]}"
        name = self.target.own.stem if self.target.own else self.target.name.rpartition(":")[2]
        return bundle_name(name)


@dataclass(frozen=True, kw_only=True)
class DeviceSet:
    """What one bundle is for: `common` fits all, `members` have kernels of their own."""

    common: Target
    members: tuple[SetMember, ...]

    @property
    def option(self) -> str:
        """Return what to type for it."""
        return ",".join(member.target.option for member in self.members)


@overload
def put_on_system(target: Target, system: str) -> Target: ...
@overload
def put_on_system(target: DeviceSet, system: str) -> DeviceSet: ...


def put_on_system(target: Target | DeviceSet, system: str) -> Target | DeviceSet:
    """Return the same GPU or GPUs under another system, one of `adrenoc.target.target.SYSTEMS`."""
    if isinstance(target, Target):
        return replace(target, system=system)
    return DeviceSet(
        common=put_on_system(target.common, system),
        members=tuple(
            replace(member, target=put_on_system(member.target, system))
            for member in target.members
        ),
    )


def is_device_set(text: str) -> bool:
    """Return whether what `--device` says is several devices by their names."""
    return "," in text or text.strip().rpartition(":")[2] == ALL


def find_device_set(text: str) -> DeviceSet | None:
    """Return the devices between commas, or those of a file of them; None of a single device."""
    if is_device_set(text):
        return load_device_set(text)
    path = own_path(text)
    if path is None or is_for_host(text):
        return None
    with suppress(OSError, ValueError):  # which the reader of one device tells of
        if "device" in read_toml(path):
            return read_device_set(path)
    return None


def load_device_set(text: str) -> DeviceSet:
    """Return the devices between commas; `all` is every GPU that is listed, `host:all` here."""
    wanted = text.strip()
    if wanted.rpartition(":")[2] == ALL:
        family = wanted.rpartition(":")[0] or "adreno"
        gpus = [t.gpu.name for t in list_targets() if t.name == f"adreno:a{t.gpu.name}"]
        return make_device_set([_member(load_target(f"{family}:{gpu}")) for gpu in gpus])
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    return make_device_set([_member(load_target(word)) for word in words])


def read_device_set(path: Path) -> DeviceSet:
    """Return the devices that a file lists; what it names lies relative to it."""

    def wrong(where: str, what: str) -> TargetError:
        return TargetError(f"{where} {what}", hint='expected [[device]] with target = "adreno:750"')

    try:
        plain = read_toml(path)
    except OSError as error:
        raise wrong(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise wrong(str(path), f"is not TOML: {error}") from error
    listed: _File = RecordReader(wrong, defaults=True).read(_File, plain, str(path))
    members = []
    for entry in listed.device:
        member = _member(load_target(_resolve(entry.target, path.parent)))
        if entry.report:
            report = path.parent / entry.report
            member = report_on(member, read_report(report), report)
        members.append(member)
    return make_device_set(members)


def _resolve(device: str, folder: Path) -> str:
    """Return a device of a file, where that is a file itself by its place."""
    own = own_path(device)
    if own is None:
        return device
    return f"{'host:' if is_for_host(device) else ''}{folder / own}"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    target: str
    report: str = ""


@dataclass(frozen=True, kw_only=True)
class _File:
    device: tuple[_Entry, ...]


def report_on(member: SetMember, report: DeviceReport, path: Path) -> SetMember:
    """Return the member for the driver that a report is of, without what that gets wrong."""
    target = apply_report(member.target, report, path)
    return replace(member, target=target, driver=report.device.driver)


@overload
def apply_report_to(target: Target, report: DeviceReport, path: Path) -> Target: ...
@overload
def apply_report_to(target: DeviceSet, report: DeviceReport, path: Path) -> DeviceSet: ...


def apply_report_to(
    target: Target | DeviceSet, report: DeviceReport, path: Path
) -> Target | DeviceSet:
    """Return the target without what a report says that its driver gets wrong.  Of several that of
    the report's GPU is then for its driver alone."""
    if isinstance(target, DeviceSet):
        return add_report(target, report, path)
    return apply_report(target, report, path)


def add_report(devices: DeviceSet, report: DeviceReport, path: Path) -> DeviceSet:
    """Return a set that has kernels for the driver of a report, too."""
    for member in devices.members:
        if member.gpu == report.device.gpu and not member.driver:
            own = report_on(member, report, path)
            return make_device_set([*devices.members, own])
    named = load_listed(report.device.gpu).name
    alone = quote_word(f"{named}+{path}")
    raise TargetError(
        f"the device report {path} is of {report.device.gpu.upper() or report.device.name}, "
        f"expected one of {', '.join(member.gpu.upper() for member in devices.members)}",
        hint="adrenoc compile MODEL --device "
        + (alone if named == devices.common.name else f"{devices.option},{named}"),
    )


def make_device_set(members: Sequence[SetMember]) -> DeviceSet:
    """Return a set of these members."""
    if not 0 < len(members) <= _MOST:
        raise TargetError(f"a set has {len(members)} devices, expected 1 to {_MOST}", hint=_HINT)
    here = {member.target.host for member in members}
    if len(here) > 1:
        raise TargetError(
            "a set names devices of this computer (host) and of phones (adreno), expected one kind",
            hint=_HINT,
        )
    seen: set[tuple[str, str]] = set()
    for member in members:
        key = member.gpu, member.driver
        if key in seen:
            of_driver = f" with the driver {member.driver}" if member.driver else ""
            raise TargetError(
                f"a set names Adreno {member.gpu.upper()}{of_driver} twice", hint=_HINT
            )
        seen.add(key)
    common = load_target("host" if True in here else "adreno")
    return DeviceSet(common=common, members=tuple(members))


def _member(target: Target) -> SetMember:
    """Return a target as a member of a set: one Adreno, whose driver tells its number."""
    gpu = target.gpu.name
    if target.host and target.own is not None:
        gpu = load_own_target(target.own, host=False).gpu.name
    elif target.host and ":" in target.name:
        gpu = _find_phone_gpu(target.name)
    if not _ADRENO.fullmatch(gpu):
        hint = _HINT
        if target.own is not None:
            hint = (
                f'write base = "adreno:750", or whichever it is, into {quote_word(target.own.path)}'
            )
        raise TargetError(
            f"{target.name} in a set of devices is no single Adreno, by whose number the runtime "
            "could pick its kernels",
            hint=hint,
        )
    return SetMember(target=target, gpu=gpu)


def _find_phone_gpu(name: str) -> str:
    """Return the number of the GPU whose kernels `host:a750` has; empty for a stand-in's."""
    try:
        return load_target(name.replace("host:", "adreno:", 1)).gpu.name
    except TargetError:
        return ""
