"""Find the Java classes and build libadrenoc_jni.so, their native half, beside a runtime."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import adrenoc
from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.runtime_toolchain import find_tool

# Beside the sources of the runtime, and no part of what is built for it.
FOLDER = "java"
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

    Raises:
        DependencyError: CMake or ninja is missing.
        ToolError: the compiler failed.
    """
    cmake = find_tool("cmake")
    configure = [cmake, "-S", str(java_folder()), "-B", str(scratch), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}", f"-DADRENOC_RUNTIME={runtime}"]
    run_tool([*configure, *options], deed="configure the native half of the Java classes")
    run_tool([cmake, "--build", str(scratch)], deed="build the native half of the Java classes")
    return scratch / "out" / JNI_LIBRARY
