"""Bundles through the C API from Python: `adrenoc.native.model`."""

from collections.abc import Callable

import numpy as np
import pytest

from adrenoc.base.errors import AdrenocError, BundleError, DeviceError, InputError
from adrenoc.cli.main import main
from adrenoc.native.model import Model, read_memory, set_memory_budget
from tests.models import write_stepper

pytestmark = pytest.mark.usefixtures("runtime", "opencl")


def test_numbers_are_those_of_run(bundle, case):
    with Model(bundle.path) as model:
        assert list(model.inputs) == [spec.name for spec in bundle.manifest.inputs]
        made = model.run(case.arrays)
        for name, expected in case.outputs.items():
            np.testing.assert_array_equal(made[name], expected)
        assert model.run(case.arrays, wanted=["sum"]).keys() == {"sum"}
        assert model.run(case.arrays, wanted=[]) == {}
        assert model.device


def test_a_bucket_is_taken_by_the_shapes(shapes, runtime):
    x = np.random.default_rng(1).standard_normal((4, 3, 12, 9))
    with Model(shapes.path) as model:
        large, small = model.run({"x": x}), model.run({"x": x[:1]})
    assert large["map"].shape == (4, 6, 6, 5) and small["map"].shape == (1, 6, 6, 5)
    np.testing.assert_array_equal(small["map"], large["map"][:1])


def test_memory_goes_back_with_the_last_reference(bundle, case):
    before = read_memory().used
    model = Model(bundle.path)
    model.run(case.arrays)
    assert read_memory().used > before
    del model
    assert read_memory().used == before
    again = Model(bundle.path)
    again.close()
    again.close()
    assert read_memory().used == before


def test_what_does_not_fit_is_a_sentence(bundle, case, tmp_path):
    wrong: dict[Callable[[Model], object], str] = {
        lambda model: model.run({**case.arrays, "picture": np.zeros(1)}): "no input 'picture'",
        lambda model: model.run(case.arrays, wanted=["total"]): "no output 'total', expected sum",
        lambda model: model.run({"image": case.arrays["image"]}): "`bias`",
        lambda model: model.run({**case.arrays, "bias": np.zeros((1, 2))}): "no bucket takes",
        lambda model: model.run({**case.arrays, "bias": np.zeros(1, complex)}): "gets complex128",
    }
    with Model(bundle.path) as model:
        for call, message in wrong.items():
            with pytest.raises(InputError, match=message):
                call(model)
    with pytest.raises(AdrenocError, match="null"):
        model.run(case.arrays)  # it is closed
    with pytest.raises(BundleError, match="none"):
        Model(tmp_path / "none.adrenoc")
    with pytest.raises(DeviceError, match="no device of that name"):
        Model(bundle.path, device="no device of that name")


def test_a_state_goes_on_and_comes_back(tmp_path):
    bundle = tmp_path / "step.adrenoc"
    model = write_stepper(tmp_path, (1, 8))
    command = ["compile", str(model), "--device", "host", "--preset", "fp32", "--state", "h=hn"]
    assert main([*command, "-o", str(bundle)]) == 0
    x = np.full((1, 8), 4.0)
    with Model(bundle) as one, Model(bundle) as other:

        def step(given: dict[str, np.ndarray]) -> float:
            (y,) = one.run({"x": x, **given}).values()
            return float(y[0, -1]) / 2  # the model: y = 2 (h / 2 + x), h becomes h / 2 + x

        assert [step({}), step({})] == [4, 6]
        assert [step({"h": np.full((1, 8), 8.0)}), step({})] == [8, 8]
        set_memory_budget(1e-6)
        try:
            left = read_memory().evictions
            other.run({"x": x})
            assert step({"h": np.zeros((1, 8))}) == 4
            other.run({"x": x})
            assert step({}) == 6
            memory = read_memory()
            assert memory.budget == 1 and memory.evictions > left and memory.returns > 0
        finally:
            set_memory_budget(0)
