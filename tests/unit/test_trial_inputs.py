"""Sets of inputs for a model that nobody gave any: what each kind of input holds in each."""

from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.manifest import TensorSpec
from adrenoc.check import trial_inputs
from adrenoc.check.inputs import make_inputs
from adrenoc.check.trial_inputs import FORMS, draw_trials
from tests.models import graph, write


def _sets(folder: Path, *shape: int, dtype: str = "float32", **more: object) -> list[np.ndarray]:
    model = write(graph([], {}, []), folder)
    spec = TensorSpec(**{"name": "x", "shape": shape, "dtype": dtype, **more})
    trials = draw_trials(model, [spec], seed=0)
    assert len(trials.sets) == len(FORMS)
    assert np.array_equal(trials.sets[0][spec.name], make_inputs([spec], seed=0)[spec.name])
    for one in trials.sets:
        assert one[spec.name].shape == shape and one[spec.name].dtype == dtype
    return [one[spec.name] for one in trials.sets]


@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (2, 32, 48, 1)])
def test_images_that_are_scaled_reach_255_and_have_flat_and_dotted_rows(tmp_path, shape):
    assert 0.9 < _sets(tmp_path, *shape)[1].max() <= 1
    _, large, flat, sparse = _sets(tmp_path, *shape, bounds=(0, 255))
    assert (large.min(), large.max()) == (0, 255)
    assert flat.min() >= 0 and 200 < flat.max() <= 255
    assert not np.ptp(flat.reshape(-1, shape[-1])[::2], axis=1).any()
    assert np.mean(sparse.reshape(-1, shape[-1])[::2] == 0) > 0.8


@pytest.mark.parametrize(("dtype", "name"), [("int16", "x"), ("int32", "pcm")])
def test_sounds_reach_what_16_bits_hold(tmp_path, dtype, name):
    large = _sets(tmp_path, 1, 16000, dtype=dtype, name=name)[1]
    assert large.min() < -32000 and large.max() > 32000


def test_sounds_in_float_reach_both_scales(tmp_path):
    usual, large, flat, sparse = _sets(tmp_path, 1, 16000, bounds=(-(2**15), 2**15 - 1))
    assert large.min() < -32000 and large.max() > 32000
    assert max(abs(usual).max(), abs(flat).max(), abs(sparse).max()) < 8
    learned = _sets(tmp_path, 1, 16000)[1]
    assert 0.9 < learned.max() <= 1 and -1 <= learned.min() < -0.9


@pytest.mark.parametrize(
    ("dtype", "bounds", "ends"),
    [
        ("int64", (0, 30521), (0, 30521)),
        ("int64", (), (0, 999)),
        ("uint16", (), (0, 65535)),
        ("int8", (), (-128, 127)),
    ],
)
def test_whole_numbers_reach_both_ends(tmp_path, dtype, bounds, ends):
    _, large, flat, sparse = _sets(tmp_path, 2, 64, dtype=dtype, bounds=bounds)
    assert (large.min(), large.max()) == ends
    assert (flat == ends[1]).all()
    assert np.mean(sparse == 0) > 0.8


def test_masks_are_all_ones_and_padded_on_the_left(tmp_path):
    _, _, flat, sparse = _sets(tmp_path, 2, 8, dtype="int64", bounds=(0, 1))
    assert flat.all()
    assert sparse.tolist() == [[0, 0, 1, 1, 1, 1, 1, 1]] * 2


def test_other_floats_have_rows_of_four_times_as_much_about_four(tmp_path):
    usual, large, _, _ = _sets(tmp_path, 4, 6)
    np.testing.assert_allclose(large[::2], 4 * usual[::2] + 4, rtol=1e-6)
    assert np.array_equal(large[1::2], usual[1::2])


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0)])
def test_any_shape_will_do(tmp_path, shape):
    for dtype in ("float32", "float16", "int64", "bool"):
        _sets(tmp_path, *shape, dtype=dtype)


def test_a_huge_model_takes_one_set_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_inputs, "_HUGE_BYTES", 1)
    model = write(graph([], {}, []), tmp_path)
    trials = draw_trials(model, [TensorSpec(name="x", shape=(2,), dtype="float32")], seed=0)
    assert len(trials.sets) == 1
    assert trials.said.startswith("one set of random numbers: the model has")
