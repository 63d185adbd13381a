"""Firmware that remembers: states in the arena, and LSTMs, against LiteRT."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.evaluate import gate_logistic, gate_tanh
from adrenoc.firmware.mcu.folder import open_firmware
from adrenoc.firmware.mcu.tflite.importer import network_of
from adrenoc.importers.tflite.file import read_tflite
from tests.mcu.judge import (
    Reference,
    compile_firmware,
    evaluate_and_compare,
    needs_emulator,
    run_and_compare,
    run_firmware_of,
)
from tests.mcu.lstm_maker import add_lstm
from tests.mcu.maker import Maker
from tests.tflite.build import T


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
    assert compile_firmware(model, out) == 0
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
            run.model_run(*[a.ctypes.data_as(ctypes.c_void_p) for a in (given, got, arena)])
            assert (want == got).all()
            first = want if first is None else first
            differing += int((want != first).sum())
    assert differing, "nothing was remembered: the test shows nothing"


@needs_emulator
def test_a_run_under_qemu_begins_anew(tmp_path):
    model, out = tmp_path / "m.tflite", tmp_path / "m"
    _model(model)
    assert compile_firmware(model, out, core="cortex-m0plus") == 0
    assert run_firmware_of(model, out) == 0


def test_processors_say_that_they_cannot(tmp_path, capsys):
    model = tmp_path / "m.tflite"
    _model(model)
    for verb in ("compile", "check"):
        code = main(["firmware", verb, str(model), "--device", "cpu:arm64"])
        assert code == UnsupportedOperatorError.exit_code
        assert "remembers earlier runs (2 of its layers do)" in capsys.readouterr().err


FORMS: list[dict[str, Any]] = [
    {},
    {"coupled": True},
    {"norm": True},
    {"norm": True, "coupled": True},
    {"clip": 0.7},
    {"time_major": True},
]


@pytest.mark.parametrize("form", FORMS)
def test_evaluation_is_the_reference(form):
    """Runs in turn, each of which begins with what the one before left."""
    for seed in range(7):
        make = Maker(seed=seed)
        shape = (5, 1, 7) if form.get("time_major") else (1, 5, 7)
        x = make.input(*shape, scale=0.05)
        made = add_lstm(make, x, (16, 5, 24)[seed % 3], cell_bits=9 + seed, **form)
        evaluate_and_compare(make.finish(made))


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_code_is_the_reference(core, tmp_path):
    make = Maker(seed=3)
    made = []
    for number, form in enumerate(FORMS[:5]):
        x = make.input(1, 4, 7 + number, scale=0.05)
        made.append(add_lstm(make, x, (16, 5, 24, 33, 8)[number], cell_bits=9 + number, **form))
    run_and_compare(make.finish(*made), tmp_path / "m", core=core)


def test_curves_are_near_what_they_are_of():
    """Each number of 16 bits; that they are LiteRT's to the bit is shown by networks."""
    numbers = np.arange(-32768, 32768)
    real = 1 / (1 + np.exp(-numbers / 4096))
    assert np.abs(gate_logistic(numbers) / 32768 - real).max() < 1e-3
    for bits in range(7):
        real = np.tanh(numbers / 2.0 ** (15 - bits))
        assert np.abs(gate_tanh(numbers, bits) / 32768 - real).max() < 1e-3


@pytest.mark.parametrize(
    ("place", "what"), [(9, "peepholes"), (16, "a projection"), (18, "result of int16")]
)
def test_what_cannot_go_is_named(place, what, tmp_path, capsys):
    data = np.ones((4,), np.int16) if place == 9 else np.ones((4, 4), np.int8)
    tensor = T(dtype=str(data.dtype), data=data, is_constant=True, scales=[0.01], zeros=[0])
    if place == 18:
        tensor = T(dtype="int16", shape=(1, 4), scales=[0.01], zeros=[0], is_variable=True)
    make = Maker(seed=1)
    x = make.input(1, 3, 4, scale=0.05)
    model = tmp_path / "m.tflite"
    model.write_bytes(make.finish(add_lstm(make, x, 4, more={place: tensor})))
    assert compile_firmware(model, tmp_path / "o") == UnsupportedOperatorError.exit_code
    assert what in capsys.readouterr().err
