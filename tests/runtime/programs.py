"""Programs of the tests that use the runtime: built, given inputs, and how they ended."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.runtime_build import ARCHIVE, Runtime
from tests.compilers import compile_once

HERE = Path(__file__).parent


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
        found: dict[str, Any] = json.loads(self.out)
        return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs as files, and the outputs that Python computed from them."""

    arrays: dict[str, np.ndarray]
    files: dict[str, Path]
    outputs: dict[str, np.ndarray]

    def inputs_of(self, bundle: Bundle) -> list[Path]:
        """The files, in the order of a bundle's inputs."""
        return [self.files[spec.name] for spec in bundle.manifest.inputs]

    def bytes_of(self, bundle: Bundle) -> bytes:
        """The outputs one behind the other, in the order of a bundle's."""
        return b"".join(self.outputs[spec.name].tobytes() for spec in bundle.manifest.outputs)


def read_printed(
    execute: Callable[..., Finished], command: Sequence[object], folder: Path, **extra: str
) -> bytes:
    """What a program prints that is no text; it goes through a file in `folder`."""
    output = folder / "out"
    words = " ".join(f"'{word}'" for word in command)
    execute("sh", "-c", f"exec {words} > '{output}'", **extra)
    return output.read_bytes()


def run_case(
    execute: Callable[..., Finished],
    runner: Path,
    opencl: str,
    path: Path,
    case: Case,
    folder: Path,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run a bundle by `adrenoc_run`: what it told, and the outputs, which go through `folder`."""
    command: list[object] = [runner, path, "--opencl", opencl, "--repeat", 3]
    for name, file in case.files.items():
        command += ["--input", f"{name}={file}"]
    for name in case.outputs:
        command += ["--output", f"{name}={folder / name}"]
    told = execute(*command).json()
    assert told["runs"] == 4
    assert 0 < told["p50_ms"] <= told["p99_ms"]
    return told, {
        name: np.fromfile(folder / name, array.dtype).reshape(array.shape)
        for name, array in case.outputs.items()
    }
