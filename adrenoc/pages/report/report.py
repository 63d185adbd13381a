"""Collect what commands wrote about a device into one file that a user reads, and then sends.

A file is known by its keys; its kind says what of it is sent.
"""

from __future__ import annotations

import getpass
import json
import platform
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain, read_toml
from adrenoc.base.text.json_text import read_json
from adrenoc.pages.report.picks import (
    Names,
    Pick,
    all_but,
    device,
    each,
    fields,
    figures,
    listed_target,
    measured_figures,
    nothing,
    stand_in,
    text,
)

_PACKAGES = ("adrenoc", "apache-tvm", "onnxruntime", "ai-edge-litert")
_MOST_BYTES = 64 << 20
_FEWEST_LETTERS = 3
"""Of a word that is taken out of texts: shorter ones are parts of figures and units."""
_COMMON = frozenset({"root", "user", "android", "adreno", "localhost", "linux"})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file as it is sent: `name` is its kind, `size` that of what is sent of it, in bytes."""

    name: str
    path: Path
    content: dict[str, Any]

    @property
    def size(self) -> int:
        """The bytes of JSON that the part takes."""
        return len(json.dumps(self.content))


def collect(paths: Sequence[Path]) -> tuple[Part, ...]:
    """Return what of these files may be sent.

    Raises:
        InputError: a file cannot be read, or is nothing that adrenoc writes about a device.
    """
    names = Names(own_words=_own_words())
    return tuple(_part(path, names) for path in paths)


def report_text(parts: Sequence[Part]) -> str:
    """Return the file that is sent: JSON that a person can read."""
    plain = {
        "adrenoc_report": 1,
        "computer": _computer(),
        "parts": [{"kind": part.name, "content": part.content} for part in parts],
    }
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _part(path: Path, names: Names) -> Part:
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
    return Part(name=kind.name, path=path, content=kind.pick(plain, names))


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


_GPU = fields(
    model=text, clock_mhz=figures, max_clock_mhz=figures, governor=text, temperature_c=figures
)
_RUN = fields(
    device=device,
    driver=text,
    times=figures,
    sustained=figures,
    launching=fields(mode=text, launches=figures, api_calls=figures, host_ms=figures),
    programs=figures,
    memory_bytes=figures,
    gpu=each(_GPU),
    kernels=each(fields(name=text, calls=figures, time_ms=figures)),
    regions=each(
        fields(
            used=figures,
            versions=text,
            operators=figures,
            border_copies=figures,
            inner_copies=figures,
            clml_ms=figures,
            textures_ms=figures,
        )
    ),
    check=fields(passed=figures, tolerance=figures, tensors=each(figures)),
)
_FLEET = fields(
    fleet=each(
        fields(
            action=text,
            device=stand_in("device"),
            model=stand_in("model"),
            target=listed_target,
            status=text,
            gpu=text,
            driver=text,
            p50_ms=figures,
            p90_ms=figures,
            cold_ms=figures,
            error=figures,
            launches=figures,
            memory_bytes=figures,
            clock_mhz=figures,
            temperature_c=figures,
            before_ms=figures,
        )
    )
)
_MEASURE = fields(
    name=text,
    title=text,
    unit=text,
    status=text,
    value=figures,
    spread=figures,
    samples=figures,
    word=text,
    reason=text,
    clock_mhz=figures,
    temperature_c=figures,
    by_host=figures,
    time_s=figures,
)
_VALIDATION = {"validation": all_but(target=listed_target), "fit": all_but(target_file=nothing)}
_CALIBRATION = fields(
    device=text,
    driver=text,
    source=text,
    beside=text,
    values=each(fields(key=text, value=figures, spread=figures, how=text)),
    differences=each(
        fields(key=text, measured=figures, spread=figures, listed=figures, ratio=figures)
    ),
    facts=each(fields(key=text, measured=text, beside=text, means=text, avoid=text)),
    measures=each(_MEASURE),
    **_VALIDATION,
)
_QUIRK = fields(
    name=text,
    text=text,
    banned_work_groups=figures,
    work_group_items_below=figures,
    image_extent_below=figures,
    local_bytes_below=figures,
    work_item_sizes=figures,
    avoid=each(text),
)
_VERIFIED = fields(
    format=figures,
    device=fields(name=text, driver=text, gpu=text),
    date=text,
    suites=fields(names=each(text), cases=figures, kernels=figures, launches=figures),
    is_right=figures,
    quirks=each(_QUIRK),
    findings=each(fields(case=text, suite=text, text=text, helps=each(text))),
    failed_once=each(text),
)
_TARGET = fields(
    base=listed_target,
    sources=fields(measured=text, driver=text, fitted=text),
    limits=figures,
    performance=figures,
    extensions=figures,
    measured=measured_figures,
    quirks=each(_QUIRK),
    cost=figures,
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of file: a JSON or TOML with these keys, and what may be sent of it."""

    name: str
    made_by: str
    keys: frozenset[str]
    pick: Pick


KINDS = (
    Kind(
        name="run",
        made_by="adrenoc run --json",
        keys=frozenset({"device", "driver", "times", "launching"}),
        pick=_RUN,
    ),
    Kind(
        name="fleet", made_by="adrenoc device fleet --json", keys=frozenset({"fleet"}), pick=_FLEET
    ),
    Kind(
        name="calibration",
        made_by="adrenoc device calibrate --json",
        keys=frozenset({"device", "driver", "measures"}),
        pick=_CALIBRATION,
    ),
    Kind(
        name="validation",
        made_by="adrenoc device calibrate --validate --json",
        keys=frozenset({"validation"}),
        pick=fields(**_VALIDATION),
    ),
    Kind(
        name="verified device",
        made_by="adrenoc device verify",
        keys=frozenset({"device", "suites", "is_right"}),
        pick=_VERIFIED,
    ),
    Kind(
        name="target",
        made_by="adrenoc device calibrate -o FILE.toml",
        keys=frozenset({"base", "limits"}),
        pick=_TARGET,
    ),
    Kind(
        name="error",
        made_by="a command with --json that failed",
        keys=frozenset({"error"}),
        # Its text may name files and tensors.
        pick=fields(error=fields(type=text, exit_code=figures)),
    ),
)


def kind_of(plain: Mapping[str, Any]) -> Kind | None:
    """Return what a file is, by its keys."""
    return next((kind for kind in KINDS if kind.keys <= plain.keys()), None)
