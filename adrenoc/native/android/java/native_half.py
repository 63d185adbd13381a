"""Build libadrenoc_jni.so, the native half of the Java classes, beside a runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.java.sources import JNI_LIBRARY, java_folder
from adrenoc.native.android.runtime_toolchain import find_tool


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
