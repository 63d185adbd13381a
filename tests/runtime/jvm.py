"""The Java classes as an app has them, in a JVM of this computer, over the runtime for it."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from adrenoc.native.android.package.aar import archive
from adrenoc.native.android.runtime_build import LIBRARY, Runtime
from adrenoc.native.android.runtime_toolchain import (
    QUICKLY,
    build_native_half,
    compile_classes,
    find_javac,
    java_folder,
)
from tests.runtime.programs import HERE, Finished


@dataclass(frozen=True, kw_only=True)
class Jvm:
    """A Java virtual machine with the classes, their native half and programs of the tests."""

    java: str
    class_path: str
    libraries: Path
    signals: Path
    execute: Callable[..., Finished]

    def run(self, program: str, *words: object, heap_mib: int = 256) -> str:
        """Run a program of `tests/runtime/java/programs`; what it printed."""
        flags = [f"-Xmx{heap_mib}m", "-Xcheck:jni", "-ea", f"-Djava.library.path={self.libraries}"]
        # A fake of Android's file descriptors reads the number of Java's.
        flags += ["--add-opens", "java.base/java.io=ALL-UNNAMED", "-Dfile.encoding=UTF-8"]
        flags += [QUICKLY.removeprefix("-J")]
        command = [self.java, *flags, "-cp", self.class_path, program, *words]
        # Drivers of CPUs take signals that the JVM takes, too: this library lets both have them.
        done = self.execute(*command, LD_PRELOAD=str(self.signals))
        assert "WARNING in native method" not in done.out, done.out
        return done.out


def make_jvm(runtime: Runtime, folder: Path, execute: Callable[..., Finished]) -> Jvm:
    """Compile all of it into `folder`.

    Raises:
        DependencyError: there is no JDK.
    """
    javac = Path(find_javac()).resolve()
    home = javac.parents[1]
    classes = folder / "classes.jar"
    classes.write_bytes(archive(compile_classes()))
    java = HERE / "java"
    programs = folder / "programs"
    sources = [str(path) for path in sorted(java.rglob("*.java"))]
    command = [str(javac), QUICKLY, "-encoding", "UTF-8", "-Xlint:all", "-Werror"]
    command += ["-cp", str(classes)]
    # Of Android's classes that have no fake, the signatures do.
    command += ["-sourcepath", str(java_folder() / "stubs"), "-implicit:class"]
    subprocess.run([*command, "-d", str(programs), *sources], check=True)
    include = f"{home / 'include'};{home / 'include' / 'linux'}"
    options = [f"-DADRENOC_JNI_INCLUDE={include}"]
    library = build_native_half(runtime.folder, folder / "jni", options)
    libraries = folder / "libraries"
    libraries.mkdir()
    for path in (library, runtime.folder / LIBRARY):
        shutil.copy(path, libraries)
    return Jvm(
        java=str(javac.with_name("java")),
        class_path=os.pathsep.join((str(classes), str(programs))),
        libraries=libraries,
        signals=home / "lib" / "libjsig.so",
        execute=execute,
    )
