"""The folder of a server's session, which goes with it; what killed servers left behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.files.aside import lock_new, remove_if_left, remove_locked
from adrenoc.base.files.temporary import temporary_name

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
    path, lock = lock_new(lambda: temporary_name(_PREFIX), 0o700)
    try:
        yield SessionFolder(path=path, lock=lock)
    finally:
        remove_locked(path, lock)


def remove_left_folders() -> int:
    """Remove the folders of sessions that no process uses any more; returns how many."""
    removed = 0
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody uses it
            removed += remove_if_left(path)
    return removed
