"""Editions of a bundle: the same model with kernels for one GPU each, and a common one for all.

NAME.adrenoc/                    the common edition, a whole bundle by itself (with its buckets)
    params.safetensors           the constants of all editions; what two of them share, once
    moves.json                   constants that are others in another order (`bundle.params`)
    devices.json                 the editions, the common one last
    devices/a750/                a bundle (with its buckets) whose constants are the files above

A driver says which GPU it is of.  The edition of that GPU runs, one that was made for its very
driver first; where there is none, the common one does.  An edition can be taken out as a bundle by
itself, which has the constants that it reads and no others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import BundleError
from adrenoc.base.text import names
from adrenoc.base.text.json_text import mark_name
from adrenoc.bundle.buckets import folder_name, open_buckets, read_signatures
from adrenoc.bundle.bundle import (
    CHAT,
    PARAMS,
    PROGRAMS,
    PROOF,
    TEXT_TABLES,
    TOKENIZER,
    Bundle,
    is_part,
    open_part,
    read_manifest,
)
from adrenoc.bundle.manifest import REBUILD_HINT, read_record, to_plain
from adrenoc.bundle.params import MOVES, write_params
from adrenoc.bundle.tar import MANIFEST
from adrenoc.bundle.write_bundle import file_entry

if TYPE_CHECKING:
    import numpy as np

DEVICES_FILE = "devices.json"
DEVICES_FOLDER = "devices"
COMMON = "."
"""The folder of the common edition."""

_NUMBER = names.NameRule(pattern=r"|\d{3}[a-z]?", expected="the number of an Adreno, or nothing")


@dataclass(frozen=True, kw_only=True)
class Edition:
    """What a bundle holds for one GPU: its folder, and whose kernels are in it.

    `gpu` is the number of an Adreno ("750"), empty for the common edition.  With a `driver` the
    edition does without what that driver gets wrong, and is for it alone.
    """

    folder: str = field(metadata=mark_name(names.FOLDER))
    target: str = field(metadata=mark_name(names.WORD))
    gpu: str = field(metadata=mark_name(_NUMBER))
    driver: str = ""

    @property
    def title(self) -> str:
        """Return what it is for, in words."""
        if not self.gpu:
            return "any Adreno"
        return f"Adreno {self.gpu.upper()}" + (f" with driver {self.driver}" if self.driver else "")


@dataclass(frozen=True, kw_only=True)
class Editions:
    """The editions of a bundle, the common one last."""

    editions: tuple[Edition, ...]

    def to_json(self) -> str:
        """Return the text of `devices.json`."""
        return json.dumps(to_plain(self), indent=1, ensure_ascii=False) + "\n"


def read_editions(bundle: Bundle) -> tuple[Edition, ...]:
    """Return a bundle's editions, the common one last; none where it is for one device.

    Raises:
        BundleError: its list of editions cannot be understood.
    """
    if bundle.whole is not None:
        return ()
    path, where = bundle.root / DEVICES_FILE, f"{bundle.path}: {DEVICES_FILE}"
    if not path.is_file():
        return ()
    editions = read_record(Editions, path, where).editions
    if not all(one.folder == COMMON or is_part(one.folder, DEVICES_FOLDER) for one in editions):
        raise BundleError(
            f"{where} names a folder that is none of {DEVICES_FOLDER}/NAME", hint=REBUILD_HINT
        )
    commons = [edition for edition in editions if not edition.gpu]
    if len(commons) != 1 or editions[-1] is not commons[0] or commons[0].folder != COMMON:
        raise BundleError(
            f"{where} has {len(commons)} common editions, expected one, last and in `{COMMON}`",
            hint=REBUILD_HINT,
        )
    return editions


def open_edition(bundle: Bundle, edition: Edition) -> Bundle:
    """Return an edition as a bundle of its own; its files were verified with those of `bundle`.

    Raises:
        BundleError: it is damaged.
    """
    return bundle if edition.folder == COMMON else open_part(bundle, edition.folder)


def name_parts(bundle: Bundle) -> dict[str, Bundle]:
    """Return every bucket of every edition, as a bundle of its own, by what it is for.

    Shapes are those of all inputs but states; a signature or kernels for one GPU have its name
    before them.  The largest shapes come last, and the usual signature and the common edition do.

    Raises:
        BundleError: a part of the bundle cannot be understood.
    """
    parts = {}
    for edition in read_editions(bundle) or (None,):
        whole = bundle if edition is None else open_edition(bundle, edition)
        title = f"{edition.title}, " if edition is not None and edition.gpu else ""
        named = reversed(read_signatures(whole))
        for part in open_buckets(whole):
            signature = next(named, "")
            whose = title + (f"signature {signature}, " if signature else "")
            manifest = part.manifest
            told = [spec for spec in manifest.inputs if spec.name not in manifest.states]
            parts[whose + folder_name(told)] = part
    return parts


def rank_editions(
    editions: tuple[Edition, ...], *, gpu: str, driver: str
) -> tuple[tuple[Edition, ...], str]:
    """Return the editions that a device may run, the best first, the common one last; and why.

    `gpu` is the number of an Adreno, empty for another device.
    """
    of_gpu = [edition for edition in editions if gpu and edition.gpu == gpu]
    own = [edition for edition in of_gpu if edition.driver and edition.driver == driver]
    any_driver = [edition for edition in of_gpu if not edition.driver]
    listed = ", ".join(dict.fromkeys(e.gpu.upper() for e in editions if e.gpu))
    if own:
        why = f"the driver says Adreno {gpu.upper()} and is the one that it was made for"
    elif any_driver:
        why = f"the driver says Adreno {gpu.upper()}"
    elif of_gpu:
        why = f"the kernels for Adreno {gpu.upper()} are for other drivers than {driver}"
    elif gpu:
        why = f"the driver says Adreno {gpu.upper()}, and the bundle has kernels for {listed}"
    else:
        why = f"the driver names no Adreno, and the bundle has kernels for {listed}"
    return (*own, *any_driver, *(e for e in editions if not e.gpu)), why


_OF_EDITIONS = (PARAMS, MOVES, DEVICES_FILE, MANIFEST)


def extract_edition(bundle: Bundle, edition: Edition, into: Path) -> None:
    """Write an edition into the new folder `into`, with proof and built kernels of the whole.

    Raises:
        BundleError: the bundle is damaged.
        OSError: it cannot be written.
    """
    part = open_edition(bundle, edition)
    into.mkdir()
    for file in part.manifest.files:
        if file.path not in _OF_EDITIONS and not file.path.startswith(f"{DEVICES_FOLDER}/"):
            _copy(part.root / file.path, into / file.path)
    shared_files = (PROOF, TOKENIZER, CHAT, TEXT_TABLES)
    for file in bundle.manifest.files:
        if file.path in shared_files or file.path.startswith(f"{PROGRAMS}/"):
            _copy(bundle.root / file.path, into / file.path)
    params: dict[str, np.ndarray] = {}
    for bucket in open_buckets(part):
        params |= bucket.params()
    shared = write_params(into / PARAMS, params)
    # Buckets say of the constants what the whole bundle says.
    for path in sorted(into.glob(f"*/*/{MANIFEST}")):
        own = read_manifest(path.parent, shown=path.parent)
        files = tuple(shared if file.path == PARAMS else file for file in own.files)
        path.write_text(replace(own, files=files).to_json(), encoding="utf-8")
    written = sorted(path for path in into.rglob("*") if path.is_file())
    files = tuple(file_entry(into, path) for path in written)
    manifest = replace(part.manifest, files=files)
    (into / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
