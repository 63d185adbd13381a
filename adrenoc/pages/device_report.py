"""Collect what commands wrote about a device into one file that a user reads, and then sends. A
file is known by its keys; its kind says what of it is sent.

Parts are picked by name, texts by word. Both are lists of what may leave a computer, not of what
may not: what has no pick is left out with all that is below it, so that a new field of some command
stays at home until somebody has looked at it. Names of models, of tensors and of files, addresses
and serial numbers have no pick. Texts come from others, too (a target file's sources are typed by
hand, drivers quote what they were given), so a text keeps the words of adrenoc's own and of
drivers, and figures; no other, whatever it looks like.
"""

from __future__ import annotations

import getpass
import json
import math
import platform
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import adrenoc
from adrenoc.base.errors import InputError
from adrenoc.base.files.read import data_folder, read_plain, read_toml
from adrenoc.base.text.json_text import read_json

Pick = Callable[[Any, "Names"], Any]
"""(a part, names given so far) -> what of it is sent; None where nothing is."""

_LONGEST_TEXT = 300
_MOST_ITEMS = 20_000
_KEY = re.compile(r"[a-z][a-z0-9_]{0,40}")
_MEASURE = re.compile(r"[a-z][a-z0-9_]{0,40}(\.[a-z0-9_]{1,40}){0,3}")
_LISTED = re.compile(r"(adreno|host)(:[a-z0-9-]{1,16})?")
_EXTENSION = re.compile(r"cl_(amd|arm|ext|img|intel|khr|nv|qcom)_[a-z0-9_]{1,60}")
_ADDRESS = re.compile(
    r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b"
    # Qualcomm's drivers have "V@0615.0 (GIT@8e5499" in their versions.
    # and kernels "64-128@28" in their names.
    r"|(?<![\w@])(?!(?:V|GIT)@|[\d-]+@)[\w.+-]+@[\w.-]*\w"
    r"|\b[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}\b"
    r"|\b[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4}){2}\b"
    r"|(?<![\w:])[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){3,7}(%\w+)?(?![\w:])"
    r"|\[[0-9a-fA-F]*(:[0-9a-fA-F]*){2,}(%\w+)?\](:\d+)?"
    r"|\b[A-Za-z][\w-]*(\.[\w-]+)*:\d{4,5}\b"
    r"|\b[\w-]+(\.[\w-]+)*\.(local|lan|internal|intranet|home|corp)\b"
)
_PATH = re.compile(
    r"\b[a-z]{2,8}://[^\s'\",;()]+"
    r"|\b[A-Za-z]:\\[^\s'\",;]+"
    r"|\\\\[^\s'\",;]+"
    r"|(?<![\w.])(~\w*|\.{1,2})?/[^\s'\",;:()]+"
)


@dataclass(kw_only=True)
class Names:
    """What stands for a user's names: `model 1`; and words that are taken out of every text."""

    own_words: tuple[str, ...] = ()
    given: dict[tuple[str, str], str] = field(default_factory=dict)

    def stand_in(self, kind: str, name: str) -> str:
        """Return the same words for the same name, whatever file it is in."""
        count = sum(known == kind for known, _ in self.given)
        return self.given.setdefault((kind, name), f"{kind} {count + 1}")

    def hide_own(self, text: str) -> str:
        """Return a text of words that are adrenoc's or a driver's, and of figures; none of the
        user's."""
        kept = "".join(letter if letter.isprintable() else " " for letter in text)
        for word in self.own_words:
            kept = re.sub(rf"(?i)\b{re.escape(word)}\b", "(name)", kept)
        kept = _PATH.sub("(path)", kept)
        return keep_allowed(_ADDRESS.sub("(address)", kept))[:_LONGEST_TEXT]


def figures(plain: Any, names: Names) -> Any:
    """Return all numbers below a part, under keys of adrenoc's own words; no text."""
    return _below(plain, lambda word: None)


def measured_figures(plain: Any, names: Names) -> Any:
    """Return the figures of a target file's table `[measured]`, whose keys are names of
    measures."""
    if not isinstance(plain, Mapping):
        return None
    kept = {key: figures(one, names) for key, one in plain.items() if _is_own(key, _MEASURE)}
    return {key: value for key, value in kept.items() if value}


def all_below(plain: Any, names: Names) -> Any:
    """Return all numbers and texts below a part that holds nothing but adrenoc's own layers."""
    return _below(plain, names.hide_own)


def _below(plain: Any, words: Callable[[str], str | None]) -> Any:
    if isinstance(plain, str):
        return words(plain)
    if isinstance(plain, bool | int):
        return plain
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, Mapping):
        kept = {key: _below(one, words) for key, one in plain.items() if _is_own(key, _KEY)}
        return {key: value for key, value in kept.items() if value is not None}
    if isinstance(plain, Sequence):
        return [_below(item, words) for item in plain[:_MOST_ITEMS]]
    return None


def all_but(**picks: Pick) -> Pick:
    """Return all numbers and texts below a part of adrenoc's own, of these keys what their picks
    leave."""
    own = fields("", "", **picks)

    def pick(plain: Any, names: Names) -> dict[str, Any] | None:
        if not isinstance(plain, Mapping):
            return None
        others = {key: value for key, value in plain.items() if key not in picks}
        return {**all_below(others, names), **(own(plain, names) or {})}

    return pick


def nothing(plain: Any, names: Names) -> None:
    """Leave out what stays here."""


def text(plain: Any, names: Names) -> str | None:
    """Return a text of adrenoc's or of a driver's, without the user's own words."""
    return names.hide_own(plain) if isinstance(plain, str) else None


def device(plain: Any, names: Names) -> str | None:
    """Return a device's name, without the address that it was reached at."""
    return text(plain.partition(" at ")[0], names) if isinstance(plain, str) else None


def matching(form: re.Pattern[str]) -> Pick:
    """Return texts of one form: listed devices (a target file has a name of the user's), or
    extensions of OpenCL, which no user names."""
    return lambda plain, _: plain if isinstance(plain, str) and form.fullmatch(plain) else None


listed_target, extension = matching(_LISTED), matching(_EXTENSION)


def stand_in(kind: str) -> Pick:
    """`KIND N` for a user's name."""

    def pick(plain: Any, names: Names) -> str | None:
        return names.stand_in(kind, plain) if isinstance(plain, str) and plain else None

    return pick


def fields(texts: str = "", numbers: str = "", **picks: Pick) -> Pick:
    """Return the values of these keys of an object: of texts, of all numbers below, and of others.
    The keys of texts and numbers are words of one string."""
    all_picks = {**dict.fromkeys(texts.split(), text), **dict.fromkeys(numbers.split(), figures)}
    all_picks |= picks

    def pick(plain: Any, names: Names) -> dict[str, Any] | None:
        if not isinstance(plain, Mapping):
            return None
        kept = {key: one(plain[key], names) for key, one in all_picks.items() if key in plain}
        return {key: value for key, value in kept.items() if value is not None}

    return pick


def each(item: Pick) -> Pick:
    """Return each item of a list, by the pick of its kind."""

    def pick(plain: Any, names: Names) -> list[Any] | None:
        if not isinstance(plain, Sequence) or isinstance(plain, str):
            return None
        return [kept for one in plain[:_MOST_ITEMS] if (kept := item(one, names)) is not None]

    return pick


HIDDEN = "(word)"
"""What stands for a word that is none of these."""
_SOURCES = (".py", ".cc", ".h", ".toml")
_VENDORS = (
    "adreno amd apple arm branch build changeid commit compiler corporation cpu cuda date driver "
    "epyc freedreno geforce git gpu graphics hbm intel linux local mali mesa mon nvidia opencl "
    "pocl processor pthread qualcomm radeon remote rusticl ryzen sat series snapdragon sun thu "
    "tm tue wed fri xeon "
    # Governors of GPUs.
    "msm ondemand performance powersave schedutil simple tz userspace walt "
    # Networks of the lab app.
    "mobilenet resnet18 squeezenet1"
)
# A word as it stands between blanks and brackets; its parts are words, too.
_WORD = re.compile(r"[\w.@:+/'-]*\w")
_PARTS = re.compile(r"[.@:+/'_-]+")
_NAMED = re.compile(r"[a-z][a-z0-9]*")
_FIGURE = re.compile(
    r"\d{1,7}|\d{1,4}[A-Za-z%]{1,3}|\d{1,5}(x\d{1,5})+|"
    r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d)?|"
    r"[-+]?\d{1,7}(\.\d{1,8})?([eE][-+]?\d{1,3})?"
)
# "E031.37.12.01", "V@0615.0", "GIT@8e5499", "580.159.04".
_VERSION = re.compile(r"([A-Z]{1,3}@?)?\d{1,4}(\.\d{1,4}){1,2}|[A-Z]\d{2,4}(\.\d{1,4}){1,5}")
_REVISION = re.compile(r"GIT@[0-9a-f]{6,10}")
# Standing alone: "H100", "I7", "SM8650", "X1-85".
_MODEL = re.compile(r"[A-Z]{1,3}\d{1,4}(-\d\d)?")
# What joins numbers of kernels ("64-128@28") and dates, and also those of a serial number.
_JOINTS = re.compile(r"[-:@/+']+")
_LOOSE = re.compile(r"\d+[A-Za-z%]{0,3}")
_MOST_LOOSE, _SHORT, _MOST_LETTERS = 3, 3, 6
"""A word joins at most so many numbers; those that are not short have so many letters in all."""
_FILE_ENDINGS = (
    "aar adrenoc apk bin c cc cl cpp csv gguf gz h h5 html jar jpeg jpg json keras kt litertlm "
    "md npy npz onnx ort pb png pt pth py raw safetensors so tar task tflite toml txt wav xml yaml "
    "yml zip"
)


@lru_cache(maxsize=1)
def own_words() -> frozenset[str]:
    """Return the words of adrenoc's own sources and targets, in small letters."""
    words = set(_VENDORS.split())
    package = Path(adrenoc.__file__).resolve().parent
    for path in (*package.rglob("*"), *data_folder("targets").rglob("*")):
        if path.suffix in _SOURCES:
            words.update(_NAMED.findall(path.read_text("utf-8", "ignore").lower()))
    return frozenset(words)


def keep_allowed(text: str) -> str:
    """Return a text with `HIDDEN` in place of each word that it may not have."""
    return _WORD.sub(lambda found: found[0] if _is_allowed(found[0]) else HIDDEN, text)


def _is_allowed(word: str) -> bool:
    if any(form.fullmatch(word) for form in (_VERSION, _REVISION, _MODEL, _FIGURE)):
        return True
    parts = [part.lower() for part in _PARTS.split(word) if part]
    if "." in word and parts[-1] in _FILE_ENDINGS.split():
        return False  # a file may be called by words that are adrenoc's, too
    loose = [len(part) for part in _JOINTS.split(word) if _LOOSE.fullmatch(part)]
    if len(loose) > _MOST_LOOSE or sum(n for n in loose if n > _SHORT) > _MOST_LETTERS:
        return False
    return all(len(part) == 1 or part in own_words() or _FIGURE.fullmatch(part) for part in parts)


def _is_own(key: object, form: re.Pattern[str]) -> bool:
    """Return whether the key of a number is put together of adrenoc's own words."""
    parts = [part for part in _PARTS.split(str(key)) if len(part) > 1]
    return bool(form.fullmatch(str(key))) and own_words().issuperset(parts)


_PACKAGES = ("adrenoc", "apache-tvm", "onnxruntime", "ai-edge-litert")
_MOST_BYTES = 64 << 20
_FEWEST_LETTERS = 3
"""Of a word that is taken out of texts: shorter ones are parts of figures and units."""
_COMMON = frozenset({"root", "user", "android", "adreno", "localhost", "linux"})


@dataclass(frozen=True, kw_only=True)
class ReportPart:
    """A file as it is sent: `name` is its kind, `size` that of what is sent of it, in bytes."""

    name: str
    path: Path
    content: dict[str, Any]

    @property
    def size(self) -> int:
        """Return the bytes of JSON that the part takes."""
        return len(json.dumps(self.content))


def collect(paths: Sequence[Path]) -> tuple[ReportPart, ...]:
    """Return what of these files may be sent. Raises InputError where a file cannot be read, or is
    nothing that adrenoc writes about a device."""
    names = Names(own_words=_own_words())
    return tuple(_part(path, names) for path in paths)


def report_text(parts: Sequence[ReportPart]) -> str:
    """Return the file that is sent: JSON that a person can read."""
    plain = {
        "adrenoc_report": 1,
        "computer": _computer(),
        "parts": [{"kind": part.name, "content": part.content} for part in parts],
    }
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _part(path: Path, names: Names) -> ReportPart:
    makers = ", ".join(kind.made_by for kind in KINDS)
    hint = f"these commands write such files: {makers}"
    try:
        is_toml = path.suffix == ".toml"
        plain = read_toml(path) if is_toml else read_json(read_plain(path, _MOST_BYTES))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except ValueError as error:
        raise InputError(
            f"{path} is neither JSON nor TOML: {str(error).splitlines()[0]}", hint=hint
        ) from error
    kind = kind_of(plain) if isinstance(plain, dict) else None
    if kind is None:
        raise InputError(f"{path} is nothing that adrenoc writes about a device", hint=hint)
    return ReportPart(name=kind.name, path=path, content=kind.pick(plain, names))


def _computer() -> dict[str, Any]:
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _own_words() -> tuple[str, ...]:
    """Return the user's login and the computer's name, where they are no common words."""
    words = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    with suppress(KeyError, OSError):
        words.add(getpass.getuser())
    own = {word for word in words if len(word) >= _FEWEST_LETTERS and word not in _COMMON}
    return tuple(sorted(own, key=len, reverse=True))


_RUN = fields(
    "driver",
    "times sustained programs memory_bytes",
    device=device,
    launching=fields("mode", "launches api_calls host_ms"),
    gpu=each(fields("model governor", "clock_mhz max_clock_mhz temperature_c")),
    kernels=each(fields("name", "calls time_ms")),
    regions=each(
        fields("versions", "used operators border_copies inner_copies clml_ms textures_ms")
    ),
    check=fields("", "passed tolerance", tensors=each(figures)),
)
_FLEET_LINE = fields(
    "action status gpu driver",
    "p50_ms p90_ms cold_ms error launches memory_bytes clock_mhz temperature_c before_ms",
    device=stand_in("device"),
    model=stand_in("model"),
    target=listed_target,
)
_VALIDATION = {"validation": all_but(target=listed_target), "fit": all_but(target_file=nothing)}
_CALIBRATION = fields(
    "device driver source beside",
    "",
    values=each(fields("key how", "value spread")),
    differences=each(fields("key", "measured spread listed ratio")),
    facts=each(fields("key measured beside means avoid")),
    measures=each(
        fields(
            "name title unit status word reason",
            "value spread samples clock_mhz temperature_c by_host time_s",
        )
    ),
    **_VALIDATION,
)
_QUIRK = fields(
    "name text",
    "banned_work_groups work_group_items_below image_extent_below local_bytes_below "
    "work_item_sizes",
    avoid=each(text),
)
_FINDING = fields("case suite text", helps=each(text))
_VERIFIED = fields(
    "date",
    "format is_right",
    device=fields("name driver gpu"),
    suites=fields("", "cases kernels launches", names=each(text)),
    quirks=each(_QUIRK),
    findings=each(_FINDING),
    failed_once=each(text),
)
_TARGET = fields(
    "",
    "limits performance extensions cost",
    base=listed_target,
    sources=fields("measured driver fitted"),
    measured=measured_figures,
    quirks=each(_QUIRK),
)
_DEVICE_FACTS = fields(
    "name driver version gpu", "c_version limits images", extensions=each(extension)
)
_LAB = fields(
    "runtime system",
    "adrenoc_lab is_whole",
    device=fields("text", facts=_DEVICE_FACTS),
    suites=each(fields("suite status text", "cases kernels launches", findings=each(_FINDING))),
    probes=each(all_below),
    networks=each(all_below),
    beside=each(all_below),
)


@dataclass(frozen=True)
class FileKind:
    """One kind of file: a JSON or TOML with these keys, and what may be sent of it."""

    name: str
    made_by: str
    keys: str
    pick: Pick


KINDS = (
    FileKind("run", "adrenoc run --json", "device driver times launching", _RUN),
    FileKind("fleet", "adrenoc device fleet --json", "fleet", fields(fleet=each(_FLEET_LINE))),
    FileKind(
        "calibration", "adrenoc device calibrate --json", "device driver measures", _CALIBRATION
    ),
    FileKind(
        "validation",
        "adrenoc device calibrate --validate --json",
        "validation",
        fields("", "", **_VALIDATION),
    ),
    FileKind("verified device", "adrenoc device verify", "device suites is_right", _VERIFIED),
    FileKind("lab app", "adrenoc-lab.apk", "adrenoc_lab runtime", _LAB),
    FileKind("target", "adrenoc device calibrate -o FILE.toml", "base limits", _TARGET),
    # The text of an error may name files and tensors.
    FileKind(
        "error",
        "a command with --json that failed",
        "error",
        fields(error=fields("type", "exit_code")),
    ),
)


def kind_of(plain: Mapping[str, Any]) -> FileKind | None:
    """Return what a file is, by its keys."""
    return next((kind for kind in KINDS if plain.keys() >= {*kind.keys.split()}), None)
