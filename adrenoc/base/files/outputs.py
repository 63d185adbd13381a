"""Outputs: written all or nothing, and never over something that is not an older output.

A file may be new or take the place of a regular file; a folder may be new, empty, or take the place
of one that adrenoc wrote.  A link is followed to such a file or folder.  Devices, pipes, links to
nothing, and what the command reads are refused.

Ours to replace is a folder that holds what its marker lists, and nothing else: a bundle lists its
files in `manifest.json`, other folders that adrenoc writes have a list of their own (`LIST_FILE`).
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DiskFullError, OutputError
from adrenoc.base.files.aside import (
    FULL_CAUSES,
    aside_file,
    aside_folder,
    aside_name,
    remove_left,
    remove_tree,
)
from adrenoc.base.files.read import (
    KINDS,
    OTHER_CACHE_FOLDER,
    is_trusted_file,
    is_trusted_owner,
    read_plain,
    refuse_folder_of_inputs,
    refuse_input,
    sha256_file,
)
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import quote_word

LIST_FILE = "adrenoc-files.json"
_LIST_VERSION = 1
_REPOSITORIES = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "_darcs", "CVS", ".fslckout"})
_SHOWN = 3
_HINT = "move it away, or name another place with --output"

Digests = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class FolderKind:
    """A kind of folder that adrenoc writes: `name` for messages, `marker` the file that tells.

    `listed` gives what the marker of a folder lists, as digests by path; an empty digest lets the
    content be anything.  It gives None where the marker is not one of ours."""

    name: str
    marker: str
    listed: Callable[[Path], Digests | None]


def make_listed_kind(name: str) -> FolderKind:
    """Return a kind of folder that holds `LIST_FILE`."""

    def read_list(folder: Path) -> Digests | None:
        try:
            plain = read_json(read_plain(folder / LIST_FILE))
            if plain["adrenoc"] != name or plain["version"] != _LIST_VERSION:
                return None
            return {str(path): str(digest) for path, digest in plain["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    return FolderKind(name=name, marker=LIST_FILE, listed=read_list)


def write_list(folder: Path, kind: FolderKind) -> None:
    """Write the list of all files in `folder`, so that it may be replaced later. Raises OSError
    where it cannot be written."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}
    plain = {"adrenoc": kind.name, "version": _LIST_VERSION, "files": files}
    (folder / LIST_FILE).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def what_is_wrong(folder: Path, kind: FolderKind) -> str:
    """Return why a folder of the cache is not taken as it is; empty where it is whole and ours.

    Whole is one whose listed files are there, with their digests, and nobody else's.  What lies
    beside them is not asked about."""
    try:
        if not is_trusted_owner(folder.lstat()):
            return "it belongs to another user"
        listed = kind.listed(folder)
        if not listed:
            return f"it has no list of digests ({LIST_FILE})"
        for name, digest in listed.items():
            if not is_trusted_file(folder / name):
                return f"{name} is missing, or others may write to it"
            if sha256_file(folder / name) != digest:
                return f"{name} is damaged"
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    return ""


def refuse_foreign(path: Path, kind: FolderKind) -> None:
    """Refuse to replace what is at `path` unless it is nothing, empty, or a folder of this kind.

    `path` is free of links. Raises OutputError, naming what is in the way; OSError where it cannot
    be looked at."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise OutputError(
            f"{path} exists and is not a {kind.name}: found "
            f"{KINDS.get(stat.S_IFMT(path.lstat().st_mode), 'a device')}, and will not delete it",
            hint=_HINT,
        )
    if whose := _place_of_the_user(path):
        raise OutputError(
            f"{path} is {whose}, and will not be replaced by a {kind.name}",
            hint=f"name a folder in it with --output {quote_word(path / 'NAME')}",
        )
    held = list(_walk(path))
    if not held:
        return
    if not (path / kind.marker).is_file():
        raise OutputError(
            f"{path} exists and is not a {kind.name}: found a folder without {kind.marker}, and "
            "will not delete it",
            hint=_HINT,
        )
    listed = kind.listed(path)
    if listed is None:
        raise OutputError(
            f"{path} exists and is not a {kind.name}: its {kind.marker} is not one that adrenoc "
            "wrote, and the folder will not be deleted",
            hint=_HINT,
        )
    extra = _extra(path, held, {**listed, kind.marker: ""})
    if extra:
        more = len(extra) - _SHOWN
        shown = ", ".join(extra[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        raise OutputError(
            f"{path} is a {kind.name} that holds more than adrenoc put there ({shown}), and will "
            "not be deleted",
            hint=f"move {'that' if len(extra) == 1 else 'those'} away, or name another place with "
            "--output",
        )


def _extra(root: Path, held: list[tuple[str, int]], listed: Digests) -> list[str]:
    """Return what a folder holds beside what is listed: other names, links, changed files."""
    folders = {str(parent) for name in listed for parent in Path(name).parents}
    found = []
    for name, mode in held:
        if stat.S_ISDIR(mode):
            known = name in folders and Path(name).name not in _REPOSITORIES
        else:
            known = stat.S_ISREG(mode) and name in listed
        if not known:
            found.append(name)
        elif not stat.S_ISDIR(mode) and listed[name] and sha256_file(root / name) != listed[name]:
            found.append(f"{name}, changed since")
    return found


def _walk(root: Path, below: str = "") -> Iterator[tuple[str, int]]:
    """Yield all that a folder holds, by path and mode; links are not followed."""
    for entry in sorted(os.scandir(root / below), key=lambda e: e.name):
        name = f"{below}/{entry.name}" if below else entry.name
        mode = entry.stat(follow_symlinks=False).st_mode
        yield name, mode
        if stat.S_ISDIR(mode):
            yield from _walk(root, name)


def _place_of_the_user(path: Path) -> str:
    """Return what folder this is that no output may take the place of; empty for any other."""
    if path.parent == path:
        return "the root of the file system"
    if os.path.ismount(path):
        return "the root of a file system"
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        here = None
    try:
        home = Path.home().resolve()
    except (RuntimeError, OSError):
        home = None
    for place, name in ((here, "the working folder"), (home, "your home folder")):
        if place == path:
            return name
        if place is not None and path in place.parents:
            return f"a folder that holds {name}"
    return ""


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
OTHER_PLACE = "name another place with --output"
_TRIES = 8
_RACED = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ENOTDIR)
"""What a rename says where another process was there before."""


def output_error(path: Path, error: OSError) -> OutputError:
    """Say in one sentence why `path` could not be written."""
    if error.errno in FULL_CAUSES:
        return DiskFullError(
            f"cannot write {path}: {FULL_CAUSES[error.errno]}; nothing was left behind",
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


@contextmanager
def cache_errors(path: Path) -> Iterator[None]:
    """Turn what the system says of a folder of the cache into an error of ours. Raises
    OutputError where it cannot be made, or nothing can be written there."""
    try:
        yield
    except OSError as error:
        told = output_error(path, error)
        told.message = told.message.replace("cannot write", "cannot write to the cache folder", 1)
        told.hint = OTHER_CACHE_FOLDER  # no option names it
        raise told from error


def output_place(path: Path) -> Path:
    """Return where an output of that name goes: links are followed to what is there. Raises
    OutputError where a link leads nowhere or in a circle, or is another user's."""
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

    Returns where it goes. Raises OutputError where its folder is missing or closed, or what is
    there is not a regular file, or an input of this command."""
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
            f"{path} is {KINDS.get(stat.S_IFMT(mode), 'no file')}, and will not be replaced; "
            "expected a file, or nothing",
            hint=OTHER_PLACE,
        )
    refuse_input(place)
    return place


def check_folder_can_be_replaced(path: Path, kind: FolderKind) -> Path:
    """Refuse an output folder that could not be written, before hours of work are lost on it.

    Nothing, an empty folder, or an older output of this kind may be replaced; anything else is the
    user's.  Returns where it goes. Raises OutputError where something else is in the way, or the
    parent folder is missing or closed."""
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

    It may be there, with whatever it holds, and folders above it may be missing. Raises OutputError
    where something else is in the way, or nothing can be written there."""
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

    With `private` no other user can read it. Raises OutputError where it could not be written; what
    was there before is untouched."""
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

    Yields the folder to fill, in the same parent.  When the block fails, that folder is removed and
    an older one at `path` stays as it was. Raises OutputError where `path` cannot be replaced, or
    writing failed."""
    place = check_folder_can_be_replaced(path, kind)
    with scratch_folder_for(place) as aside:
        yield aside
        _sync_tree(aside)
        _swap_in(aside, place, kind)


@contextmanager
def scratch_folder_for(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to prepare it in; gone when the block ends. Raises OutputError
    where nothing can be written there, or the disk is full."""
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
    """Return what kind of thing is there, 0 where nothing is. Raises OSError where nothing of that
    name can be there, as where it is too long."""
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
