"""Find what builds the runtime for a machine (the compiler, the NDK, what CMake has to know of
them), and compile the Java classes for archives.

The order for NDKs: what was asked for; `ANDROID_NDK_HOME`, `ANDROID_NDK_ROOT`, `ANDROID_NDK`; the
newest in the SDKs that `ANDROID_HOME` and `ANDROID_SDK_ROOT` name and in the folders where SDKs
usually are. The classes are of Java 8, which every Android Gradle plugin takes, and are compiled
against signatures of Android's in place of an SDK, by the `javac` that app builds need anyhow.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import adrenoc
from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.base.files import read
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import java_folders, sha256_file
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.proc import run_tool
from adrenoc.base.text.json_text import read_json
from adrenoc.target.target import runs_here, runs_on_android

# r23 is the first NDK without GNU binutils, whose place and names differ.
MIN_MAJOR = 23
# Android 7: the oldest that has what the runtime calls.
MIN_API = 24
_REVISION = re.compile(r"^Pkg\.Revision\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})*)", re.MULTILINE)
_MOST_BYTES = 1 << 20
"""Of a text that describes an NDK."""
# The folder of an NDK's tools is named after the system that they run on.
_HOST = "linux-"
_PREBUILT = Path("toolchains") / "llvm" / "prebuilt"
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "windows": "Windows"}
_USUAL_SDKS = ("~/Android/Sdk", "~/Library/Android/sdk", "/usr/lib/android-sdk", "/opt/android-sdk")


@dataclass(frozen=True, kw_only=True)
class Ndk:
    """An NDK that is new enough; `origin` tells what led to it."""

    folder: Path
    version: tuple[int, ...]
    origin: str

    @property
    def revision(self) -> str:
        """Return the NDK's number as its makers write it, such as 27.0.12077973."""
        return ".".join(str(part) for part in self.version)

    @property
    def toolchain_file(self) -> Path:
        """Return what CMake reads to compile for Android."""
        return self.folder / "build" / "cmake" / "android.toolchain.cmake"

    @property
    def tools(self) -> Path:
        """Compilers and linkers for this machine."""
        return min((self.folder / _PREBUILT).glob(f"{_HOST}*")) / "bin"

    @property
    def apis(self) -> tuple[int, int]:
        """Return the oldest and the newest API level that it compiles for; 0 if untold."""
        try:
            told = read_json(read.read_plain(self.folder / "meta" / "platforms.json", _MOST_BYTES))
            return int(told["min"]), int(told["max"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return 0, 0


def find_ndk(asked: Path | None = None) -> Ndk | None:
    """Return the NDK to use, or None where there is none. Raises DependencyError where what was
    asked for, or what a variable names, is no NDK, too old, or for another system."""
    if asked is not None:
        return open_ndk(asked, origin="--set ndk")
    for variable, folder in read.android_ndk_folders()[:1]:
        return open_ndk(folder, origin=variable)
    found, _ = _ndks_in_sdks()
    return max(found, key=lambda ndk: ndk.version) if found else None


def why_no_ndk() -> str:
    """Why `find_ndk` gives None: nothing is there, or what is there does not serve."""
    _, refused = _ndks_in_sdks()
    return "; ".join(refused) or "none in the usual places, and no variable names one"


def _ndks_in_sdks() -> tuple[list[Ndk], list[str]]:
    """Return those that serve, and what is wrong with the others."""
    found: list[Ndk] = []
    refused: list[str] = []
    for variable, sdk in (*read.android_sdk_folders(), *_expand_home(_USUAL_SDKS)):
        try:
            kits = sorted(sdk.glob("ndk/*/source.properties"))
        except OSError:  # a name too long, a folder of others
            continue
        for properties in kits:
            try:
                found.append(open_ndk(properties.parent, origin=variable))
            except DependencyError as error:
                refused.append(error.message)
    return found, refused


def _expand_home(places: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield folders by what they were written as; none below a home of a user who has none."""
    for place in places:
        with suppress(RuntimeError):
            yield place, Path(place).expanduser()


def open_ndk(folder: Path, *, origin: str) -> Ndk:
    """Return the NDK in `folder`. Raises DependencyError where it holds no NDK, one that is too
    old, or one for another system."""
    version = ndk_version(folder)
    if version[0] < MIN_MAJOR:
        raise DependencyError(
            f"the NDK at {folder} ({origin}) is r{version[0]}; adrenoc needs r{MIN_MAJOR} or newer",
            hint="install a newer NDK (https://developer.android.com/ndk/downloads), or "
            f"{pip_install('link')}",
        )
    hosts = sorted(path.name for path in (folder / _PREBUILT).glob("*"))
    if not any(host.startswith(_HOST) for host in hosts):
        systems = " and ".join(_SYSTEMS.get(host.partition("-")[0], host) for host in hosts)
        runs = f"its tools are for {systems}" if hosts else f"it has no {_PREBUILT}/{_HOST}*"
        raise DependencyError(
            f"the NDK at {folder} ({origin}) does not run on Linux: {runs}",
            hint="install the NDK for Linux (https://developer.android.com/ndk/downloads)",
        )
    return Ndk(folder=folder, version=version, origin=origin)


def ndk_version(folder: Path) -> tuple[int, ...]:
    """Return the revision that `source.properties` of an NDK gives, as numbers. Raises
    DependencyError where the folder holds no NDK."""
    try:
        text = read.read_plain(folder / "source.properties", _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        text = ""
    match = _REVISION.search(text)
    if match is None:
        raise DependencyError(
            f"{folder} is not an Android NDK: no `source.properties` with a Pkg.Revision in it",
            hint="give the folder that holds source.properties: ANDROID_NDK_HOME=PATH",
        )
    return tuple(int(part) for part in match.group(1).split("."))


HOST = "host"
_LINUX_ABIS = {"aarch64-linux": "aarch64"}
ANDROID_ABIS = {"arm64-v8a": "aarch64", "armeabi-v7a": "arm", "x86_64": "x86_64"}
ABIS = (HOST, *_LINUX_ABIS, *ANDROID_ABIS)
_CLML_HEADER = Path("CL") / "cl_qcom_ml_ops.h"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What CMake is told about the compiler, and what the digest has to know of it. `api` is the
    level of the oldest Android that the result is for, 0 for another system."""

    options: tuple[str, ...]
    identity: str
    machine: str
    api: int = 0


def find_abi(triple: str) -> str:
    """Return the ABI of the runtime that goes with what was compiled for an LLVM triple."""
    if runs_here(triple):
        return HOST
    machine = triple.partition("-")[0]
    abis = ANDROID_ABIS if runs_on_android(triple) else _LINUX_ABIS
    return next((abi for abi, of in abis.items() if of == machine), machine)


def find_toolchain(abi: str, ndk: Path | None, api: int) -> Toolchain:
    """Return the toolchain for `abi`; `ndk` and `api` are as `build_runtime` has them. Raises
    OptionError where the ABI is unknown, or the API level too old; DependencyError where the
    compiler or the NDK is missing, too old, or for another system."""
    if abi == HOST:
        compiler = find_tool("c++", "g++", "clang++")
        options: tuple[str, ...] = (f"-DCMAKE_CXX_COMPILER={compiler}",)
        return Toolchain(
            options=options, identity=_version_line(compiler), machine=platform.machine()
        )
    if abi in _LINUX_ABIS:
        machine = _LINUX_ABIS[abi]
        compiler = find_tool(f"{machine}-linux-gnu-g++")
        options = (
            "-DCMAKE_SYSTEM_NAME=Linux",
            f"-DCMAKE_SYSTEM_PROCESSOR={machine}",
            f"-DCMAKE_C_COMPILER={find_tool(f'{machine}-linux-gnu-gcc')}",
            f"-DCMAKE_CXX_COMPILER={compiler}",
        )
        return Toolchain(options=options, identity=_version_line(compiler), machine=machine)
    if abi in ANDROID_ABIS:
        return _android_toolchain(abi, ndk, api)
    raise OptionError(
        f'unknown ABI "{abi}"; known are {", ".join(ABIS)}', hint="adrenoc runtime build --help"
    )


def _android_toolchain(abi: str, ndk: Path | None, api: int) -> Toolchain:
    if api < MIN_API:
        raise OptionError(
            f"API level {api} is too old: the runtime calls what came with {MIN_API} (Android 7)",
            hint=f"adrenoc runtime build --abi {abi} --api {MIN_API}",
        )
    found = find_ndk(ndk)
    if found is None:
        raise DependencyError(
            f"building the runtime for {abi} needs an Android NDK: {why_no_ndk()}",
            hint=f"ANDROID_NDK_HOME=PATH adrenoc runtime build --abi {abi}",
        )
    oldest, newest = found.apis
    if newest and not oldest <= api <= newest:
        raise DependencyError(
            f"the NDK {found.revision} at {found.folder} compiles for the API levels {oldest} to "
            f"{newest}, not for {api}",
            hint=f"adrenoc runtime build --abi {abi} --api {max(MIN_API, oldest)}",
        )
    if not found.toolchain_file.is_file():
        raise DependencyError(
            f"the NDK at {found.folder} is not whole: it has no "
            f"{found.toolchain_file.relative_to(found.folder)}",
            hint="install the NDK again (https://developer.android.com/ndk/downloads)",
        )
    options = (
        f"-DCMAKE_TOOLCHAIN_FILE={found.toolchain_file}",
        f"-DANDROID_ABI={abi}",
        f"-DANDROID_PLATFORM={api}",
        "-DANDROID_STL=c++_static",
    )
    return Toolchain(
        options=options, identity=f"NDK {found.revision}", machine=ANDROID_ABIS[abi], api=api
    )


_PACKAGES = {
    "cmake": "pip install cmake",
    "ninja": "pip install ninja",
    "c++": "apt-get install g++",
    "aarch64-linux-gnu-g++": "apt-get install g++-aarch64-linux-gnu",
    "aarch64-linux-gnu-gcc": "apt-get install g++-aarch64-linux-gnu",
}


def find_tool(*names: str) -> str:
    """Return the first of `names` that is on the PATH or beside this Python. Raises DependencyError
    where there is none."""
    beside = str(Path(sys.executable).parent)
    for name in names:
        found = shutil.which(name) or shutil.which(name, path=beside)
        if found is not None:
            return found
    raise DependencyError(
        f"building the runtime needs {' or '.join(names)}, which is not on the PATH",
        hint=f"{_PACKAGES[names[0]]}, then run again",
    )


def _version_line(compiler: str) -> str:
    said = run_tool([compiler, "--version"], deed="ask the compiler for its version")
    return said.partition("\n")[0]


def add_clml(toolchain: Toolchain, sdk: Path) -> Toolchain:
    """Return the toolchain with an SDK: its include folder is the one that holds
    CL/cl_qcom_ml_ops.h. Raises OptionError where the SDK has no such header."""
    found = sorted(sdk.rglob(str(_CLML_HEADER)))
    if not found:
        raise OptionError(
            f"{sdk} is no OpenCL ML SDK: it holds no {_CLML_HEADER}",
            hint="adrenoc runtime build --clml-sdk PATH, with the folder that the SDK unpacks to",
        )
    return replace(
        toolchain,
        options=(*toolchain.options, f"-DADRENOC_CLML_SDK={found[0].parent.parent}"),
        identity=f"{toolchain.identity}, CLML {sha256_file(found[0])}",
    )


# Beside the sources of the runtime, and no part of what is built for it.
FOLDER = "java"
QUICKLY = "-J-XX:TieredStopAtLevel=1"
"""An option of javac: it is not optimised itself while it runs, which takes half of its time."""
JNI_LIBRARY = "libadrenoc_jni.so"


def java_folder() -> Path:
    """`src` (the classes), `stubs` (of Android's), `jni` (the native half), its CMake project."""
    return Path(adrenoc.__file__).resolve().parent / "native" / FOLDER


def native_half_digest() -> str:
    """SHA-256 over what the native half is built from."""
    digest = hashlib.sha256()
    folder = java_folder()
    for path in (folder / "CMakeLists.txt", *sorted((folder / "jni").iterdir())):
        digest.update(os.fsencode(path.relative_to(folder)) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def build_native_half(runtime: Path, scratch: Path, options: Sequence[str]) -> Path:
    """Build it for the runtime in the folder `runtime`, in `scratch`; returns the library.

    `options` tell CMake the compiler (`Toolchain.options`), and where `jni.h` is, if it has none.
    Raises DependencyError where CMake or ninja is missing, ToolError where the compiler failed.
    """
    cmake = find_tool("cmake")
    configure = [cmake, "-S", str(java_folder()), "-B", str(scratch), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", f"-DADRENOC_RUNTIME={runtime}"]
    run_tool([*configure, *options], deed="configure the native half of the Java classes")
    run_tool([cmake, "--build", str(scratch)], deed="build the native half of the Java classes")
    return scratch / "out" / JNI_LIBRARY


_RELEASE = "8"
# Where Android Studio has a JDK of its own, on Linux.
_STUDIOS = ("~/android-studio", "/opt/android-studio")


def find_javac() -> str:
    """Return the Java compiler: of JAVA_HOME, on the PATH, or Android Studio's. Raises
    DependencyError where there is none."""
    places = [home / "bin" for _, home in java_folders()]
    studios = [studio / "jbr" / "bin" for _, studio in _expand_home(_STUDIOS)]
    for path in (*places, None, *studios):
        found = shutil.which("javac", path=None if path is None else str(path))
        if found is not None:
            return found
    raise DependencyError(
        "an Android archive brings Java classes, which need javac: it is neither in JAVA_HOME "
        "nor on the PATH",
        hint="apt-get install default-jdk-headless, or JAVA_HOME=.../android-studio/jbr, "
        "then run again",
    )


def compile_classes() -> Mapping[str, bytes]:
    """Return the class files by their path in classes.jar; equal sources give equal bytes. Raises
    DependencyError where there is no Java compiler, ToolError where it failed."""
    return _compile(find_javac())


@cache
def _compile(javac: str) -> Mapping[str, bytes]:
    folder = java_folder()
    sources = sorted(str(path) for path in (folder / "src").rglob("*.java"))
    with TemporaryFolder("app") as made:
        command = [javac, QUICKLY, "--release", _RELEASE, "-encoding", "UTF-8", "-g:source,lines"]
        command += ["-Xlint:all,-options", "-implicit:none", "-sourcepath", str(folder / "stubs")]
        run_tool([*command, "-d", str(made), *sources], deed="compile the Java classes")
        found = {
            path.relative_to(made).as_posix(): path.read_bytes()
            for path in sorted(made.rglob("*.class"))
        }
    return MappingProxyType(found)
