"""Instructions of each layer before anything is written: the program runs under QEMU once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from adrenoc.base.errors import DependencyError, DeviceError, ToolError
from adrenoc.firmware.cpu.make_cpu import write_cpu_folder
from adrenoc.firmware.cpu.run_cpu import INSTALL, machine_for, run_cpu_folder
from adrenoc.firmware.mcu.count import Counts
from adrenoc.firmware.mcu.folder import Firmware
from adrenoc.firmware.mcu.program import Program

_LONGEST_S = 300.0


def count_on_cpu(program: Program, firmware: Firmware) -> Counts:
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
    with tempfile.TemporaryDirectory(prefix="adrenoc-") as place:
        folder = Path(place) / "model"
        write_cpu_folder(program, firmware, folder)
        try:
            found = run_cpu_folder(folder, firmware, inputs, machine=machine, timeout_s=_LONGEST_S)
        except (DeviceError, ToolError) as error:
            return Counts(reason=f"QEMU does not run it: {error}")
    return Counts(layers=found.layer_instructions)
