"""A program as one object file, by a compiler that this machine has: no Arm toolchain is needed."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from adrenoc.base.errors import DependencyError
from adrenoc.base.host.extras import pip_install
from adrenoc.base.host.proc import run_tool
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.print_c import NOT_FUSED

OBJECT_FILE = "model.o"
_OPTIONS = (
    *("-std=c11", "-O2", NOT_FUSED, "-ffreestanding", "-ffunction-sections"),
    "-fno-unwind-tables",
)
_GCC = "arm-none-eabi-gcc"


def build_object(files: Mapping[str, str], core: Core) -> bytes:
    """Compile `model.c` of some `files`, by text, for a core.

    Raises:
        DependencyError: there is no compiler for it.
        ToolError: it does not compile.
    """
    compiler = _compiler(core)
    with tempfile.TemporaryDirectory(prefix="adrenoc-") as place:
        work = Path(place)
        for name, text in files.items():
            (work / name).write_text(text, encoding="utf-8")
        made = work / OBJECT_FILE
        command = [*compiler, *_OPTIONS, "-c", str(work / "model.c"), "-o", str(made)]
        run_tool(command, deed=f"compile model.c for the {core.title}")
        return made.read_bytes()


def _compiler(core: Core) -> list[str]:
    """clang as the package ziglang has it, or GCC."""
    found = importlib.util.find_spec("ziglang")
    if found is not None and found.origin:
        soft = "-mfloat-abi=soft" in core.flags
        triple = f"thumb-freestanding-{'eabi' if soft else 'eabihf'}"
        cpu = core.facts.cpu.replace("-", "_")
        zig = str(Path(found.origin).with_name("zig"))
        # Its own checks of undefined behaviour would call functions that firmware lacks.
        options = ["-target", triple, f"-mcpu={cpu}", "-fno-sanitize=all"]
        return [zig, "cc", *options, "-fno-asynchronous-unwind-tables"]
    if (gcc := shutil.which(_GCC)) is not None:
        return [gcc, *core.flags]
    raise DependencyError(
        f"no compiler for the {core.title}: neither the package ziglang nor {_GCC}",
        hint=pip_install("link"),
    )
