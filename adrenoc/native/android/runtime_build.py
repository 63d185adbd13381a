"""Build the runtime that runs bundles without Python, for this machine, for Linux or Android, with
the LICENSE and NOTICE of what was compiled into it; or find it in a wheel, adrenoc-runtime.

CMake compiles what the pinned wheels of TVM ship and the sources in `adrenoc/native`; the result is
kept in the cache folder under a digest of everything that goes into it. The build tells which files
it read. Each lies in the folder of a known component, or belongs to the compiler and its C library;
a file of anybody else ends the build, so that no code gets into an app under terms that nobody has
looked at. The wheel holds a folder for each ABI, as `adrenoc runtime build -o DIR` writes it, and a
file that tells their sources; `scripts/ci/release` makes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import adrenoc
from adrenoc.base.errors import DependencyError, LinkError
from adrenoc.base.files.outputs import (
    LIST_FILE,
    cache_errors,
    check_folder_can_be_replaced,
    make_listed_kind,
    what_is_wrong,
    write_folder_atomically,
    write_list,
)
from adrenoc.base.files.read import cache_folder, private_folder, sha256_bytes
from adrenoc.base.host.proc import run_tool
from adrenoc.base.reporter import Reporter, SilentReporter
from adrenoc.base.text.spelling import quote_word
from adrenoc.native import package_folder
from adrenoc.native.android.elf import read_elf
from adrenoc.native.android.link import ANDROID_PAGE_BYTES, refuse_first
from adrenoc.native.android.runtime_toolchain import (
    ANDROID_ABIS,
    FOLDER,
    HOST,
    JNI_LIBRARY,
    MIN_API,
    Toolchain,
    add_clml,
    build_native_half,
    find_tool,
    find_toolchain,
    native_half_digest,
)

LICENSE, NOTICE = "LICENSE", "NOTICE"
_APACHE = "Apache-2.0"
# What files of projects of the Apache Software Foundation begin with.
_ASF_HEADER = "Licensed to the Apache Software Foundation (ASF)"
_HEADER_BYTES = 2000
_END_OF_TERMS = "END OF TERMS AND CONDITIONS"


@dataclass(frozen=True, kw_only=True)
class Component:
    """A project whose code is in the runtime: its files lie in `folders`. `license_file` and
    `notice_file` are its own; `copyright` is for one without a notice."""

    name: str
    folders: tuple[Path, ...]
    license_file: Path
    notice_file: Path | None = None
    copyright: str = ""
    has_asf_headers: bool = True


def components(tvm: Path, ffi: Path) -> tuple[Component, ...]:
    """Return what the packages `tvm` and `tvm_ffi` ship, as far as a runtime may hold it."""
    return (
        Component(
            name=f"Apache TVM {version('apache-tvm')}",
            folders=(tvm / "include" / "tvm", tvm / "src"),
            license_file=tvm / "LICENSE",
            notice_file=tvm / "NOTICE",
        ),
        Component(
            name=f"Apache TVM FFI {version('apache-tvm-ffi')}",
            folders=(ffi / "include" / "tvm", ffi / "src"),
            license_file=_find_in_package("apache-tvm-ffi", LICENSE),
            notice_file=_find_in_package("apache-tvm-ffi", NOTICE),
        ),
        Component(
            name="DLPack",
            folders=(ffi / "include" / "dlpack",),
            license_file=_find_in_package("apache-tvm-ffi", LICENSE),
            copyright="Copyright (c) 2017 by Contributors",
            has_asf_headers=False,
        ),
    )


def find_used(
    read: Iterable[Path], known: Sequence[Component], *, packages: Sequence[Path]
) -> tuple[Component, ...]:
    """Return the components of which files were read; `packages` are the folders that only they may
    be in.

    Raises:
        LinkError: a file of the packages is of no known component, or of other terms than it.
    """
    used = set()
    for path in sorted(set(read)):
        if not any(path.is_relative_to(package) for package in packages):
            continue  # ours, or the compiler's
        owner = next((c for c in known if any(path.is_relative_to(f) for f in c.folders)), None)
        if owner is None or (owner.has_asf_headers and not _has_asf_header(path)):
            raise LinkError(
                f"the runtime would hold {path}, and nobody has looked at the license of that",
                hint="pip install the versions of apache-tvm and apache-tvm-ffi that adrenoc asks "
                "for",
            )
        used.add(owner.name)
    return tuple(c for c in known if c.name in used)


def license_text(used: Sequence[Component]) -> str:
    """Return the terms of the whole, which are those of all parts. Raises LinkError where a
    component has other terms."""
    terms = {component.name: _terms(component.license_file) for component in used}
    texts = {re.sub(r"\s+", " ", text) for text in terms.values()}
    if len(texts) != 1 or "Apache License Version 2.0" not in next(iter(texts)):
        raise LinkError(
            f"{' and '.join(terms)} are not all under the {_APACHE} license that this version of "
            "adrenoc knows them by",
            hint="pip install the versions of apache-tvm and apache-tvm-ffi that adrenoc asks for",
        )
    return next(iter(terms.values()))


def notice_text(used: Sequence[Component], *, version: str, cxx_library: str) -> str:
    """Return what has to be said of the parts, and of the C++ library that was linked in."""
    lines = [
        f"adrenoc runtime {version}",
        f"License: {_APACHE}, see {LICENSE}.",
        "",
        "The libraries and programs beside this file hold code of:",
    ]
    for component in used:
        lines += ["", f"{component.name} ({_APACHE})"]
        notice = component.copyright
        if component.notice_file is not None:
            notice = component.notice_file.read_text(encoding="utf-8").strip()
        lines += [f"    {line}".rstrip() for line in notice.splitlines()]
    lines += ["", cxx_library or "The C++ library is not among them: the system's is used.", ""]
    return "\n".join(lines)


def _terms(path: Path) -> str:
    """Return a license's text without the advice on how to apply it and what follows that."""
    text = path.read_text(encoding="utf-8")
    terms, end, _ = text.partition(_END_OF_TERMS)
    return terms + end + "\n"


def _has_asf_header(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES).decode("utf-8", "replace")
    # Comments wrap, and their lines begin with marks.
    return _ASF_HEADER in re.sub(r"[\s*/#]+", " ", head)


def _find_in_package(name: str, file: str) -> Path:
    from importlib.metadata import files

    for entry in files(name) or ():
        if entry.name == file and "dist-info" in str(entry):
            return Path(str(entry.locate()))
    raise LinkError(
        f"the Python package {name} came without its {file}", hint=f"pip install {name} again"
    )


LIBRARY = "libadrenoc_runtime.so"
ARCHIVE = "libadrenoc_runtime.a"
RUNNER = "adrenoc_run"
SERVER = "adrenoc_rpc"
PROVIDER = "libadrenoc_ep.so"
"""The execution provider of onnxruntime."""
HEADERS = ("adrenoc.h", "adrenoc.hpp", "adrenoc_process.h")
RUNTIME_FOLDER = make_listed_kind("runtime")

_LLVM_LIBRARIES = (
    "libc++, libc++abi, libunwind and compiler-rt of the Android NDK are linked in\n"
    "(Apache-2.0 WITH LLVM-exception, which asks for no notice of what a compiler put there)."
)
_GCC_LIBRARIES = (
    "libstdc++ and libgcc of GCC are linked in (GPL-3.0-or-later WITH GCC-exception-3.1, which\n"
    "sets no terms for what a compiler made with them)."
)
_BUILD_SECONDS = 3600.0
_SAMPLES = "samples"  # beside the sources, and no part of what is built
_SOURCES = (".cc", ".h", ".hpp", ".def", ".map", ".txt")
# Programs find the library in their own folder, whoever starts them and from wherever.
_BESIDE = "$ORIGIN"
# What a phone has beside the runtime; the C++ library is linked in.
ANDROID_NEEDED = frozenset({"libc.so", "libm.so", "libdl.so", "liblog.so", LIBRARY})


@dataclass(frozen=True, kw_only=True)
class RuntimeFile:
    """One file of a built runtime."""

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A built runtime: `folder` holds its libraries, programs and headers. `stamp` is what
    `adrenoc_runtime_version()` answers; `cached` tells that nothing was compiled."""

    abi: str
    folder: Path
    stamp: str
    cached: bool
    files: tuple[RuntimeFile, ...]

    @property
    def library(self) -> Path:
        """Return the runtime library."""
        return self.folder / LIBRARY

    @property
    def runner(self) -> Path:
        """Return the program that runs a bundle."""
        return self.folder / RUNNER

    @property
    def provider(self) -> Path:
        """Return the library that onnxruntime registers, where it was built."""
        return self.folder / PROVIDER

    @property
    def server(self) -> Path:
        """Return the program that serves TVM's RPC protocol."""
        return self.folder / SERVER


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What is made of the objects; `sanitize` has objects of its own."""

    static: bool
    onnxruntime: bool
    sanitize: str

    @property
    def folder(self) -> str:
        """Return where CMake puts it, under what it compiles in."""
        if self.static:
            return "out-static"
        return "out-onnxruntime" if self.onnxruntime else "out"

    @property
    def files(self) -> tuple[str, ...]:
        if self.static:
            return (RUNNER, SERVER)
        return (LIBRARY, RUNNER, SERVER, *((PROVIDER,) if self.onnxruntime else ()))


def build_runtime(
    *,
    abi: str = HOST,
    ndk: Path | None = None,
    api: int = MIN_API,
    static: bool = False,
    onnxruntime: bool = False,
    sanitize: str = "",
    clml_sdk: Path | None = None,
    cache: Path | None = None,
    reporter: Reporter | None = None,
) -> Runtime:
    """Build the runtime for `abi`, unless this very one is cached.

    What the cache holds is run, so its digests are compared first; `reporter` is told of one that
    is built anew for what is wrong with it.

    `abi` is one of `adrenoc.native.android.runtime_toolchain.ABIS`. With `clml_sdk`, a folder of
    Qualcomm's OpenCL ML SDK, regions run by that library.

    `static` builds an archive, and programs that hold the runtime, instead of a shared library;
    `onnxruntime` its execution provider, too, which needs the shared one. `ndk` is the NDK for the
    Android ABIs, else `runtime_toolchain` finds it; `api` the API level of the oldest Android that
    the result is for. `sanitize` builds with sanitizers (`address,undefined` or `thread`). `cache`
    replaces the cache folder. Raises OptionError where the ABI is unknown, the API level too old,
    or the SDK has no header; DependencyError where CMake, a compiler, the NDK or TVM is missing or
    too old; ToolError where the compiler failed; LinkError where the library would not load on the
    device; OutputError where the cache folder cannot be written.
    """
    toolchain = find_toolchain(abi, ndk, api)
    if clml_sdk is not None:
        toolchain = add_clml(toolchain, clml_sdk)
    stamp = runtime_stamp()
    kind = _Kind(static=static, onnxruntime=onnxruntime, sanitize=sanitize)
    parts = (stamp, toolchain.identity, toolchain.options, abi, kind, LICENSE, NOTICE)
    java = (native_half_digest(),) if _is_for_java(toolchain, static) else ()
    key = sha256_bytes(repr((*parts, *java)).encode())[:24]
    places = _open_places(cache if cache is not None else cache_folder())
    place = places / key
    cached = not what_is_wrong(place, RUNTIME_FOLDER)
    if not cached:
        with _work_folder(places, toolchain, sanitize) as folder:
            # Another process may have made it while this one waited, and started its server.
            wrong = what_is_wrong(place, RUNTIME_FOLDER)
            if wrong and os.path.lexists(place):
                (reporter or SilentReporter()).warn(
                    f"the runtime in {place} is built anew: {wrong}"
                )
                _drop(place)
            if wrong:
                made = _compile(folder, toolchain, kind, stamp=stamp)
                more = (JNI_LIBRARY,) if java else ()
                _check(made, toolchain, files=(*kind.files, *more))
                _copy(made, place)
    return Runtime(abi=abi, folder=place, stamp=stamp, cached=cached, files=_files(place))


def runtime_stamp() -> str:
    """Return what a runtime of these sources answers from `adrenoc_runtime_version()`."""
    native = _native_folder()
    digest = hashlib.sha256(_tvm_versions().encode())
    for path in sorted(native.rglob("*")):
        apart = {_SAMPLES, FOLDER} & set(path.relative_to(native).parts)
        if path.suffix in _SOURCES and path.is_file() and not apart:
            digest.update(os.fsencode(path.relative_to(native)) + b"\0" + path.read_bytes() + b"\0")
    return (
        f"{adrenoc.__version__} tvm-{version('apache-tvm')} "
        f"tvm-ffi-{version('apache-tvm-ffi')} {digest.hexdigest()[:12]}"
    )


def _is_for_java(toolchain: Toolchain, static: bool) -> bool:
    """Return whether the native half of the Java classes belongs to it: a shared Android one."""
    return toolchain.api > 0 and not static


def _open_places(cache: Path) -> Path:
    """Return the folder of a cache where runtimes lie, for this user alone. Raises OutputError
    where it cannot be written."""
    places = cache / "runtime"
    with cache_errors(places):
        private_folder(places.parent)
        private_folder(places)
    return places


def _drop(place: Path) -> None:
    """Remove an entry of the cache, which is never the user's, whatever it is."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink()


@contextmanager
def _work_folder(places: Path, toolchain: Toolchain, sanitize: str) -> Iterator[Path]:
    """The folder to compile in, for one process at a time.

    It is kept, so that a change in our sources does not compile TVM's again; nor does the archive
    after the shared library, which are made of the same objects.
    """
    identity = repr((_native_folder(), _tvm_versions(), toolchain, sanitize))
    folder = places / "work" / sha256_bytes(identity.encode())[:24]
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def open_runtime(folder: Path) -> Runtime:
    """Return a runtime that was built before, such as by `adrenoc runtime build -o DIR`. Raises
    DependencyError where the folder holds no runtime, LinkError where its library is damaged."""
    wanted = (LIBRARY, *HEADERS, LICENSE, NOTICE)
    try:
        missing = [name for name in wanted if not (folder / name).is_file()]
        why = f"it lacks {', '.join(missing)}"
    except OSError as error:  # a folder that may not be entered
        missing, why = [*wanted], error.strerror or str(error)
    if missing:
        raise DependencyError(
            f"{folder} is not a runtime: {why}",
            hint=f"adrenoc runtime build -o {quote_word(folder)}",
        )
    machine = read_elf(folder / LIBRARY).machine
    return Runtime(abi=machine, folder=folder, stamp="", cached=True, files=_files(folder))


def copy_runtime(runtime: Runtime, output: Path) -> Runtime:
    """Copy a built runtime to the folder `output`, all or nothing. Raises OutputError where
    `output` cannot be written, or something else is in its place."""
    check_folder_can_be_replaced(output, RUNTIME_FOLDER)
    _copy(runtime.folder, output)
    return replace(runtime, folder=output)


def _copy(source: Path, output: Path) -> None:
    with write_folder_atomically(output, RUNTIME_FOLDER) as folder:
        for path in _list_kept(source):
            shutil.copy(path, folder / path.name)
            # Whatever the mask was when it was linked: what others may write to is not run.
            (folder / path.name).chmod(path.stat().st_mode & 0o755)
        write_list(folder, RUNTIME_FOLDER)


def _files(folder: Path) -> tuple[RuntimeFile, ...]:
    return tuple(
        RuntimeFile(name=path.name, bytes=path.stat().st_size) for path in _list_kept(folder)
    )


def _list_kept(folder: Path) -> list[Path]:
    """Return the files of a runtime; servers have the folders of their sessions beside them."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name != LIST_FILE)


def _compile(scratch: Path, toolchain: Toolchain, kind: _Kind, *, stamp: str) -> Path:
    """Compile everything; returns the folder with what belongs to the runtime."""
    cmake = find_tool("cmake")
    native = _native_folder()
    configure = [
        *(cmake, "-S", str(native / "runtime"), "-B", str(scratch)),
        *("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}"),
        f"-DTVM_HOME={package_folder('tvm')}",
        f"-DTVM_FFI_HOME={package_folder('tvm_ffi')}",
        f"-DADRENOC_STAMP={stamp}",
        f"-DADRENOC_SANITIZE={kind.sanitize}",
        f"-DADRENOC_STATIC={'ON' if kind.static else 'OFF'}",
        f"-DADRENOC_ONNXRUNTIME={'ON' if kind.onnxruntime else 'OFF'}",
        *toolchain.options,
    ]
    run_tool(configure, deed="configure the runtime")
    build = [cmake, "--build", str(scratch)]
    run_tool(build, deed="build the runtime", timeout_s=_BUILD_SECONDS)
    made = scratch / kind.folder
    for name in HEADERS:
        shutil.copy(native / "include" / name, made / name)
    if _is_for_java(toolchain, kind.static):
        built = build_native_half(made, scratch / FOLDER, toolchain.options)
        shutil.copy(built, made / JNI_LIBRARY)
    _write_licenses(made, scratch, toolchain, static=kind.static)
    return made


def _write_licenses(made: Path, scratch: Path, toolchain: Toolchain, *, static: bool) -> None:
    """Put LICENSE and NOTICE of what the compiler read beside what it made."""
    listed = run_tool(
        [find_tool("ninja"), "-C", str(scratch), "-t", "deps"], deed="list what was compiled"
    )
    read = [scratch / line.strip() for line in listed.splitlines() if line.startswith(" ")]
    tvm, ffi = package_folder("tvm"), package_folder("tvm_ffi")
    used = find_used(
        (Path(os.path.normpath(path)) for path in read), components(tvm, ffi), packages=(tvm, ffi)
    )
    cxx_library = ""
    if toolchain.api > 0:
        cxx_library = _LLVM_LIBRARIES
    elif static:
        cxx_library = _GCC_LIBRARIES
    text = notice_text(used, version=adrenoc.__version__, cxx_library=cxx_library)
    (made / LICENSE).write_text(license_text(used), encoding="utf-8")
    (made / NOTICE).write_text(text, encoding="utf-8")


def _check(folder: Path, toolchain: Toolchain, *, files: tuple[str, ...]) -> None:
    """Look at what was built with the eyes of the device's loader."""
    for path in (folder / name for name in files):
        facts = read_elf(path)
        is_library = path.suffix == ".so"
        android = toolchain.api > 0
        foreign = sorted(set(facts.needed) - ANDROID_NEEDED) if android else []
        wrongs = {
            f"is for {facts.machine}, expected {toolchain.machine}": (
                facts.machine != toolchain.machine
            ),
            f"is named `{facts.soname}`, expected `{path.name}`": (
                is_library and facts.soname != path.name
            ),
            f"looks for its libraries in `{facts.run_path}`, expected `{_BESIDE}`": (
                path.name != LIBRARY and facts.run_path != _BESIDE
            ),
            f"has segments aligned to {facts.page_bytes} bytes": (
                facts.page_bytes < ANDROID_PAGE_BYTES
            ),
            f"asks for Android {facts.android_api} (API level), expected {toolchain.api} at most": (
                android and facts.android_api > toolchain.api
            ),
            "has text relocations": facts.text_relocations,
            "asks for an executable stack": facts.executable_stack,
            f"needs {', '.join(foreign)}, which a phone lacks": bool(foreign),
        }
        hint = "set ANDROID_NDK_HOME to a newer NDK, or install a newer compiler"
        refuse_first(f"the built {path.name}", wrongs, hint=hint)


def _native_folder() -> Path:
    return Path(adrenoc.__file__).resolve().parent / "native"


def _tvm_versions() -> str:
    packages = ("apache-tvm", "apache-tvm-ffi")
    return "".join(f"{package}=={version(package)}\n" for package in packages)


PACKAGE = "adrenoc_runtime"
SOURCES_FILE = "sources.txt"


def find_runtime(abi: str, reporter: Reporter) -> Runtime:
    """Return the runtime for `abi` of the wheel where it is of these sources, else a built one.
    Raises DependencyError, ToolError, LinkError or OutputError as `build_runtime` does."""
    folder = _find_package()
    if folder is not None and (folder / abi).is_dir():
        wrong = _other_sources(folder) or what_is_wrong(folder / abi, RUNTIME_FOLDER)
        if not wrong:
            return open_runtime(folder / abi)
        reporter.warn(f"the runtime in {folder / abi} is not taken: {wrong}; one is built")
    return build_runtime(abi=abi, reporter=reporter)


def look_at_wheel() -> tuple[list[str], str]:
    """Return the ABIs of Android that the wheel has runtimes for, and why they are not taken."""
    folder = _find_package()
    held = [] if folder is None else [abi for abi in ANDROID_ABIS if (folder / abi).is_dir()]
    return held, _other_sources(folder) if folder is not None and held else ""


def _find_package() -> Path | None:
    package = importlib.util.find_spec(PACKAGE)
    places = None if package is None else package.submodule_search_locations
    return Path(places[0]) if places else None


def sources() -> str:
    """Return what tells the sources of a wheel: of the runtime and of its Java half."""
    return f"{runtime_stamp()} java {native_half_digest()[:12]}"


def _other_sources(folder: Path) -> str:
    """Return how a wheel's sources differ from those of this adrenoc; empty where equal."""
    try:
        told = (folder / SOURCES_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        told = "sources that it does not tell"
    try:
        ours = sources()
    except PackageNotFoundError as error:
        return f"{error.name} is not installed"
    return "" if told == ours else f"it is of {told}, this adrenoc of {ours}"
