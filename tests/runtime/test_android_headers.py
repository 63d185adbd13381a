"""Every source of the runtime compiles for the ABIs of phones, of which one has sizes of 32 bits.

With headers of Android's own C library where BIONIC names a clone of it
(https://android.googlesource.com/platform/bionic), else with those of musl, which ziglang brings:
the ABI's sizes and the compiler's rules are checked then, what the C library offers is not.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import adrenoc
from tests.commands import run_program
from tests.compilers import write_unit

pytestmark = pytest.mark.nightly

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

ABIS = {
    "arm64-v8a": ("aarch64-linux-android24", "aarch64-linux-musl"),
    "armeabi-v7a": ("armv7a-linux-androideabi24", "armv7a-linux-musleabihf"),
    "x86_64": ("x86_64-linux-android24", "x86_64-linux-musl"),
}
"""The targets with bionic, at API 24, and with musl."""
FOLDERS = {
    "arm64-v8a": ("asm-arm64", "aarch64-linux-musl", "aarch64-linux-any"),
    "armeabi-v7a": ("asm-arm", "arm-linux-musl", "arm-linux-any"),
    "x86_64": ("asm-x86", "x86_64-linux-musl", "x86-linux-any"),
}
"""Where headers of one machine are: bionic's, musl's and the kernel's."""
OUTSIDE = {
    "log.h": """
enum { ANDROID_LOG_DEBUG = 3, ANDROID_LOG_INFO, ANDROID_LOG_WARN, ANDROID_LOG_ERROR };
extern "C" int __android_log_write(int priority, const char* tag, const char* text);
extern "C" int __android_log_print(int priority, const char* tag, const char* format, ...);
""",
    "ndk-version.h": "#define __NDK_MAJOR__ 25\n#define __NDK_MINOR__ 0\n",
}
"""Headers of an NDK that are no part of bionic."""


def write_bionic(bionic: Path, folder: Path, asm: str) -> None:
    """Lay the headers of bionic and of the kernel into a folder, as an NDK has them."""
    shutil.copytree(bionic / "libc/include", folder)
    for kernel in ("uapi", "android/uapi"):
        shutil.copytree(bionic / "libc/kernel" / kernel, folder, dirs_exist_ok=True)
    shutil.copytree(folder / asm / "asm", folder / "asm")
    for name, text in OUTSIDE.items():
        (folder / "android" / name).write_text(text)


def flags_of(abi: str, folder: Path) -> list[str]:
    """Return what the compiler is told of an ABI and of its C library."""
    asm, *of_machine = FOLDERS[abi]
    bionic = os.environ.get("BIONIC")
    if bionic is not None:
        write_bionic(Path(bionic), folder / "include", asm)
        places, more = [folder / "include"], []
    else:
        held = find_package("ziglang") / "lib/libc/include"
        places = [held / name for name in (*of_machine, "generic-musl", "any-linux-any")]
        more = ["-D_LIBCPP_HAS_MUSL_LIBC", "-D__MUSL__"]  # neither library tells of it by itself
    target = ABIS[abi][bionic is None]
    headers = [f"-isystem{place}" for place in (LIBCXX, *places)]
    narrow = ["-Werror=shift-count-overflow", "-Werror=c++11-narrowing"]
    return [f"--target={target}", "-nostdinc++", "-nostdlibinc", *more, *narrow, *headers]


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("unit", UNITS)
def test_a_unit(tmp_path, unit, abi):
    write, warning = UNITS[unit]
    check_syntax(write(tmp_path), warning, flags_of(abi, tmp_path))


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_of_old_headers(tmp_path, unit):
    """The libc++ of NDK r23 to r25, LLVM's 11 to 14, refuses things that newer ones take."""
    write, warning = UNITS[unit]
    check_syntax(write(tmp_path), warning, ["-stdlib=libc++"])
