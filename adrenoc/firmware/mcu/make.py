"""A model file becomes a folder for firmware."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.base.files.outputs import check_folder_can_be_replaced
from adrenoc.base.text.spelling import quote_word
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.folder import FIRMWARE_FOLDER, Firmware, firmware_of, write_firmware
from adrenoc.firmware.mcu.network import has_words
from adrenoc.firmware.mcu.program import Program, make_program
from adrenoc.firmware.mcu.schedule import Measured
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.firmware.mcu.tuned import measured_in
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.tflite.file import read_tflite


@dataclass(frozen=True, kw_only=True)
class MadeFirmware:
    """Where the folder is, what it holds, and how long that took."""

    path: Path
    firmware: Firmware
    time_ms: float


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a user may ask for: schedules of a tuning log, flash for faster weights."""

    tuning_log: str | None = None
    spare_flash_kib: int = 0


NO_WISHES = Wishes()


def plan_firmware(model: Path, core: Core, wishes: Wishes = NO_WISHES) -> tuple[Program, Firmware]:
    """Return what would be written for a model.

    Raises:
        TuningLogError: the tuning log cannot be read.
        CompileError: the model is of neither int8 nor int16.
        UnsupportedOperatorError: it holds operators that cannot go to a microcontroller.
        ModelFormatError: it is damaged.
    """
    files = find_model_files(model)
    if files.format == "onnx":
        from adrenoc.firmware.mcu.onnx.importer import network_of_onnx

        network, digest = network_of_onnx(files)
    else:
        content, digest = files.read()
        network = network_of(model, read_tflite(model, content))
    if core.is_processor and any(has_words(network, o) for o in network.operators):
        raise UnsupportedOperatorError(
            f"{model} has activations of int16, which code for {core.name} cannot have yet",
            hint=f"adrenoc firmware compile {quote_word(model)} --device cortex-m4, or convert it "
            "to int8",
        )
    measured = Measured()
    told: list[Decision] = []
    if wishes.tuning_log is not None:
        measured, told = measured_in(wishes.tuning_log, core)
    spare_bytes = wishes.spare_flash_kib << 10
    program = make_program(network, core, measured=measured, spare_bytes=spare_bytes)
    if core.is_processor and program.states:
        raise UnsupportedOperatorError(
            f"{model} remembers earlier runs ({len(program.states)} of its layers do), which "
            f"code for {core.name} cannot yet",
            hint=f"adrenoc firmware compile {quote_word(model)} --device cortex-m4",
        )
    program = replace(program, decisions=(*told, *program.decisions))
    return program, firmware_of(program, digest)


def make_firmware(
    model: Path,
    core: Core,
    output: Path,
    *,
    with_object: bool = False,
    wishes: Wishes = NO_WISHES,
) -> MadeFirmware:
    """Write the folder `output`; `with_object` a compiled `model.o` too.

    Raises:
        OutputError: it cannot be written; see `plan_firmware` for the rest.
        DependencyError: there is no compiler for an object file.
    """
    begin = time.perf_counter()
    check_folder_can_be_replaced(output, FIRMWARE_FOLDER)
    program, firmware = plan_firmware(model, core, wishes)
    write_firmware(program, firmware, output, with_object=with_object)
    return MadeFirmware(
        path=output, firmware=firmware, time_ms=(time.perf_counter() - begin) * 1000
    )
