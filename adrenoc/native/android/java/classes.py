"""Compile the Java classes for archives, against signatures of Android's in place of an SDK.

The classes are of Java 8, which every Android Gradle plugin takes.  They are compiled on the
computer that writes an archive, by the `javac` that app builds need anyhow.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.read import java_folders
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.base.host.proc import run_tool
from adrenoc.native.android.java.sources import java_folder

_RELEASE = "8"
# Where Android Studio has a JDK of its own, on Linux.
_STUDIOS = (Path.home() / "android-studio", Path("/opt/android-studio"))


def find_javac() -> str:
    """Return the Java compiler: of JAVA_HOME, on the PATH, or Android Studio's.

    Raises:
        DependencyError: there is none.
    """
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
    """Return the class files by their path in classes.jar; equal sources give equal bytes.

    Raises:
        DependencyError: there is no Java compiler.
        ToolError: it failed.
    """
    return _compile(find_javac())


@cache
def _compile(javac: str) -> Mapping[str, bytes]:
    folder = java_folder()
    sources = sorted(str(path) for path in (folder / "src").rglob("*.java"))
    with TemporaryFolder("app") as made:
        command = [javac, "--release", _RELEASE, "-encoding", "UTF-8", "-g:source,lines"]
        command += ["-Xlint:all,-options", "-implicit:none", "-sourcepath", str(folder / "stubs")]
        run_tool([*command, "-d", str(made), *sources], deed="compile the Java classes")
        found = {
            path.relative_to(made).as_posix(): path.read_bytes()
            for path in sorted(made.rglob("*.class"))
        }
    return MappingProxyType(found)
