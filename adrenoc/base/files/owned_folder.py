"""Which folders are ours to replace: what a marker lists, and nothing else.

A bundle lists its files in `manifest.json`; other folders that adrenoc writes have a list of their
own (`LIST_FILE`).  A folder with one more file is the user's, whatever the marker is called.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import OutputError
from adrenoc.base.files.read import is_trusted_file, is_trusted_owner, read_plain, sha256_file
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
    content be anything.  It gives None where the marker is not one of ours.
    """

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
    """Write the list of all files in `folder`, so that it may be replaced later.

    Raises:
        OSError: it cannot be written.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}
    plain = {"adrenoc": kind.name, "version": _LIST_VERSION, "files": files}
    (folder / LIST_FILE).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def what_is_wrong(folder: Path, kind: FolderKind) -> str:
    """Return why a folder of the cache is not taken as it is; empty where it is whole and ours.

    Whole is one whose listed files are there, with their digests, and nobody else's.  What lies
    beside them is not asked about.
    """
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

    `path` is free of links.

    Raises:
        OutputError: naming what is in the way.
        OSError: it cannot be looked at.
    """
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise OutputError(
            f"{path} exists and is not a {kind.name}: found {_kind_of(path)}, and will not delete "
            "it",
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


def _kind_of(path: Path) -> str:
    mode = path.lstat().st_mode
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
