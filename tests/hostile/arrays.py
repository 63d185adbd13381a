"""Hostile inputs and archives: NumPy's files, images, APKs that unpack to more than they are."""

import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.bundles import whole
from tests.hostile.case import Case, Make
from tests.hostile.models import put

_INPUT = frozenset({24})
_LIBRARY = "lib/arm64-v8a/libadrenoc_runtime.so"


def cases() -> Iterator[Case]:
    yield from _arrays()
    yield from _apps()


def _npy(header: bytes, version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header


def _shaped(shape: str, kind: str = "<f4") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    return _npy(text.encode().ljust(117) + b"\n")


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _zipped(name: str, entries: list[tuple[str, bytes]], change: Callable[[bytes], bytes]) -> Make:
    def make(folder: Path) -> None:
        with warnings.catch_warnings(), zipfile.ZipFile(folder / name, "w") as archive:
            warnings.simplefilter("ignore")  # a name twice is what is wanted
            for entry, content in entries:
                archive.writestr(entry, content)
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return make


def _unpacking(name: str, entry: str, mebibytes: int) -> Make:
    """Some bytes that unpack to so many."""

    def make(folder: Path) -> None:
        with (
            zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open(entry, "w", force_zip64=True) as member,
        ):
            member.write(b"\x93NUMPY")
            for _ in range(mebibytes):
                member.write(bytes(1 << 20))
        content = bytearray((folder / name).read_bytes())
        # What is said of its size is what counts, and cheaper than to write all of it.
        struct.pack_into("<I", content, content.rindex(b"PK\x01\x02") + 24, 0xFFFF0000)
        (folder / name).write_bytes(bytes(content))

    return make


def _flagged(head: int, value: int) -> Callable[[bytes], bytes]:
    """An archive whose entries say so in a field of two bytes, as far from the name as `head`."""

    def change(content: bytes) -> bytes:
        edited = bytearray(content)
        for mark, at in ((b"PK\x03\x04", 6 + head), (b"PK\x01\x02", 8 + head)):
            start = 0
            while (found := edited.find(mark, start)) >= 0:
                struct.pack_into("<H", edited, found + at, value)
                start = found + 4
        return bytes(edited)

    return change


def _plain(content: bytes) -> bytes:
    return content


def _arrays() -> Iterator[Case]:
    numbers = _shaped("(1, 4)") + bytes(16)
    makes: dict[str, tuple[str, Make]] = {
        "a header that promises 6 EB": ("npy", put("i.npy", _shaped("(10000000000000, 3, 9, 9)"))),
        "a header of 2 GiB": ("npy", put("i.npy", _npy(b"(" * 999, 2).replace(b"\xe7", b"\xff"))),
        "a header of brackets": ("npy", put("i.npy", _npy(b"(" * 9000))),
        "a header of nots": ("npy", put("i.npy", _npy(b"-" * 9000 + b"1"))),
        "a header that is no text": ("npy", put("i.npy", _npy(b"\xff\0" * 60))),
        "a negative extent": ("npy", put("i.npy", _shaped("(-1, 4)"))),
        "objects": ("npy", put("i.npy", _shaped("(1, 4)", "|O") + bytes(99))),
        "another type": ("npy", put("i.npy", _shaped("(1, 4)", "<x9") + bytes(99))),
        "an archive by another name": ("npy", _zipped("i.npy", [("image.npy", numbers)], _plain)),
        "an array by another name": ("npz", put("i.npz", numbers)),
        "a member that is no array": ("npz", _zipped("i.npz", [("image", b"hello")], _plain)),
        "a member cut off": ("npz", _zipped("i.npz", [("image.npy", numbers[:-3])], _plain)),
        "a wrong checksum": (
            "npz",
            _zipped(
                "i.npz", [("image.npy", numbers)], lambda c: c.replace(b"(1, 4)", b"(4, 1)", 1)
            ),
        ),
        "a locked member": ("npz", _zipped("i.npz", [("image.npy", numbers)], _flagged(0, 1))),
        "an unknown compression": (
            "npz",
            _zipped("i.npz", [("image.npy", numbers)], _flagged(2, 99)),
        ),
        "4 GiB of zeros": ("npz", _unpacking("i.npz", "image.npy", 1)),
        "an image of 2.5 billion pixels": ("png", put("i.png", _png(50_000, 50_000))),
    }
    for name, (suffix, make) in makes.items():

        def both(folder: Path, make: Make = make) -> None:
            whole(folder)
            make(folder)

        yield Case("arrays", name, both, ("run", "b", "--input", f"image=i.{suffix}"), codes=_INPUT)


def _apps() -> Iterator[Case]:
    library = [(_LIBRARY, b"b" * 99)]
    for name, make in {
        "a library of 4 GiB": _unpacking("a.apk", _LIBRARY, 1),
        "a manifest of 4 GiB": _unpacking("a.apk", "AndroidManifest.xml", 1),
        "a library twice": _zipped("a.apk", library * 2, _plain),
        "names with escapes": _zipped(
            "a.apk",
            [("lib/\x1b[2J/libadrenoc_runtime.so", b""), ("../../x", b""), *library],
            _plain,
        ),
        "a locked library": _zipped("a.apk", library, _flagged(0, 1)),
        "an unknown compression": _zipped("a.apk", library, _flagged(2, 99)),
        "a wrong checksum": _zipped("a.apk", library, lambda c: c.replace(b"b" * 99, b"c" * 99)),
        "a binary manifest that lies": _zipped(
            "a.apk", [("AndroidManifest.xml", b"\x03\0\x08\0" + b"\xff" * 64), *library], _plain
        ),
        "cut off": _zipped("a.apk", library, lambda c: c[: len(c) // 2]),
        "offsets beyond the file": _zipped(
            "a.apk", library, lambda c: c[:-6] + struct.pack("<I", 0x7FFFFFFF) + c[-2:]
        ),
    }.items():
        yield Case("apps", name, make, ("doctor", "--app", "a.apk"))
