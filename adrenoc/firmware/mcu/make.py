"""Make a folder for firmware of a model file by schedules of a tuning log, and tell what it takes
of a core's memory and, by a run under QEMU, the instructions of each layer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from adrenoc.base.decision import Decision
from adrenoc.base.errors import DeviceError, ToolError, UnsupportedOperatorError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.files.outputs import check_folder_can_be_replaced
from adrenoc.base.text.spelling import quote_word
from adrenoc.firmware.mcu.core import Core
from adrenoc.firmware.mcu.emulator import INSTALL, Emulated, code_bytes, missing_tools, run_firmware
from adrenoc.firmware.mcu.folder import (
    FIRMWARE_FOLDER,
    Firmware,
    firmware_of,
    self_test_vectors,
    write_firmware,
)
from adrenoc.firmware.mcu.kernel import Measured
from adrenoc.firmware.mcu.network import has_words
from adrenoc.firmware.mcu.program import FirmwareProgram, make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.ir.tuning_log import Status, Trial, actions_key, choose_trials, find_log, read_log


def measured_of(trials: Sequence[Trial]) -> Measured:
    """Return the last time of each schedule; one that ever failed is out. Only the times of one
    device are comparable: those of the device with most trials count."""
    names = [t.device.name for t in trials if t.status is Status.OK]
    most = max(dict.fromkeys(names), key=names.count, default="")
    times_us: dict[str, dict[str, float]] = {}
    failed = {trial.key for trial in trials if trial.status is not Status.OK}
    for trial in trials:
        if trial.status is Status.OK and trial.device.name == most and trial.key not in failed:
            known = times_us.setdefault(trial.kernel, {})
            known[actions_key(trial.actions)] = trial.median_us
    return Measured(times_us=times_us, failed=frozenset(failed))


def measured_in(log: str, core: Core) -> tuple[Measured, list[Decision]]:
    """Return what a log has for a core, with a decision where it was measured on another one.
    Raises TuningLogError where it cannot be read, or is no log."""
    path: Path = find_log(log)
    trials, warning = choose_trials(read_log(path), core.name, str(path))
    decisions = []
    if warning:
        decisions.append(
            Decision(subject="the whole model", taken=f"schedules of {path.name}", reason=warning)
        )
    return measured_of(trials), decisions


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


def plan_firmware(
    model: Path, core: Core, wishes: Wishes = NO_WISHES
) -> tuple[FirmwareProgram, Firmware]:
    """Return what would be written for a model.

    Raises TuningLogError where the tuning log cannot be read, CompileError where the model is of
    neither int8 nor int16, UnsupportedOperatorError where it holds operators that cannot go to a
    microcontroller, ModelFormatError where it is damaged.
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
    write: Callable[[FirmwareProgram, Firmware, Path], None],
    wishes: Wishes = NO_WISHES,
) -> MadeFirmware:
    """Have `write` write the folder `output`. Raises OutputError where it cannot be written; see
    `plan_firmware` and `write` for the rest."""
    begin = time.perf_counter()
    check_folder_can_be_replaced(output, FIRMWARE_FOLDER)
    program, firmware = plan_firmware(model, core, wishes)
    write(program, firmware, output)
    return MadeFirmware(
        path=output, firmware=firmware, time_ms=(time.perf_counter() - begin) * 1000
    )


_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Alive:
    """What is in the arena while a layer runs."""

    layer: str
    operator: str
    bytes: int
    """Bytes up to the end of the last of them."""
    blocks: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Flash and RAM; `flash_how` says what was counted, `broken` names the limits that are broken.
    RAM is the arena with the inputs and outputs, which firmware holds beside it."""

    flash_bytes: int
    flash_how: str
    ram_bytes: int
    alive: tuple[Alive, ...]
    broken: tuple[str, ...]


def budget_of(
    program: FirmwareProgram, *, max_flash_kib: int | None = None, max_ram_kib: int | None = None
) -> Budget:
    """Measure a program. Raises ToolError where the compiler is there and refuses the code."""
    measured = None if program.core.is_processor else code_bytes(program)
    network = program.network
    borders = sum(network.tensors[i].size_bytes for i in (*network.inputs, *network.outputs))
    flash = program.constant_bytes if measured is None else measured
    ram = program.memory.size_bytes + borders
    how = "code and constants"
    if measured is None:
        how = "constants alone: install gcc-arm-none-eabi for the code too"
    if program.core.is_processor:
        how = "constants, beside the code"
    return Budget(
        flash_bytes=flash,
        flash_how=how,
        ram_bytes=ram,
        alive=_alive(program),
        broken=tuple(
            f"{bytes_} bytes of {what}, at most {limit} KiB were allowed"
            for what, bytes_, limit in (
                (f"flash ({how})", flash, max_flash_kib),
                ("RAM (arena, inputs and outputs)", ram, max_ram_kib),
            )
            if limit is not None and bytes_ > limit * _KIB
        ),
    )


def _alive(program: FirmwareProgram) -> tuple[Alive, ...]:
    names = _names(program)
    found = []
    for number, step in enumerate(program.steps):
        blocks = [block for block in program.blocks if block.first <= number <= block.last]
        ends = [program.memory.offsets[block.key] + block.size_bytes for block in blocks]
        found.append(
            Alive(
                layer=step.name,
                operator=step.label,
                bytes=max(ends, default=0),
                blocks=tuple((names[b.key], b.size_bytes) for b in blocks),
            )
        )
    return tuple(found)


def _names(program: FirmwareProgram) -> dict[str, str]:
    """Return how a report calls what lies in the arena."""
    tensors = program.network.tensors
    keys = [block.key for block in program.blocks]
    return {
        key: tensors[int(key[len("tensor") :])].name
        if key.startswith("tensor")
        else key.rstrip("0123456789")
        for key in keys
    }


_LONGEST_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Instructions by layer, or nothing and why."""

    layers: tuple[int, ...] = ()
    reason: str = ""


def count_layers(program: FirmwareProgram, firmware: Firmware) -> Counts:
    """Run a program on the inputs of its self-test, where QEMU is installed and it fits there."""
    if missing := missing_tools():
        return Counts(reason=f"install {' and '.join(missing)} for them: {INSTALL}")
    names = program.network.tensors
    inputs = {names[i].name: array for i, array in self_test_vectors(program)[0].items()}
    run = partial(run_firmware, timeout_s=_LONGEST_S)
    return count_instructions(program, firmware, inputs, write_firmware, run)


def count_instructions(
    program: FirmwareProgram,
    firmware: Firmware,
    inputs: Mapping[str, np.ndarray],
    write: Callable[[FirmwareProgram, Firmware, Path], None],
    run: Callable[[Path, Firmware, Mapping[str, np.ndarray]], Emulated],
) -> Counts:
    """Have `write` write the folder of a program, and `run` run it."""
    with TemporaryFolder("firmware") as place:
        folder = place / "model"
        write(program, firmware, folder)
        try:
            return Counts(layers=run(folder, firmware, inputs).layer_instructions)
        except (DeviceError, ToolError) as error:
            return Counts(reason=f"QEMU does not run it: {error}")
