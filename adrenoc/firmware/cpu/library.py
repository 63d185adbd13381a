"""A program as a shared library that needs no other: what a bundle carries for the CPU."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

from adrenoc.base.errors import DependencyError
from adrenoc.base.files.temporary import TemporaryFolder
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.proc import run_tool
from adrenoc.bundle.bundle import CPU_LIBRARY
from adrenoc.firmware.cpu.print_cpu import WEIGHTS_FILE, print_cpu_model
from adrenoc.firmware.cpu.shared_weights import SharedWeight
from adrenoc.firmware.mcu.print_c import NOT_FUSED
from adrenoc.firmware.mcu.program import Program

_OPTIONS = (
    *("-std=gnu11", "-O2", NOT_FUSED, "-fPIC", "-ffreestanding", "-fno-builtin"),
    "-fvisibility=hidden",
    *("-fno-asynchronous-unwind-tables", "-nostdlib", "-shared", f"-Wl,-soname,{CPU_LIBRARY}"),
    *("-Wl,-z,max-page-size=16384", "-Wl,-z,noexecstack", "-Wl,-z,defs"),
)
_GCC = {"aarch64": "aarch64-linux-gnu-gcc", "x86_64": "x86_64-linux-gnu-gcc"}


def build_cpu_library(
    program: Program, machine: str, *, halves_to_even: bool, shared: Sequence[SharedWeight] = ()
) -> bytes:
    """Compile and link a program for the processors of a `machine`, as `aarch64`.

    Weights of `shared` are taken of a bundle's constants as it is loaded.

    Raises:
        DependencyError: there is no compiler for them.
        ToolError: it does not compile.
    """
    compiler = _compiler(machine)
    with TemporaryFolder("link") as work:
        printed = print_cpu_model(program, halves_to_even=halves_to_even, shared=shared)
        for name, content in printed.items():
            (work / name).write_bytes(content)
        made = work / CPU_LIBRARY
        weights = f'-DMODEL_WEIGHTS="{work / WEIGHTS_FILE}"'
        source = str(work / "model.c")
        command = [*compiler, *_OPTIONS, f"-I{work}", weights, source, "-o", str(made)]
        run_tool(command, deed=f"compile the model for the CPU ({machine})")
        return made.read_bytes()


def _compiler(machine: str) -> list[str]:
    """clang as the package ziglang has it, or GCC."""
    found = importlib.util.find_spec("ziglang")
    if found is not None and found.origin:
        zig = str(Path(found.origin).with_name("zig"))
        cpu = {"aarch64": "generic", "x86_64": "x86_64"}.get(machine, "baseline")
        # Its own checks of undefined behaviour would call functions that nothing has.
        target = ["-target", f"{machine}-linux-none", f"-mcpu={cpu}", "-fno-sanitize=all"]
        return [zig, "cc", *target]
    if (gcc := shutil.which(_GCC.get(machine, ""))) is not None:
        return [gcc]
    raise DependencyError(
        f"no compiler for the CPU of the device ({machine}): neither the package ziglang nor "
        f"{_GCC.get(machine, 'a GCC for it')}",
        hint=pip_install("link"),
    )
