"""A batch may be filled up where no element of it takes part in another, and only there."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from adrenoc.compile.pipeline import State
from adrenoc.passes.read.find_batch import Along, batch_free_constants, find_batch
from tests.ir.planning import run_until
from tests.models import graph, parse_nodes, write

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


ATTENTION = parse_nodes(
    "q = MatMul(x, w) h = Reshape(q, split) t = Transpose <perm = [0, 2, 1, 3]>(h) "
    "k = Transpose <perm = [0, 2, 3, 1]>(h) s = MatMul(t, k) p = Softmax <axis = -1>(s) "
    "o = MatMul(p, t) b = Transpose <perm = [0, 2, 1, 3]>(o) r = Reshape(b, rows) "
    "y = LayerNormalization <axis = -1>(r, g, g)"
)


def test_convolutions_pools_and_a_head(tmp_path):
    nodes = parse_nodes(
        "a = Conv <pads = [1, 1, 1, 1]>(x, w) "
        "b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>(a) "
        'c = Resize <mode = "nearest">(b, , two) d = GlobalAveragePool(c) e = Flatten(d) '
        "f = Gemm(e, k) y = Softmax <axis = 1>(f)"
    )
    constants = {
        "w": weight(4, 3, 3, 3),
        "k": weight(4, 5),
        "two": np.array([1, 1, 2, 2], np.float32),
    }
    assert found(tmp_path, nodes, (3, 3, 8, 8), constants) == ([Along(0)], "")


def test_attention_whose_rows_are_flattened_with_the_batch(tmp_path):
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
def test_what_mixes_is_refused(tmp_path, nodes):
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


def test_a_constant_that_repeats_along_the_batch_is_free(tmp_path):
    constants = {"rows": np.repeat(weight(1, 6), 4, axis=0)}
    nodes = [node("Add", ["x", "rows"], ["y"])]
    assert found(tmp_path, nodes, (4, 6), constants) == ([Along(0)], "")


def test_arithmetic_with_the_size_of_the_batch_shows(tmp_path):
    nodes = "s = Shape(x) n = Gather(s, zero) m = Cast <to = 1>(n) y = Div(x, m)"
    model = graph(nodes, {"x": ("n", 6)}, ["y"], {"zero": np.array(0, np.int64)})
    path = write(model, tmp_path)
    small, large = (read(path, x=(size, 6)).graph for size in (2, 4))
    assert batch_free_constants(small, 2) != batch_free_constants(large, 4)
