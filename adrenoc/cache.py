"""The compile cache: bundles under the digest of everything that can change them.

A hit imports neither TVM nor onnx.  Entries are written aside and renamed, and verified when
read, so processes may share a cache; a damaged entry is dropped and made again.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import adrenoc
from adrenoc.bundle import MANIFEST, Bundle, copy_files, open_bundle
from adrenoc.errors import BundleError
from adrenoc.files import sha256_file, sha256_json
from adrenoc.reporter import Reporter

MAX_BYTES = 4 << 30
# What a process that was killed has left of an entry, and when it is safe to drop.
_PART = "part-"
_STALE_S = 3600.0
# The packages whose code can change what comes out.
_TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "tflite")
_SOURCES = ("*.py", "*.c", "*.cc", "*.h", "*.def", "*.cl", "*.toml", "*.txt")


def tool_versions() -> dict[str, str]:
    """The versions of adrenoc and of the packages that it compiles with, by package name."""
    versions = {"adrenoc": adrenoc.__version__}
    for name in _TOOLS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions


def sources_digest() -> str:
    """SHA-256 over adrenoc's own sources, so that a change in the compiler is a miss."""
    package = Path(adrenoc.__file__).parent
    found = {path for pattern in _SOURCES for path in package.rglob(pattern)}
    return sha256_json(
        [(path.relative_to(package).as_posix(), sha256_file(path)) for path in sorted(found)]
    )


def cache_key(parts: Mapping[str, str]) -> str:
    """The key of a compilation: SHA-256 over what the caller names, tools and own sources.

    `parts` are the digests of the model, target and options, and whatever else goes into the
    bundle (the model's name, the linker that was asked for).
    """
    return sha256_json(
        {
            **parts,
            "sources": sources_digest(),
            "tools": tool_versions(),
            "python": ".".join(str(part) for part in sys.version_info[:2]),
        }
    )


class BundleCache:
    """Bundles by key in a folder; trouble with the cache is a warning, never a failure."""

    def __init__(self, folder: Path, reporter: Reporter, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder / "bundles"
        self._reporter = reporter
        self._max_bytes = max_bytes

    def find(self, key: str) -> Bundle | None:
        """The bundle under `key`, verified, or None; a damaged entry is dropped."""
        place = self._place(key)
        if not place.is_dir():
            return None
        try:
            bundle = open_bundle(place)
            os.utime(place)  # the time of last use, which `_prune` goes by
        except BundleError as error:
            self._reporter.warn(f"dropped a damaged cache entry: {error.message}")
            shutil.rmtree(place, ignore_errors=True)
            return None
        except OSError:  # another process has just dropped it, or the cache is closed to us
            return None
        return bundle

    def store(self, key: str, root: Path) -> None:
        """Keep a copy of the bundle folder `root` under `key`; an entry that is there stays."""
        place = self._place(key)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=_PART, dir=self._folder) as scratch:
                aside = Path(scratch) / "bundle"
                aside.mkdir()
                copy_files(root, aside)
                aside.rename(place)
        except OSError as error:
            # Another process may have been quicker: its entry is as good.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                self._reporter.warn(f"the compile cache was not written: {error.strerror or error}")
            return
        with suppress(FileNotFoundError):  # another process prunes too
            self._prune()

    def _place(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _prune(self) -> None:
        """Drop the entries that were not used for longest until the rest fits."""
        for part in self._folder.glob(f"{_PART}*"):
            if time.time() - part.stat().st_mtime > _STALE_S:
                shutil.rmtree(part, ignore_errors=True)
        entries = [
            (path.parent.stat().st_mtime, _folder_bytes(path.parent), path.parent)
            for path in self._folder.glob(f"[0-9a-f][0-9a-f]/*/{MANIFEST}")
        ]
        total = sum(size for _, size, _ in entries)
        for _, size, place in sorted(entries)[:-1]:
            if total <= self._max_bytes:
                return
            shutil.rmtree(place, ignore_errors=True)
            total -= size


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
