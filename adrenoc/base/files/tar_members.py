"""Reads the table of a tar file, strictly: plain files by name, where they lie, and nothing else.

Python's own reader unpacks whatever a tar file says: holes of terabytes, links, headers without
end.  Here only plain files and folders count, with short names and inside of the file.

Source: POSIX.1-2008, pax interchange format; GNU tar manual, "Basic Tar Format".
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

_BLOCK_BYTES = 512
_MOST_MEMBERS = 100_000
_MOST_HEADER_BYTES = 64 << 10
_LONGEST_PATH_BYTES = 1024
_LONGEST_NAME_BYTES = 255
_FILES, _FOLDERS = (b"0", b"\0", b"7"), b"5"
_LONG_NAME, _PAX, _PAX_OF_ALL = b"L", b"x", b"g"
_REFUSED = {
    b"1": "a hard link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a file with holes",
    b"K": "a long link",
    b"M": "a part of a file",
}


class TarError(ValueError):
    """The file is no tar file, or one that no bundle is packed in."""


@dataclass(frozen=True, kw_only=True)
class TarMember:
    """A plain file in a tar file: `bytes` of it from `offset` on."""

    name: PurePosixPath
    offset: int
    bytes: int


def read_members(stream: BinaryIO, total_bytes: int) -> list[TarMember]:
    """Return the plain files of a tar file of `total_bytes`, in order, no two of which clash.
    Raises TarError where it is damaged, or holds something that is neither a plain file nor a
    folder."""
    found: list[TarMember] = []
    at, long_name, is_ended = 0, "", False
    for _ in range(_MOST_MEMBERS):
        stream.seek(at)
        header = stream.read(_BLOCK_BYTES)
        if len(header) < _BLOCK_BYTES or not header.strip(b"\0"):
            is_ended = at > 0 and len(header) in (0, _BLOCK_BYTES)
            break
        total = sum(header[:148]) + sum(b" " * 8) + sum(header[156:])
        if _number(header[148:156]) != total:
            raise TarError("a header's check sum is wrong")
        kind, size = header[156:157], _number(header[124:136])
        begin = at + _BLOCK_BYTES
        at = begin + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        if begin + size > total_bytes:
            raise TarError(f"its member at byte {begin} needs {size} bytes, more than there are")
        if kind in (_LONG_NAME, _PAX, _PAX_OF_ALL):
            if size > _MOST_HEADER_BYTES:
                raise TarError(f"it has a header of {size} bytes")
            content = stream.read(size)
            if kind == _LONG_NAME:
                long_name = _text(content)
            elif kind == _PAX:
                long_name = _pax_path(content) or long_name
            continue
        name, long_name = long_name or _name(header), ""
        if kind == _FOLDERS:
            continue
        if kind not in _FILES:
            what = _REFUSED.get(kind, f"of the unknown type {kind!r}")
            raise TarError(f"its member {name} is {what}; expected plain files")
        found.append(TarMember(name=_check_name(name), offset=begin, bytes=size))
    if not is_ended:
        raise TarError("it is cut off, or has too many members")
    _check_clashes(found)
    return found


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU: a binary number where octal digits do not suffice
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.split(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise TarError("a header holds no octal number where one belongs") from None


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), ""
    if header[257:263] == b"ustar\0":
        prefix = _text(header[345:500])
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    try:
        return field.split(b"\0")[0].decode("utf-8")
    except UnicodeDecodeError:
        raise TarError("a member's name is not UTF-8") from None


def _pax_path(content: bytes) -> str:
    """Return the `path` of a pax header; sparse files and sizes of their own are refused."""
    found, rest = "", content
    while rest:
        length, _, _ = rest.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) < int(length) <= len(rest):
            raise TarError("a pax header is damaged")
        record, rest = rest[len(length) + 1 : int(length)], rest[int(length) :]
        key, _, value = record.partition(b"=")
        if key == b"path":
            found = _text(value.removesuffix(b"\n"))
        elif key == b"size" or key.startswith(b"GNU.sparse"):
            raise TarError("it holds a file with holes, or one whose size is not in its header")
    return found


def _check_name(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise TarError(f"it names a file outside of the bundle: {name or 'nothing'}")
    encoded = [len(part.encode()) for part in path.parts]
    if max(encoded) > _LONGEST_NAME_BYTES or len(name.encode()) > _LONGEST_PATH_BYTES:
        raise TarError(f"it has a name of {len(name.encode())} bytes, which is too long")
    return path


def _check_clashes(members: list[TarMember]) -> None:
    names = [member.name for member in members]
    known = set(names)
    if len(known) != len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise TarError(f"it holds {twice} twice")
    for name in names:
        inside = next((parent for parent in name.parents if parent in known), None)
        if inside is not None:
            raise TarError(f"it holds {inside} as a file and as a folder")
