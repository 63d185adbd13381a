"""All sources of the runtime, in a few units, as an old clang with its libc++ understands them."""

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import adrenoc
from tests.commands import run_program
from tests.one_unit import write_unit

NATIVE = Path(adrenoc.__file__).parent / "native"
RUNTIME = NATIVE / "runtime"
COMPILER = "clang++-14"
LIBCXX = Path("/usr/lib/llvm-14/include/c++/v1")
HEADERS = """#include "adrenoc.hpp"
#include "adrenoc.h"
int main() { return adrenoc_runtime_version() == nullptr; }
"""


def find_package(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = importlib.util.find_spec(name)
    assert spec.origin is not None
    return Path(spec.origin).parent


def check_syntax(files: Sequence[Path], warning: str, flags: Sequence[str]) -> None:
    """Let the compiler read some files with `flags`, which say whose C library it is."""
    if shutil.which(COMPILER) is None or not LIBCXX.is_dir():
        pytest.skip(f"no {COMPILER} with its libc++: apt-get install clang-14 libc++-14-dev")
    tvm, ffi = find_package("tvm"), find_package("tvm_ffi")
    own = (NATIVE / "include", NATIVE / "src", RUNTIME / "src")
    compat = [NATIVE / "compat" / at for at in ("", "tvm", "tvm/support")]
    others = (tvm / "include", tvm / "src", ffi / "include", *compat)
    command = [COMPILER, "-std=c++17", "-fsyntax-only", warning, *flags]
    command += ["-DADRENOC_BUILDS_RUNTIME", '-DADRENOC_STAMP="x"']
    command += ["-DTVM_FFI_EXPORTS", "-DTVM_RUNTIME_EXPORTS", "-DTVM_FFI_USE_LIBBACKTRACE=0"]
    command += [f"-I{folder}" for folder in own]
    command += [f"-isystem{folder}" for folder in others]
    done = run_program([*command, *map(str, files)])
    assert done.returncode == 0, done.stderr


def _opencl(folder: Path) -> list[Path]:
    return [write_unit(folder / "unit.cc", sorted((NATIVE / "src").rglob("*.cc")))]


def _runtime(folder: Path) -> list[Path]:
    return [write_unit(folder / "unit.cc", sorted((RUNTIME / "src").rglob("*.cc")))]


def _programs(folder: Path) -> list[Path]:
    header = folder / "headers.cc"
    header.write_text(HEADERS)
    return [header, *sorted((RUNTIME / "tools").glob("*.cc"))]


def _of_tvm(folder: Path) -> list[Path]:
    tvm, ffi = find_package("tvm") / "src/runtime", find_package("tvm_ffi") / "src/ffi"
    sources = [*ffi.glob("*.cc"), *ffi.glob("extra/*.cc")]
    for part in (tvm, tvm / "memory", tvm / "rpc"):
        sources += part.glob("*.cc")
    sources += [tvm / "vm" / f"{name}.cc" for name in ("builtin", "bytecode", "executable", "vm")]
    left_out = {"builtin_fp16", "rpc_pipe_impl", "testing", "backtrace_win"}
    kept = sorted(source for source in sources if source.stem not in left_out)
    return [write_unit(folder / "unit.cc", kept)]


UNITS: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "opencl": (_opencl, "-Werror=return-type"),
    "runtime": (_runtime, "-Werror=return-type"),
    "programs": (_programs, "-Werror"),
    "of TVM": (_of_tvm, "-w"),
}
"""What writes the files of a unit into a folder, and the warnings that are asked for."""
