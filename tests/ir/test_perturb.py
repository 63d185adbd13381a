"""A model with its constants one float step away is the same model, which references take."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from adrenoc.check.own_rounding import perturb_array, perturb_constants, run_moved
from adrenoc.check.reference import run_reference
from tests.tflite.build import GraphBuilder, ModelBuilder, schema
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
