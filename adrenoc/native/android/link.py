"""Find a linker and link TVM's objects into `model.so`; nothing else knows of the NDK.

A model library needs no C library to link: its objects leave a routine of libc or libm open at
times.  They are linked against empty stub libraries with the right names, so any lld will do, from
an NDK or from anywhere else.  The one function of TVM that its code calls by name goes through a
pointer in the library, which the runtime that opens it fills in, as it does with all others: so a
library never calls another TVM that is in the process.
"""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adrenoc.base.errors import DependencyError, DiskFullError, LinkError
from adrenoc.base.files import read
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import spell_native_path
from adrenoc.base.host.extras import find_zig, pip_install
from adrenoc.base.host.proc import run_tool
from adrenoc.base.host.time_trace import section
from adrenoc.bundle.manifest import LibraryInfo
from adrenoc.native.android.elf import ElfFacts, read_elf
from adrenoc.native.android.runtime_toolchain import MIN_API, Ndk, find_ndk

SONAME = "model.so"
# Android 15 devices may have 16 KiB pages; a library aligned to them loads on 4 KiB pages too.
ANDROID_PAGE_BYTES = 16384
# Kernels of arm64 Linux have pages of 4, 16 or 64 KiB.
LINUX_ARM64_PAGE_BYTES = 65536
# Objects hold code and no weights: a hundred kernels make 10 MiB.
SCRATCH_BYTES = 64 << 20

_LIBRARY_BLOB = "__tvm_ffi__library_bin"
# As `src/modules/library.cc` has it.
_RAISE_POINTER = "__TVMFFIErrorSetRaisedFromCStrParts"
_RAISE = f"""{{layout}}target triple = "{{triple}}"
@{_RAISE_POINTER} = global ptr null
define hidden void @TVMFFIErrorSetRaisedFromCStrParts(ptr %kind, ptr %parts, i32 %count) {{{{
  %raise = load ptr, ptr @{_RAISE_POINTER}
  tail call void %raise(ptr %kind, ptr %parts, i32 %count)
  ret void
}}}}
"""
# What LLVM takes without one is for pointers of 64 bits.
_LAYOUTS = {"arm": 'target datalayout = "e-m:e-p:32:32-Fi8-i64:64-v128:64:128-a:0:32-n32-S64"\n'}
_LIBC = frozenset({"memcpy", "memmove", "memset", "memcmp", "malloc", "free", "abort"})
# Each comes with and without the `f` of float.
_LIBM = re.compile(
    r"(a?(cos|sin|tan)h?|atan2|cbrt|ceil|erfc?|exp(2|10|m1)?|fabs|floor|fma|fmax|fmin|fmod|hypot"
    r"|ldexp|log(10|1p|2)?|nearbyint|pow|rint|round|roundeven|sincos|sqrt|tgamma|trunc)f?"
)
_LLD_EMULATIONS = {"aarch64": "aarch64linux", "arm": "armelf_linux_eabi", "x86_64": "elf_x86_64"}
# An archive without members: enough input for lld to make a library that holds only its name.
_EMPTY_ARCHIVE = b"!<arch>\n"


@dataclass(frozen=True, kw_only=True)
class Linker:
    """A linker that works: how to call it, where it comes from, and its version line.

    `origin` is `ndk`, `path`, `ziglang` or `cc`; the last is a C compiler's driver and links for
    this machine only.
    """

    command: tuple[str, ...]
    origin: str
    version: str


def find_linker(*, host: bool, ndk: Path | None = None) -> Linker:
    """Return the linker to use: an NDK's (`adrenoc.native.android.runtime_toolchain`); lld;
    ziglang; cc.

    Raises:
        DependencyError: an NDK that was asked for is none or is too old, or no linker is there.
    """
    named = ndk is not None or bool(read.android_ndk_folders())
    # On this machine an NDK that nobody named is no better than any other linker.
    found = find_ndk(ndk) if named or not host else None
    if found is not None:
        return _ndk_linker(found)
    if (lld := shutil.which("ld.lld")) is not None:
        return _ask_version((lld,), "path")
    if (zig := find_zig()) is not None:
        return _ask_version((zig, "ld.lld"), "ziglang")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if host and compiler is not None:
        return _ask_version((compiler,), "cc")
    raise DependencyError(
        "no linker for Android libraries: no NDK, no `ld.lld` on PATH and no package ziglang",
        hint=f"{pip_install('link')}, or set ANDROID_NDK_HOME to an NDK",
    )


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What the loader of a device wants of a library: derived from an LLVM triple."""

    machine: str
    android: bool

    @staticmethod
    def from_triple(triple: str) -> Platform:
        """Return the platform that `triple` (`aarch64-linux-android`) stands for."""
        machine = triple.partition("-")[0]
        # armv7a, thumbv7: an ELF file says no more than ARM.
        is_arm = machine.startswith(("armv", "thumb"))
        return Platform(machine="arm" if is_arm else machine, android="android" in triple)

    @property
    def page_bytes(self) -> int:
        """Return the alignment that segments must have."""
        if self.android:
            return ANDROID_PAGE_BYTES
        return LINUX_ARM64_PAGE_BYTES if self.machine == "aarch64" else 4096

    @property
    def libc(self) -> str:
        """Return the name of the C library."""
        return "libc.so" if self.android else "libc.so.6"

    @property
    def libm(self) -> str:
        """Return the name of the mathematics library."""
        return "libm.so" if self.android else "libm.so.6"

    def provider(self, symbol: str) -> str | None:
        """Return the library of the device that has `symbol`, or None."""
        if symbol in _LIBC or (self.machine == "arm" and symbol.startswith("__aeabi_")):
            return self.libc
        return self.libm if _LIBM.fullmatch(symbol) else None


def link_library(library: Any, output: Path, *, triple: str, linker: Linker) -> LibraryInfo:
    """Link a compiled TVM module into the shared library `output` and check what came out.

    `library` is a VM executable or runtime module with `export_library`; `triple` the LLVM triple
    that its CPU part was compiled for. Equal objects and linker give equal bytes. Raises ToolError
    where the linker failed, LinkError where the library would not load on the device, DiskFullError
    where the folder for temporary files is (almost) full.
    """
    platform = Platform.from_triple(triple)
    _check_scratch_space()

    with TemporaryFolder("link") as folder:

        def link(path: str, objects: list[str], **_: Any) -> None:
            with section("linker", "file"):
                made = [*map(Path, objects), compile_raise(folder, triple)]
                link_objects(made, Path(path), platform=platform, linker=linker)

        spell_native_path(folder, hint="export TMPDIR=/a/folder/of/yours")
        library.export_library(
            str(output), fcompile=link, fpack_imports=_pack_modules, workspace_dir=str(folder)
        )
    facts = read_elf(output)
    check_library(facts, platform=platform, where=output.name)
    return LibraryInfo(
        machine=facts.machine, soname=facts.soname, needed=facts.needed, page_bytes=facts.page_bytes
    )


def compile_raise(folder: Path, triple: str) -> Path:
    """Compile the function by which code tells what is wrong with its arguments; the object."""
    from adrenoc.base.tvmapi import tvm

    source, made = folder / "raise.ll", folder / "raise.o"
    layout = _LAYOUTS.get(Platform.from_triple(triple).machine, "")
    source.write_text(_RAISE.format(layout=layout, triple=triple), encoding="ascii")
    tvm.runtime.load_module(str(source)).write_to_file(str(made))
    return made


def _pack_modules(module: Any, _is_system: bool, prefix: str, folder: str) -> str:
    """Write the object with the modules that a library holds beside its code; its path.

    TVM tells libraries whose parts register themselves under names, as those do that a program is
    linked with, by an empty function that LLVM takes out where it optimises: so it took all of ours
    for such ones, and the second in a process took the first one's name, with a warning.
    """
    from adrenoc.base.tvmapi import tvm

    pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    (code,) = _find_code(module)
    path = Path(folder, f"{prefix}modules.o")
    packed = pack(module, False, code.get_function("_get_target_string")(), prefix)
    packed.write_to_file(str(path))
    return str(path)


def _find_code(module: Any) -> Iterator[Any]:
    """Yield the parts that are code of the CPU: beside regions of OpenCL ML they lie deeper."""
    if module.kind == "llvm":
        yield module
    for part in module.imports:
        yield from _find_code(part)


def check_library(facts: ElfFacts, *, platform: Platform, where: str) -> None:
    """Refuse a library that the device's loader or the runtime would refuse. Raises LinkError
    naming the first fact that is wrong, as it is and as it should be."""
    known = {platform.libc, platform.libm}
    foreign = sorted(set(facts.needed) - known)
    open_symbols = sorted(s for s in facts.undefined if platform.provider(s) is None)
    wrongs = {
        f"is for {facts.machine}, expected {platform.machine}": facts.machine != platform.machine,
        f"is named `{facts.soname}`, expected `{SONAME}`": facts.soname != SONAME,
        f"needs {', '.join(foreign)}, expected only {', '.join(sorted(known))}": bool(foreign),
        f"needs {', '.join(open_symbols[:5])}, which no library of the device is known to have": (
            platform.android and bool(open_symbols)
        ),
        f"has segments aligned to {facts.page_bytes} bytes, expected {platform.page_bytes}": (
            facts.page_bytes < platform.page_bytes
        ),
        f"asks for Android {facts.android_api} (API level), expected {MIN_API} at most": (
            platform.android and facts.android_api > MIN_API
        ),
        "has text relocations, which Android refuses": facts.text_relocations,
        "asks for an executable stack, which Android refuses": facts.executable_stack,
        **{
            f"does not export `{name}`": name not in facts.exported
            for name in (_LIBRARY_BLOB, _RAISE_POINTER)
        },
    }
    refuse_first(
        f"the linked library {where}",
        wrongs,
        hint=f"adrenoc doctor shows the linker; {pip_install('link')} brings one",
    )


def refuse_first(what: str, wrongs: Mapping[str, bool], *, hint: str) -> None:
    """Refuse a library for the first of what may be wrong with it that holds."""
    for wrong, holds in wrongs.items():
        if holds:
            raise LinkError(f"{what} {wrong}", hint=hint)


def _check_scratch_space() -> None:
    """TVM writes its objects to temporary files, and LLVM ends the process on a full disk."""
    try:
        scratch = tempfile.gettempdir()
    except FileNotFoundError as error:  # it tries all places that there are
        raise DiskFullError(
            "no folder for temporary files can be written to",
            hint="set TMPDIR to a folder with room in it",
        ) from error
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= limit_bytes < SCRATCH_BYTES:
        raise DiskFullError(
            f"cannot write the library: files of this process end at {limit_bytes} bytes (ulimit "
            f"-f), expected {SCRATCH_BYTES}",
            hint="ulimit -f unlimited (another --output would not help)",
        )
    free_bytes = shutil.disk_usage(scratch).free
    if free_bytes < SCRATCH_BYTES:
        raise DiskFullError(
            f"the folder for temporary files {scratch} has {free_bytes >> 20} MiB left, "
            f"expected {SCRATCH_BYTES >> 20}",
            hint=f"free some space (df -h {scratch}), or set TMPDIR to another folder",
        )


def link_objects(objects: list[Path], output: Path, *, platform: Platform, linker: Linker) -> None:
    """Link object files into `output`; see `link_library` for what may be open in them."""
    with TemporaryFolder("link") as scratch:
        # Linked aside and copied: a linker that runs out of disk is killed or says so in its own
        # way, a copy says which place is full.
        made = scratch / output.name
        _run_linker(objects, made, platform=platform, linker=linker, folder=scratch)
        if not made.is_file():
            raise LinkError(
                f"the linker `{shlex.join(linker.command)}` ended well and wrote nothing",
                hint="put a whole linker on the PATH, or set ANDROID_NDK_HOME to an NDK",
            )
        output.write_bytes(made.read_bytes())


def _run_linker(
    objects: list[Path], output: Path, *, platform: Platform, linker: Linker, folder: Path
) -> None:
    page = str(platform.page_bytes)
    flags = ["-soname", SONAME, "--build-id=none", "--strip-all"]
    for keyword in ("now", "relro", "noexecstack", "text"):
        flags += ["-z", keyword]
    flags += ["-z", f"max-page-size={page}", "-z", f"common-page-size={page}"]
    inputs = ["-o", str(output), *(str(path) for path in objects)]
    deed = f"link {output.name}"
    if linker.origin == "cc":
        # Binutils make no stub from nothing; on this machine open symbols may stay open.
        passed = [part for flag in flags for part in ("-Xlinker", flag)]
        run_tool([*linker.command, "-shared", "-nostdlib", *passed, *inputs], deed=deed)
        return
    if platform.machine not in _LLD_EMULATIONS:
        raise LinkError(
            f"cannot link for `{platform.machine}`; known are {', '.join(_LLD_EMULATIONS)}",
            hint="adrenoc targets",
        )
    command = [*linker.command, "-m", _LLD_EMULATIONS[platform.machine], "-shared"]
    stubs = _make_stubs(_find_needed(objects, platform), folder, command)
    # Without the map a full disk is an error that lld names; with it, a signal kills lld.
    flags += ["--no-as-needed", "--hash-style=gnu", "--no-mmap-output-file"]
    run_tool([*command, *flags, *inputs, *(str(path) for path in stubs)], deed=deed)


def _find_needed(objects: list[Path], platform: Platform) -> list[str]:
    """Return the libraries that have what the objects leave open."""
    facts = [read_elf(path) for path in objects]
    exported = frozenset[str]().union(*(f.exported for f in facts))
    undefined = frozenset[str]().union(*(f.undefined for f in facts)) - exported
    providers = {platform.provider(symbol) for symbol in undefined}
    return [name for name in (platform.libc, platform.libm) if name in providers]


def _make_stubs(names: list[str], folder: Path, command: list[str]) -> list[Path]:
    """Empty libraries of the given names, so that the linker notes those names as needed."""
    archive = folder / "empty.a"
    archive.write_bytes(_EMPTY_ARCHIVE)
    stubs = [folder / name for name in names]
    for stub in stubs:
        run_tool(
            [*command, "-soname", stub.name, "-o", str(stub), str(archive)],
            deed=f"make an empty {stub.name}",
        )
    return stubs


def _ask_version(command: tuple[str, ...], origin: str) -> Linker:
    said = run_tool([*command, "--version"], deed="ask the linker's version", timeout_s=60)
    # "LLD 22.1.8 (compatible with GNU linkers)": what stands in brackets tells nothing.
    version = next(iter(said.strip().splitlines()), "").partition(" (compatible")[0]
    if not version:
        raise DependencyError(
            f"`{command[0]}` does not say which linker it is (--version printed nothing)",
            hint="put a whole linker on the PATH, or set ANDROID_NDK_HOME to an NDK",
        )
    return Linker(command=command, origin=origin, version=version)


def _ndk_linker(ndk: Ndk) -> Linker:
    place = ndk.tools / "ld.lld"
    if not place.is_file():
        raise DependencyError(
            f"the NDK at {ndk.folder} is not whole: it has no {place.relative_to(ndk.folder)}",
            hint=f"install the NDK again, or {pip_install('link')}",
        )
    lld = _ask_version((str(place),), "ndk")
    return Linker(command=lld.command, origin="ndk", version=f"NDK {ndk.revision}, {lld.version}")
