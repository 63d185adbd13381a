"""LSTMs of microcontrollers: gates and cells of int16, kept between runs; against LiteRT."""

from typing import Any

import numpy as np
import pytest

from adrenoc.base.errors import UnsupportedOperatorError
from adrenoc.cli.main import main
from adrenoc.firmware.mcu.evaluate_lstm import logistic, tanh
from tests.mcu.judge import evaluate_and_compare, needs_emulator, run_and_compare
from tests.mcu.lstm_maker import add_lstm
from tests.mcu.maker import Maker
from tests.tflite.build import T

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
    assert np.abs(logistic(numbers) / 32768 - real).max() < 1e-3
    for bits in range(7):
        real = np.tanh(numbers / 2.0 ** (15 - bits))
        assert np.abs(tanh(numbers, bits) / 32768 - real).max() < 1e-3


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
    code = main(
        ["firmware", "compile", str(model), "--device", "cortex-m4", "-o", str(tmp_path / "o")]
    )
    assert code == UnsupportedOperatorError.exit_code
    assert what in capsys.readouterr().err
