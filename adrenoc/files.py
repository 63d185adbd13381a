"""Files and folders: where the data lies, digests, writing all or nothing, the cache's place.

The only module that reads the environment: `ADRENOC_CACHE_DIR` (with `XDG_CACHE_HOME` and the
home folder behind it), the variables that name
an Android NDK or SDK, and `NO_COLOR`.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from adrenoc.errors import DependencyError, DiskFullError, OutputError

# tomllib came with Python 3.11; tomli is the same parser for 3.10.
_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

_CAUSES = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "you have no permission to write there",
    errno.ENOENT: "the folder it should go into does not exist",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EISDIR: "a folder of that name is in the way",
    errno.ENAMETOOLONG: "the name is too long",
}
_FULL_CAUSES = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the file grows past the size limit of this process or file system",
}


# --- data folders -------------------------------------------------------------------------------


def data_folder(name: str) -> Path:
    """Find the data folder `name` (`targets` or `presets`) of the wheel or of the source tree.

    Raises:
        DependencyError: neither place holds it, so the installation is damaged.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_data" / name
    if installed.is_dir():
        return installed
    # Beside an installed package lie other packages: only a source tree has a pyproject.toml there.
    source = package.parent / name
    if source.is_dir() and (package.parent / "pyproject.toml").is_file():
        return source
    raise DependencyError(
        f'the data folder "{name}" of adrenoc is missing: looked for {installed} and {source}',
        hint="pip install --force-reinstall adrenoc",
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not TOML, or not UTF-8 (the caller says which error this is to a user).
    """
    data: dict[str, Any] = _toml.loads(path.read_text(encoding="utf-8"))
    return data


# --- digests ------------------------------------------------------------------------------------


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex, read in pieces (weights can be larger than memory)."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def sha256_json(value: object) -> str:
    """SHA-256 of a value's canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256_bytes(text.encode("ascii"))


# --- writing ------------------------------------------------------------------------------------


def output_error(path: Path, error: OSError) -> OutputError:
    """Say in one sentence why `path` could not be written."""
    if error.errno in _FULL_CAUSES:
        return DiskFullError(
            f"cannot write {path}: {_FULL_CAUSES[error.errno]}; nothing was left behind",
            hint=f"free some space (df -h {path.parent}), or name another place with --output",
        )
    cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
    hint = "name another place with --output"
    if error.errno == errno.ENOENT:
        hint = f"mkdir -p {path.parent}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"ls -ld {path.parent}, or name another place with --output"
    return OutputError(f"cannot write {path}: {cause}", hint=hint)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file so that others see the old content or the new one, never a part.

    Raises:
        OutputError: it could not be written; what was there before is untouched.
    """
    path = path.resolve()  # a link keeps pointing to the file that is replaced
    content = data.encode("utf-8") if isinstance(data, str) else data
    aside = _aside(path, "part")
    try:
        with aside.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def check_folder_can_be_replaced(path: Path, marker: str) -> None:
    """Refuse an output folder that could not be written, before hours of work are lost on it.

    Nothing, an empty folder, or a folder that holds `marker` (an older output of ours) may be
    replaced; anything else is the user's.

    Raises:
        OutputError: something else is in the way, or the parent folder is missing or closed.
    """
    path = path.resolve()
    parent = path.parent
    if not parent.is_dir():
        code = errno.ENOTDIR if parent.exists() else errno.ENOENT
        raise output_error(path, OSError(code, os.strerror(code)))
    try:
        if not os.access(parent, os.W_OK | os.X_OK):
            probe = _aside(path, "probe")
            probe.mkdir()  # fails, and its error tells a closed folder from a read-only disk
            probe.rmdir()
        if not path.exists():
            return
        ours = path.is_dir() and (not any(path.iterdir()) or (path / marker).is_file())
    except OSError as error:
        raise output_error(path, error) from error
    if not ours:
        kind = f"a folder without {marker}" if path.is_dir() else "a file"
        raise OutputError(
            f"{path} exists and is not a bundle: found {kind}, and will not delete it",
            hint="move it away, or name another place with --output",
        )


@contextmanager
def write_folder_atomically(path: Path, *, marker: str) -> Iterator[Path]:
    """Fill a new folder aside, and put it in the place of `path` when the block ends well.

    Yields the folder to fill, in the same parent.  When the block fails, that folder is removed
    and an older one at `path` stays as it was.  `marker` is the file that makes a folder ours.

    Raises:
        OutputError: `path` cannot be replaced, or writing failed.
    """
    check_folder_can_be_replaced(path, marker)
    with scratch_folder_for(path) as aside:
        yield aside
        _sync_tree(aside)
        _swap_in(aside, path.resolve(), marker)


@contextmanager
def scratch_folder_for(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to prepare it in; gone when the block ends.

    Raises:
        OutputError: nothing can be written there, or the disk is full.
    """
    path = path.resolve()
    aside = _aside(path, "part")
    try:
        aside.mkdir()
        yield aside
    except OSError as error:
        # A failed write() names no file.  An error about a file elsewhere is not about the output.
        if error.filename is not None and not _lies_in(error.filename, path.parent):
            raise
        raise output_error(path, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _swap_in(new: Path, path: Path, marker: str) -> None:
    """Rename `new` to `path`; an older folder steps aside first, and comes back on failure."""
    for _ in range(8):  # another process may put its result there between our two renames
        old = _step_aside(path)
        try:
            new.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            check_folder_can_be_replaced(path, marker)
        else:
            _sync_folder(path.parent)
            return
        finally:
            if old is not None and path.exists():
                shutil.rmtree(old, ignore_errors=True)
            elif old is not None:
                old.rename(path)
    raise OutputError(
        f"cannot write {path}: other processes keep replacing it",
        hint="wait for the other adrenoc to end, or name another place with --output",
    )


def _step_aside(path: Path) -> Path | None:
    """Rename what is at `path` to a free name beside it; None where there is nothing."""
    old = _aside(path, "old")
    try:
        path.rename(old)
    except FileNotFoundError:
        return None
    return old


def _aside(path: Path, role: str) -> Path:
    """A name beside `path` that nobody else uses; same file system, so a rename is atomic."""
    # Cut, because the name with its additions must stay below 255 bytes where `path`'s own does.
    stem = os.fsdecode(os.fsencode(path.name)[:200])
    return path.with_name(f".{stem}.{secrets.token_hex(6)}.{role}")


def _lies_in(name: object, folder: Path) -> bool:
    return isinstance(name, str) and folder in Path(name).absolute().parents


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            with (Path(root) / name).open("rb") as stream:
                os.fsync(stream.fileno())
        _sync_folder(Path(root))


# --- environment --------------------------------------------------------------------------------


def cache_folder() -> Path:
    """The folder of the compile cache; not created here.

    `ADRENOC_CACHE_DIR`, else `XDG_CACHE_HOME/adrenoc`, else `~/.cache/adrenoc`.

    Raises:
        OutputError: none is set and this user has no home folder.
    """
    own = os.environ.get("ADRENOC_CACHE_DIR", "")
    if own:
        return _home_resolved(lambda: Path(own).expanduser().absolute())
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():  # the XDG specification: relative values are to be ignored
        return Path(shared) / "adrenoc"
    return _home_resolved(lambda: Path.home() / ".cache" / "adrenoc")


def android_ndk_folders() -> tuple[tuple[str, Path], ...]:
    """The NDK folders that variables name, with the variable, in the order in which they count."""
    return _folders("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")


def android_sdk_folders() -> tuple[tuple[str, Path], ...]:
    """The Android SDKs that variables name, with the variable."""
    return _folders("ANDROID_HOME", "ANDROID_SDK_ROOT")


def _folders(*variables: str) -> tuple[tuple[str, Path], ...]:
    values = ((variable, os.environ.get(variable, "")) for variable in variables)
    return tuple((variable, Path(value)) for variable, value in values if value)


def no_color() -> bool:
    """Whether `NO_COLOR` asks for plain output (set and not empty, by its convention)."""
    return bool(os.environ.get("NO_COLOR", ""))


def _home_resolved(find: Callable[[], Path]) -> Path:
    try:
        return find()
    except RuntimeError as error:  # what pathlib raises when it cannot tell the home folder
        raise OutputError(
            "no place for the compile cache: this user has no home folder",
            hint="export ADRENOC_CACHE_DIR=/some/folder",
        ) from error
