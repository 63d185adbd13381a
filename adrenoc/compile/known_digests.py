"""Digests of large models, remembered by what the file system says of their files.

To hash a language model's weights takes longer than all else that a compilation from the cache
does.  A digest that was computed is kept beside the cache with the size, the times, the device and
the number of each file; while these are as they were, so is the digest.  Nobody can set the time of
a file's last change (`ctime`), so whoever writes to a file leaves a trace there, unless both happen
within a tick of the file system's clock: of files that are so young nothing is kept, as git does.

What is compiled is digested as it is read (`ModelFiles.read`), and what the cache gives is digested
when it is copied: only the question which entry is wanted goes by this.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import is_trusted_file, private_folder, read_plain, sha256_json
from adrenoc.base.text.json_text import read_json
from adrenoc.importers.formats import ModelFiles

LEAST_BYTES = 32 << 20
"""Smaller models are hashed in less time than anybody notices."""
SETTLED_S = 2.0
"""How old the last change of a file has to be: no clock of a file system ticks more slowly."""
MOST_KEPT = 64
_FOLDER = "digests"

Stamps = list[list[int]]
"""Of each file: device, number, bytes, times of modification and of the last change in ns."""


def find_digest(files: ModelFiles, cache: Path) -> str:
    """`files.sha256()`, from `cache` where the files are those that it was computed of."""
    stamps = _stamp(files)
    if sum(size for _, _, size, _, _ in stamps) < LEAST_BYTES:
        return files.sha256()
    place = cache / _FOLDER / f"{_name(files)}.json"
    known = _read(place, stamps)
    if known is not None:
        return known
    is_settled = time.time_ns() - max(stamp[-1] for stamp in stamps) > SETTLED_S * 1e9
    digest = files.sha256()
    if is_settled and _stamp(files) == stamps:
        _keep(place, stamps, digest)
    return digest


def _stamp(files: ModelFiles) -> Stamps:
    facts = [path.stat() for path in files.paths]
    return [[f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns, f.st_ctime_ns] for f in facts]


def _name(files: ModelFiles) -> str:
    """A name for what is digested: the files by their places, and the parts of them."""
    parts = [files.part] if files.part is not None else []
    ranges = [[files.paths.index(p.path), p.offset, p.length] for p in (*parts, *files.data)]
    return sha256_json([[os.fsencode(path.resolve()).hex() for path in files.paths], ranges])


def _read(place: Path, stamps: Stamps) -> str | None:
    """The digest that lies there for files of these stamps; None where none does."""
    try:
        if not is_trusted_file(place):
            return None
        held = read_json(read_plain(place))
        if held["stamps"] != stamps:
            return None
        return str(held["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(place: Path, stamps: Stamps, digest: str) -> None:
    """Write it; trouble means that the next one hashes again, as without this."""
    with suppress(OSError, AdrenocError):
        private_folder(place.parent.parent)
        private_folder(place.parent)
        write_atomically(place, json.dumps({"stamps": stamps, "sha256": digest}))
        _prune(sorted(place.parent.glob("*.json"), key=_written_ns))


def _prune(oldest_first: Sequence[Path]) -> None:
    for path in oldest_first[:-MOST_KEPT]:
        path.unlink(missing_ok=True)


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # another process has just dropped it
        return 0
