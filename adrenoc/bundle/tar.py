"""Bundles as tar files: written the same for the same bundle, and unpacked by what they promise.

What is unpacked is what the manifest lists, with the sizes and digests that it states, and all of
that is checked before the first byte is written.
"""

import hashlib
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from adrenoc.base.errors import BundleError, DiskFullError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import MOST_TEXT_BYTES, open_plain
from adrenoc.base.files.tar_members import TarError, TarMember, read_members
from adrenoc.base.text.spelling import quote_word, show_bytes
from adrenoc.bundle.manifest import REBUILD_HINT, FileEntry, Manifest

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
    """Write the bundle folder `source` as a tar file that unpacks to `NAME.adrenoc/`.

    Equal bundles give equal bytes: sorted names, no times, no owners.

    Raises:
        OutputError: `output` cannot be written.
    """
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(f"{name}{SUFFIX}/{path.relative_to(source).as_posix()}")
            member.size = path.stat().st_size
            with path.open("rb") as stream:
                tar.addfile(member, stream)
    write_atomically(output, buffer.getvalue())


def unpack_tar(path: Path, root: Path) -> None:
    """Unpack the files that the manifest of a bundle's tar form lists into the folder `root`.

    Raises:
        BundleError: it is damaged, or not what its manifest says.
        DiskFullError: the folder for temporary files has no room for it.
    """
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
    """Refuse a manifest whose files lie outside of the bundle, or in each other's place.

    Raises:
        BundleError: naming the first.
    """
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
