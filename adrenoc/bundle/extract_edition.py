"""One edition of a bundle as a bundle by itself, with the constants that it reads and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import CHAT, PARAMS, PROGRAMS, PROOF, TOKENIZER, Bundle, read_manifest
from adrenoc.bundle.editions import DEVICES_FILE, DEVICES_FOLDER, Edition, open_edition
from adrenoc.bundle.moves import MOVES
from adrenoc.bundle.params import write_params
from adrenoc.bundle.tar import MANIFEST
from adrenoc.bundle.write_bundle import file_entry

if TYPE_CHECKING:
    import numpy as np

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
    for file in bundle.manifest.files:
        if file.path in (PROOF, TOKENIZER, CHAT) or file.path.startswith(f"{PROGRAMS}/"):
            _copy(bundle.root / file.path, into / file.path)
    params: dict[str, np.ndarray] = {}
    for bucket in open_buckets(part):
        params |= bucket.params()
    write_params(into / PARAMS, params)
    shared = file_entry(into, into / PARAMS)
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
