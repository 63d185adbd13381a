"""A model file becomes a folder of C for an application processor."""

from __future__ import annotations

import json
import time
from pathlib import Path

from adrenoc.base.files.outputs import check_folder_can_be_replaced, write_folder_atomically
from adrenoc.base.files.owned_folder import write_list
from adrenoc.firmware.cpu.print_cpu import print_cpu_model
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.folder import FIRMWARE_FOLDER, MODEL_FILE, Firmware, firmware_to_json
from adrenoc.firmware.mcu.make import MadeFirmware, plan_firmware
from adrenoc.firmware.mcu.program import Program

C_FOLDER = Path(__file__).parent / "c"
_THREADS = ("threads.h", "threads.c")


def make_cpu_folder(model: Path, core: Core, output: Path) -> MadeFirmware:
    """Write the folder `output`.

    Raises:
        OutputError: it cannot be written; see `plan_firmware` for the rest.
    """
    begin = time.perf_counter()
    check_folder_can_be_replaced(output, FIRMWARE_FOLDER)
    program, firmware = plan_firmware(model, core)
    write_cpu_folder(program, firmware, output)
    return MadeFirmware(
        path=output, firmware=firmware, time_ms=(time.perf_counter() - begin) * 1000
    )


def write_cpu_folder(program: Program, firmware: Firmware, output: Path) -> None:
    """Write the folder, all or nothing.

    Raises:
        OutputError: something else is there, or it cannot be written.
    """
    files = {
        **print_cpu_model(program),
        **{name: (C_FOLDER / name).read_bytes() for name in _THREADS},
        "CMakeLists.txt": _CMAKE.encode(),
        MODEL_FILE: (json.dumps(firmware_to_json(firmware), indent=1) + "\n").encode(),
    }
    with write_folder_atomically(output, FIRMWARE_FOLDER) as root:
        for name, content in files.items():
            (root / name).write_bytes(content)
        write_list(root, FIRMWARE_FOLDER)


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
