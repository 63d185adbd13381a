"""Outputs that are moved copies of a tensor: it stays in float32, as an output itself would."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper
from planning import plan

from tests.models import graph

MOVES = {
    "squeeze": helper.make_node("Squeeze", ["m", "axis"], ["y"]),
    "reshape": helper.make_node("Reshape", ["m", "line"], ["y"]),
    "transpose": helper.make_node("Transpose", ["m"], ["y"], perm=[0, 2, 3, 1]),
    "slice": helper.make_node("Slice", ["m", "axis", "two", "axis"], ["y"]),
}


def _kept(move: NodeProto, *more: NodeProto, outputs: tuple[str, ...] = ("y",)) -> set[str]:
    """The operators whose results stay in float32 of a sigmoid, ten times, moved to an output."""
    weight = np.random.default_rng(1).standard_normal((3, 8, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["s", "ten"], ["m"]),
        move,
        *more,
    ]
    constants = {
        "w": weight[:1] if move.op_type == "Squeeze" else weight,
        "ten": np.array(10, np.float32),
        "axis": np.array([1]),
        "two": np.array([2]),
        "line": np.array([1, -1]),
    }
    state = plan(graph(nodes, {"x": [1, 8, 16, 16]}, outputs, constants), until="keep_float32")
    assert state.graph is not None
    makers = (state.graph.producers.get(name) for name in state.graph.float32_names)
    return {maker.op for maker in makers if maker is not None}


def test_weights_that_are_larger_than_the_output_stay_halves() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Reshape", ["m", "line"], ["y"]),
    ]
    weight = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    constants = {"w": weight, "line": np.array([-1])}
    state = plan(graph(nodes, {"x": [1, 64]}, ["y"], constants), until="keep_float32")
    assert state.graph is not None
    assert not state.graph.float32_names


@pytest.mark.parametrize("name", MOVES)
def test_what_an_output_is_a_copy_of_stays_in_float32(name: str) -> None:
    assert _kept(MOVES[name]) == {"conv2d"}


def test_what_others_read_too_is_stored_as_halves() -> None:
    pool = helper.make_node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2])
    assert not _kept(MOVES["transpose"], pool, outputs=("y", "p"))
