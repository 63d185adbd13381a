"""Several GPUs that one bundle has kernels for, beside the common ones that fit any Adreno.

`adreno:660,adreno:750`, `all`, or a file:

    [[device]]
    target = "adreno:750"
    [[device]]
    target = "adreno:750"                  # the same GPU with the driver that the report is of
    report = "pixel.device.json"
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import read_toml, sha256_bytes
from adrenoc.base.text.json_text import RecordReader
from adrenoc.base.text.names import bundle_name
from adrenoc.base.text.spelling import quote_word
from adrenoc.target.device_report import DeviceReport, apply_report, load_listed, read_report
from adrenoc.target.own_file import is_for_host, own_path
from adrenoc.target.target import Target, list_targets, load_own_target, load_target

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
    """Return the same GPU or GPUs under another system, one of `adrenoc.target.system.SYSTEMS`."""
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
    """Return the devices between commas, or those of a file of them; None of a single device.

    Raises:
        TargetError: see `load_device_set` and `read_device_set`.
    """
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
    """Return the devices between commas; `all` is every GPU that is listed, `host:all` here.

    Raises:
        TargetError: a device is unknown, or is no single Adreno.
    """
    wanted = text.strip()
    if wanted.rpartition(":")[2] == ALL:
        family = wanted.rpartition(":")[0] or "adreno"
        gpus = [t.gpu.name for t in list_targets() if t.name == f"adreno:a{t.gpu.name}"]
        return make_device_set([_member(load_target(f"{family}:{gpu}")) for gpu in gpus])
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    return make_device_set([_member(load_target(word)) for word in words])


def read_device_set(path: Path) -> DeviceSet:
    """Return the devices that a file lists; what it names lies relative to it.

    Raises:
        TargetError: it cannot be read, is damaged, or names a device that cannot be in a set.
    """

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
    """Return the member for the driver that a report is of, without what that gets wrong.

    Raises:
        TargetError: the report is of another GPU, or a quirk says what none can say.
    """
    target = apply_report(member.target, report, path)
    return replace(member, target=target, driver=report.device.driver)


@overload
def apply_report_to(target: Target, report: DeviceReport, path: Path) -> Target: ...
@overload
def apply_report_to(target: DeviceSet, report: DeviceReport, path: Path) -> DeviceSet: ...


def apply_report_to(
    target: Target | DeviceSet, report: DeviceReport, path: Path
) -> Target | DeviceSet:
    """Return the target without what a report says that its driver gets wrong.

    Of several that of the report's GPU is then for its driver alone.

    Raises:
        TargetError: the report is of another GPU, or a quirk says what none can say.
    """
    if isinstance(target, DeviceSet):
        return add_report(target, report, path)
    return apply_report(target, report, path)


def add_report(devices: DeviceSet, report: DeviceReport, path: Path) -> DeviceSet:
    """Return a set that has kernels for the driver of a report, too.

    Raises:
        TargetError: the set has no device of its GPU.
    """
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
    """Return a set of these members.

    Raises:
        TargetError: there are none or too many, one is twice in it, or they are for two machines.
    """
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
    """Return a target as a member of a set: one Adreno, whose driver tells its number.

    Raises:
        TargetError: it is none.
    """
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
