"""`device.json`: what a driver gets wrong, as `adrenoc device verify` found it.

A report holds quirks in the form of a target file's, so that what is known of a driver can go into
`targets/gpu/` as it is.  Compiling with one is compiling for a target file of one's own that builds
on the device and adds these quirks: a bundle carries that file.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import printable, quote_word
from adrenoc.target.gpu import Quirk
from adrenoc.target.own_file import OwnFile
from adrenoc.target.target import Target, load_own_target, load_target

FORMAT = 1
_MOST_BYTES = 1 << 20
_MOST_QUIRKS = 64
_HINT = "adrenoc device verify -o device.json makes a report"


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
    """Read a report.

    Raises:
        TargetError: it cannot be read, or is none.
    """

    def wrong(where: str, what: str) -> TargetError:
        return TargetError(f"the device report {where} {what}", hint=_HINT)

    try:
        plain = read_json(read_plain(path, _MOST_BYTES))
    except OSError as error:
        raise TargetError(
            f"cannot read the device report {path}: {error.strerror or error}", hint=_HINT
        ) from error
    except ValueError as error:
        raise wrong(str(path), f"is not JSON: {error}") from error
    if isinstance(plain, dict) and plain.get("format", FORMAT) != FORMAT:
        raise wrong(str(path), f"has the format {plain['format']!r}, expected {FORMAT}")
    report: DeviceReport = RecordReader(_escape_keys(wrong)).read(DeviceReport, plain, str(path))
    if len(report.quirks) > _MOST_QUIRKS:
        raise wrong(f"{path}: quirks", f"has {len(report.quirks)}, expected {_MOST_QUIRKS} at most")
    return report


def _escape_keys(wrong: Any) -> Any:
    """Keys come from others too."""
    return lambda where, what: wrong(printable(where), printable(what))


def load_listed(number: str) -> Target:
    """Return the listed Adreno of a number that a driver tells ("750"), or what stands for all."""
    try:
        return load_target(f"adreno:a{number}" if number else "adreno")  # 870 is a Snapdragon too
    except TargetError:
        return load_target("adreno")


def apply_report(target: Target, report: DeviceReport, path: Path) -> Target:
    """Return the target without what the report says that its driver gets wrong.

    Raises:
        TargetError: the report is of another GPU, or a quirk says what none can say.
    """
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
