"""What a model's own rounding is worth, by inputs that are moved by little."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adrenoc.check import own_rounding
from adrenoc.check.own_rounding import Reference, perturb_array, perturb_constants, run_moved
from adrenoc.check.reference import run_reference
from adrenoc.check.runtimes import PLAIN
from tests.models import graph, write
from tests.tflite.build import GraphBuilder, ModelBuilder, T, schema
from tests.tflite.cases import F32, f, q, qb, qt, qw, w

CONV = {"dilationHFactor": 1, "dilationWFactor": 1, "strideH": 1, "strideW": 1}
WINDOW = {"filterHeight": 2, "filterWidth": 2, "strideH": 2, "strideW": 2}


def _graph_of(path: Path) -> schema.SubGraphT:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    return model.subgraphs[0]


def _written(made: ModelBuilder, folder: Path) -> tuple[Path, Path]:
    """The file of a model, and that of its moved twin."""
    path, copies = folder / "model.tflite", folder / "moved"
    path.write_bytes(made.finish()[0])
    copies.mkdir()
    return path, perturb_constants(path, copies, np.random.default_rng(1))


def _feeds(graph: GraphBuilder) -> dict[str, np.ndarray]:
    names = [graph.tensors[i].name.decode() for i in graph.inputs]
    return dict(zip(names, graph.feeds, strict=True))


def test_each_float_goes_up_or_down_by_its_last_digit():
    given = np.float32([0.0, 1.0, -3.5, np.inf])
    draws = [perturb_array(given, np.random.default_rng(n)) for n in range(30)]
    signs = {tuple(np.sign(moved[1:3] - given[1:3])) for moved in draws}
    assert signs == {(a, b) for a in (-1, 1) for b in (-1, 1)}
    for moved in draws:
        assert moved[0] == 0
        assert np.isinf(moved[3])
        assert np.all(np.abs(moved[1:3] - given[1:3]) <= np.spacing(np.abs(given[1:3])))


def test_scales_of_a_quantised_file_move_and_equal_ones_stay_equal(tmp_path):
    """LiteRT refuses a pool between two scales, and a sigmoid in other steps than of 1/256."""
    r = np.random.default_rng(0)
    made = ModelBuilder()
    graph = made.graph()
    weight = qw(5, 3, 3, 4, axis=0)(r)
    scales = list(np.float32(0.02) * np.float32(weight.scales))
    bias = replace(qb(5)(r), scales=scales, zeros=[0] * 5)
    inputs = [graph.add(tensor) for tensor in (q(1, 8, 8, 4)(r), weight, bias)]
    (y,) = graph.op("CONV_2D", inputs, [qt(scale=0.05)], "Conv2DOptions", CONV)
    (z,) = graph.op("MAX_POOL_2D", [y], [qt(scale=0.05)], "Pool2DOptions", WINDOW)
    graph.outputs = graph.op("LOGISTIC", [z], [qt(scale=1 / 256, zero=-128)])
    path, copy = _written(made, tmp_path)
    before, after = (
        [np.float32(t.quantization.scale) for t in _graph_of(file).tensors] for file in (path, copy)
    )
    assert before[-1] == after[-1] == 1 / 256
    for old, new in zip(before[:-1], after[:-1], strict=True):
        assert np.all(old != new)
        assert np.allclose(old, new, rtol=3e-7)
    assert after[3] == after[4]
    assert len(run_moved(path, _feeds(graph))) == 6
    run_reference(copy, _feeds(graph))


def test_floats_of_a_file_move(tmp_path):
    r = np.random.default_rng(0)
    made = ModelBuilder()
    graph = made.graph()
    x, weight, bias = graph.add(f(1, 8, 8, 4)(r)), graph.add(w(5, 3, 3, 4)(r)), graph.add(w(5)(r))
    graph.outputs = graph.op("CONV_2D", [x, weight, bias], [F32], "Conv2DOptions", CONV)
    path, copy = _written(made, tmp_path)
    (expected,), (seen,) = (run_reference(p, _feeds(graph)).values() for p in (path, copy))
    assert 0 < np.abs(seen - expected).max() < 1e-5


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
    model = write(
        graph("y = Add(x, one)", {"x": [8]}, ["y"], {"one": np.ones(8, np.float32)}), tmp_path
    )
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
    nodes = 'm = Mul(x, tenth) y = Resize <mode = "linear">(m, , scales)'
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
