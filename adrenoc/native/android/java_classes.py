"""Compile the Java classes for archives, against signatures of Android's in place of an SDK.

The classes are of Java 8, which every Android Gradle plugin takes.  They are compiled on the
computer that writes an archive, by the `javac` that app builds need anyhow.

Their native half, libadrenoc_jni.so, is built beside a runtime."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

import adrenoc
from adrenoc.base.errors import DependencyError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.read import java_folders
from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.runtime_toolchain import find_tool

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
_STUDIOS = (Path.home() / "android-studio", Path("/opt/android-studio"))


def find_javac() -> str:
    """Return the Java compiler: of JAVA_HOME, on the PATH, or Android Studio's. Raises
    DependencyError where there is none."""
    places = [home / "bin" for _, home in java_folders()]
    studios = [studio / "jbr" / "bin" for studio in _STUDIOS]
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
