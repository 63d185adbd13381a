"""The compile cache: bundles under the digest of everything that can change them.

A hit imports neither TVM nor onnx.  Entries are written aside and renamed, and verified when
read, down to what they say of model, target and options; so processes may share a cache, and a
damaged entry is dropped and made again.  Who compiles holds the lock of the key, so that others
who want the same wait for it and find it.
"""

import errno
import fcntl
import json
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import adrenoc
from adrenoc.base.errors import BundleError, OutputError
from adrenoc.base.files.aside import aside_folder, remove_left
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import is_trusted_owner, private_folder, sha256_file, sha256_json
from adrenoc.base.reporter import Reporter
from adrenoc.bundle.bundle import Bundle, copy_files, open_bundle, read_manifest
from adrenoc.bundle.manifest import Manifest
from adrenoc.bundle.tar import MANIFEST
from adrenoc.importers.tflite.untranslated import extension_versions

MAX_BYTES = 4 << 30
_LOCKS = "locks"
_SIZES = "sizes.json"
_LOCK_WAIT_S = 600.0
_TICK_S = 0.1
_KEY_DIGITS = 15  # of a key, as the place of its lock in the file: 60 bits
# The packages whose code can change what comes out.
_TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "tflite")
_SOURCES = ("*.py", "*.c", "*.cc", "*.h", "*.def", "*.cl", "*.toml", "*.txt")


def tool_versions() -> dict[str, str]:
    """Return the versions of adrenoc and of the packages that it compiles with, by package name.
    Packages that bring operators (`tflite/extensions.py`) are among them."""
    versions = {"adrenoc": adrenoc.__version__}
    for name in _TOOLS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {**versions, **extension_versions()}


@cache
def sources_digest() -> str:
    """SHA-256 over adrenoc's own sources, so that a change in the compiler is a miss."""
    package = Path(adrenoc.__file__).parent
    found = {path for pattern in _SOURCES for path in package.rglob(pattern)}
    return sha256_json(
        [(path.relative_to(package).as_posix(), sha256_file(path)) for path in sorted(found)]
    )


def cache_key(parts: Mapping[str, str]) -> str:
    """Return the key of a compilation: SHA-256 over what the caller names, tools and own sources.
    `parts` are the digests of the model, target and options, and whatever else goes into the bundle
    (the model's name, the linker that was asked for)."""
    return sha256_json(
        {
            **parts,
            "sources": sources_digest(),
            "tools": tool_versions(),
            "python": ".".join(str(part) for part in sys.version_info[:2]),
        }
    )


@dataclass(frozen=True, kw_only=True)
class BundleDigests:
    """What the bundle under a key has to say of itself: digests of model, target and options."""

    model: str
    target: str
    options: str

    def fits(self, manifest: Manifest) -> bool:
        """Return whether a manifest says so."""
        said = (manifest.model.sha256, manifest.target.digest, manifest.options.digest)
        return said == (self.model, self.target, self.options)


class BundleCache:
    """Bundles by key in a folder; trouble with the cache is a warning, never a failure."""

    def __init__(self, folder: Path, reporter: Reporter, *, max_bytes: int = MAX_BYTES) -> None:
        self._root = folder
        self._folder = folder / "bundles"
        self._reporter = reporter
        self._max_bytes = max_bytes
        self._is_warned = False

    def manifest(self, key: str, wanted: BundleDigests) -> Manifest | None:
        """Return what the entry under `key` promises, unverified; None where none fits.  One that
        cannot be read, or does not fit, is dropped: it would stay in the place of a good one for
        ever."""
        place = self._place(key)
        try:
            if not os.path.lexists(place) or not self._is_open():
                return None
            if not is_trusted_owner(place.lstat()):
                return None
            manifest = read_manifest(place, shown=place)
            self._check_fits(place, manifest, wanted)
        except BundleError as error:
            self._drop_damaged(place, error)
            return None
        except OSError:
            return None
        return manifest

    def fetch(self, key: str, wanted: BundleDigests, into: Path) -> Bundle | None:
        """Copy the bundle under `key` to the new folder `into`, and verify the copy.

        None, and no folder, where there is none; an entry that is damaged, or does not say of
        itself what is `wanted`, is dropped.

        Raises:
            OSError: `into` cannot be written.
        """
        place = self._place(key)
        if not place.is_dir() or not self._is_open():
            return None
        into.mkdir()
        try:
            if not is_trusted_owner(place.lstat()):
                raise BundleError(f"{place} belongs to another user", hint="")
            copy_files(place, into)
            bundle = open_bundle(into)
            self._check_fits(place, bundle.manifest, wanted)
            os.utime(place)  # the time of last use, which `_prune` goes by
        except BundleError as error:
            self._drop_damaged(place, error)
        except OSError as error:
            if error.filename is None or self._folder not in Path(error.filename).parents:
                raise
            # Another process has just dropped it, or the entry is closed to us.
        else:
            return bundle
        shutil.rmtree(into)
        return None

    def store(self, key: str, root: Path) -> None:
        """Keep the bundle folder `root` under `key`, by links where they go; an entry stays."""
        if not self._is_open():
            return
        place = self._place(key)
        try:
            private_folder(place.parent)
            with aside_folder(self._folder / "entry") as aside:
                copy_files(root, aside, link=True)
                aside.rename(place)
        except OSError as error:
            # Another process may have been quicker: its entry is as good.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                self._warn(f"the compile cache was not written: {error.strerror or error}")
            return
        with suppress(FileNotFoundError):  # another process prunes too
            self._prune()

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the lock of `key`; waits while another process compiles the same, to a limit."""
        descriptor = self._open_locks()
        try:
            if descriptor is not None:
                self._wait_for(descriptor, key)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _wait_for(self, descriptor: int, key: str) -> None:
        # One byte of the file for each key; locks of open file descriptions hold between threads.
        lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, int(key[:_KEY_DIGITS], 16), 1, 0)
        until = time.monotonic() + _LOCK_WAIT_S
        is_told = False
        while True:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
            except BlockingIOError:
                if time.monotonic() > until:
                    self._reporter.warn("another adrenoc compiles the same for long: not waiting")
                    return
                if not is_told:
                    self._reporter.note("another adrenoc compiles the same: waiting for it")
                    is_told = True
                time.sleep(_TICK_S)
                continue
            except OSError:  # a file system without locks: entries are whole without them
                return
            return

    def _open_locks(self) -> int | None:
        if not self._is_open():
            return None
        try:
            return os.open(self._folder / _LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None

    def _is_open(self) -> bool:
        """Return whether the cache is there and ours; says once why it is not."""
        try:
            private_folder(self._root)
            private_folder(self._folder)
        except OutputError as error:
            self._warn(f"the compile cache is not used: {error.message}")
            return False
        except OSError as error:
            self._warn(f"the compile cache was not written: {error.strerror or error}")
            return False
        return True

    def _warn(self, text: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            self._reporter.warn(text)

    @staticmethod
    def _check_fits(place: Path, manifest: Manifest, wanted: BundleDigests) -> None:
        if not wanted.fits(manifest):
            raise BundleError(f"{place} is of another model, target or options", hint="")

    def _drop_damaged(self, place: Path, error: BundleError) -> None:
        self._reporter.warn(f"dropped a damaged cache entry: {error.message}")
        self._drop(place)

    def _place(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _drop(self, place: Path) -> None:
        """Remove an entry at once: nobody shall read one that is half gone."""
        with suppress(OSError), aside_folder(self._folder / "dropped") as aside:
            place.rename(aside / "entry")

    def _prune(self) -> None:
        """Drop the entries that were not used for longest until the rest fits."""
        remove_left(self._folder)
        known = self._read_sizes()
        places = [path.parent for path in self._folder.glob(f"[0-9a-f][0-9a-f]/*/{MANIFEST}")]
        sizes = {place.name: known.get(place.name) or _folder_bytes(place) for place in places}
        total = sum(sizes.values())
        for place in sorted(places, key=lambda place: place.stat().st_mtime)[:-1]:
            if total <= self._max_bytes:
                break
            self._drop(place)
            total -= sizes.pop(place.name)
        if sizes != known:
            with suppress(OutputError):  # who comes next counts them again
                write_atomically(self._folder / _SIZES, json.dumps(sizes), private=True)

    def _read_sizes(self) -> dict[str, int]:
        """Return the bytes of entries, which never change, as an earlier process counted them."""
        try:
            found = json.loads((self._folder / _SIZES).read_bytes())
            return {key: size for key, size in found.items() if size > 0}
        except (OSError, ValueError, TypeError, AttributeError):  # none, or damaged
            return {}


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
