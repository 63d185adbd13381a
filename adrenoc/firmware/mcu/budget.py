"""What a program takes of a core's memory, and whether that is within limits.

Instructions of each layer before anything is written: the program runs under QEMU once.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DeviceError, ToolError
from adrenoc.firmware.mcu.emulator import INSTALL, code_bytes, missing_tools, run_firmware
from adrenoc.firmware.mcu.folder import Firmware, self_test_vectors, write_firmware
from adrenoc.firmware.mcu.program import FirmwareProgram

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

    RAM is the arena with the inputs and outputs, which firmware holds beside it.
    """

    flash_bytes: int
    flash_how: str
    ram_bytes: int
    alive: tuple[Alive, ...]
    broken: tuple[str, ...]


def budget_of(
    program: FirmwareProgram, *, max_flash_kib: int | None = None, max_ram_kib: int | None = None
) -> Budget:
    """Measure a program.

    Raises:
        ToolError: the compiler is there and refuses the code.
    """
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
    for time, step in enumerate(program.steps):
        blocks = [block for block in program.blocks if block.first <= time <= block.last]
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
    with tempfile.TemporaryDirectory(prefix="adrenoc-") as place:
        folder = Path(place) / "model"
        write_firmware(program, firmware, folder)
        try:
            found = run_firmware(folder, firmware, inputs, timeout_s=_LONGEST_S)
        except (DeviceError, ToolError) as error:
            return Counts(reason=f"QEMU's board does not run it: {error}")
    return Counts(layers=found.layer_instructions)
