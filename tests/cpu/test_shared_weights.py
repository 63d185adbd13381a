"""Weights that a bundle's code for the CPU takes of its GPU's kernels, and the library of both."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adrenoc.bundle.bundle import CPU_LIBRARY
from adrenoc.compile.fallback import plan_fallback
from adrenoc.firmware.cpu.make_cpu import C_FOLDER
from adrenoc.firmware.cpu.print_cpu import (
    WEIGHTS_FILE,
    build_cpu_library,
    find_shared_weights,
    find_weight_sources,
    print_cpu_model,
)
from adrenoc.firmware.mcu.core import load_core
from adrenoc.firmware.mcu.operators import Convolution
from adrenoc.firmware.mcu.program import make_program
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from adrenoc.ir.layout import find_digits
from adrenoc.native.android.elf import read_elf
from adrenoc.passes.lower.lower import all_params
from tests.cpu.judge import needs_arm
from tests.ir.planning import plan
from tests.mcu import networks
from tests.mcu.judge import Reference
from tests.patience import WAIT_S

ROOT = "/usr/aarch64-linux-gnu"
LEND = Path(__file__).with_name("lend.c")
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="no package ziglang"
)


@given(st.lists(st.tuples(st.integers(2, 6), st.integers(-90, 90)), max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_digits_give_the_places_that_they_were_found_in(digits, data):
    line, radices = np.zeros(1, np.int64), 1
    for radix, stride in digits:
        line = (line + np.arange(radix)[:, None] * stride).reshape(-1)
        radices *= radix
    line = line[: data.draw(st.integers(1, radices))]
    found = find_digits(line)
    for index, place in enumerate(line):
        rest, at = index, 0
        for radix, stride in found:
            at += rest % radix * stride
            rest //= radix
        assert (at, rest) == (place, 0)


def test_places_without_digits_are_told():
    assert find_digits(np.array([0, 1, 2, 5, 6, 9])) is None


@needs_arm
@needs_zig
@pytest.mark.parametrize(("device", "width"), [("adreno:750", 1), ("adreno:630", 2)])
def test_it_computes_with_weights_of_the_kernels(device, width, tmp_path):
    """Bytes as the GPU multiplies them, or halves; channels that cannot vary are left out."""
    model = tmp_path / "m.tflite"
    model.write_bytes(networks.wake_words(size=16))
    program = plan(model, until="lower", device=device).program
    params = {f"p{n}": param for n, param in enumerate(all_params(program))}
    values = {name: param.value for name, param in params.items()}
    packings = {name: p.packing for name, p in params.items() if p.packing is not None}
    fallback = plan_fallback(model, "tflite")
    shared = find_shared_weights(fallback.program, values, packings)
    operators = fallback.program.network.operators
    assert len(shared) == sum(isinstance(operator, Convolution) for operator in operators)
    assert {weight.held.width for weight in shared} >= {width}
    assert any(weight.outputs for weight in shared)
    assert any(weight.inputs for weight in shared)
    for name in find_weight_sources(shared):
        (tmp_path / name).write_bytes(np.ascontiguousarray(values[name]).tobytes())
    library = build_cpu_library(fallback.program, "aarch64", halves_to_even=False, shared=shared)
    alone = print_cpu_model(fallback.program)
    lent = print_cpu_model(fallback.program, shared=shared)
    weights = sum(o.weights.size for o in operators if isinstance(o, Convolution))
    assert len(alone[WEIGHTS_FILE]) - len(lent[WEIGHTS_FILE]) >= weights
    (tmp_path / CPU_LIBRARY).write_bytes(library)
    for name, text in alone.items():
        (tmp_path / name).write_bytes(text)
    sources = [*(str(C_FOLDER / name) for name in ("runner.c", "threads.c")), str(LEND)]
    command = ["aarch64-linux-gnu-gcc", "-O1", f"-I{tmp_path}", f"-I{C_FOLDER}", *sources]
    command += [str(tmp_path / CPU_LIBRARY), "-pthread", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", str(tmp_path / "runner")], check=True)
    reference = Reference(model.read_bytes())
    inputs = reference.inputs(3)
    reference.compute(inputs)
    ((_, given_),) = inputs.items()
    (tmp_path / "in").write_bytes(given_.tobytes())
    emulator = shutil.which("qemu-aarch64-static") or "qemu-aarch64"
    run = [emulator, "-cpu", "max", "-L", ROOT, "./runner", "2", "7", "in", "out"]
    subprocess.run(run, check=True, cwd=tmp_path, timeout=WAIT_S)
    want = reference.tensor(fallback.program.network.outputs[0])
    assert (np.fromfile(tmp_path / "out", np.int8) == want.reshape(-1)).all()


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
