"""Instructions of each layer before anything is written: the program runs under QEMU once."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import DeviceError, ToolError
from adrenoc.firmware.mcu.emulator import INSTALL, missing_tools, run_firmware
from adrenoc.firmware.mcu.folder import Firmware, self_test_vectors, write_firmware
from adrenoc.firmware.mcu.program import Program

_LONGEST_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Instructions by layer, or nothing and why."""

    layers: tuple[int, ...] = ()
    reason: str = ""


def count_layers(program: Program, firmware: Firmware) -> Counts:
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
