"""Bundles whose texts and libraries are stored deflated, as apps carry them.

Android keeps a bundle in an app uncompressed, so that constants are mapped where they lie.  All
else is read once as a model is loaded: `model.so` with its kernels' texts becomes a tenth, and a
bundle for many GPUs has one of each.  A manifest says of such a file what it holds
(`inflated_bytes`), and its schema version is one that older runtimes refuse.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from adrenoc.base.errors import BundleError
from adrenoc.base.files.read import read_plain, sha256_bytes
from adrenoc.bundle.manifest import (
    DEFLATED_VERSION,
    REBUILD_HINT,
    SCHEMA_VERSION,
    FileEntry,
    Manifest,
)
from adrenoc.bundle.tar import MANIFEST

# Constants are mapped, and kernels that were built for a device are checked by their own digest.
_STORED = ("params.safetensors", "programs")
_LEVEL = 9
# Without the header of zlib: the manifest has a digest.
_WINDOW_BITS = -15


def deflate_files(root: Path) -> None:
    """Store the files of the bundle folder `root` deflated, each that becomes smaller.

    Before -> after:
        {"path": "model.so", "bytes": 308792, ...}
        {"path": "model.so", "bytes": 27103, ..., "inflated_bytes": 308792}
    """
    inflated: dict[Path, int] = {}
    for path in sorted(root.rglob("*")):
        is_stored = path.relative_to(root).parts[0] in _STORED
        if path.is_file() and path.name != MANIFEST and not is_stored:
            _deflate(path, inflated)
    for path in _innermost_first(root):
        _list_anew(path, root, inflated)
        if path.parent != root:
            _deflate(path, inflated)


def inflate_files(root: Path, manifest: Manifest, shown: Path) -> None:
    """Undo that in the bundle folder `root`, whose files have the digests of its `manifest`.

    Raises:
        BundleError: a file does not hold what the manifest says; messages call the bundle `shown`.
    """
    for entry in manifest.files:
        if entry.inflated_bytes:
            path = root / entry.path
            _replace(path, _inflate(path.read_bytes(), entry, shown))
    for path in _innermost_first(root):
        _list_anew(path, root, {})


def _innermost_first(root: Path) -> list[Path]:
    """Return the manifests of a bundle: each is a file of those around it."""
    return sorted(root.rglob(MANIFEST), key=lambda path: -len(path.parts))


def _deflate(path: Path, inflated: dict[Path, int]) -> None:
    content = path.read_bytes()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS)
    packed = packer.compress(content) + packer.flush()
    if len(packed) < len(content):
        _replace(path, packed)
        inflated[path] = len(content)


def _inflate(content: bytes, entry: FileEntry, shown: Path) -> bytes:
    unpacker = zlib.decompressobj(_WINDOW_BITS)
    try:
        # One more than it says, so that what holds more is told from what ends there.
        is_likely = 0 < entry.inflated_bytes <= entry.most_bytes
        found = unpacker.decompress(content, entry.inflated_bytes + 1) if is_likely else b""
    except zlib.error as error:
        found, why = b"", str(error)
    else:
        why = f"{len(content)} bytes do not hold {entry.inflated_bytes}, and no more"
    if not unpacker.eof or len(found) != entry.inflated_bytes or unpacker.unused_data:
        raise BundleError(f"{shown}: {entry.path} cannot be inflated: {why}", hint=REBUILD_HINT)
    return found


def _list_anew(path: Path, root: Path, inflated: Mapping[Path, int]) -> None:
    """Write a manifest of the bundle `root` anew: files that are gone are not listed."""
    manifest = Manifest.from_json(read_plain(path).decode("utf-8"), path.name)
    files = []
    for entry in manifest.files:
        # Parts list what they share with the whole under its name there.
        places = [path.parent / entry.path, root / entry.path]
        place = next((place for place in places if place.is_file()), None)
        if place is not None and place.relative_to(root).parts[0] in _STORED:
            files.append(entry)
        elif place is not None:
            content = place.read_bytes()
            files.append(
                FileEntry(
                    path=entry.path,
                    bytes=len(content),
                    sha256=sha256_bytes(content),
                    inflated_bytes=inflated.get(place, 0),
                )
            )
    version = DEFLATED_VERSION if any(file.inflated_bytes for file in files) else SCHEMA_VERSION
    listed = replace(manifest, files=tuple(files), schema_version=version)
    _replace(path, listed.to_json().encode("utf-8"))


def _replace(path: Path, content: bytes) -> None:
    """Another file in its place: the old one may be a bundle's own, by another name."""
    path.unlink()
    path.write_bytes(content)
