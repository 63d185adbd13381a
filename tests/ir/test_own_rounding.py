"""How exactly a reference knows its own outputs: what its numbers' last digits decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from adrenoc.check import own_rounding
from adrenoc.check.own_rounding import MOVED, judged, moved_by_one_step
from adrenoc.check.reference import PLAIN, run_reference
from tests.models import graph, write

pytest.importorskip("onnxruntime")
STEPS = 64


def _of_ties(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Rounded numbers that lie between two whole ones, and numbers that no rounding is near."""
    nodes = [
        helper.make_node("Mul", ["x", "tenth"], ["m"]),
        helper.make_node("Round", ["m"], ["r"]),
        helper.make_node("Mul", ["r", "ten"], ["y"]),
        helper.make_node("Mul", ["x", "ten"], ["z"]),
    ]
    constants = {
        "tenth": np.full(STEPS, 0.1, np.float32),
        "ten": np.full(STEPS, 10, np.float32),
    }
    model = graph(nodes, {"x": [STEPS]}, ["y", "z"], constants)
    return write(model, folder), {"x": np.arange(STEPS, dtype=np.float32) * 5}


def test_what_a_last_digit_decides_is_no_error(tmp_path: Path) -> None:
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    assert set(moved_by_one_step(model, inputs)) >= {
        f"{MOVED} (1)",
        f"{MOVED} (1, by plain kernels)",
    }
    outputs = {**expected, "y": expected["y"] + 10 * (np.arange(STEPS) == 7)}
    checked = judged(model, inputs, outputs, expected, tolerance=1e-4)
    assert checked.passed
    assert [t.name for t in checked.accepted] == ["y"]
    assert MOVED in checked.accepted[0].accepted_as


@pytest.mark.parametrize(("name", "error"), [("y", 20.0), ("z", 10.0)])
def test_what_it_does_not_decide_is_one(tmp_path: Path, name: str, error: float) -> None:
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    outputs = {**expected, name: expected[name] + np.float32(error) * (np.arange(STEPS) == 7)}
    checked = judged(model, inputs, outputs, expected, tolerance=1e-4)
    assert [t.name for t in checked.tensors if not t.passed] == [name]


def test_infinities_are_not_excused(tmp_path: Path) -> None:
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    outputs = {**expected, "y": np.full_like(expected["y"], np.inf)}
    assert not judged(model, inputs, outputs, expected, tolerance=1e-4).passed


def test_an_output_that_hardly_varies_is_known_to_some_steps(tmp_path: Path) -> None:
    """Its range is a few float steps: over that, one step is a large error."""
    node = helper.make_node("Add", ["x", "one"], ["y"])
    model = write(graph([node], {"x": [8]}, ["y"], {"one": np.ones(8, np.float32)}), tmp_path)
    inputs = {"x": np.arange(8, dtype=np.float32) * np.float32(2e-7)}
    expected = run_reference(model, inputs)
    step = np.spacing(expected["y"].max())
    for steps, passes in ((6, True), (12, False)):
        outputs = {"y": (expected["y"] + np.float32(steps * step)).astype(np.float32)}
        assert judged(model, inputs, outputs, expected, tolerance=1e-4).passed is passes


def test_a_reference_that_its_plain_kernels_contradict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime's optimiser computes BiT of transformers 2 % off its own unoptimised run."""
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    plain = {**expected, "z": expected["z"] + np.float32(9)}
    monkeypatch.setattr(own_rounding, "other_kernels", lambda *_: {PLAIN: plain})
    checked = judged(model, inputs, plain, expected, tolerance=1e-4)
    assert [t.accepted_as for t in checked.accepted] == [
        f"the same as the reference's {PLAIN} give"
    ]
