"""A batch may be filled up where no element of it takes part in another, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.compile.pipeline import State
from adrenoc.passes.read.find_batch import Along, batch_free_constants, find_batch
from tests.ir.planning import run_until
from tests.models import graph, write

node = helper.make_node
RANDOM = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def read(path: Path, **shapes: tuple[int, ...]) -> State:
    return run_until("read_graph", path, "adreno", shapes=tuple(shapes.items()))


def found(
    tmp_path: Path,
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    constants: dict[str, np.ndarray],
) -> tuple[list[Along], str]:
    model = graph(nodes, {"x": ("n", *shape[1:])}, ["y"], constants)
    state = read(write(model, tmp_path), x=shape)
    along, refused = find_batch(state.graph, [state.graph.inputs[0]])
    return list(along.values()), refused


ATTENTION = [
    node("MatMul", ["x", "w"], ["q"]),
    node("Reshape", ["q", "split"], ["h"]),
    node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
    node("Transpose", ["h"], ["k"], perm=[0, 2, 3, 1]),
    node("MatMul", ["t", "k"], ["s"]),
    node("Softmax", ["s"], ["p"], axis=-1),
    node("MatMul", ["p", "t"], ["o"]),
    node("Transpose", ["o"], ["b"], perm=[0, 2, 1, 3]),
    node("Reshape", ["b", "rows"], ["r"]),
    node("LayerNormalization", ["r", "g", "g"], ["y"], axis=-1),
]


def test_convolutions_pools_and_a_head(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["b", "", "two"], ["c"], mode="nearest"),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("Flatten", ["d"], ["e"]),
        node("Gemm", ["e", "k"], ["f"]),
        node("Softmax", ["f"], ["y"], axis=1),
    ]
    constants = {
        "w": weight(4, 3, 3, 3),
        "k": weight(4, 5),
        "two": np.array([1, 1, 2, 2], np.float32),
    }
    assert found(tmp_path, nodes, (3, 3, 8, 8), constants) == ([Along(0)], "")


def test_attention_whose_rows_are_flattened_with_the_batch(tmp_path: Path) -> None:
    constants = {"w": weight(8, 8), "split": ints(0, 0, 2, 4), "rows": ints(-1, 8), "g": weight(8)}
    along, refused = found(tmp_path, ATTENTION, (3, 5, 8), constants)
    assert (along, refused) == ([Along(0, 5)], "")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)],
        [node("Softmax", ["x"], ["y"], axis=0)],
        [node("CumSum", ["x", "zero"], ["y"])],
        [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["t", "x"], ["y"])],
        [node("Slice", ["x", "back", "far", "axis", "back"], ["y"])],
        [node("Add", ["x", "rows"], ["y"])],
        [node("Reshape", ["x", "turned"], ["y"])],
        [node("Concat", ["x", "row"], ["y"], axis=0)],
    ],
    ids=lambda nodes: nodes[-1].op_type,
)
def test_what_mixes_is_refused(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    constants = {
        "zero": np.array(0, np.int64),
        "back": ints(-1),
        "far": ints(-99),
        "axis": ints(0),
        "rows": weight(4, 6),
        "row": weight(4, 6),
        "turned": ints(6, 4),
    }
    _, refused = found(tmp_path, nodes, (4, 6), constants)
    assert "batch" in refused


def test_a_constant_that_repeats_along_the_batch_is_free(tmp_path: Path) -> None:
    constants = {"rows": np.repeat(weight(1, 6), 4, axis=0)}
    nodes = [node("Add", ["x", "rows"], ["y"])]
    assert found(tmp_path, nodes, (4, 6), constants) == ([Along(0)], "")


def test_arithmetic_with_the_size_of_the_batch_shows(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Cast", ["n"], ["m"], to=1),
        node("Div", ["x", "m"], ["y"]),
    ]
    model = graph(nodes, {"x": ("n", 6)}, ["y"], {"zero": np.array(0, np.int64)})
    path = write(model, tmp_path)
    small, large = (read(path, x=(size, 6)).graph for size in (2, 4))
    assert batch_free_constants(small, 2) != batch_free_constants(large, 4)
