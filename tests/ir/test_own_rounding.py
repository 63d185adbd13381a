"""How exactly a reference knows its own outputs: what its numbers' last digits decide."""

import struct
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from adrenoc.check import own_rounding
from adrenoc.check.own_rounding import Reference, run_moved
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import PLAIN
from tests.models import graph, write
from tests.tflite.build import ModelBuilder, T

pytest.importorskip("onnxruntime")
STEPS = 64


def _of_ties(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Rounded numbers that lie between two whole ones, and numbers that no rounding is near."""
    nodes = "m = Mul(x, tenth) r = Round(m) y = Mul(r, ten) z = Mul(x, ten)"
    constants = {"tenth": np.full(STEPS, 0.1, np.float32), "ten": np.full(STEPS, 10, np.float32)}
    model = graph(nodes, {"x": [STEPS]}, ["y", "z"], constants)
    return write(model, folder), {"x": np.arange(STEPS, dtype=np.float32) * 5}


def test_what_a_last_digit_decides_is_no_error(tmp_path):
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    assert len(run_moved(model, inputs)) == own_rounding._DRAWS
    outputs = {**expected, "y": expected["y"] - 10 * (np.arange(STEPS) == 7)}
    checked = Reference(model, inputs, expected).judge(outputs, tolerance=1e-4)
    assert checked.passed
    assert [t.name for t in checked.accepted] == ["y"]
    assert checked.accepted[0].accepted_as.startswith("1 of 64 numbers lie where")


@pytest.mark.parametrize(("name", "error"), [("y", 20.0), ("z", 10.0)])
def test_what_it_does_not_decide_is_one(tmp_path, name, error):
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    outputs = {**expected, name: expected[name] + np.float32(error) * (np.arange(STEPS) == 7)}
    checked = Reference(model, inputs, expected).judge(outputs, tolerance=1e-4)
    assert [t.name for t in checked.tensors if not t.passed] == [name]


def test_infinities_are_not_excused(tmp_path):
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    outputs = {**expected, "y": np.full_like(expected["y"], np.inf)}
    assert not Reference(model, inputs, expected).judge(outputs, tolerance=1e-4).passed


def test_an_output_that_hardly_varies_is_known_to_some_steps(tmp_path):
    """Its range is a few float steps: over that, one step is a large error."""
    node = helper.make_node("Add", ["x", "one"], ["y"])
    model = write(graph([node], {"x": [8]}, ["y"], {"one": np.ones(8, np.float32)}), tmp_path)
    inputs = {"x": np.arange(8, dtype=np.float32) * np.float32(2e-7)}
    expected = run_reference(model, inputs)
    step = np.spacing(expected["y"].max())
    for steps, passes in ((6, True), (12, False)):
        outputs = {"y": (expected["y"] + np.float32(steps * step)).astype(np.float32)}
        assert Reference(model, inputs, expected).judge(outputs, tolerance=1e-4).passed is passes


def test_a_reference_that_its_plain_kernels_contradict(tmp_path, monkeypatch):
    """onnxruntime's optimiser computes BiT of transformers 2 % off its own unoptimised run."""
    model, inputs = _of_ties(tmp_path)
    expected = run_reference(model, inputs)
    plain = {**expected, "z": expected["z"] + np.float32(9)}
    monkeypatch.setattr(own_rounding, "other_kernels", lambda *_: {PLAIN: plain})
    checked = Reference(model, inputs, expected).judge(plain, tolerance=1e-4)
    assert [t.name for t in checked.accepted] == ["z"]


def test_a_resize_is_moved_by_no_step_of_its_scales(tmp_path):
    """onnxruntime refuses scales that are not quite 1 along channels."""
    node = helper.make_node("Resize", ["m", "", "scales"], ["y"], mode="linear")
    nodes = [helper.make_node("Mul", ["x", "tenth"], ["m"]), node]
    constants = {"tenth": np.float32([0.1]), "scales": np.float32([1, 1, 2, 2])}
    model = write(graph(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants), tmp_path)
    inputs = {"x": np.random.default_rng(0).random((1, 3, 4, 4), np.float32)}
    assert len(run_moved(model, inputs)) == own_rounding._DRAWS


def test_a_model_that_is_refused_when_moved_has_its_inputs_moved(tmp_path):
    """Here the scales are computed of a constant."""
    nodes = 'scales = Mul(one, one) y = Resize <mode = "linear">(x, , scales)'
    constants = {"one": np.float32([1, 1, 2, 2])}
    model = write(graph(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants), tmp_path)
    inputs = {"x": np.random.default_rng(0).random((1, 3, 4, 4), np.float32)}
    assert len(run_moved(model, inputs)) == own_rounding._DRAWS


def _of_halves(folder: Path) -> tuple[Path, dict[str, np.ndarray], np.ndarray]:
    """A model as converters to float16 write it, inputs, and what it gives unrounded."""
    random = np.random.default_rng(0)
    weight = random.uniform(-1, 1, (16, 8)).astype(np.float16)
    nodes = (
        "h = Cast <to = 10>(x) m = MatMul(h, w) c = Constant <value_float = 1.0>() "
        "one = CastLike(c, m) s = Add(m, one) t = Transpose <perm = [1, 0]>(s) "
        "y = Cast <to = 1>(t)"
    )
    x = random.uniform(-1, 1, (4, 16)).astype(np.float16).astype(np.float32)
    model = graph(nodes, {"x": x.shape}, ["y"], {"w": weight})
    return write(model, folder), {"x": x}, (x @ weight.astype(np.float32) + 1).T


def test_what_halves_of_the_reference_round_is_no_error(tmp_path):
    """It rounds what it stores in half, which we do not where we compute in float."""
    model, inputs, exact = _of_halves(tmp_path)
    expected = run_reference(model, inputs)
    assert np.abs(exact - expected["y"]).max() > 1e-4 * np.ptp(exact)
    assert Reference(model, inputs, expected).judge({"y": exact}, tolerance=1e-4).accepted
    wrong = exact + np.float32(2e-3) * np.ptp(exact)
    assert not Reference(model, inputs, expected).judge({"y": wrong}, tolerance=1e-4).passed


def test_kernels_without_an_operator_are_left_out(tmp_path):
    """XNNPACK has MediaPipe's transposed convolution, LiteRT's plain kernels have not."""
    pytest.importorskip("ai_edge_litert")
    random = np.random.default_rng(2)
    builder = ModelBuilder()
    main = builder.graph()
    x, weights = (random.normal(size=(n, k, k, 3)).astype("f4") for n, k in ((1, 5), (4, 2)))
    held = (weights, np.zeros(4, "f4"))
    operands = [main.add(T(data=x), "x"), *(main.add(T(data=c, is_constant=True)) for c in held)]
    custom = struct.pack("<3i", 2, 2, 2)  # valid, strides
    kind = "Convolution2DTransposeBias"
    main.outputs = main.op(kind, operands, [T(shape=(1, 10, 10, 4))], custom=custom)
    model = tmp_path / "m.tflite"
    model.write_bytes(builder.write())
    inputs = {"x": x}
    expected = run_reference(model, inputs)
    [(name, right)] = expected.items()
    off = {name: right + np.float32(0.1)}
    judged = Reference(model, inputs, expected).judge(off, tolerance=1e-3)
    assert not judged.passed and not judged.tensors[0].accepted_as
