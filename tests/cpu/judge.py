"""Holds folders for application processors against LiteRT's reference kernels, byte by byte."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from adrenoc.base.errors import DependencyError
from adrenoc.firmware.cpu.make_cpu import machine_for, run_cpu_folder, write_cpu_folder
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.emulator import Emulated
from adrenoc.firmware.mcu.folder import Firmware
from tests.mcu import judge

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
    run = partial(run_cpu_folder, threads=threads, features=features)
    return judge.run_and_compare(
        content, folder, core=core, seed=seed, write=write_cpu_folder, run=run
    )
