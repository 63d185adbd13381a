"""Collects what commands wrote about a device into one file that a user reads, and then sends."""

from __future__ import annotations

import getpass
import json
import platform
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from adrenoc.base.errors import InputError
from adrenoc.base.files.read import read_plain, read_toml
from adrenoc.base.text.json_text import read_json
from adrenoc.pages.report.kinds import KINDS, kind_of
from adrenoc.pages.report.picks import Names

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
