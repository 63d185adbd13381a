"""What work-groups bring to local memory lies as texels, where an image of its size exists."""

import re

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.ir.layout import Memory
from adrenoc.kernels.codegen.build import kernel_sources
from tests.ir.planning import plan
from tests.models import graph


def _model(
    nodes: list[onnx.NodeProto], extent: int, weights: dict[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """Nodes from `r` to `c`, between others that no convolution computes."""
    rng = np.random.default_rng(2)
    channels = 24 if "taps" in weights else 64
    before = helper.make_node("MaxPool", ["x"], ["r"], kernel_shape=[1, 1])
    after = helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[1, 1])
    constants = {n: rng.standard_normal(s).astype(np.float32) for n, s in weights.items()}
    return graph([before, *nodes, after], {"x": [1, channels, extent, extent]}, ["y"], constants)


def _depthwise(source: str, result: str, channels: int = 24) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, "taps"], [result], pads=[1] * 4, group=channels)


MODELS = {
    "depthwise": _model([_depthwise("r", "c")], 16, {"taps": (24, 1, 3, 3)}),
    "separable": _model(
        [_depthwise("r", "d"), helper.make_node("Conv", ["d", "w"], ["c"])],
        112,
        {"taps": (24, 1, 3, 3), "w": (16, 24, 1, 1)},
    ),
    "expansion": _model(
        [helper.make_node("Conv", ["r", "w"], ["d"]), _depthwise("d", "c", 96)],
        56,
        {"taps": (96, 1, 3, 3), "w": (96, 24, 1, 1)},
    ),
    "winograd": _model(
        [helper.make_node("Conv", ["r", "w"], ["c"], pads=[1] * 4)], 56, {"w": (64, 64, 3, 3)}
    ),
}
OPERATORS = {
    "depthwise": "conv2d",
    "separable": "separable_conv2d",
    "expansion": "expand_depthwise_conv2d",
    "winograd": "winograd_conv",
}


@pytest.mark.parametrize("family", MODELS)
def test_they_are_textures(family):
    state = plan(MODELS[family], until="build", device="adreno:660", preset="fp16")
    assert OPERATORS[family] in [node.op for node in state.graph.nodes]
    (text,) = [t for name, t in kernel_sources(state.executable).items() if "conv2d" in name]
    assert not re.search(r"__global (float|half|uint)", text), "no constant lies in a buffer"
    assert re.search(r"read_image[fh]\(in[12]_ptr", text)


@pytest.mark.parametrize("family", MODELS)
def test_each_that_no_image_holds_is_a_decision(family):
    """All images are narrower than rows of constants."""
    state = plan(
        MODELS[family],
        until="build",
        device="adreno:660",
        preset="fp16",
        image2d_max_width_texels=60,
    )
    flat = [p for p in state.program.params.values() if p.spec.memory is Memory.BLOCKED]
    said = [d for d in state.log if d.taken == "weights in a buffer"]
    assert said
    assert len(flat) == len(said)
    assert all(" x " in d.reason for d in said)
