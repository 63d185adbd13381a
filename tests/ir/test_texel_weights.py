"""What work-groups bring to local memory lies as texels, where an image of its size exists."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper
from planning import plan

from adrenoc.codegen.build import kernel_sources
from adrenoc.ir.operand import Memory
from tests.models import graph


def _depthwise() -> onnx.ModelProto:
    """A depthwise convolution, and what keeps another kernel from computing it."""
    taps = np.random.default_rng(2).standard_normal((24, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["c"], pads=[1] * 4, group=24),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    return graph(nodes, {"x": [1, 24, 16, 16]}, ["y"], {"w": taps})


MODELS = {"depthwise": _depthwise()}


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("preset", ["mixed", "fp16", "fp32"])
def test_they_are_textures(family: str, preset: str) -> None:
    state = plan(MODELS[family], until="build", preset=preset)
    (text,) = [t for name, t in kernel_sources(state.executable).items() if "conv2d" in name]
    assert not re.search(r"__global (float|half|uint)", text), "no constant lies in a buffer"
    brought, _ = text.split("barrier(", 1)
    assert re.search(r"read_image[fh]\(in[12]_ptr", brought)


@pytest.mark.parametrize("family", MODELS)
def test_each_that_no_image_holds_is_a_decision(family: str) -> None:
    state = plan(MODELS[family], until="build", image2d_max_width_texels=48)
    assert state.program is not None
    flat = [p for p in state.program.params.values() if p.spec.memory is Memory.BLOCKED]
    said = [d.subject for d in state.log if d.taken == "weights in a buffer"]
    assert said
    assert len(flat) == len(said)
    assert all("64 x " in d.reason for d in state.log if d.taken == "weights in a buffer")
