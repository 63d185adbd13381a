"""Regions of a feature map, as two-stage detectors pool them, against onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.importers import import_model
from adrenoc.importers.onnx.session import open_session
from tests.models import graph, write
from tests.stock_tvm import run_on_cpu

REGIONS = np.array(
    [[3, 4, 40, 50], [10, 10, 70, 60], [0, 0, 79, 63], [-9, 50, 90, 80], [30, 30, 31, 30.5]],
    np.float32,
)
DATA = np.random.default_rng(0).standard_normal((2, 3, 16, 20)).astype(np.float32)
BATCHES = np.array([0, 1, 0, 1, 1], np.int64)


def check(
    tmp_path: Path, model: onnx.ModelProto, feeds: dict[str, np.ndarray], opset: int = 0
) -> None:
    if opset:
        model.opset_import[0].version = opset
    path = write(model, tmp_path)
    pytest.importorskip("onnxruntime")
    session = open_session(path)
    (expected,) = session.run(None, feeds)
    (found,) = run_on_cpu(import_model(path, shapes={}).module, list(feeds.values()))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize(("mode", "samples"), [("avg", 0), ("avg", 2), ("max", 2)])
def test_roi_align_of_a_smaller_map(tmp_path, opset, mode, samples):
    """The half pixel is one of the feature map, not of the image."""
    attrs: dict[str, Any] = {"output_height": 3, "output_width": 4, "spatial_scale": 0.25}
    nodes = [
        helper.make_node(
            "RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=samples, mode=mode, **attrs
        )
    ]
    model = graph(nodes, {"x": DATA.shape, "r": REGIONS.shape}, ["y"], {"b": BATCHES})
    check(tmp_path, model, {"x": DATA, "r": REGIONS}, opset)


def test_largest_of_regions_of_a_smaller_map(tmp_path):
    regions = np.concatenate([BATCHES[:, None], np.clip(REGIONS, 0, 79)], 1).astype(np.float32)
    attrs: dict[str, Any] = {"pooled_shape": [3, 4], "spatial_scale": 0.25}
    nodes = [helper.make_node("MaxRoiPool", ["x", "r"], ["y"], **attrs)]
    model = graph(nodes, {"x": DATA.shape, "r": regions.shape}, ["y"])
    check(tmp_path, model, {"x": DATA, "r": regions})
