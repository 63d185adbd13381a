"""The table of `scripts/verify trained`: well formed, and each kind of input can be made."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from scripts.verifying.trained import Trained, draw, read_table

MODELS = read_table()


def test_each_model_is_there_once() -> None:
    assert len({model.digest for model in MODELS}) == len(MODELS) > 40
    assert len({model.name for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_line_of_the_table_is_well_formed(model: Trained) -> None:
    assert re.fullmatch(r"\S+==\S+|npm:\S+@\S+", model.package)
    assert model.inside.endswith((".onnx", ".tflite"))
    assert re.fullmatch(r"[0-9a-f]{10}", model.digest)
    words = shlex.split(model.words)
    assert set(words[::2]) <= {"--shape", "--fix", "--state"} and len(words) % 2 == 0
    for kind in model.inputs.split():
        made = draw(kind, (1, 16, 24, 3), "float32")
        assert made.shape == (1, 16, 24, 3) and (np.ptp(made) > 0) != kind.startswith("all:")
    assert model.inputs


@pytest.mark.parametrize("shape", [(1, 3, 32, 48), (1, 1, 32, 48), (2, 32, 48, 3)])
def test_a_picture_fills_its_range_in_either_order(shape: tuple[int, ...]) -> None:
    made = draw("picture:-1..1", shape, "float32")
    assert made.shape == shape and made.min() < -0.5 and made.max() > 0.5
    assert np.abs(made).max() <= 1


def test_speech_reaches_its_scale_and_an_unknown_kind_is_refused() -> None:
    assert 3000 < np.abs(draw("speech:32768", (1, 16000), "float32")).max() <= 32768
    with pytest.raises(ValueError, match="no kind of input"):
        draw("smell:0..1", (1, 3), "float32")
