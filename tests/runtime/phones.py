"""What a runtime for phones looks like, without what it does: there is no NDK here."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from adrenoc.base.host.proc import run_tool
from adrenoc.bundle.manifest import Manifest
from adrenoc.native.android.link import find_linker
from adrenoc.native.android.runtime_build import (
    HEADERS,
    LIBRARY,
    LICENSE,
    NOTICE,
    Runtime,
    open_runtime,
)
from adrenoc.native.android.runtime_toolchain import JNI_LIBRARY


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
