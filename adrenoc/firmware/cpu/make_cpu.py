"""Make a model a folder of C for an application processor, and run it here or under QEMU, where
instructions of all threads are counted, not cycles."""

import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from adrenoc.base.errors import DependencyError, DeviceError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.host.proc import run_tool
from adrenoc.firmware.cpu.print_cpu import ENVIRONMENT_FILE, WEIGHTS_FILE, print_cpu_model
from adrenoc.firmware.mcu.core import Core, load_core
from adrenoc.firmware.mcu.emulator import Emulated, lack_of_tools, overrun_error, run_to_end
from adrenoc.firmware.mcu.folder import (
    MODEL_FILE,
    NOT_FUSED,
    Firmware,
    read_files,
    report_text,
    write_files,
)
from adrenoc.firmware.mcu.make import Counts, count_instructions
from adrenoc.firmware.mcu.program import FirmwareProgram

C_FOLDER = Path(__file__).parent / "c"
_THREADS = ("threads.h", "threads.c")


def write_cpu_folder(program: FirmwareProgram, firmware: Firmware, output: Path) -> None:
    """Write the folder, all or nothing. Raises OutputError where something else is there, or it
    cannot be written."""
    files = {
        **print_cpu_model(program),
        **{name: (C_FOLDER / name).read_bytes() for name in _THREADS},
        "CMakeLists.txt": _CMAKE.encode(),
        MODEL_FILE: report_text(firmware).encode(),
    }
    write_files(output, files)


_CMAKE = """\
# The library `model`: add_subdirectory() it and link to `model`.
cmake_minimum_required(VERSION 3.13)
project(model C)
find_package(Threads REQUIRED)
add_library(model STATIC model.c threads.c)
target_include_directories(model PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_features(model PUBLIC c_std_11)
target_compile_options(model PRIVATE -O2 -ffp-contract=off)
set_property(SOURCE model.c APPEND PROPERTY COMPILE_DEFINITIONS
    MODEL_WEIGHTS="${CMAKE_CURRENT_SOURCE_DIR}/model.weights")
set_property(SOURCE model.c APPEND PROPERTY OBJECT_DEPENDS
    ${CMAKE_CURRENT_SOURCE_DIR}/model.weights)
target_link_libraries(model PUBLIC Threads::Threads)
"""


INSTALL = "apt-get install g++-aarch64-linux-gnu qemu-user"
ALL_FEATURES = 0xFFFF
_ARM_COMPILER = "aarch64-linux-gnu-gcc"
_COUNTING, _PLAIN = "qemu-aarch64", "qemu-aarch64-static"
_CPU = "max"
_FILES = ("model.h", ENVIRONMENT_FILE, "model.c", "threads.h", "threads.c", WEIGHTS_FILE)
_OVERRUN = 4


@dataclass(frozen=True, kw_only=True)
class CpuMachine:
    """How a folder is built and run: what begins the command of its program, if anything."""

    compiler: str
    flags: tuple[str, ...]
    emulator: tuple[str, ...]
    counts: bool


def machine_for(core: Core) -> CpuMachine:
    """Return how to run what was made for a core on this computer. Raises DependencyError where a
    tool is missing."""
    here = platform.machine() in ("aarch64", "arm64")
    if core.name != "cpu:arm64" or here:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise DependencyError(
                f"no C compiler, which runs a model for {core.name} here",
                hint="apt-get install gcc",
            )
        return CpuMachine(compiler=compiler, flags=(), emulator=(), counts=False)
    compiler = shutil.which(_ARM_COMPILER)
    emulator = shutil.which(_COUNTING) or shutil.which(_PLAIN)
    missing = [n for n, at in ((_ARM_COMPILER, compiler), (_COUNTING, emulator)) if at is None]
    if compiler is None or emulator is None:
        raise lack_of_tools(core.name, missing, INSTALL)
    return CpuMachine(
        compiler=compiler,
        flags=("-static",),
        emulator=(emulator, "-cpu", _CPU),
        counts=Path(emulator).name == _COUNTING and shutil.which("cc") is not None,
    )


def run_cpu_folder(
    folder: Path,
    firmware: Firmware,
    inputs: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    features: int = ALL_FEATURES,
    machine: CpuMachine | None = None,
    timeout_s: float = 600.0,
) -> Emulated:
    """Build the folder's model and run it once; `features` masks what the core has. Raises
    BundleError where the folder's code was changed, DependencyError where a tool is missing,
    ToolError where the model does not compile, DeviceError where it faulted or did not end."""
    code = read_files(folder, _FILES)  # whose fault is no matter of tools
    machine = machine or machine_for(load_core(firmware.device))
    with TemporaryFolder("firmware") as work:
        for name, content in code.items():
            (work / name).write_bytes(content)
        program = _build(work, machine)
        arguments = [str(threads), str(features)]
        for number, spec in enumerate(firmware.inputs):
            (work / f"in{number}").write_bytes(inputs[spec.name].astype(np.int8).tobytes())
            arguments.append(f"in{number}")
        arguments += [f"out{number}" for number in range(len(firmware.outputs))]
        plugin = _counter(work, program) if machine.counts else []
        command = [*machine.emulator, *plugin, str(program), *arguments]
        done = run_to_end(command, timeout_s, where="", hint="a smaller model", folder=work)
        if done.returncode == _OVERRUN:
            raise overrun_error()
        if done.returncode != 0:
            raise DeviceError(
                f"the model's program ended with {done.returncode}: {done.stderr.strip()[-300:]}",
                hint=f"{machine.compiler} --version",
            )
        outputs = {
            spec.name: np.fromfile(work / f"out{number}", np.int8).reshape(spec.shape)
            for number, spec in enumerate(firmware.outputs)
        }
        marks = (work / "counts").read_text().split() if machine.counts else []
    totals = np.diff([int(text) for text in marks]).tolist()
    return Emulated(
        outputs=outputs,
        layer_instructions=tuple(totals[: len(firmware.layers)]),
        code_bytes=firmware.constant_bytes,
    )


def _build(work: Path, machine: CpuMachine) -> Path:
    made = work / "runner"
    sources = [str(work / "model.c"), str(work / "threads.c"), str(C_FOLDER / "runner.c")]
    hook = work / "hook.h"
    hook.write_text("void model_layer_done(int number);\n", encoding="utf-8")
    options = [
        *("-std=gnu11", "-O2", NOT_FUSED, f"-I{work}", "-include", str(hook), *machine.flags),
        "-DMODEL_LAYER_DONE(number)=model_layer_done(number)",
        f'-DMODEL_WEIGHTS="{work / WEIGHTS_FILE}"',
    ]
    command = [machine.compiler, *options, *sources, "-o", str(made), "-pthread"]
    run_tool(command, deed="compile the model")
    return made


def _counter(work: Path, program: Path) -> list[str]:
    """Options of QEMU that count, from mark to mark."""
    plugin = work / "counter.so"
    source = str(C_FOLDER / "counter.c")
    run_tool(
        ["cc", "-O2", "-shared", "-fPIC", source, "-o", str(plugin)],
        deed="compile what counts instructions",
    )
    symbols = run_tool(["aarch64-linux-gnu-nm", str(program)], deed="find the mark")
    mark = next(line.split()[0] for line in symbols.splitlines() if "T model_layer_done" in line)
    return ["-plugin", f"{plugin},mark=0x{mark},out={work / 'counts'}"]


_LONGEST_S = 300.0


def count_on_cpu(program: FirmwareProgram, firmware: Firmware) -> Counts:
    """Run a program on drawn inputs with one thread, where QEMU is installed."""
    try:
        machine = machine_for(program.core)
    except DependencyError as error:
        return Counts(reason=f"{error}: {INSTALL}")
    if not machine.counts:
        return Counts(reason=f"only QEMU's user mode counts, for cpu:arm64: {INSTALL}")
    random = np.random.default_rng(0)
    inputs = {
        spec.name: random.integers(-128, 128, spec.shape).astype(np.int8)
        for spec in firmware.inputs
    }
    run = partial(run_cpu_folder, machine=machine, timeout_s=_LONGEST_S)
    return count_instructions(program, firmware, inputs, write_cpu_folder, run)
