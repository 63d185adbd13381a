"""Folders for a while, which go with the process: at its end, or when the next one starts."""

import errno
import secrets
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from types import TracebackType

from adrenoc.base.errors import DiskFullError
from adrenoc.base.files.aside import lock_new, remove_if_left, remove_locked
from adrenoc.base.files.outputs import FULL_CODES
from adrenoc.base.text.spelling import quote_word

_KINDS = ("app", "bundle", "calibrate", "firmware", "layers", "link", "moved", "tune", "verify")

_ROOM_BYTES = 1 << 20
"""With so much left a folder is not full: a write that failed was one of another folder."""


class TemporaryFolder:
    """A new, locked folder where temporary files go; removed by `close` or with this object.

    Raises:
        DiskFullError: there is no folder to make it in.
        OSError: there is no room for one.
    """

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
        _remove_left()
        self.path, lock = lock_new(lambda: temporary_name(f"adrenoc-{kind}-"), 0o700)
        self.close = weakref.finalize(self, remove_locked, self.path, lock)

    def __enter__(self) -> Path:
        """Return the folder itself."""
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
    """Return a new name in the folder for temporary files, as long as `_remove_left` asks."""
    return Path(tempfile.gettempdir(), prefix + secrets.token_hex(4))


def _remove_left() -> None:
    """What killed processes of this user left; a folder that is in use is locked."""
    for kind in _KINDS:
        for path in Path(tempfile.gettempdir()).glob(f"adrenoc-{kind}-????????"):
            with suppress(OSError):
                remove_if_left(path)
