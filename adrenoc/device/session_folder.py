"""The folder of a server's session, which goes with it; what killed servers left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# As adrenoc/native/runtime/tools/rpc_folder.cc has it.
_PREFIX = "adrenoc-rpc-"


@dataclass(frozen=True, kw_only=True)
class SessionFolder:
    """A folder, locked while this process or another that has `lock` open lives."""

    path: Path
    lock: int


@contextmanager
def session_folder() -> Iterator[SessionFolder]:
    """A new folder for a session, removed at the end.

    Raises:
        OSError: there is no room for one.
    """
    folder = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        os.close(folder.lock)


def _make() -> SessionFolder:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = -1
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            # A server that starts may have taken it for a left one before it was locked.
            if path.exists():
                return SessionFolder(path=path, lock=lock)
        if lock >= 0:
            os.close(lock)


def remove_left_folders() -> int:
    """Remove the folders of sessions that no process uses any more; returns how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
            removed += 1
        except OSError:
            continue  # somebody uses it, or it is somebody else's
        finally:
            os.close(lock)
    return removed
