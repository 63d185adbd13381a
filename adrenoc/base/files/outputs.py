"""Outputs: written all or nothing, and never over something that is not an older output.

A file may be new or take the place of a regular file; a folder may be new, empty, or take the place
of one that adrenoc wrote (`adrenoc.base.files.owned_folder`).  A link is followed to such a file or
folder.  Devices, pipes, links to nothing, and what the command reads are refused.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adrenoc.base.errors import DiskFullError, OutputError
from adrenoc.base.files.aside import (
    aside_file,
    aside_folder,
    aside_name,
    remove_left,
    remove_tree,
)
from adrenoc.base.files.owned_folder import FolderKind, refuse_foreign
from adrenoc.base.files.read import OTHER_CACHE_FOLDER, refuse_folder_of_inputs, refuse_input
from adrenoc.base.text.spelling import quote_word

_CAUSES = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "you have no permission to write there",
    errno.EPERM: "you have no permission to write there",
    errno.ENOENT: "the folder it should go into does not exist",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a file of that name is in the way",
    errno.EISDIR: "a folder of that name is in the way",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "its links lead in a circle",
}
_FULL_CAUSES = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the file grows past the size limit of this process or file system",
}
FULL_CODES = frozenset(_FULL_CAUSES)
"""What the system says where there is no room."""
OTHER_PLACE = "name another place with --output"
_SPECIAL = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_TRIES = 8
_RACED = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR)
"""What a rename says where another process was there before."""


def output_error(path: Path, error: OSError) -> OutputError:
    """Say in one sentence why `path` could not be written."""
    if error.errno in _FULL_CAUSES:
        return DiskFullError(
            f"cannot write {path}: {_FULL_CAUSES[error.errno]}; nothing was left behind",
            hint=f"free some space (df -h {quote_word(path.parent)}), or {OTHER_PLACE}",
        )
    cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
    hint = OTHER_PLACE
    if error.errno == errno.ENOENT and path.parent.is_dir():
        cause = f"nothing can be made in {path.parent}, which is no folder for files"
    elif error.errno == errno.ENOENT:
        hint = f"mkdir -p {quote_word(path.parent)}"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = f"ls -ld {quote_word(path.parent)}, or {OTHER_PLACE}"
    return OutputError(f"cannot write {path}: {cause}", hint=hint)


def cache_error(path: Path, error: OSError) -> OutputError:
    """Say why the cache folder `path`, or one in it, cannot be written: no option names it."""
    told = output_error(path, error)
    told.message = told.message.replace("cannot write", "cannot write to the cache folder", 1)
    told.hint = OTHER_CACHE_FOLDER
    return told


@contextmanager
def cache_errors(path: Path) -> Iterator[None]:
    """What the system says in the block of a folder of the cache is an error of ours.

    Raises:
        OutputError: it cannot be made, or nothing can be written there.
    """
    try:
        yield
    except OSError as error:
        raise cache_error(path, error) from error


def output_place(path: Path) -> Path:
    """Return where an output of that name goes: links are followed to what is there.

    Raises:
        OutputError: a link leads nowhere or in a circle, or is another user's.
    """
    try:
        place = path.resolve()
        if not path.is_symlink():
            return place
        owner = path.lstat().st_uid
    except RuntimeError as error:  # pathlib's word for a circle
        raise output_error(path, OSError(errno.ELOOP, "")) from error
    except OSError as error:
        raise output_error(path, error) from error
    if owner not in (0, os.geteuid()):
        raise OutputError(
            f"{path} is a link that another user made (number {owner}), and is not followed",
            hint=OTHER_PLACE,
        )
    if not os.path.lexists(place):
        raise OutputError(
            f"{path} is a link to {place}, where nothing is; expected a link to a file",
            hint=f"rm {quote_word(path)}, or {OTHER_PLACE}",
        )
    return place


def check_file_can_be_written(path: Path) -> Path:
    """Refuse an output file that could not be written, before work is lost on it.

    Returns where it goes.

    Raises:
        OutputError: its folder is missing or closed, or what is there is not a regular file, or
            an input of this command.
    """
    place = output_place(path)
    try:
        _check_parent(place)
        mode = _find_mode(place) or stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise output_error(place, error) from error
    if not stat.S_ISREG(mode):
        raise OutputError(
            f"{path} is {_SPECIAL.get(stat.S_IFMT(mode), 'no file')}, and will not be replaced; "
            "expected a file, or nothing",
            hint=OTHER_PLACE,
        )
    refuse_input(place)
    return place


def check_folder_can_be_replaced(path: Path, kind: FolderKind) -> Path:
    """Refuse an output folder that could not be written, before hours of work are lost on it.

    Nothing, an empty folder, or an older output of this kind may be replaced; anything else is the
    user's.  Returns where it goes.

    Raises:
        OutputError: something else is in the way, or the parent folder is missing or closed.
    """
    place = output_place(path)
    try:
        _check_parent(place)
        refuse_foreign(place, kind)
    except OSError as error:
        raise output_error(place, error) from error
    refuse_folder_of_inputs(place)
    return place


def check_folder_can_be_made(path: Path) -> None:
    """Refuse a folder that could not be made or filled, before work is lost on it.

    It may be there, with whatever it holds, and folders above it may be missing.

    Raises:
        OutputError: something else is in the way, or nothing can be written there.
    """
    place = output_place(path)
    try:
        above = place
        while not (mode := _find_mode(above)):
            above = above.parent
        if not stat.S_ISDIR(mode):
            raise OSError(errno.ENOTDIR if above != place else errno.EEXIST, "")
        with aside_folder(above / "part"):
            return
    except OSError as error:
        raise output_error(place, error) from error


def write_atomically(path: Path, data: bytes | str, *, private: bool = False) -> None:
    """Write a file so that others see the old content or the new one, never a part.

    With `private` no other user can read it.

    Raises:
        OutputError: it could not be written; what was there before is untouched.
    """
    place = check_file_can_be_written(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    remove_left(place.parent)
    try:
        with aside_file(place) as (aside, stream):
            if private:
                os.fchmod(stream.fileno(), 0o600)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            aside.replace(place)
            _sync_folder(place.parent)
    except OSError as error:
        raise output_error(place, error) from error


@contextmanager
def write_folder_atomically(path: Path, kind: FolderKind) -> Iterator[Path]:
    """Fill a new folder aside, and put it in the place of `path` when the block ends well.

    Yields the folder to fill, in the same parent.  When the block fails, that folder is removed
    and an older one at `path` stays as it was.

    Raises:
        OutputError: `path` cannot be replaced, or writing failed.
    """
    place = check_folder_can_be_replaced(path, kind)
    with scratch_folder_for(place) as aside:
        yield aside
        _sync_tree(aside)
        _swap_in(aside, place, kind)


@contextmanager
def scratch_folder_for(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to prepare it in; gone when the block ends.

    Raises:
        OutputError: nothing can be written there, or the disk is full.
    """
    place = output_place(path)
    remove_left(place.parent)
    try:
        with aside_folder(place) as aside:
            yield aside
    except OSError as error:
        # A failed write() names no file.  An error about a file elsewhere is not about the output.
        if error.filename is not None and not _lies_in(error.filename, place.parent):
            raise
        raise output_error(place, error) from error


def _swap_in(new: Path, place: Path, kind: FolderKind) -> None:
    """Put `new` at `place`, and remove the older output that was there."""
    for _ in range(_TRIES):  # another process may put its result there between two calls
        try:
            if os.path.lexists(place):
                _replace(new, place, kind)
            else:
                new.rename(place)
        except OSError as error:
            if error.errno not in _RACED or not new.exists():
                raise
            check_folder_can_be_replaced(place, kind)
            continue
        _sync_folder(place.parent)
        return
    raise OutputError(
        f"cannot write {place}: other processes keep replacing it",
        hint=f"wait for the other adrenoc to end, or {OTHER_PLACE}",
    )


def _replace(new: Path, place: Path, kind: FolderKind) -> None:
    """Put an older output aside, and bring it back where `new` does not take its place."""
    old = aside_name(place, "old")
    place.rename(old)
    try:
        refuse_foreign(old, kind)  # it is about to be removed
        new.rename(place)
    finally:
        if not os.path.lexists(place):
            old.rename(place)
    remove_tree(old)


def _check_parent(place: Path) -> None:
    parent = place.parent
    if not parent.is_dir():
        code = errno.ENOTDIR if os.path.lexists(parent) else errno.ENOENT
        raise OSError(code, os.strerror(code))
    _find_mode(place)
    # Rights tell too little: of /proc or of a share they say that all may be made there.
    with aside_folder(parent / "part"):
        return


def _find_mode(place: Path) -> int:
    """Return what kind of thing is there, 0 where nothing is.

    Raises:
        OSError: nothing of that name can be there, as where it is too long.
    """
    with suppress(FileNotFoundError):
        return place.lstat().st_mode
    return 0


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
