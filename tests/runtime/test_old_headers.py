"""The sources as the oldest NDKs that are supported compile them: an old clang, an old libc++.

NDK r23 to r25 bring the libc++ of LLVM 11 to 14, which refuses things that newer ones take.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

import adrenoc
from tests.one_unit import write_unit

pytestmark = pytest.mark.nightly

NATIVE = Path(adrenoc.__file__).parent / "native"
RUNTIME = NATIVE / "runtime"
COMPILER = "clang++-14"
LIBCXX = Path("/usr/lib/llvm-14/include/c++/v1")
HEADERS = """#include "adrenoc.hpp"
#include "adrenoc.h"
int main() { return adrenoc_runtime_version() == nullptr; }
"""


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _compile(*files: Path, warnings: str = "-Werror=return-type") -> None:
    if shutil.which(COMPILER) is None or not LIBCXX.is_dir():
        pytest.skip(f"no {COMPILER} with its libc++: apt-get install clang-14 libc++-14-dev")
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    own = (NATIVE / "include", NATIVE / "src", RUNTIME / "src")
    compat = (NATIVE / "compat", *(RUNTIME / "compat" / at for at in ("", "tvm", "tvm/support")))
    others = (tvm / "include", tvm / "src", ffi / "include", *compat)
    command = [COMPILER, "-std=c++17", "-stdlib=libc++", "-fsyntax-only", warnings]
    command += ["-DADRENOC_BUILDS_RUNTIME", '-DADRENOC_STAMP="x"']
    command += ["-DTVM_FFI_EXPORTS", "-DTVM_RUNTIME_EXPORTS", "-DTVM_FFI_USE_LIBBACKTRACE=0"]
    command += [f"-I{folder}" for folder in own]
    command += [f"-isystem{folder}" for folder in others]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_opencl_runtime(tmp_path: Path) -> None:
    _compile(write_unit(tmp_path / "unit.cc", sorted((NATIVE / "src").rglob("*.cc"))))


def test_the_runtime_without_python(tmp_path: Path) -> None:
    _compile(write_unit(tmp_path / "unit.cc", sorted((RUNTIME / "src").rglob("*.cc"))))


def test_programs_and_public_headers(tmp_path: Path) -> None:
    header = tmp_path / "headers.cc"
    header.write_text(HEADERS)
    _compile(header, *sorted((RUNTIME / "tools").glob("*.cc")), warnings="-Werror")


def test_what_is_taken_of_tvm(tmp_path: Path) -> None:
    tvm, ffi = _package("tvm") / "src/runtime", _package("tvm_ffi") / "src/ffi"
    sources = [*ffi.glob("*.cc"), *ffi.glob("extra/*.cc")]
    for folder in (tvm, tvm / "memory", tvm / "rpc"):
        sources += folder.glob("*.cc")
    sources += [tvm / "vm" / f"{name}.cc" for name in ("builtin", "bytecode", "executable", "vm")]
    left_out = {"builtin_fp16", "rpc_pipe_impl", "testing", "backtrace_win"}
    kept = sorted(source for source in sources if source.stem not in left_out)
    _compile(write_unit(tmp_path / "unit.cc", kept), warnings="-w")
