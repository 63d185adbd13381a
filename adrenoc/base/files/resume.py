"""What a command that takes long has done so far, in a file, for when it is killed.

The file has a line for each piece of work, in the order in which they were done.  The same command
begun again takes them in that order, and goes on with the first that is not there; from where its
work is another one than it was then, it takes no more.  The file is removed at the end.
"""

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from adrenoc import __version__
from adrenoc.base.errors import OutputError
from adrenoc.base.files.outputs import output_error, output_place
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word

_HEAD = (json.dumps({"adrenoc": "resume", "version": __version__}) + "\n").encode()


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """What was done, what came of it, and where its line begins."""

    what: str
    came: str
    at: int


class Resume:
    """Pieces of work by the words that tell what they are; without a path nothing is kept. Raises
    OutputError where the file cannot be written, is something else, or another command's now."""

    def __init__(self, path: Path | None) -> None:
        self.taken = 0
        """The pieces that were done before."""
        self._path = path if path is None else output_place(path)
        self._file: BinaryIO | None = None
        self._left: list[_Piece] = []
        if self._path is not None:
            try:
                self._file = _open(self._path)
                self._left = _read_pieces(self._file, self._path)[::-1]
            except OSError as error:
                raise output_error(self._path, error) from error

    def take(self, what: str) -> str | None:
        """Return what came of a piece of work that was done before; None where it is to be done."""
        if not self._left or self._file is None:
            return None
        piece = self._left.pop()
        if piece.what == what:
            self.taken += 1
            return piece.came
        self._left.clear()
        self._file.truncate(piece.at)
        self._file.seek(piece.at)
        return None

    def put(self, what: str, came: str) -> None:
        """Keep what came of a piece of work that was done now."""
        if self._file is None or self._path is None:
            return
        head = b"" if self._file.tell() else _HEAD
        try:
            self._file.write(head + (json.dumps([what, came]) + "\n").encode())
            self._file.flush()
        except OSError as error:
            raise output_error(self._path, error) from error

    def finish(self) -> None:
        """Remove the file: all is done, and told."""
        if self._file is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


def _open(path: Path) -> BinaryIO:
    """Return the file, for this command alone."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"another command is at work with {path}",
            hint="wait for it, or name another file with --resume",
        ) from None
    return file


def _read_pieces(file: BinaryIO, path: Path) -> list[_Piece]:
    """Return the pieces in a file, which ends behind the last whole one then."""
    head = file.readline()
    if head and head != _HEAD:
        raise OutputError(
            f"{path} is not what an interrupted command of this version of adrenoc has left",
            hint=f"name another file with --resume, or rm {quote_word(path)}",
        )
    pieces, end = [], len(head)
    for line in file:
        words = None
        with suppress(ValueError):
            words = read_json(line) if line.endswith(b"\n") else None
        if not (isinstance(words, list) and [type(word) for word in words] == [str, str]):
            break
        pieces.append(_Piece(what=words[0], came=words[1], at=end))
        end += len(line)
    file.truncate(end)
    file.seek(end)
    return pieces
