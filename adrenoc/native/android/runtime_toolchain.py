"""Find the compiler that builds the runtime for a machine, and what CMake has to know of it."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.base.errors import DependencyError, OptionError
from adrenoc.base.files.read import sha256_file
from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.ndk import MIN_API, find_ndk, why_no_ndk
from adrenoc.target.system import runs_here, runs_on_android

HOST = "host"
_LINUX_ABIS = {"aarch64-linux": "aarch64"}
_ANDROID_ABIS = {"arm64-v8a": "aarch64", "armeabi-v7a": "arm", "x86_64": "x86_64"}
ABIS = (HOST, *_LINUX_ABIS, *_ANDROID_ABIS)
_CLML_HEADER = Path("CL") / "cl_qcom_ml_ops.h"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """What CMake is told about the compiler, and what the digest has to know of it.

    `api` is the level of the oldest Android that the result is for, 0 for another system.
    """

    options: tuple[str, ...]
    identity: str
    machine: str
    api: int = 0


def find_abi(triple: str) -> str:
    """Return the ABI of the runtime that goes with what was compiled for an LLVM triple."""
    if runs_here(triple):
        return HOST
    machine = triple.partition("-")[0]
    abis = _ANDROID_ABIS if runs_on_android(triple) else _LINUX_ABIS
    return next((abi for abi, of in abis.items() if of == machine), machine)


def find_toolchain(abi: str, ndk: Path | None, api: int) -> Toolchain:
    """Return the toolchain for `abi`; `ndk` and `api` are as `build_runtime` has them.

    Raises:
        OptionError: the ABI is unknown, or the API level too old.
        DependencyError: the compiler or the NDK is missing, too old, or for another system.
    """
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
    if abi in _ANDROID_ABIS:
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
        options=options, identity=f"NDK {found.revision}", machine=_ANDROID_ABIS[abi], api=api
    )


_PACKAGES = {
    "cmake": "pip install cmake",
    "ninja": "pip install ninja",
    "c++": "apt-get install g++",
    "aarch64-linux-gnu-g++": "apt-get install g++-aarch64-linux-gnu",
    "aarch64-linux-gnu-gcc": "apt-get install g++-aarch64-linux-gnu",
}


def find_tool(*names: str) -> str:
    """Return the first of `names` that is on the PATH or beside this Python.

    Raises:
        DependencyError: there is none.
    """
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
    CL/cl_qcom_ml_ops.h.

    Raises:
        OptionError: the SDK has no such header.
    """
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
