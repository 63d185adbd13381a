"""Holds folders for application processors against LiteRT's reference kernels, byte by byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adrenoc.base.errors import DependencyError
from adrenoc.firmware.cpu.make_cpu import write_cpu_folder
from adrenoc.firmware.cpu.run_cpu import machine_for, run_cpu_folder
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.emulator import Emulated
from adrenoc.firmware.mcu.folder import Firmware, firmware_of
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from tests.mcu.judge import Reference

PLAIN, DOT, I8MM = 1, 3, 7
"""Masks of what a core has: NEON alone, SDOT too, SMMLA too."""


def _missing() -> str:
    try:
        machine_for(load_core("cpu:arm64"))
    except DependencyError as error:
        return str(error)
    return ""


needs_arm = pytest.mark.skipif(bool(_missing()), reason=_missing())
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
counts = not _missing() and machine_for(load_core("cpu:arm64")).counts


def run_and_compare(
    content: bytes,
    folder: Path,
    *,
    core: str = "cpu:arm64",
    features: int = I8MM,
    threads: int = 1,
    seed: int = 1,
) -> tuple[Firmware, Emulated]:
    """What the folder computes is what LiteRT computes."""
    network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
    program = make_program(network, load_core(core))
    firmware = firmware_of(program, "")
    write_cpu_folder(program, firmware, folder)
    reference = Reference(content)
    inputs = reference.inputs(seed)
    reference.compute(inputs)
    by_name = {network.tensors[index].name: array for index, array in inputs.items()}
    result = run_cpu_folder(folder, firmware, by_name, threads=threads, features=features)
    for index in network.outputs:
        want, got = reference.tensor(index), result.outputs[network.tensors[index].name]
        wrong = int((want != got).sum())
        assert not wrong, f"{network.tensors[index].name}: {wrong} of {want.size} differ"
    return firmware, result
