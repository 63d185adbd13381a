"""Weights as networks have them make nothing large, however many layers there are."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from planning import plan

from tests.models import graph

BLOCKS, CHANNELS = 24, 16


def _ordinary() -> onnx.ModelProto:
    """Depthwise convolutions of 5x5 taps and 1x1 convolutions in turn, without norms.

    An image of one colour grows through them: the taps of some channels have a large sum.
    """
    random = np.random.default_rng(0)
    nodes, constants, last = [], {}, "x"
    for block in range(BLOCKS):
        for kind, shape in (("d", (CHANNELS, 1, 5, 5)), ("p", (CHANNELS, CHANNELS, 1, 1))):
            name = f"{kind}{block}"
            size = np.sqrt(2 / np.prod(shape[1:]))
            constants[f"{name}_w"] = random.normal(0, size, shape).astype(np.float32)
            attrs = {"pads": [2] * 4, "group": CHANNELS} if kind == "d" else {}
            nodes += [
                helper.make_node("Conv", [last, f"{name}_w"], [f"{name}_c"], **attrs),
                helper.make_node("Relu", [f"{name}_c"], [name]),
            ]
            last = name
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"]))
    return graph(nodes, {"x": [1, CHANNELS, 12, 12]}, ["y"], constants)


def test_ordinary_weights_keep_nothing() -> None:
    assert not plan(_ordinary(), until="keep_float32").graph.float32_names


def test_a_thousandfold_of_them_keeps_what_is_after() -> None:
    model = _ordinary()
    for constant in model.graph.initializer:
        if constant.name in ("p3_w", "p4_w", "p5_w"):
            value = onnx.numpy_helper.to_array(constant) * np.float32(1000)
            constant.CopyFrom(onnx.numpy_helper.from_array(value, constant.name))
    exact = plan(model, until="keep_float32").graph.float32_names
    assert "p5" in exact
    assert "p2" not in exact


def test_what_grows_on_beyond_half_is_kept_before_it_ends() -> None:
    """The estimate is of typical data; the largest of an image are a hundred times that."""
    model = _ordinary()
    for constant in model.graph.initializer:
        if constant.name in ("p3_w", "p4_w", "p5_w"):
            value = onnx.numpy_helper.to_array(constant) * np.float32(80)
            constant.CopyFrom(onnx.numpy_helper.from_array(value, constant.name))
    found = plan(model, until="keep_float32")
    exact = found.graph.float32_names
    assert {"p4", "p5"} <= exact
    assert not {"p2", "p3"} & exact
    told = [d for d in found.log.to_json() if "grow on" in d["reason"]]
    assert "p4" in {d["subject"] for d in told}
