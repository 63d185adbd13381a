"""Firmware that remembers earlier runs: kept in the arena, forgotten by a call."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.folder import open_firmware
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from tests.mcu.judge import Reference, needs_emulator
from tests.mcu.lstm_maker import add_lstm
from tests.mcu.maker import Maker


def _lstms(path: Path) -> bytes:
    make = Maker(seed=5)
    x = add_lstm(make, make.input(1, 3, 8, scale=0.05), 8)
    content = make.finish(add_lstm(make, x, 6, cell_bits=13))
    path.write_bytes(content)
    return content


def _model(path: Path) -> bytes:
    """Two filters over time with a dense layer between them."""
    make = Maker(seed=3)
    x = make.svdf(make.input(1, 16, scale=0.1), 8, 2, 5)
    content = make.finish(make.svdf(make.dense(x, 12), 5, 1, 9))
    path.write_bytes(content)
    return content


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc, which stands in for a core")
@pytest.mark.parametrize(
    ("make", "state_bytes"), [(_model, 2 * (16 * 5 + 5 * 9)), (_lstms, 3 * (8 + 6))]
)
def test_runs_one_after_another_are_the_references(make, state_bytes, tmp_path):
    model, out = tmp_path / "m.tflite", tmp_path / "m"
    content = make(model)
    assert main(["firmware", "compile", str(model), "--device", "cortex-m4", "-o", str(out)]) == 0
    firmware = open_firmware(out)
    assert firmware.state_bytes == state_bytes
    library = tmp_path / "model.so"
    source = str(out / "model.c")
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", source, "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library))
    arena = np.full(firmware.arena_bytes, 85, np.int8)
    network = network_of(model, read_tflite(model, content))
    differing = 0
    for _ in range(2):
        run.model_reset(arena.ctypes.data_as(ctypes.c_void_p))
        reference = Reference(content)
        first = None
        for seed in (0, 0, 3, 1, 4, 6):
            inputs = reference.inputs(seed)
            reference.compute(inputs)
            given = inputs[network.inputs[0]]
            want = reference.tensor(network.outputs[0])
            got = np.zeros_like(want)
            pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (given, got, arena)]
            run.model_run(*pointers)
            assert (want == got).all()
            first = want if first is None else first
            differing += int((want != first).sum())
    assert differing, "nothing was remembered: the test shows nothing"


@needs_emulator
def test_a_run_under_qemu_begins_anew(tmp_path):
    model, out = tmp_path / "m.tflite", tmp_path / "m"
    _model(model)
    assert (
        main(["firmware", "compile", str(model), "--device", "cortex-m0plus", "-o", str(out)]) == 0
    )
    assert main(["firmware", "run", str(out), "--check", str(model)]) == 0


def test_processors_say_that_they_cannot(tmp_path, capsys):
    model = tmp_path / "m.tflite"
    _model(model)
    for verb in ("compile", "check"):
        code = main(["firmware", verb, str(model), "--device", "cpu:arm64"])
        assert code == UnsupportedOperatorError.exit_code
        assert "remembers earlier runs (2 of its layers do)" in capsys.readouterr().err
