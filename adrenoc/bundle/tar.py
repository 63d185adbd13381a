"""Bundles as tar files, with texts and libraries deflated where apps carry them.

A tar file is written the same for the same bundle.  What is unpacked is what the manifest lists,
with the sizes and digests that it states, and all of that is checked before the first byte is
written.

Android keeps a bundle in an app uncompressed, so that constants are mapped where they lie.  All
else is read once as a model is loaded: `model.so` with its kernels' texts becomes a tenth, and a
bundle for many GPUs has one of each.  A manifest says of such a file what it holds
(`inflated_bytes`), and its schema version is one that older runtimes refuse.
"""

import hashlib
import os
import shlex
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from adrenoc.base.errors import BundleError, DiskFullError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import MOST_TEXT_BYTES, open_plain, read_plain, sha256_bytes
from adrenoc.base.files.tar_members import TarError, TarMember, read_members
from adrenoc.base.text.spelling import quote_word, show_bytes
from adrenoc.bundle.manifest import (
    DEFLATED_VERSION,
    REBUILD_HINT,
    SCHEMA_VERSION,
    FileEntry,
    Manifest,
)

SUFFIX = ".adrenoc"
MANIFEST = "manifest.json"
MODEL_SUFFIXES = (".onnx", ".tflite")
"""The suffixes of model files, which are given in place of bundles by mistake."""
_PIECE_BYTES = 1 << 20


def guess_suffix(path: Path) -> str:
    """` (did you mean "x.adrenoc"?)` where nothing is at x but a bundle's ending was left out."""
    longer = path.with_name(path.name + SUFFIX) if path.name else path
    # Unlike Path.exists, it has no word for a folder that is closed or a name that is too long.
    return f' (did you mean "{longer}"?)' if longer != path and os.path.lexists(longer) else ""


def write_tar(source: Path, output: Path, *, name: str) -> None:
    """Write the bundle folder `source` as a tar file that unpacks to `NAME.adrenoc/`.  Equal
    bundles give equal bytes: sorted names, no times, no owners."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(f"{name}{SUFFIX}/{path.relative_to(source).as_posix()}")
            member.size = path.stat().st_size
            with path.open("rb") as stream:
                tar.addfile(member, stream)
    write_atomically(output, buffer.getvalue())


def unpack_tar(path: Path, root: Path) -> None:
    """Unpack the files that the manifest of a bundle's tar form lists into the folder `root`."""
    with _open_tar(path) as stream:
        try:
            members = _index_by_name(read_members(stream, os.fstat(stream.fileno()).st_size))
        except TarError as error:
            if path.suffix.lower() in MODEL_SUFFIXES:
                raise BundleError(
                    f"{path} is a model by its name, expected a bundle made of one",
                    hint=f"adrenoc compile {shlex.quote(str(path))}",
                ) from error
            raise BundleError(
                f"{path} is neither a bundle folder nor a whole tar file of one: {error}",
                hint=REBUILD_HINT,
            ) from error
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            text = _manifest_text(stream, members, path)
            listed = Manifest.from_json(text, f"{path}: {MANIFEST}").files
            check_paths(listed, path)
            parts = [(entry, _verify_member(stream, members, entry, path)) for entry in listed]
        except OSError as error:
            raise _unreadable(path, error) from error
        wanted = sum(entry.most_bytes for entry in listed) + len(text)
        free = shutil.disk_usage(root).free
        if wanted > free:
            raise _full(path, root, f"{show_bytes(free)} left, expected {show_bytes(wanted)}")
        try:
            (root / MANIFEST).write_text(text, encoding="utf-8")
            for entry, member in parts:
                _write(stream, member, root / entry.path)
        except OSError as error:
            raise _full(path, root, error.strerror or str(error)) from error


def _unreadable(path: Path, error: OSError) -> BundleError:
    return BundleError(f"{path} cannot be read: {error.strerror or error}", hint=REBUILD_HINT)


def check_paths(files: Sequence[FileEntry], shown: Path) -> None:
    """Refuse a manifest whose files lie outside of the bundle, or in each other's place."""
    known = {MANIFEST}
    for entry in files:
        pure = PurePosixPath(entry.path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in entry.path:
            raise BundleError(
                f"{shown}: {MANIFEST} names a file outside of the bundle: {entry.path}",
                hint=REBUILD_HINT,
            )
        if str(pure) in known:
            raise BundleError(
                f"{shown}: {MANIFEST} names the file {entry.path} twice", hint=REBUILD_HINT
            )
        known.add(str(pure))
    inside = [name for name in known if known & set(map(str, PurePosixPath(name).parents))]
    if inside:
        raise BundleError(
            f"{shown}: {MANIFEST} names {inside[0]}, which lies in another file", hint=REBUILD_HINT
        )


def _open_tar(path: Path) -> BinaryIO:
    try:
        return open_plain(path)
    except OSError as error:
        raise BundleError(
            f"{path} cannot be read: {error.strerror or error}", hint=f"ls -l {quote_word(path)}"
        ) from error


def _index_by_name(members: list[TarMember]) -> dict[PurePosixPath, TarMember]:
    """Members by their names inside of the one folder that a tar file unpacks to."""
    inner = [member for member in members if len(member.name.parts) > 1]
    folders = sorted({member.name.parts[0] for member in inner})
    if len(folders) > 1:
        raise TarError(
            f"it holds {len(folders)} folders ({folders[0]}, {folders[1]}); expected one"
        )
    return {PurePosixPath(*member.name.parts[1:]): member for member in inner}


def _manifest_text(stream: BinaryIO, members: dict[PurePosixPath, TarMember], path: Path) -> str:
    member = members.get(PurePosixPath(MANIFEST))
    if member is None:
        raise BundleError(f"{path} is not a bundle: it holds no {MANIFEST}", hint=REBUILD_HINT)
    if member.bytes > MOST_TEXT_BYTES:
        raise BundleError(
            f"{path}: {MANIFEST} has {member.bytes} bytes, expected up to {MOST_TEXT_BYTES}",
            hint=REBUILD_HINT,
        )
    try:
        return b"".join(_pieces(stream, member)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: {MANIFEST} is not text", hint=REBUILD_HINT) from error


def _verify_member(
    stream: BinaryIO, members: dict[PurePosixPath, TarMember], entry: FileEntry, path: Path
) -> TarMember:
    """Return the member that is the file `entry`, with the size and digest that it states."""
    member = members.get(PurePosixPath(entry.path))
    if member is None:
        raise BundleError(f"{path} lacks the file {entry.path}", hint=REBUILD_HINT)
    if member.bytes != entry.bytes:
        raise BundleError(
            f"{path}: {entry.path} has {member.bytes} bytes, expected {entry.bytes}",
            hint=REBUILD_HINT,
        )
    digest = hashlib.sha256()
    for piece in _pieces(stream, member):
        digest.update(piece)
    if digest.hexdigest() != entry.sha256:
        raise BundleError(
            f"{path}: {entry.path} is not what was compiled (its SHA-256 differs)",
            hint=REBUILD_HINT,
        )
    return member


def _write(stream: BinaryIO, member: TarMember, target: Path) -> None:
    """Write a member to a new file; zeros become holes, so that a small file stays small."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        for piece in _pieces(stream, member):
            if piece.count(0) == len(piece):
                file.seek(len(piece), os.SEEK_CUR)
            else:
                file.write(piece)
        file.truncate(member.bytes)


def _pieces(stream: BinaryIO, member: TarMember) -> Iterator[bytes]:
    stream.seek(member.offset)
    left = member.bytes
    while left and (piece := stream.read(min(left, _PIECE_BYTES))):
        yield piece
        left -= len(piece)


def _full(path: Path, root: Path, why: str) -> DiskFullError:
    return DiskFullError(
        f"{path} cannot be unpacked: the folder for temporary files {root.parent} has no room for "
        f"it ({why})",
        hint=f"free some space (df -h {quote_word(root.parent)}), or set TMPDIR to another folder",
    )


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
    """Undo that in the bundle folder `root`, whose files have the digests of its `manifest`."""
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
