"""Read files and folders, and know where they lie: the package's data, the cache, digests.

It reads the variables of the environment that are not ours (`adrenoc.base.host.variables`), and
`ADRENOC_CACHE_DIR`: those that name an Android NDK or SDK or a JDK, adb's server, and `NO_COLOR`.
Paths go to TVM and its runtime in UTF-8 alone.  No output of a command may replace a file that it
reads; files are compared by device and inode, so that other names for the same one count too.
"""

import errno
import hashlib
import importlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import adrenoc
from adrenoc.base.errors import AdrenocError, DependencyError, OptionError, OutputError

# tomllib came with Python 3.11; tomli is the same parser for 3.10.
_toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

MOST_TEXT_BYTES = 256 << 20
"""The most bytes of a file of text that is read whole: what is longer is something else."""
MOST_TOML_BYTES = 1 << 20
"""The most bytes of a file of settings or of a target, which people write."""

KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What may be at a path beside folders."""

# --- data folders -------------------------------------------------------------------------------


def data_folder(name: str) -> Path:
    """Find the data folder `name` (`targets` or `presets`) of the wheel or of the source tree.
    Raises DependencyError where neither place holds it, so the installation is damaged."""
    package = Path(adrenoc.__file__).resolve().parent
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
    """Parse a TOML file. Raises OSError where the file cannot be read; ValueError where it is not
    TOML, or not UTF-8 (the caller says which error this is to a user)."""
    return parse_toml(read_plain(path, MOST_TOML_BYTES).decode("utf-8"))


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises ValueError where it is not TOML, or nested so deeply
    that no reader follows."""
    try:
        data: dict[str, Any] = _toml.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return data


# --- plain files --------------------------------------------------------------------------------


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading, whose size is known and which ends: no pipe, no device. Raises
    OSError where it is missing, may not be read, or is something else."""
    # Without O_NONBLOCK a pipe of that name would wait for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
        if not stat.S_ISREG(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "something else")
            raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
        return os.fdopen(os.dup(descriptor), "rb")
    finally:
        os.close(descriptor)


def read_plain(path: Path, most_bytes: int = MOST_TEXT_BYTES) -> bytes:
    """Return the content of a plain file of at most `most_bytes`. Raises OSError where it cannot be
    read, is no plain file, or is longer."""
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"it has {size} bytes, expected up to {most_bytes}")
        return stream.read()


# --- digests ------------------------------------------------------------------------------------


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex, read in pieces (weights can be larger than memory)."""
    digest = hashlib.sha256()
    with open_plain(path) as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def sha256_json(value: object) -> str:
    """SHA-256 of a value's canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256_bytes(text.encode("ascii"))


# --- environment --------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder of the compile cache; not created here.

    `ADRENOC_CACHE_DIR`, else `XDG_CACHE_HOME/adrenoc`, else `~/.cache/adrenoc`. Raises OutputError
    where none is set and this user has no home folder."""
    own = os.environ.get("ADRENOC_CACHE_DIR", "")
    if own:
        return _home_resolved(lambda: Path(own).expanduser().absolute())
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if Path(shared).is_absolute():  # the XDG specification: relative values are to be ignored
        return Path(shared) / "adrenoc"
    return _home_resolved(lambda: Path.home() / ".cache" / "adrenoc")


def private_folder(path: Path) -> Path:
    """Make a folder of the cache, unless it is there, and see that it is this user's alone.

    What lies in it is run, so nobody else may have put it there.  Root's folders are trusted too.
    Raises OutputError where it belongs to somebody else; OSError where it cannot be made."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process makes it too
            folder.mkdir(mode=0o700)
    facts = path.stat()
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if not is_trusted_owner(facts):
        raise OutputError(
            f"the cache folder {path} belongs to another user (number {facts.st_uid}), and what "
            "lies in it is not run",
            hint=OTHER_CACHE_FOLDER,
        )
    if facts.st_mode & 0o022:
        if facts.st_uid != os.geteuid():
            raise OutputError(
                f"others may write to the cache folder {path}, and what lies in it is not run",
                hint=OTHER_CACHE_FOLDER,
            )
        path.chmod(0o700)
    return path


def is_trusted_owner(facts: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to root."""
    return facts.st_uid in (0, os.geteuid())


def is_trusted_file(path: Path) -> bool:
    """Return whether a plain file of a private folder is this user's or root's alone."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    plain = stat.S_ISREG(facts.st_mode)
    return plain and is_trusted_owner(facts) and not facts.st_mode & 0o002


def android_ndk_folders() -> tuple[tuple[str, Path], ...]:
    """Return the NDK folders that variables name, with the variable, the first counting most."""
    return _folders("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")


def android_sdk_folders() -> tuple[tuple[str, Path], ...]:
    """Return the Android SDKs that variables name, with the variable."""
    return _folders("ANDROID_HOME", "ANDROID_SDK_ROOT")


def _folders(*variables: str) -> tuple[tuple[str, Path], ...]:
    values = ((variable, os.environ.get(variable, "")) for variable in variables)
    return tuple((variable, Path(value)) for variable, value in values if value)


def java_folders() -> tuple[tuple[str, Path], ...]:
    """Return a JDK by its usual variable, with the variable's name; empty where it is not set."""
    return _folders("JAVA_HOME")


def adb_server_place() -> tuple[str, str]:
    """Host and port of adb's server by its own variables; empty where they are not set."""
    names = ("ANDROID_ADB_SERVER_HOST", "ANDROID_ADB_SERVER_PORT")
    return os.environ.get(names[0], ""), os.environ.get(names[1], "")


def config_folder() -> Path:
    """Return where programs of this user look for their settings."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    if named:
        return Path(named)
    try:
        return Path.home() / ".config"
    except RuntimeError as error:  # what pathlib raises when it cannot tell the home folder
        raise OutputError(
            "no place for settings: this user has no home folder",
            hint="export XDG_CONFIG_HOME=/some/folder",
        ) from error


def is_on_github() -> bool:
    """Return whether GitHub runs this process, for continuous integration."""
    return os.environ.get("GITHUB_ACTIONS", "") == "true"


def no_color() -> bool:
    """Return whether `NO_COLOR` asks for plain output (set and not empty, by its convention)."""
    return bool(os.environ.get("NO_COLOR", ""))


def _home_resolved(find: Callable[[], Path]) -> Path:
    try:
        return find()
    except RuntimeError as error:  # what pathlib raises when it cannot tell the home folder
        raise OutputError(
            "no place for the compile cache: this user has no home folder",
            hint="export ADRENOC_CACHE_DIR=/some/folder",
        ) from error


OTHER_CACHE_FOLDER = "export ADRENOC_CACHE_DIR=/a/folder/of/yours"
"""What to type where the cache folder is none that can be used."""


def spell_native_path(path: Path, *, hint: str) -> str:
    """Return the path in Unicode, whatever the locale reads its bytes as. Raises OptionError where
    its bytes are not UTF-8."""
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(
            f"the path {path} is not UTF-8, which is all that TVM can open", hint=hint
        ) from error


FindInputs = Callable[[], Iterable[Path]]

# Of the whole process: outputs are written by whichever thread made them.
_kept: list[FindInputs] = []


@contextmanager
def inputs_kept(find: FindInputs) -> Iterator[None]:
    """While the block runs, nothing that `find` names is replaced by an output. `find` is asked
    only where an output exists already: it may have to read a model."""
    _kept.append(find)
    try:
        yield
    finally:
        _kept.remove(find)


def refuse_input(output: Path) -> None:
    """Refuse an output that is one of the inputs. Raises OutputError, naming both."""
    here = _identity(output)
    for path in _all_inputs() if here is not None else ():
        if _identity(path) == here:
            also = "" if path == output else f" ({path})"
            raise OutputError(
                f"{output} is an input of this command{also}, and will not be replaced",
                hint="name another place with --output",
            )


def refuse_folder_of_inputs(output: Path) -> None:
    """Refuse to replace a folder that is one of the inputs, or in which one lies."""
    refuse_input(output)
    place = output.resolve()
    for path in _all_inputs() if output.is_dir() else ():
        if place in path.absolute().parents or place in path.resolve().parents:
            raise OutputError(
                f"{output} holds an input of this command ({path}), and will not be replaced",
                hint="name another place with --output",
            )


def _all_inputs() -> Iterator[Path]:
    for find in _kept:
        # A model that cannot be read has no further files; the command says what is wrong with it.
        with suppress(AdrenocError, OSError, RuntimeError):
            yield from find()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_dev, facts.st_ino
