"""Programs of the tests that use the runtime: built, given inputs, and how they ended."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.host.proc import run_tool
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.manifest import Manifest
from adrenoc.native.android.link import find_linker
from adrenoc.native.android.package.aar import archive
from adrenoc.native.android.runtime_build import (
    ARCHIVE,
    HEADERS,
    LIBRARY,
    LICENSE,
    NOTICE,
    Runtime,
    open_runtime,
)
from adrenoc.native.android.runtime_toolchain import (
    JNI_LIBRARY,
    QUICKLY,
    build_native_half,
    compile_classes,
    find_javac,
    java_folder,
)
from tests.compilers import compile_once

HERE = Path(__file__).parent
ROWS = 40
"""What the context of the small decoder has room for."""


def compile_against(runtime: Runtime, source: str, output: Path, *flags: str) -> Path:
    """Compile the C or C++ file `source` of this folder against `runtime`."""
    is_c = source.endswith(".c")
    language = ("cc", "-std=c99", "-D_GNU_SOURCE") if is_c else ("c++", "-std=c++17")
    command = [*language, *flags, "-Wall", "-Wextra", "-Werror", str(HERE / source)]
    command += [f"-I{runtime.folder}", f"-L{runtime.folder}", "-ladrenoc_runtime", "-lpthread"]
    return compile_once([*command, f"-Wl,-rpath,{runtime.folder}"], output)


def compile_with_archive(
    folder: Path, source: str, output: Path, *flags: str, compiler: str = "c++"
) -> Path:
    """Compile the C++ file `source` of this folder with the archive of `folder` in it.

    The archive goes in whole, since its parts register themselves.
    """
    command = [compiler, "-std=c++17", *flags, "-Wall", "-Wextra", "-Werror"]
    command += [str(HERE / source), f"-I{folder}", "-Wl,--whole-archive"]
    command += [str(folder / ARCHIVE), "-Wl,--no-whole-archive"]
    command += ["-lpthread", "-ldl", "-o", str(output)]
    subprocess.run(command, check=True)
    return output


def compile_opencl(source: str, folder: Path, opencl: str) -> Path:
    """Compile a C file of this folder to an OpenCL library; it leaves the rest to `opencl`."""
    library = folder / f"lib{Path(source).stem}.so"
    command = ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(HERE / source)]
    command += ["-Wl,--no-as-needed", opencl, "-ldl", f"-Wl,-rpath,{Path(opencl).parent}"]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a program ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """What it printed, parsed."""
        return json.loads(self.out)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs as files, and the outputs that Python computed from them."""

    arrays: dict[str, np.ndarray]
    files: dict[str, Path]
    outputs: dict[str, np.ndarray]

    def check(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Compare each output, bit for bit."""
        for name, expected in self.outputs.items():
            np.testing.assert_array_equal(outputs[name], expected)

    def inputs_of(self, bundle: Bundle) -> list[Path]:
        """The files, in the order of a bundle's inputs."""
        return [self.files[spec.name] for spec in bundle.manifest.inputs]

    def bytes_of(self, bundle: Bundle) -> bytes:
        """The outputs one behind the other, in the order of a bundle's."""
        return b"".join(self.outputs[spec.name].tobytes() for spec in bundle.manifest.outputs)


def draw(seed: int, **shapes: Sequence[int]) -> dict[str, np.ndarray]:
    """Return arrays of a normal distribution, drawn one after the other."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def flip_bits(file: Path, at: int, bits: int = 1) -> None:
    """Change a byte of a file."""
    content = bytearray(file.read_bytes())
    content[at] ^= bits
    file.write_bytes(content)


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a bundle, and have the manifest say so."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = next(file for file in manifest["files"] if file["path"] == name)
    entry["bytes"], entry["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def read_printed(
    execute: Callable[..., Finished], command: Sequence[object], folder: Path, **extra: str
) -> bytes:
    """What a program prints that is no text; it goes through a file in `folder`."""
    output = folder / "out"
    words = " ".join(f"'{word}'" for word in command)
    execute("sh", "-c", f"exec {words} > '{output}'", **extra)
    return output.read_bytes()


def compute(
    run: Callable[..., Finished],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    folder: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run a program on arrays: what it told, and outputs of such a form, through `folder`."""
    words: list[object] = []
    for place, (name, array) in enumerate(inputs.items()):
        array.tofile(folder / f"{place}.in")
        words += ["--input", f"{name}={folder / f'{place}.in'}"]
    files = {name: folder / f"{place}.out" for place, name in enumerate(outputs)}
    for name, file in files.items():
        words += ["--output", f"{name}={file}"]
    told = run(*words).json()
    return told, {
        name: np.fromfile(files[name], array.dtype).reshape(array.shape)
        for name, array in outputs.items()
    }


def run_case(
    run: Callable[..., Finished], path: Path, case: Case, folder: Path
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run a bundle on the inputs of the case: what it told, and the outputs."""
    told, made = compute(partial(run, path, "--repeat", 3), case.arrays, case.outputs, folder)
    assert told["runs"] == 4
    assert 0 < told["p50_ms"] <= told["p99_ms"]
    return told, made


def phone_runtime(folder: Path, runtime: Runtime) -> Runtime:
    """Stand-ins for the libraries, with the other files of a runtime for this machine."""
    for name in (LIBRARY, JNI_LIBRARY):
        link_stub(folder / name)
    for name in (*HEADERS, LICENSE, NOTICE):
        shutil.copy(runtime.folder / name, folder / name)
    return open_runtime(folder)


def link_stub(path: Path, *flags: str, emulation: str = "aarch64linux", strip: bool = True) -> None:
    """A library for arm64 Android, or for another machine, with one function."""
    linker = find_linker(host=False)
    targets = {"aarch64linux": "aarch64-linux-android", "elf_x86_64": "x86_64-linux-android"}
    source = path.with_suffix(".s")
    source.write_text(
        ".globl adrenoc_run\n.type adrenoc_run,%function\nadrenoc_run:\nlocal:\n nop\n"
    )
    assembler = [sys.executable, "-m", "ziglang", "clang", "-target", targets[emulation]]
    run_tool([*assembler, "-c", str(source), "-o", f"{path}.o"], deed="assemble")
    page = ("-z", "max-page-size=16384")
    stripped = ("--strip-all",) if strip else ()
    command = [*linker.command, "-m", emulation, "-shared", "-soname", path.name, *page, *stripped]
    run_tool([*command, *flags, f"{path}.o", "-o", str(path)], deed="link")
    source.unlink()
    Path(f"{path}.o").unlink()


def without_sources(manifest: Manifest) -> Manifest:
    """What an app's tar says of a bundle."""
    files = tuple(file for file in manifest.files if not file.path.endswith(".cl"))
    return replace(manifest, files=files)


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
