"""Every source of the runtime compiles for the ABIs of phones, of which one has sizes of 32 bits.

With headers of Android's own C library where BIONIC names a clone of it
(https://android.googlesource.com/platform/bionic), else with those of musl, which ziglang brings:
the ABI's sizes and the compiler's rules are checked then, what the C library offers is not.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.runtime.runtime_units import LIBCXX, UNITS, check_syntax, find_package

pytestmark = pytest.mark.nightly

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
