"""What is there for a while: files beside outputs that are made, and temporary folders.

Each has a lock for as long as its process lives.  What has none was left by a process that was
killed, and the next one that writes there removes it.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from typing import BinaryIO

from adrenoc.base.errors import DiskFullError
from adrenoc.base.text.spelling import quote_word

_NAME = re.compile(r"\.(?P<stem>.*)\.adrenoc-[0-9a-f]{12}\.(?P<role>part|old)", re.DOTALL)
_LONGEST_STEM_BYTES = 200
_REMOVALS = 3
FULL_CAUSES = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the file grows past the size limit of this process or file system",
}
FULL_CODES = frozenset(FULL_CAUSES)
"""What the system says where there is no room."""
_held: dict[Path, int] = {}
"""What this process has made and not given a lasting name yet, with its own number."""


@contextmanager
def aside_folder(path: Path) -> Iterator[Path]:
    """A new, locked folder beside `path`; whatever has its name when the block ends is removed.
    Raises OSError where it cannot be made."""
    folder, lock = lock_new(lambda: aside_name(path, "part"))
    try:
        yield folder
    finally:
        remove_locked(folder, lock)


@contextmanager
def aside_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new, locked file beside `path`, open for writing; removed where it has kept its name.
    Raises OSError where it cannot be made."""
    while True:
        aside = aside_name(path, "part")
        _held[aside] = os.getpid()
        stream = aside.open("xb")
        if _lock(stream.fileno()) and os.fstat(stream.fileno()).st_nlink:
            break
        stream.close()  # somebody took it for a left one before it was locked
        _held.pop(aside, None)
    try:
        yield aside, stream
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        with suppress(OSError):  # what a full disk says once more
            stream.close()
        _held.pop(aside, None)


def aside_name(path: Path, role: str) -> Path:
    """Return a name beside `path` that nobody else uses, to which a rename is atomic."""
    # Cut, because the name with its additions must stay below 255 bytes where `path`'s own does.
    stem = os.fsdecode(os.fsencode(path.name)[:_LONGEST_STEM_BYTES])
    return path.with_name(f".{stem}.adrenoc-{secrets.token_hex(6)}.{role}")


def remove_left(folder: Path) -> int:
    """Remove from `folder` what killed processes of this user left; returns how many. An older
    output that such a process had put aside goes back to its place."""
    removed = 0
    try:
        entries = [entry for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError:
        return 0
    for entry in entries:
        with suppress(OSError):
            removed += remove_if_left(Path(entry.path))
    return removed


def lock_new(name: Callable[[], Path], mode: int = 0o777) -> tuple[Path, int]:
    """Return a new folder of a name that `name` finds, and the descriptor that holds its lock.
    Raises OSError where it cannot be made."""
    while True:
        folder = name()
        # Before it is there: a signal may come between any two steps.
        _held[folder] = os.getpid()
        try:
            folder.mkdir(mode)
        except OSError as error:
            _held.pop(folder, None)
            if error.errno == errno.EEXIST:
                continue
            raise
        lock = -1
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            # Another process may have taken it for a left one before it was locked.
            if _lock(lock) and folder.exists():
                return folder, lock
        except FileNotFoundError:
            pass
        except OSError:  # as where no descriptor is left, which removing a tree would need
            with suppress(OSError):
                folder.rmdir()
            _held.pop(folder, None)
            raise
        _held.pop(folder, None)
        if lock >= 0:
            os.close(lock)


def remove_tree(folder: Path) -> None:
    """Remove a folder of ours as far as that goes, whatever modes its owner gave to its folders."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir() or folder.is_symlink():
        return
    with suppress(OSError):
        folder.chmod(0o700)
    # By names: `rmtree` holds two descriptors a level, and they may be used up.
    folders = [folder]
    for root, inner, files in os.walk(folder):
        for path in (Path(root, name) for name in (*inner, *files)):
            with suppress(OSError):
                if stat.S_ISDIR(path.lstat().st_mode):
                    folders.append(path)
                    path.chmod(0o700)
                else:
                    path.unlink()
    for path in reversed(folders):
        with suppress(OSError):
            path.rmdir()


def remove_locked(folder: Path, lock: int) -> None:
    """Remove a folder of `lock_new`."""
    remove_tree(folder)
    os.close(lock)
    if folder.exists():  # reading it needs a descriptor, and the lock may have been the last one
        remove_tree(folder)
    _held.pop(folder, None)


def remove_held() -> None:
    """Remove all that this process has not given a lasting name, while it may still be writing."""
    for path, process in list(_held.items()):
        if process != os.getpid():
            continue  # of the one that this was forked from
        with suppress(OSError):
            path.unlink()
        for _ in range(_REMOVALS):
            remove_tree(path)


def _lock(descriptor: int) -> bool:
    """Lock it; False where another process has, True too where locks are unknown."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: `remove_left` fails to get one, too
        return True
    return True


def remove_if_left(path: Path) -> bool:
    """Remove a file or folder of this user that no process holds; says whether it was one. Raises
    OSError where it is held, or cannot be removed."""
    facts = path.lstat()
    kind_fits = stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)
    if facts.st_uid != os.geteuid() or not kind_fits:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = _NAME.fullmatch(path.name)
        if found is not None and found["role"] == "old":
            home = path.with_name(found["stem"])
            if not os.path.lexists(home):
                path.rename(home)
                return True
        if stat.S_ISDIR(facts.st_mode):
            remove_tree(path)
        else:
            path.unlink()
        return not os.path.lexists(path)
    finally:
        os.close(descriptor)


_KINDS = ("app", "bundle", "calibrate", "firmware", "layers", "link", "moved", "tune", "verify")

_ROOM_BYTES = 1 << 20
"""With so much left a folder is not full: a write that failed was one of another folder."""


class TemporaryFolder:
    """A new, locked folder where temporary files go; removed by `close` or with this object. Raises
    DiskFullError where there is no folder to make it in; OSError where there is no room for one."""

    def __init__(self, kind: str) -> None:
        if kind not in _KINDS:
            raise ValueError(f"no kind of temporary folder: {kind}")
        try:
            tempfile.gettempdir()
        except FileNotFoundError as error:
            raise DiskFullError(
                f"no folder for temporary files can be written: {error.strerror}",
                hint="set TMPDIR to a folder with some space",
            ) from error
        _remove_left_folders()
        self.path, lock = lock_new(lambda: temporary_name(f"adrenoc-{kind}-"), 0o700)
        self.close = weakref.finalize(self, remove_locked, self.path, lock)

    def __enter__(self) -> Path:
        """Return the folder itself."""
        return self.path

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Remove it; where there was no room in it, say so."""
        full = error if isinstance(error, OSError) and self._is_full(error) else None
        self.close()
        if full is not None:
            folder = self.path.parent
            raise DiskFullError(
                f"the folder for temporary files {folder} is full: {full.strerror or full}",
                hint=f"free some space (df -h {quote_word(folder)}), or set TMPDIR to another "
                "folder",
            ) from error

    def _is_full(self, error: OSError) -> bool:
        """Return whether an error says that there is no room here, and not elsewhere."""
        if error.errno not in FULL_CODES:
            return False
        if error.filename is None:
            return error.errno != errno.ENOSPC or disk_usage(self.path.parent).free < _ROOM_BYTES
        named = Path(str(error.filename))
        return self.path in (named, *named.parents)


def temporary_name(prefix: str) -> Path:
    """Return a new name in the folder for temporary files, as `_remove_left_folders` asks."""
    return Path(tempfile.gettempdir(), prefix + secrets.token_hex(4))


def _remove_left_folders() -> None:
    """Remove what killed processes of this user left; a folder that is in use is locked."""
    for kind in _KINDS:
        for path in Path(tempfile.gettempdir()).glob(f"adrenoc-{kind}-????????"):
            with suppress(OSError):
                remove_if_left(path)
