"""Read facts of ELF files: what a device's loader will look at before it runs a library."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from adrenoc.base.errors import DependencyError, LinkError
from adrenoc.base.files.read import open_plain

_PF_X = 1
_DF_TEXTREL = 4
# What pyelftools makes of damage, beside its own errors.
_DAMAGE = (
    *(OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError),
    *(struct.error, MemoryError, RecursionError),
)
_FREE_BYTES = 32 << 20
_MOST_TIMES = 32
_BYTES_OF_A_READ = 64
"""What reading a file may take: so many bytes, each call counted as some."""
# The names that bionic gives to the symbols of a release, and that release's API level.
_BIONIC_VERSIONS = {
    "LIBC": 21,
    "LIBC_N": 24,
    "LIBC_O": 26,
    "LIBC_P": 28,
    "LIBC_Q": 29,
    "LIBC_R": 30,
    "LIBC_S": 31,
    "LIBC_T": 33,
    "LIBC_U": 34,
    "LIBC_V": 35,
}
# e_machine in the words of the LLVM triple.
_MACHINES = {"EM_AARCH64": "aarch64", "EM_X86_64": "x86_64", "EM_ARM": "arm", "EM_386": "i386"}


@dataclass(frozen=True, kw_only=True)
class ElfFacts:
    """What one object file or shared library says of itself.

    `page_bytes` is the smallest alignment of a loadable segment (0 in an object file).
    `android_api` is the newest API level that it asks for, by the note of the NDK and by the
    versions of the symbols that it imports from bionic; 0 where neither tells.  `is_stripped`
    means that it holds no table of local symbols.  `run_path` is where the loader looks for what
    it needs before it looks where the system has it.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    page_bytes: int
    text_relocations: bool
    executable_stack: bool
    exported: frozenset[str]
    undefined: frozenset[str]
    android_api: int = 0
    is_stripped: bool = True
    run_path: str = ""


def read_elf(path: Path) -> ElfFacts:
    """Return the facts of the object file or shared library at `path`. Raises LinkError where the
    file is not ELF, or cannot be read; DependencyError where pyelftools is missing."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise DependencyError(
            "the package pyelftools, which reads linked libraries, is missing",
            hint="pip install pyelftools",
        ) from error
    try:
        with open_plain(path) as stream:
            return _facts(ELFFile(_Bounded(stream)))
    except (ELFError, *_DAMAGE) as error:
        raise LinkError(
            f"{path.name} is not an ELF file ({error})", hint="adrenoc doctor"
        ) from error


class _Bounded:
    """A file that is read a few times over at most: headers may promise 2^60 sections."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = _FREE_BYTES + _MOST_TIMES * os.fstat(stream.fileno()).st_size

    def read(self, count: int = -1) -> bytes:
        found = self._stream.read(count)
        self._left -= len(found) + _BYTES_OF_A_READ
        if self._left < 0:
            raise ValueError("its headers lead through the same bytes again and again")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def check_extents(path: Path) -> None:
    """See that a library's file holds all that its headers promise; a loader trusts them. Raises
    LinkError where it is no ELF file, or cut off: reading beyond its end would end the process."""
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(64)
        wide, big = head[4:5] == b"\2", head[5:6] == b"\2"
        if head[:4] != b"\x7fELF" or len(head) < 64:
            raise LinkError(f"{path.name} is not an ELF file", hint="adrenoc doctor")
        order = ">" if big else "<"
        offsets = "QQ" if wide else "II"
        table, sections = struct.unpack_from(f"{order}{offsets}", head, 32 if wide else 28)
        entry, count = struct.unpack_from(f"{order}HH", head, 54 if wide else 42)
        section, number = struct.unpack_from(f"{order}HH", head, 58 if wide else 46)
        ends = [table + entry * count, sections + section * number]
        stream.seek(min(table, size))
        segments = stream.read(entry * count)
        layout = (f"{order}IIQQQQQQ", 2, 5) if wide else (f"{order}IIIIIIII", 1, 4)
        step = struct.calcsize(layout[0])
        for at in range(0, len(segments) - step + 1, max(entry, step)):
            fields = struct.unpack_from(layout[0], segments, at)
            ends.append(fields[layout[1]] + fields[layout[2]])
    if max(ends) > size:
        raise LinkError(
            f"{path.name} is cut off: it has {size} bytes, and its headers name {max(ends)}",
            hint="adrenoc doctor",
        )


def _facts(elf: Any) -> ElfFacts:
    segments = list(elf.iter_segments())
    tags = [tag for s in segments if s["p_type"] == "PT_DYNAMIC" for tag in s.iter_tags()]
    flags = sum(tag["d_val"] for tag in tags if tag["d_tag"] == "DT_FLAGS")
    exported, undefined = _symbols(elf)
    return ElfFacts(
        machine=_MACHINES.get(elf["e_machine"], str(elf["e_machine"])),
        soname=next((tag.soname for tag in tags if tag["d_tag"] == "DT_SONAME"), ""),
        needed=tuple(tag.needed for tag in tags if tag["d_tag"] == "DT_NEEDED"),
        page_bytes=min((s["p_align"] for s in segments if s["p_type"] == "PT_LOAD"), default=0),
        text_relocations=bool(flags & _DF_TEXTREL)
        or any(tag["d_tag"] == "DT_TEXTREL" for tag in tags),
        executable_stack=any(
            s["p_type"] == "PT_GNU_STACK" and s["p_flags"] & _PF_X for s in segments
        ),
        exported=exported,
        undefined=undefined,
        android_api=max(_noted_api(segments), _imported_api(elf)),
        is_stripped=elf.get_section_by_name(".symtab") is None,
        run_path=next((tag.runpath for tag in tags if tag["d_tag"] == "DT_RUNPATH"), ""),
    )


def _noted_api(segments: list[Any]) -> int:
    """Return the API level in the NDK's note, which begins with it as four bytes."""
    for segment in segments:
        if segment["p_type"] != "PT_NOTE":
            continue
        for note in segment.iter_notes():
            if note["n_name"] == "Android":
                return int.from_bytes(note["n_descdata"][:4], "little")
    return 0


def _imported_api(elf: Any) -> int:
    """Return the newest API level among the versions of imported symbols."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not hasattr(section, "iter_versions"):  # none, or left out in a file of symbols alone
        return 0
    names = (aux.name for _, auxes in section.iter_versions() for aux in auxes)
    return max((_BIONIC_VERSIONS.get(name, 0) for name in names), default=0)


def _symbols(elf: Any) -> tuple[frozenset[str], frozenset[str]]:
    tables = (elf.get_section_by_name(name) for name in (".dynsym", ".symtab"))
    # A file of symbols alone keeps the names of sections whose content it left out.
    table = next((table for table in tables if hasattr(table, "iter_symbols")), None)
    exported: set[str] = set()
    undefined: set[str] = set()
    for symbol in table.iter_symbols() if table else ():
        if not symbol.name or symbol["st_info"]["bind"] == "STB_LOCAL":
            continue
        (undefined if symbol["st_shndx"] == "SHN_UNDEF" else exported).add(symbol.name)
    return frozenset(exported), frozenset(undefined)
