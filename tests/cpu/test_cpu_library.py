"""The library that a bundle carries: it needs no other, and computes on arm64 under QEMU."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.bundle import CPU_LIBRARY
from adrenoc.firmware.cpu.make_cpu import C_FOLDER
from adrenoc.firmware.cpu.print_cpu import build_cpu_library, print_cpu_model
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.native.android.elf import read_elf
from tests.cpu.judge import needs_arm
from tests.mcu import networks
from tests.mcu.judge import Reference
from tests.patience import WAIT_S

ROOT = "/usr/aarch64-linux-gnu"
_PAGE_BYTES = 16384


@needs_arm
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no package ziglang")
@pytest.mark.parametrize("features", [1, 3, 7])
def test_it_computes_and_needs_nothing(features, tmp_path):
    content = networks.wake_words(size=16)
    network = network_of(Path("m.tflite"), read_tflite(Path("m.tflite"), content))
    program = make_program(network, load_core("cpu:arm64"))
    library = tmp_path / CPU_LIBRARY
    library.write_bytes(build_cpu_library(program, "aarch64", halves_to_even=False))
    facts = read_elf(library)
    assert facts.machine == "aarch64"
    assert not facts.needed
    assert facts.page_bytes == _PAGE_BYTES
    for name, text in print_cpu_model(program).items():
        (tmp_path / name).write_bytes(text)
    sources = [str(C_FOLDER / name) for name in ("runner.c", "threads.c")]
    command = ["aarch64-linux-gnu-gcc", "-O1", f"-I{tmp_path}", f"-I{C_FOLDER}", *sources]
    command += [str(library), "-pthread", "-Wl,-rpath,$ORIGIN", "-o", str(tmp_path / "runner")]
    subprocess.run(command, check=True)
    reference = Reference(content)
    inputs = reference.inputs(3)
    reference.compute(inputs)
    ((_, given),) = inputs.items()
    (tmp_path / "in").write_bytes(given.tobytes())
    emulator = shutil.which("qemu-aarch64-static") or "qemu-aarch64"
    run = [emulator, "-cpu", "max", "-L", ROOT, "./runner", "2", str(features)]
    subprocess.run([*run, "in", "out"], check=True, cwd=tmp_path, timeout=WAIT_S)
    want = reference.tensor(network.outputs[0])
    assert (np.fromfile(tmp_path / "out", np.int8) == want.reshape(-1)).all()
